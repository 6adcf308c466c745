"""Asks the next engine when one fails before its first token. Knows no network, no clock, and no kind of engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from ..engine import Engine, Relayed, RelayEngine
from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, ModelFacts, Notice, ReplyStarted


class Fallback:
    """Engines, tried in order.

    Any failure before the first token moves on, a refused key and a refused prompt too: another provider has another
    key and another opinion. When all fail, the first error is raised, because it belongs to the engine that was wanted;
    its notes name the others. `ReplyStarted.model` says which model answered.
    """

    def __init__(self, *engines: Engine) -> None:
        if not engines:
            raise ValueError("Fallback() has no engine; give it at least one")
        self._engines = engines

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self._engines))})"

    @property
    def name(self) -> str:
        return self._engines[0].name

    @property
    def facts(self) -> ModelFacts:
        return self._engines[0].facts

    @property
    def dialect(self) -> str:
        """The one that all of them speak; where they differ, a caller's bytes cannot go to any of them."""
        dialects = {getattr(engine, "dialect", "") for engine in self._engines}
        return dialects.pop() if len(dialects) == 1 else ""

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        failures: list[EngineError] = []
        for engine in self._engines:
            if failures:
                yield Notice(f"{failures[-1]} (asking {engine.name} instead)")
            started = ReplyStarted(engine.name)
            shown = False
            deltas: Any = engine.stream(prompt)
            try:
                async for delta in deltas:
                    # A reply that has only started is held back: another engine may still be the one that answers.
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
                failures.append(error)
            finally:
                if hasattr(deltas, "aclose"):
                    await deltas.aclose()
        raise self._first_of(failures)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        failures: list[EngineError] = []
        for engine in self._engines:
            try:
                return await cast(RelayEngine, engine).relay(fields, headers, path=path)
            except EngineError as error:
                failures.append(error)
        raise self._first_of(failures)

    def _first_of(self, failures: list[EngineError]) -> EngineError:
        first, *others = failures
        for engine, error in zip(self._engines[1:], others, strict=True):
            first.add_note(f"then {engine.name} failed too: {error}")
        return first

    async def aclose(self) -> None:
        for engine in self._engines:
            close = getattr(engine, "aclose", None)
            if close is not None:
                await close()
