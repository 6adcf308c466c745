"""An engine that plays scripts, strictly: one asking more than there are scripts fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rondel.engine import Engine
from rondel.errors import EngineError
from rondel.prompt import Prompt
from rondel.values import (
    Delta,
    ModelFacts,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    user,
)

STARTED = ReplyStarted("m-1", "r-1")
PART = PartStarted(0, Text(""))
FINISHED = ReplyFinished()
ANSWER: list[Delta] = [STARTED, PART, PartDelta(0, "Hello"), PartFinished(0, Text("Hello")), FINISHED]


def prompt() -> Prompt:
    return Prompt.of(user("Hi"))


async def collect(engine: Engine) -> list[Delta]:
    """The reply's deltas; what is only said to whoever waits is left out."""
    return [delta async for delta in engine.stream(prompt()) if not isinstance(delta, Notice)]


async def notices(engine: Engine) -> list[str]:
    return [delta.text async for delta in engine.stream(prompt()) if isinstance(delta, Notice)]


class Stepping:
    def __init__(self, name: str, *scripts: Sequence[Delta | EngineError]) -> None:
        self.name, self.facts = name, ModelFacts(window_tokens=len(name))
        self._scripts = list(scripts)
        self.asked = self.closed = 0
        self.engine_closed = False

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self.asked += 1
        assert self._scripts, f"{self.name} was asked once more than expected"
        try:
            for step in self._scripts.pop(0):
                if isinstance(step, EngineError):
                    raise step
                yield step
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        self.engine_closed = True
