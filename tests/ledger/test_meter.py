"""An engine with a meter around it: however a call ends, it is settled once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from rondel.charge import Charge, Rule, Scope
from rondel.clock import VirtualClock
from rondel.engine import Engine, Sealed
from rondel.engines.fallback import Fallback
from rondel.engines.meter import Meter, RelayMeter
from rondel.engines.retry import Retry
from rondel.errors import EngineError, EngineOverloaded, EngineUnreachable, TokenLimitError
from rondel.events import SpendingWarned, UsageRecorded
from rondel.ledger import Ledger
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, Scripted, call, say
from rondel.values import (
    Delta,
    PartDelta,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Usage,
    assistant,
    user,
)

PROMPT = Prompt.of(user("x" * 400))


class Desk:
    """A ledger in memory, and what was told of it."""

    def __init__(self, *rules: Rule) -> None:
        self.clock = VirtualClock()
        self.ledger = Ledger(MemoryStore(clock=self.clock).books, rules=rules, clock=self.clock)
        self.told: list[Any] = []

    def meter(self, engine: Any, scope: Scope | None = None) -> Any:
        return self.ledger.meter(engine, scope or Scope("chat"), tell=self.told.append)

    @property
    def charges(self) -> list[Charge]:
        return [event.charge for event in self.told if isinstance(event, UsageRecorded)]

    @property
    def spent(self) -> list[tuple[str, int, int, bool]]:
        return [(c.scope.model, c.usage.tokens_in, c.usage.tokens_out, c.usage.estimated) for c in self.charges]

    async def reserved(self, scope: Scope | str) -> int:
        return sum(state.balance.reserved_tokens for state in await self.ledger.limit_state(scope))


async def ask(engine: Engine, prompt: Prompt = PROMPT) -> list[Delta]:
    return [delta async for delta in engine.stream(prompt)]


def test_what_the_upstream_says_is_charged_once():
    async def main() -> None:
        desk = Desk()
        engine = desk.meter(Scripted(say("hi", usage=Usage(12, 3, 2, 1, 1)), name="openai-like:gpt"))
        assert await ask(engine) == list(await ask(Scripted(say("hi", usage=Usage(12, 3, 2, 1, 1)))))
        (charge,) = desk.charges
        assert (charge.usage, charge.scope.model, charge.scope.engine) == (
            Usage(12, 3, 2, 1, 1), "gpt", "openai-like:gpt")  # fmt: skip
        assert (engine.name, engine.facts.images) == ("openai-like:gpt", True)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (Usage(), (100, 2, True)),
        (Usage(-5, -5), (100, 2, True)),
        (Usage(10**12, 5), (100, 5, True)),
        (Usage(5, 10**12), (5, 2, True)),
        (Usage(7, 0), (7, 0, False)),
        (Usage(0, 9), (0, 9, False)),
    ],
)
def test_absurd_usage_and_none_at_all_are_estimated(usage: Usage, charged: tuple[int, int, bool]):
    async def main() -> None:
        desk = Desk()
        await ask(desk.meter(Scripted(say("hi there", usage=usage))))
        assert [one[1:] for one in desk.spent] == [charged]

    asyncio.run(main())


def test_a_call_of_a_tool_counts_as_what_it_says_when_nobody_else_does():
    async def main() -> None:
        desk = Desk()
        await ask(desk.meter(Scripted(call("look", text="y" * 100))))
        assert desk.spent == [("test", 100, 29, True)]

    asyncio.run(main())


def test_usage_that_is_sent_twice_is_the_last_one():
    async def main() -> None:
        desk = Desk()
        steps: list[Delta] = [
            ReplyStarted("m", usage=Usage(10, 1)),
            PartStarted(0, Text("")),
            PartDelta(0, "hi"),
            ReplyFinished("end", Usage(10, 5)),
            ReplyFinished("end", Usage(10, 5)),
        ]
        await ask(desk.meter(Scripted(steps)))
        assert desk.spent == [("m", 10, 5, False)]

    asyncio.run(main())


def test_a_stream_that_is_cut_off_is_charged_for_what_came():
    class Breaks:
        name, facts = "scripted:test", Scripted().facts

        async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
            yield ReplyStarted("test", usage=Usage(33, 1))
            yield PartStarted(0, Text(""))
            yield PartDelta(0, "z" * 40)
            raise EngineUnreachable("gone")

    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        with pytest.raises(EngineUnreachable):
            await ask(desk.meter(Breaks()))
        assert desk.spent == [("test", 33, 10, True)]
        assert await desk.reserved("test") == 0

    asyncio.run(main())


def test_a_caller_who_goes_away_pays_for_what_came():
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        pause = Pause("so far so good")
        engine = desk.meter(Scripted(pause))
        async with aclosing(engine.stream(PROMPT)) as deltas:
            async for delta in deltas:
                if isinstance(delta, PartDelta):
                    break
        assert desk.spent == [("scripted", 100, 4, True)]
        assert await desk.reserved("test") == 0

    asyncio.run(main())


def test_a_call_that_fails_before_its_first_token_costs_nothing():
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        with pytest.raises(EngineOverloaded):
            await ask(desk.meter(Scripted(EngineOverloaded("full"))))
        assert desk.charges == []
        assert await desk.reserved("test") == 0

    asyncio.run(main())


def test_a_retry_and_a_fallback_are_one_call_of_the_model_that_answered():
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))

        async def no_wait(_: float) -> None:
            return

        first = Retry(Scripted(EngineOverloaded("1"), EngineOverloaded("2"), name="a:x"), 2, sleep=no_wait)
        engine = desk.meter(Fallback(first, Scripted(Reply(assistant("hi"), usage=Usage(5, 5), model="y"), name="b:y")))
        await ask(engine)
        assert desk.spent == [("y", 5, 5, False)]
        assert await desk.reserved("x") == 0
        assert (await desk.ledger.lifetime_totals()).calls == 1

    asyncio.run(main())


def test_a_limit_is_reached_before_anybody_is_asked():
    async def main() -> None:
        desk = Desk(Rule({"model": "test"}, tokens=10, mode="block"))
        engine = Scripted(say("a", usage=Usage(10, 0)))
        await ask(desk.meter(engine))
        with pytest.raises(TokenLimitError):
            await ask(desk.meter(engine))
        assert len(engine.prompts) == 1

    asyncio.run(main())


def test_a_rule_that_warns_tells_when_it_is_passed_and_before_each_call_after_that():
    async def main() -> None:
        desk = Desk(Rule({"model": "test"}, tokens=10, message="Slow down."))
        engine = desk.meter(Scripted(say("a", usage=Usage(11, 0)), say("b", usage=Usage(1, 0))))
        await ask(engine)
        await ask(engine)
        warned = [event for event in desk.told if isinstance(event, SpendingWarned)]
        assert {event.message for event in warned} == {"Slow down."}
        assert len(warned) == 3  # passed by the first; passed before the second, and still after it

    asyncio.run(main())


def test_one_meter_is_enough():
    desk = Desk()
    engine = Scripted()
    metered = desk.meter(engine)
    assert desk.meter(metered) is metered
    assert isinstance(desk.meter(Sealed(engine)), Meter)
    assert not hasattr(metered, "relay")


# --- relays -----------------------------------------------------------------------------------------------------------


class Answer:
    """A relayed answer of two events."""

    status, headers, model = 200, {"x": "y"}, "gpt-9"

    def __init__(self, usage: Usage, *, breaks: bool = False) -> None:
        self._usage, self._breaks, self._reads = usage, breaks, 0
        self.usage, self.finished, self.closed = Usage(), False, 0
        self.failure: EngineError | None = None

    async def read(self) -> bytes:
        self._reads += 1
        if self._reads == 1:
            return b"data: 1\n\ndata: 2\n\n"
        if self._breaks:
            raise EngineUnreachable("gone")
        self.usage, self.finished = self._usage, True
        return b"data: [DONE]\n\n" if self._reads == 2 else b""

    def fail(self, error: EngineError) -> bytes:
        return f"error: {error}".encode()

    def close(self) -> None:
        self.closed += 1


class Relay(Scripted):
    dialect = "openai-chat"

    def __init__(self, answer: Answer | EngineError) -> None:
        super().__init__(name="openai-like:gpt-9")
        self.answer = answer

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Any:
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


FIELDS = {"messages": msgspec.Raw(b"x" * 400), "max_tokens": msgspec.Raw(b"50")}


async def pass_on(engine: Any, *, chunks: int = 99) -> list[bytes]:
    relayed = await engine.relay(FIELDS, {})
    got: list[bytes] = []
    try:
        while len(got) < chunks and (data := await relayed.read()):
            got.append(data)
    finally:
        relayed.close()
    return got


def test_a_relayed_answer_is_charged_as_the_same_answer_through_the_loop_is():
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        answer = Answer(Usage(21, 4))
        engine = desk.meter(Relay(answer), Scope("relay", key="k"))
        assert isinstance(engine, RelayMeter)
        assert engine.dialect == "openai-chat"
        assert await pass_on(engine) == [b"data: 1\n\ndata: 2\n\n", b"data: [DONE]\n\n"]
        assert desk.spent == [("gpt-9", 21, 4, False)]
        assert (desk.charges[0].scope.kind, desk.charges[0].scope.key, answer.closed) == ("relay", "k", 1)
        assert await desk.reserved(Scope(model="gpt-9")) == 0

    asyncio.run(main())


@pytest.mark.parametrize("breaks", [True, False])
def test_a_relay_that_is_cut_off_is_charged_for_what_passed(breaks: bool):
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        engine = desk.meter(Relay(Answer(Usage(21, 4), breaks=breaks)), Scope("relay"))
        try:
            await pass_on(engine, chunks=1)
        except EngineUnreachable:
            assert breaks
        assert desk.spent == [("gpt-9", 100, 2, True)]
        assert await desk.reserved("gpt-9") == 0

    asyncio.run(main())


def test_a_relay_that_nobody_answers_costs_nothing():
    async def main() -> None:
        desk = Desk(Rule(tokens=10_000, mode="block"))
        with pytest.raises(EngineOverloaded):
            await pass_on(desk.meter(Relay(EngineOverloaded("full"))))
        assert desk.charges == []
        assert await desk.reserved("gpt-9") == 0

    asyncio.run(main())


def test_counting_tokens_spends_none():
    async def main() -> None:
        desk = Desk()
        await pass_on(desk.meter(Relay(Answer(Usage())), Scope("count")))
        assert desk.charges == []

    asyncio.run(main())


def test_a_relay_past_a_limit_is_refused_before_it_is_sent():
    async def main() -> None:
        desk = Desk(Rule({"key": "k"}, tokens=25, mode="block"))
        engine = desk.meter(Relay(Answer(Usage(21, 4))), Scope("relay", key="k"))
        await pass_on(engine)
        with pytest.raises(TokenLimitError, match="The day token limit of 25 for key k has been reached"):
            await engine.relay(FIELDS, {})

    asyncio.run(main())
