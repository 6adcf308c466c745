"""The contract of an engine, which answers a prompt with a stream of deltas, and what an engine may also be able to do.

`Engine` is all that an engine must have. `Closes`, `Relays` and `WithoutModel` are optional; `close` and `dialect_of`
work with any engine. Behaviour is added by wrapping an engine: `Retry(Fallback(a, b))`. Knows no wire format and no
network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from .errors import EngineDenied, EngineError
from .prompt import Prompt
from .values import Delta, ModelFacts, Reply, ReplyBuilder, Usage


@runtime_checkable
class Engine(Protocol):
    """Calls a model.

    `stream` yields ReplyStarted, parts and ReplyFinished (see values.py), or raises an EngineError. Closing the
    iterator closes the request.
    """

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """What the model can do."""
        ...

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        """Answer a prompt with deltas. Raises EngineError if the model cannot be asked."""
        ...


# --- optional abilities -----------------------------------------------------------------------------------------------


@runtime_checkable
class Closes(Protocol):
    """An engine that keeps something open, such as connections or a process. The app closes the engine when it ends."""

    async def aclose(self) -> None: ...


@runtime_checkable
class Relays(Protocol):
    """An engine that can also send a caller's request unchanged, and pass the answer on as bytes."""

    @property
    def dialect(self) -> str:
        """The name of the dialect that it speaks. A wrapper returns "" if the engine inside cannot relay."""
        ...

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        """Send the fields of a caller's body with this engine's model and key, and those of its headers (names in lower
        case) that are meant for the model's server. `path` replaces the dialect's own, for example to count tokens or
        to add a query. Raises an EngineError if no answer begins."""
        ...


@runtime_checkable
class WithoutModel(Protocol):
    """An engine that calls no model, so nothing is charged for it, not even an estimate."""

    without_model: bool


def dialect_of(engine: object) -> str:
    """Return the dialect in which an engine relays; empty if it cannot."""
    return getattr(engine, "dialect", "")


async def ask(engine: Engine, prompt: Prompt) -> Reply:
    """Return an engine's whole reply."""
    builder, deltas = ReplyBuilder(), engine.stream(prompt)
    try:
        async for delta in deltas:
            builder.add(delta)
    finally:
        await close(deltas)
    return builder.reply()


async def close(thing: object) -> None:
    """Close an engine, or a stream of deltas, if it can be closed."""
    if (aclose := getattr(thing, "aclose", None)) is not None:  # isinstance(thing, Closes) takes 20 times as long
        await aclose()


# --- engines around and instead of others -----------------------------------------------------------------------------


class Wrapper:
    """The base of an engine around another one: it has the name and facts of the other, and closes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.name, self.facts = engine, engine.name, engine.facts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine!r})"

    async def aclose(self) -> None:
        await close(self._engine)


class UnavailableEngine:
    """Replaces an engine that could not be created or is not needed, and raises the reason when it is called."""

    def __init__(self, name: str, reason: str, facts: ModelFacts | None = None) -> None:
        self.name, self.reason, self.facts = name, reason, facts or ModelFacts()

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        raise EngineDenied(self.reason)
        yield  # makes this an async generator


class EngineInfo:
    """What an app shows of an engine: its name, facts and dialect, but no way to call it.

    So no call can bypass the ledger: `Ledger.charge` returns the engine behind it, with every call charged.
    """

    def __init__(self, name: str, facts: ModelFacts, dialect: str = "", engine: Engine | None = None) -> None:
        self.name, self.facts, self.dialect, self._engine = name, facts, dialect, engine

    def __repr__(self) -> str:
        return f"EngineInfo({self.name!r})"

    @classmethod
    def of(cls, engine: Engine) -> EngineInfo:
        """Return what an app shows of this engine."""
        return cls(engine.name, engine.facts, dialect_of(engine), engine)


def uncharged(info: EngineInfo) -> Engine:
    """Return the engine behind an info. Only for code that charges its calls or closes it."""
    engine = info._engine  # pyright: ignore[reportPrivateUsage]
    assert engine is not None, f"{info.name} is only known by its facts"
    return engine


# --- answers as bytes -------------------------------------------------------------------------------------------------


class Relayed(Protocol):
    """An answer that is passed on as bytes, to a caller that speaks the engine's own dialect.

    `relay` returns it when the first token has arrived (or the whole body, if the answer does not stream): until then,
    another attempt or another engine can still answer. It must be closed, even if it was not read to its end.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The upstream's headers that the caller may see, with names in lower case."""
        ...

    @property
    def model(self) -> str:
        """The model that answered, by the upstream's name for it; empty if the upstream does not say."""
        ...

    @property
    def usage(self) -> Usage:
        """The usage so far; complete when the answer has ended."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the answer has ended: exactly one terminal event was passed on."""
        ...

    @property
    def failure(self) -> EngineError | None:
        """The error in that terminal event, if the upstream wrote one into its stream."""
        ...

    engine: str
    """The engine that answered, if it is not the one that was asked."""

    lost: tuple[str, ...]
    """The engines of earlier attempts that failed after they may have reached a model, one name per attempt."""

    async def read(self) -> bytes:
        """Return the next whole events as soon as there are any; b"" at the end. Raises an EngineError if the upstream
        breaks off before its answer has ended."""
        ...

    def fail(self, error: EngineError) -> bytes:
        """Return the event that ends the caller's stream with an error, in its own dialect and numbering, after `read`
        has raised. b"" if the answer has already ended."""
        ...

    def close(self) -> None:
        """Close the request, at once if it has not ended."""
