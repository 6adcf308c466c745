"""Callbacks that other people write, sync or async."""

from __future__ import annotations

import inspect
from types import CoroutineType
from typing import Any


def is_async(callback: Any) -> bool:
    """Return whether a callable is declared as a coroutine function or an async generator function."""
    called = callback if inspect.isroutine(callback) or isinstance(callback, type) else type(callback).__call__
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(kind(one) for kind in kinds for one in (callback, called))


def is_awaitable(returned: object) -> bool:
    """Return whether a callback's result must be awaited. Most are coroutines, for which `hasattr` is slow."""
    return type(returned) is CoroutineType or hasattr(returned, "__await__")


def check_returned(what: str, returned: object) -> None:
    """Raise if a callback that nothing waits for returned a coroutine; a decorator may have hidden that it is async."""
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns of it later, far from its cause
        raise TypeError(f"{what} returned a coroutine, and nothing can wait for it here")
