"""Calls the next engine if one fails before its first token. Knows no network and no clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar, cast

import msgspec

from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError
from ..prompt import Prompt
from ..text.masking import mask
from ..text.printable import one_line
from ..values import Delta, Notice, ReplyStarted

log = logging.getLogger("rondel.engines.fallback")

E = TypeVar("E", bound=EngineError)

REASON_CHARS_MAX = 600
MASKED_CHARS_MAX = 2_000  # of an error; a secret that this limit cuts in two is not shown


class Fallback(Wrapper):
    """Calls engines in order until one answers. Any failure before the first token moves on to the next engine, even a
    refused key or prompt: another provider has another key and may accept the prompt. If all fail, the first error is
    raised, and its message says why each of them failed. Each failure is logged. `ReplyStarted.engine` names the engine
    that answered, if it is not the first one."""

    def __init__(
        self,
        *engines: Engine,
        wanted: int | None = None,
        on_failure: Callable[[int, EngineError], None] | None = None,
    ) -> None:
        """`wanted` is the index of an engine whose error is raised unchanged if all fail, for a caller who should see
        nothing of the others. `on_failure` is called with the index and the error of each engine that fails."""
        if not engines:
            raise ValueError("Fallback() has no engine; pass at least one")
        super().__init__(engines[0])
        self._engines, self._wanted, self._on_failure = engines, wanted, on_failure

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self._engines))})"

    @property
    def dialect(self) -> str:
        """The dialect of all engines; empty if they differ, because a caller's bytes have only one."""
        dialects = {dialect_of(engine) for engine in self._engines}
        return dialects.pop() if len(dialects) == 1 else ""

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        failures: list[EngineError] = []
        reasons: list[str] = []
        lost: tuple[str, ...] = ()
        for engine in self._engines:
            if reasons:
                yield Notice(f"{reasons[-1]} (asking {engine.name} instead)", lost=lost)
            started = ReplyStarted(engine=self._answering(engine))
            shown = False
            deltas = engine.stream(prompt)
            try:
                async for delta in deltas:
                    # ReplyStarted is held back until there is content: another engine may still answer.
                    if not shown and isinstance(delta, ReplyStarted):
                        started = msgspec.structs.replace(delta, engine=self._answering(engine, delta.engine))
                        continue
                    if not shown and not isinstance(delta, Notice):
                        shown = True
                        yield started
                    yield delta
                return
            except EngineError as error:
                if shown:
                    raise
                failures.append(error)
                reasons.append(self._reason(failures))
                lost = error.attempts_of(engine.name)
            finally:
                await close(deltas)
        raise self._failed(failures, reasons, lost)  # notices have reported what was lost before

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        failures: list[EngineError] = []
        reasons: list[str] = []
        lost: tuple[str, ...] = ()
        for engine in self._engines:
            try:
                relayed = await cast(Relays, engine).relay(fields, headers, path=path)
                relayed.engine = self._answering(engine, relayed.engine)
                relayed.lost = lost + relayed.lost
                return relayed
            except EngineError as error:
                failures.append(error)
                reasons.append(self._reason(failures))
                lost += error.attempts_of(engine.name)
        raise self._failed(failures, reasons, lost)

    def _answering(self, engine: Engine, inner: str = "") -> str:
        """Return which engine answers, if it is not the first one. `inner` is one of the engine's own fallbacks."""
        name = inner or engine.name
        return "" if name == self.name else name

    def _reason(self, failures: list[EngineError]) -> str:
        """Report the last failure, and return why it failed and which engine is asked next."""
        error, asked = failures[-1], len(failures)
        if self._on_failure is not None:
            self._on_failure(asked - 1, error)
        reason = one_line(mask(str(error)[:MASKED_CHARS_MAX]), REASON_CHARS_MAX)
        failed = f"{self._engines[asked - 1].name} failed: {reason or type(error).__name__}"
        is_last = asked == len(self._engines)
        log.warning("%s%s", failed, "" if is_last else f" (asking {self._engines[asked].name} instead)")
        return failed

    def _failed(self, failures: list[EngineError], reasons: list[str], lost: tuple[str, ...]) -> EngineError:
        """Return the error to raise. `lost` is what the engines may have spent that was not reported yet."""
        error = _copied(failures[self._wanted or 0])
        if self._wanted is None and len(failures) > 1:
            error.args = ("; then ".join(reasons),)
        error.may_have_spent, error.lost = False, lost
        return error

    async def aclose(self) -> None:
        for engine in self._engines:
            await close(engine)


def _copied(error: E) -> E:
    """Copy an error: an engine may raise the same one again. Its class may have a constructor of its own."""
    copied = type(error).__new__(type(error))
    copied.__dict__.update(error.__dict__)
    copied.args, copied.__cause__ = error.args, error.__cause__ or error
    return copied
