"""The contract of an engine: something that answers a prompt with a stream of deltas.

Engines are wrapped, never subclassed for advice: `Retry(Fallback(a, b))`. Knows no wire format and no network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, cast, runtime_checkable

import msgspec

from .errors import EngineError
from .prompt import Prompt
from .values import Delta, ModelFacts, Usage


class EngineFace(Protocol):
    """What may be known of an engine without asking it."""

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    @property
    def facts(self) -> ModelFacts: ...


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


class Wrapper:
    """An engine around another one, which it is known by and which it closes."""

    _engine: Engine

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts

    async def aclose(self) -> None:
        if close := getattr(self._engine, "aclose", None):
            await close()


class Sealed:
    """An engine that can be looked at and not asked: whoever asks it goes past the ledger, which unseals it."""

    __slots__ = ("_engine",)

    def __init__(self, engine: EngineFace) -> None:
        self._engine = unsealed(engine)

    def __repr__(self) -> str:
        return f"Sealed({self._engine!r})"

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts

    @property
    def dialect(self) -> str:
        """The dialect that it can relay; empty when it can relay nothing."""
        return getattr(self._engine, "dialect", "")


class Known:
    """What was known of an engine that nobody asks any more."""

    __slots__ = ("facts", "name")

    def __init__(self, engine: EngineFace) -> None:
        self.name, self.facts = engine.name, engine.facts


def unsealed(engine: EngineFace) -> Engine:
    """The engine behind a seal. Only the ledger's meter, and whoever closes an engine, has a reason to call this."""
    if isinstance(engine, Sealed):
        return engine._engine  # pyright: ignore[reportPrivateUsage]
    return cast(Engine, engine)


class Relayed(Protocol):
    """An answer that is passed on as it comes, to a caller who speaks the engine's own dialect.

    It is there when the first token is (or the whole body, when nothing streams): until then another attempt, or
    another engine, could still have answered. Reading gives whole events, never a half one; it raises an EngineError
    when the upstream breaks off before its answer has ended. Whoever has one closes it, however far it was read.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What the caller may see of the upstream's headers, with names in lower case."""
        ...

    @property
    def model(self) -> str:
        """The model that answered, as the upstream calls it; empty where it does not say."""
        ...

    @property
    def usage(self) -> Usage:
        """What is known of it so far; complete when the answer has ended."""
        ...

    @property
    def finished(self) -> bool:
        """The answer has come to its end: exactly one terminal event was passed on."""
        ...

    @property
    def failure(self) -> EngineError | None:
        """The error that was that terminal event, where the upstream wrote one into its stream."""
        ...

    async def read(self) -> bytes:
        """The next events, as soon as there are any; nothing at the end."""
        ...

    def fail(self, error: EngineError) -> bytes:
        """The event that ends the caller's stream with an error, in its own dialect and numbering: for when reading
        raised. Nothing when the answer has ended already."""
        ...

    def close(self) -> None:
        """Close the request, at once when it has not ended."""
        ...


@runtime_checkable
class RelayEngine(Engine, Protocol):
    """An engine that can also pass a caller's request on without understanding all of it."""

    @property
    def dialect(self) -> str:
        """The name of the dialect that it speaks; empty for a wrapper around an engine that can relay nothing."""
        ...

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        """Send the fields of a caller's body with this engine's model and key, and those of its headers, with names in
        lower case, that are meant for the model's server. `path` is another one than the dialect's own, such as that
        for counting tokens, or has a query. Raises an EngineError when no answer begins."""
        ...
