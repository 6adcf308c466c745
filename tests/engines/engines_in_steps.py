"""An engine that plays scripts, strictly: one asking more than there are scripts fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rondel import values
from rondel.engine import Engine
from rondel.errors import EngineError
from rondel.prompt import Prompt

STARTED = values.ReplyStarted("m-1", "r-1")
PART = values.PartStarted(0, values.Text(""))
FINISHED = values.ReplyFinished()
ANSWER: list[values.Delta] = [
    STARTED,
    PART,
    values.PartDelta(0, "Hello"),
    values.PartFinished(0, values.Text("Hello")),
    FINISHED,
]


def prompt() -> Prompt:
    return Prompt.of(values.user("Hi"))


async def collect(engine: Engine) -> list[values.Delta]:
    """The reply's deltas; what is only said to whoever waits is left out."""
    return [delta async for delta in engine.stream(prompt()) if not isinstance(delta, values.Notice)]


async def notices(engine: Engine) -> list[str]:
    return [delta.text async for delta in engine.stream(prompt()) if isinstance(delta, values.Notice)]


class Stepping:
    def __init__(self, name: str, *scripts: Sequence[values.Delta | EngineError]) -> None:
        self.name, self.facts = name, values.ModelFacts(window_tokens=len(name))
        self._scripts = list(scripts)
        self.asked = self.closed = 0
        self.engine_closed = False

    async def stream(self, prompt: Prompt) -> AsyncIterator[values.Delta]:
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
