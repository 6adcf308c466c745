"""The contract of an engine: something that answers a prompt with a stream of deltas.

Engines are wrapped, never subclassed for advice: `Retry(Fallback(a, b))`. Knows no wire format and no network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from .prompt import Prompt
from .values import Delta, ModelFacts


@runtime_checkable
class Engine(Protocol):
    """Ask a model.

    `stream` yields ReplyStarted, parts, ReplyFinished (see values.py) or raises an EngineError. Closing the iterator
    closes the request. An engine that holds something open (a connection, a process) also has `async aclose()`.
    """

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    @property
    def facts(self) -> ModelFacts: ...

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]: ...
