"""Counts what an engine is asked: a reservation before each call, a charge after it, however it ends.

A retry or a fallback inside the engine is the same call. Where the upstream does not say what it spent, that is
estimated. Knows no rule and no store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import msgspec

from ..charge import Counter, Reservation, Scope, Tell
from ..engine import Engine, EngineFace, Relayed, RelayEngine, Wrapper, unsealed
from ..errors import EngineError
from ..growing import Growing
from ..prompt import Prompt
from ..tokens import estimate_tokens, message_tokens, part_tokens, tools_tokens
from ..values import (
    Delta,
    Message,
    PartDelta,
    PartFinished,
    ReplyFinished,
    ReplyStarted,
    Usage,
)

OUT_TOKENS = 1_024
"""What an answer is taken to come to before it is there, when the prompt does not say how long it may be."""
OUT_TOKENS_MAX = 4_096
"""And at most, when it does: few answers are as long as they may be."""
_OUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_IN_FIELDS = ("messages", "input", "system", "instructions", "tools")
COUNT = "count"
"""The kind of a call that only counts tokens: it spends none, and none are guessed."""

_NOTHING = Scope()
_history = Growing(0, lambda total, messages: total + sum(map(message_tokens, messages)))


def meter(engine: EngineFace, counter: Counter, scope: Scope | Callable[[], Scope], tell: Tell | None = None) -> Engine:
    """The engine with a meter around it, which relays when the engine does.

    One that has a meter gets no second one, and one that says that it asks no model gets none.
    """
    inner = unsealed(engine)
    if isinstance(inner, Meter) or getattr(inner, "asks_no_model", False):
        return inner
    made = RelayMeter if hasattr(inner, "relay") and getattr(inner, "dialect", "") else Meter
    return made(inner, counter, scope, tell)


class Meter(Wrapper):
    """An engine whose every call is reserved and settled."""

    def __init__(
        self, engine: Engine, counter: Counter, scope: Scope | Callable[[], Scope], tell: Tell | None = None
    ) -> None:
        self._engine, self._counter, self._scope, self._tell = engine, counter, scope, tell
        self._named: tuple[Scope | None, Scope] = None, _NOTHING

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine!r})"

    def _scope_now(self) -> Scope:
        """What the call is for, with the engine that is asked."""
        scope = self._scope if isinstance(self._scope, Scope) else self._scope()
        given, known = self._named
        if scope is given:
            return known
        named = scope
        if not (scope.engine and scope.model):
            name = self._engine.name
            _, colon, model = name.partition(":")
            named = scope.over(Scope(engine=name, model=model if colon else name))
        self._named = scope, named  # mostly the same from call to call
        return named

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        counter = self._counter
        reservation = await counter.reserve(
            self._scope_now(), tokens=lambda: (_tokens_in(prompt), _tokens_out(prompt)), tell=self._tell
        )
        seen: list[Delta] = []
        see, whole = seen.append, False
        deltas: Any = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                see(delta)
                if type(delta) is ReplyFinished:
                    # Whoever has seen the end has been charged for it, even when nobody reads on.
                    whole = True
                    self._settle(reservation, prompt, seen, delta.usage)
                yield delta
        finally:
            if not whole:
                self._settle(reservation, prompt, seen, None)
            if hasattr(deltas, "aclose"):
                await deltas.aclose()

    def _settle(self, reservation: Reservation, prompt: Prompt, seen: list[Delta], usage: Usage | None) -> None:
        """Charge what was seen of a reply. Without a `usage` it was cut off."""
        started = next((delta for delta in seen if type(delta) is ReplyStarted), ReplyStarted())
        if usage is None:
            said = started.usage or Usage()
            if not (said.tokens_in or said.tokens_out or any(type(d) in (PartDelta, PartFinished) for d in seen)):
                return self._counter.void(reservation)
        else:
            said = usage
        self._counter.settle(
            reservation, said, model=started.model, whole=usage is not None, estimate=lambda: _received(prompt, seen)
        )


class RelayMeter(Meter):
    """A meter around an engine that can also relay."""

    @property
    def dialect(self) -> str:
        return cast(RelayEngine, self._engine).dialect

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        counter, engine = self._counter, cast(RelayEngine, self._engine)
        scope = self._scope_now()
        counts, window = scope.kind == COUNT, self.facts.window_tokens
        reservation = await counter.reserve(
            scope,
            tokens=lambda: (0, 0) if counts else (_tokens_sent(fields, window), _tokens_wanted(fields)),
            tell=self._tell,
        )
        try:
            relayed = await engine.relay(fields, headers, path=path)
        except BaseException:
            counter.void(reservation)
            raise
        sent = None if counts else lambda: _tokens_sent(fields, window)
        return _MeteredAnswer(relayed, counter, reservation, sent)


class _MeteredAnswer:
    """An answer that is passed on, settled when it has ended or is closed."""

    def __init__(
        self, relayed: Relayed, counter: Counter, reservation: Reservation, sent: Callable[[], int] | None
    ) -> None:
        self._relayed, self._counter, self._reservation, self._sent = relayed, counter, reservation, sent
        self._events = 0

    @property
    def status(self) -> int:
        return self._relayed.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._relayed.headers

    @property
    def model(self) -> str:
        return self._relayed.model

    @property
    def usage(self) -> Usage:
        return self._relayed.usage

    @property
    def finished(self) -> bool:
        return self._relayed.finished

    @property
    def failure(self) -> EngineError | None:
        return self._relayed.failure

    def fail(self, error: EngineError) -> bytes:
        return self._relayed.fail(error)

    async def read(self) -> bytes:
        data = await self._relayed.read()
        if data:
            self._events += data.count(b"\n\n") or 1
        else:
            self._settle()
        return data

    def close(self) -> None:
        self._relayed.close()
        self._settle()

    def _settle(self) -> None:
        relayed, sent = self._relayed, self._sent
        # An event of a stream is a token or a little more.
        guess = None if sent is None else lambda: Usage(sent(), self._events)
        whole = relayed.finished and relayed.failure is None
        self._counter.settle(self._reservation, relayed.usage, model=relayed.model, whole=whole, estimate=guess)


# --- estimates --------------------------------------------------------------------------------------------------------


def _tokens_in(prompt: Prompt) -> int:
    instructions: tuple[Message, ...] = prompt.instructions
    return _history.of(prompt.history) + sum(map(message_tokens, instructions)) + tools_tokens(prompt.tools)


def _tokens_out(prompt: Prompt) -> int:
    return min(prompt.options.tokens_max or OUT_TOKENS, OUT_TOKENS_MAX)


def _received(prompt: Prompt, seen: list[Delta]) -> Usage:
    streamed = estimate_tokens("".join(delta.text for delta in seen if isinstance(delta, PartDelta)))
    finished = sum(part_tokens(delta.part) for delta in seen if isinstance(delta, PartFinished))
    return Usage(_tokens_in(prompt), max(streamed, finished))


def _tokens_sent(fields: Mapping[str, msgspec.Raw], window_tokens: int | None) -> int:
    """By size. Pictures stand in a body as text that is far longer than what they cost, so the window is the most."""
    size = sum(len(bytes(fields[name])) for name in _IN_FIELDS if name in fields)
    return min((size + 3) // 4, window_tokens or 1_000_000)


def _tokens_wanted(fields: Mapping[str, msgspec.Raw]) -> int:
    for name in _OUT_FIELDS:
        if name in fields:
            try:
                return min(max(msgspec.json.decode(fields[name], type=int), 0), OUT_TOKENS_MAX)
            except msgspec.DecodeError:
                break
    return OUT_TOKENS
