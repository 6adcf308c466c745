"""Signals of the operating system, for programs that end in their own way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator


@contextlib.contextmanager
def signals(handler: Callable[[int], None], *names: str) -> Generator[None]:
    """Call the handler with each of these signals (`SIGINT`), where the system has them."""
    loop, taken = asyncio.get_running_loop(), list[int]()
    for name in names:
        with contextlib.suppress(AttributeError, NotImplementedError, ValueError, RuntimeError):  # Windows, threads
            number: int = getattr(signal, name)
            loop.add_signal_handler(number, handler, number)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
