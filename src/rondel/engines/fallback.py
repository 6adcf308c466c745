"""Calls the next engine if one fails before its first token. Knows no network and no clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import cast

import msgspec

from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, Notice, ReplyStarted


class Fallback(Wrapper):
    """Calls engines in order until one answers. Any failure before the first token moves on to the next engine, also a
    refused key or prompt: another provider has another key and may accept the prompt. If all fail, the error of the
    wanted engine is raised, with the others in its notes. `ReplyStarted.model` says which model answered."""

    def __init__(
        self, *engines: Engine, wanted: int = 0, on_failure: Callable[[int, EngineError], None] | None = None
    ) -> None:
        """`wanted` is the index of the engine whose error is raised if all fail. `on_failure` is called with the index
        and the error of each engine that fails."""
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
                yield Notice(f"{failures[-1]} (asking {engine.name} instead)", lost=int(failures[-1].may_have_spent))
            started = ReplyStarted(engine.name)
            shown = False
            deltas = engine.stream(prompt)
            try:
                async for delta in deltas:
                    # ReplyStarted is held back until there is content: another engine may still answer.
                    if not shown and isinstance(delta, ReplyStarted):
                        started = delta if delta.model else msgspec.structs.replace(delta, model=engine.name)
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
                relayed.lost += lost
                return relayed
            except EngineError as error:
                self._note(failures, error)
                lost += error.lost + error.may_have_spent
        wanted = self._wanted_of(failures)
        wanted.lost = lost - wanted.may_have_spent
        raise wanted

    def _note(self, failures: list[EngineError], error: EngineError) -> None:
        if self._on_failure is not None:
            self._on_failure(len(failures), error)
        failures.append(error)

    def _wanted_of(self, failures: list[EngineError]) -> EngineError:
        wanted = failures[self._wanted]
        for engine, error in zip(self._engines, failures, strict=True):
            if error is not wanted:
                wanted.add_note(f"then {engine.name} failed too: {error}")
        return wanted

    async def aclose(self) -> None:
        for engine in self._engines:
            await close(engine)
