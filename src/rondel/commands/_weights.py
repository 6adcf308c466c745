"""Fetching weights while a person watches: a bar, and a Ctrl-C that leaves what has come so far."""

from __future__ import annotations

import asyncio
import sys
import threading

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..weights import Weights, pull
from ._output import tell


class _GivenUp(Exception):
    """The person does not want to wait; raised in the thread that fetches, at its next step."""


async def pull_with_bar(weights: Weights) -> str:
    """Fetch the weights and say where they are. Cancelling it ends the fetch and keeps what has come."""
    given_up = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    if not sys.stderr.isatty():
        tell(f"Fetching {weights.title} ({weights.size_bytes / 1e6:.0f} MB) ...")
    with bar:
        task = bar.add_task(weights.title, total=weights.size_bytes)

        def progress(done: int, total: int, what: str) -> None:
            if given_up.is_set():
                raise _GivenUp
            bar.update(task, completed=done, total=total, description=f"{weights.title}: {what}")

        try:
            return str(await asyncio.to_thread(pull, weights, progress))
        except asyncio.CancelledError:
            given_up.set()
            tell(f"Stopped; what has come is kept, and `rondel model pull {weights.name}` goes on from there.")
            raise
