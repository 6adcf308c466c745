"""The terminal as a device: its colours and its signals. Knows no chat."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Generator
from typing import IO

from rich.console import Console


def console_for(sheet: IO[str], target: IO[str], *, interactive: bool) -> Console:
    """A console that writes to a sheet of paper, in the colours of the terminal that will show it."""
    colours = Console(file=target).color_system if interactive and not os.environ.get("NO_COLOR") else None
    return Console(
        file=sheet,
        force_terminal=interactive,
        color_system=colours,  # type: ignore[arg-type]
        no_color=colours is None,
        width=shutil.get_terminal_size().columns,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


@contextlib.contextmanager
def signals(handler: Callable[[int], None]) -> Generator[None]:
    """Call the handler with SIGINT and SIGTERM, where the system has them."""
    loop = asyncio.get_running_loop()
    taken: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, handler, number)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
