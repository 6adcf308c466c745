"""Fetching weights while a person watches: a bar, and a Ctrl-C that leaves what has come so far."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

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
            return str(await _in_thread(lambda: pull(weights, progress)))
        except asyncio.CancelledError:
            given_up.set()
            tell(f"Stopped; what has come is kept, and `rondel model pull {weights.name}` goes on from there.")
            raise


async def _in_thread(work: Callable[[], Path]) -> Path:
    """Like `asyncio.to_thread`, but nobody waits for the thread when this is cancelled: a place may be silent."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Path] = loop.create_future()

    def settle(path: Path | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif path is not None:
            done.set_result(path)

    def run() -> None:
        path, error = None, None
        try:
            path = work()
        except BaseException as failed:
            error = failed
        with contextlib.suppress(RuntimeError):  # the loop ended first
            loop.call_soon_threadsafe(settle, path, error)

    threading.Thread(target=run, name="rondel-pull", daemon=True).start()
    return await done
