"""Downloads weights while a person watches: a progress bar, and a Ctrl-C that keeps the partial download."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..engines.local.weights import Weights, path_of, pull
from ..surfaces.terminal.console import progress_bar
from ._output import console, tell


async def pull_with_bar(weights: Weights) -> str:
    """Download the weights and return their path. Cancelling it keeps the partial download."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    if not sys.stderr.isatty():
        tell(f"Downloading {weights.title} ({weights.size_bytes / 1e6:.0f} MB) ...")
    try:
        with progress_bar(console(sys.stderr), *columns, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(weights.title, total=weights.size_bytes)
            async with aclosing(pull(weights)) as steps:
                async for done, total, what in steps:
                    bar.update(task, completed=done, total=total, description=f"{weights.title}: {what}")
    except asyncio.CancelledError:
        tell(f"Partial download kept; run `rondel model pull {weights.name}` to continue.")
        raise
    return str(path_of(weights))
