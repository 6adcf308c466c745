"""Calls the next engine if one fails before its first token. Knows no network and no clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from copy import copy
from typing import cast

import msgspec

from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError
from ..prompt import Prompt
from ..text.masking import mask
from ..text.printable import one_line
from ..values import Delta, Notice, ReplyStarted

log = logging.getLogger("rondel.engines.fallback")

REASON_CHARS_MAX = 600
MASKED_CHARS_MAX = 20_000  # of an error: what the end of this cuts in two is not shown


class Fallback(Wrapper):
    """Calls engines in order until one answers. Any failure before the first token moves on to the next engine, also a
    refused key or prompt: another provider has another key and may accept the prompt. If all fail, the first error is
    raised, and its message says why each of them failed. Each failure is logged. `ReplyStarted.engine` names the
    engine that answered, if it is not the first one."""

    def __init__(
        self,
        *engines: Engine,
        wanted: int | None = None,
        on_failure: Callable[[int, EngineError], None] | None = None,
    ) -> None:
        """`wanted` is the index of an engine whose error is raised as it is if all fail, for a caller who should read
        nothing of the others. `on_failure` is called with the index and the error of each engine that fails."""
        if not engines:
            raise ValueError("Fallback() has no engine; give it at least one")
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
        for engine in self._engines:
            if failures:
                yield Notice(self._told(failures), lost=int(failures[-1].may_have_spent))
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
                self._note(failures, error)
            finally:
                await close(deltas)
        wanted = self._wanted_of(failures)
        # The notices have reported all failures but the last one.
        wanted.may_have_spent = failures[-1].may_have_spent
        raise wanted

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        failures: list[EngineError] = []
        lost = 0
        for engine in self._engines:
            try:
                relayed = await cast(Relays, engine).relay(fields, headers, path=path)
                relayed.engine = self._answering(engine, relayed.engine)
                relayed.lost += lost
                return relayed
            except EngineError as error:
                self._note(failures, error)
                lost += error.lost + error.may_have_spent
        wanted = self._wanted_of(failures)
        wanted.lost = lost - wanted.may_have_spent
        raise wanted

    def _answering(self, engine: Engine, inner: str = "") -> str:
        """Return which engine answers, if it is not the first one. `inner` is one of the engine's own fallbacks."""
        name = inner or engine.name
        return "" if name == self.name else name

    def _note(self, failures: list[EngineError], error: EngineError) -> None:
        if self._on_failure is not None:
            self._on_failure(len(failures), error)
        failures.append(error)
        log.warning("%s", self._told(failures))

    def _told(self, failures: list[EngineError]) -> str:
        """Return why the last engine failed, and which one is asked next."""
        asked = len(failures)
        failed = _failed(self._engines[asked - 1], failures[-1])
        return f"{failed} (asking {self._engines[asked].name} instead)" if asked < len(self._engines) else failed

    def _wanted_of(self, failures: list[EngineError]) -> EngineError:
        if self._wanted is not None:
            return failures[self._wanted]
        if len(failures) == 1:
            return failures[0]
        error = copy(failures[0])  # an engine may raise the same one again
        error.args = ("; then ".join(map(_failed, self._engines, failures)),)
        return error

    async def aclose(self) -> None:
        for engine in self._engines:
            await close(engine)


def _failed(engine: Engine, error: EngineError) -> str:
    """Return `NAME failed: REASON` on one line, for people and for the log."""
    reason = one_line(mask(str(error)[:MASKED_CHARS_MAX]), REASON_CHARS_MAX)
    return f"{engine.name} failed: {reason or type(error).__name__}"
