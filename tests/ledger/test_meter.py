"""An engine with a meter around it: however a call ends, it is settled once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from rondel import Agent, App, errors
from rondel.charge import Charge, Scope
from rondel.contracts.ledger import Rule
from rondel.engine import Engine, EngineInfo, dialect_of
from rondel.engines.fallback import Fallback
from rondel.engines.retry import Retry
from rondel.events import SpendingWarned, UsageRecorded
from rondel.ledger.charging import ChargedEngine
from rondel.ledger.ledger import Ledger
from rondel.ledger.prices import Price
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, Scripted, VirtualClock, call, say
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
        self.ledger = Ledger(MemoryStore(clock=self.clock).ledger_store, rules=rules, clock=self.clock)
        self.told: list[Any] = []

    def charge(self, engine: Any, scope: Scope | None = None) -> Any:
        return self.ledger.charge(engine, scope or Scope("chat"), tell=self.told.append)

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


async def test_what_the_upstream_says_is_charged_once():
    desk = Desk()
    engine = desk.charge(Scripted(say("hi", usage=Usage(12, 3, 2, 1, 1)), name="openai-like:gpt"))
    assert await ask(engine) == list(await ask(Scripted(say("hi", usage=Usage(12, 3, 2, 1, 1)))))
    (charge,) = desk.charges
    assert (charge.usage, charge.scope.model, charge.scope.engine) == (
        Usage(12, 3, 2, 1, 1), "gpt", "openai-like:gpt")  # fmt: skip
    assert (engine.name, engine.facts.images) == ("openai-like:gpt", True)


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
async def test_absurd_usage_and_none_at_all_are_estimated(usage: Usage, charged: tuple[int, int, bool]):
    desk = Desk()
    await ask(desk.charge(Scripted(say("hi there", usage=usage))))
    assert [one[1:] for one in desk.spent] == [charged]


async def test_a_call_of_a_tool_counts_as_what_it_says_when_nobody_else_does():
    desk = Desk()
    await ask(desk.charge(Scripted(call("look", text="y" * 100))))
    assert desk.spent == [("test", 100, 29, True)]


async def test_usage_that_is_sent_twice_is_the_last_one():
    desk = Desk()
    steps: list[Delta] = [
        ReplyStarted("m", usage=Usage(10, 1)),
        PartStarted(0, Text("")),
        PartDelta(0, "hi"),
        ReplyFinished("end", Usage(10, 5)),
        ReplyFinished("end", Usage(10, 5)),
    ]
    await ask(desk.charge(Scripted(steps)))
    assert desk.spent == [("m", 10, 5, False)]


async def test_a_stream_that_is_cut_off_is_charged_for_what_came():
    class Breaks:
        name, facts = "scripted:test", Scripted().facts

        async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
            yield ReplyStarted("test", usage=Usage(33, 1))
            yield PartStarted(0, Text(""))
            yield PartDelta(0, "z" * 40)
            raise errors.EngineUnreachable("gone")

    desk = Desk(Rule(tokens=10_000, mode="block"))
    with pytest.raises(errors.EngineUnreachable):
        await ask(desk.charge(Breaks()))
    assert desk.spent == [("test", 33, 10, True)]
    assert await desk.reserved("test") == 0


async def test_a_caller_who_goes_away_pays_for_what_came():
    desk = Desk(Rule(tokens=10_000, mode="block"))
    pause = Pause("so far so good")
    engine = desk.charge(Scripted(pause))
    async with aclosing(engine.stream(PROMPT)) as deltas:
        async for delta in deltas:
            if isinstance(delta, PartDelta):
                break
    assert desk.spent == [("scripted", 100, 4, True)]
    assert await desk.reserved("test") == 0


async def test_a_call_that_fails_before_its_first_token_costs_nothing():
    desk = Desk(Rule(tokens=10_000, mode="block"))
    with pytest.raises(errors.EngineOverloaded):
        await ask(desk.charge(Scripted(errors.EngineOverloaded("full"))))
    assert desk.charges == []
    assert await desk.reserved("test") == 0


async def test_a_retry_and_a_fallback_are_one_call_of_the_model_that_answered():
    desk = Desk(Rule(tokens=10_000, mode="block"))

    async def no_wait(_: float) -> None:
        return

    first = Retry(Scripted(errors.EngineOverloaded("1"), errors.EngineOverloaded("2"), name="a:x"), 2, sleep=no_wait)
    second = Scripted(Reply(assistant("hi"), usage=Usage(5, 5), model="y"), name="b:y")
    engine = desk.charge(Fallback(first, second))
    await ask(engine)
    assert desk.spent == [("y", 5, 5, False)]
    assert await desk.reserved("x") == 0
    assert (await desk.ledger.lifetime_totals()).calls == 1


PRICES = {"a": {"*": Price(1.0, 1.0)}, "b": {"y": Price(1000.0, 1000.0)}}


@pytest.mark.parametrize("rules", [(), (Rule(tokens=10_000, mode="block"), Rule(money=1.0, mode="block"))])
@pytest.mark.parametrize(
    ("name", "says", "engine", "model", "cost"),
    [
        ("b:y", "y", "b:y", "y", 10_000_000),
        ("b:y", "y-2026-01-01", "b:y", "y", 10_000_000),
        ("b:y", "b:y", "b:y", "y", 10_000_000),
        ("b:y", "", "b:y", "y", 10_000_000),
        ("local:small", "local:small", "local:small", "small", 0),
    ],
)
async def test_an_answer_of_a_fallback_is_priced_and_recorded_by_the_engine_that_answered(
    rules: tuple[Rule, ...], name: str, says: str, engine: str, model: str, cost: int
):
    desk = Desk(*rules)
    desk.ledger.prices.configure(PRICES)
    answer = Scripted(Reply(assistant("hi"), usage=Usage(5, 5), model=says), name=name)
    inner = Fallback(Scripted(errors.EngineUnreachable("no"), name="c:z"), Retry(answer))
    await ask(desk.charge(Fallback(Scripted(errors.EngineUnreachable("no"), name="a:x"), inner)))
    (charge,) = desk.charges
    assert (charge.scope.engine, charge.scope.model, charge.cost_nanousd) == (engine, model, cost)
    assert charge.usage == Usage(5, 5)
    assert await desk.reserved("x") == 0


async def test_the_engine_of_a_chain_that_breaks_off_is_charged_for_what_came():
    desk = Desk()
    desk.ledger.prices.configure(PRICES)
    breaks: list[Delta] = [ReplyStarted("y"), PartStarted(0, Text("")), PartDelta(0, "z" * 40)]
    engine = Fallback(Scripted(errors.EngineUnreachable("no"), name="a:x"), Scripted(breaks, name="b:y"))
    await ask(desk.charge(engine))
    (charge,) = desk.charges
    assert (charge.scope.engine, charge.usage.tokens_out, charge.price) == ("b:y", 10, "own price")


async def test_the_price_lists_are_loaded_for_a_fallback_that_needs_them():
    desk = Desk()
    desk.ledger.prices.configure(PRICES)
    answer = Scripted(say("hi", usage=Usage(1_000_000, 0)), name="openai:gpt-4o")
    await ask(desk.charge(Fallback(Scripted(errors.EngineUnreachable("no"), name="a:x"), answer)))
    await desk.ledger.aclose()
    (charge,) = desk.charges
    assert (charge.scope.engine, charge.cost_nanousd) == ("openai:gpt-4o", 2_500_000_000)


async def test_a_limit_of_an_engine_counts_what_it_answered_as_a_fallback():
    desk = Desk(Rule({"engine": "b:y"}, tokens=10, mode="block"))
    answer = Scripted(say("hi", usage=Usage(5, 5)), name="b:y")
    await ask(desk.charge(Fallback(Scripted(errors.EngineUnreachable("no"), name="a:x"), answer)))
    with pytest.raises(errors.TokenLimitError):
        await ask(desk.charge(answer))


async def test_a_limit_is_reached_before_anybody_is_asked():
    desk = Desk(Rule({"model": "test"}, tokens=100, mode="block"))
    engine = Scripted(say("a", usage=Usage(100, 0)))
    await ask(desk.charge(engine))
    with pytest.raises(errors.TokenLimitError):
        await ask(desk.charge(engine))
    assert len(engine.prompts) == 1


async def test_a_rule_that_warns_tells_when_it_is_passed_and_before_each_call_after_that():
    desk = Desk(Rule({"model": "test"}, tokens=10, message="Slow down."))
    engine = desk.charge(Scripted(say("a", usage=Usage(11, 0)), say("b", usage=Usage(1, 0))))
    await ask(engine)
    await ask(engine)
    warned = [event for event in desk.told if isinstance(event, SpendingWarned)]
    assert {event.message for event in warned} == {"Slow down."}
    assert len(warned) == 3  # passed by the first; passed before the second, and still after it


def test_one_meter_is_enough():
    desk = Desk()
    engine = Scripted()
    charged = desk.charge(engine)
    assert desk.charge(charged) is charged
    assert isinstance(desk.charge(EngineInfo.of(engine)), ChargedEngine)
    assert not dialect_of(charged)


# --- relays -----------------------------------------------------------------------------------------------------------


PIECES = b'data: {"choices":[{"delta":{"content":"one"}}]}\n\ndata: {"choices":[{"delta":{"content":"two"}}]}\n\n'


class Answer:
    """A relayed answer of two events."""

    status, headers, model, engine = 200, {"x": "y"}, "gpt-9", ""

    def __init__(self, usage: Usage, *, breaks: bool = False) -> None:
        self._usage, self._breaks, self._reads = usage, breaks, 0
        self.usage, self.finished, self.closed, self.lost = Usage(), False, 0, ()
        self.failure: errors.EngineError | None = None

    async def read(self) -> bytes:
        self._reads += 1
        if self._reads == 1:
            return PIECES
        if self._breaks:
            raise errors.EngineUnreachable("gone")
        self.usage, self.finished = self._usage, True
        return b"data: [DONE]\n\n" if self._reads == 2 else b""

    def fail(self, error: errors.EngineError) -> bytes:
        return f"error: {error}".encode()

    def close(self) -> None:
        self.closed += 1


class Relay(Scripted):
    dialect = "openai-chat"

    def __init__(self, answer: Answer | errors.EngineError, name: str = "openai-like:gpt-9") -> None:
        super().__init__(name=name)
        self.answer = answer

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Any:
        if isinstance(self.answer, errors.EngineError):
            raise self.answer
        return self.answer


class Relays(Relay):
    """Relays several answers, in order."""

    def __init__(self, *answers: Answer | errors.EngineError) -> None:
        super().__init__(answers[0])
        self.answers = list(answers)

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Any:
        self.answer = self.answers.pop(0)
        return await super().relay(fields, headers, path=path)


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


async def test_a_relayed_answer_is_charged_as_the_same_answer_through_the_loop_is():
    desk = Desk(Rule(tokens=10_000, mode="block"))
    answer = Answer(Usage(21, 4))
    engine = desk.charge(Relay(answer), Scope("relay", key="k"))
    assert isinstance(engine, ChargedEngine)
    assert engine.dialect == "openai-chat"
    assert await pass_on(engine) == [PIECES, b"data: [DONE]\n\n"]
    assert desk.spent == [("gpt-9", 21, 4, False)]
    assert (desk.charges[0].scope.kind, desk.charges[0].scope.key, answer.closed) == ("relay", "k", 1)
    assert await desk.reserved(Scope(model="gpt-9")) == 0


@pytest.mark.parametrize(("chunks", "usage"), [(99, Usage(21, 4)), (1, Usage(100, 2, estimated=True))])
async def test_a_relayed_answer_of_a_fallback_is_priced_by_the_engine_that_answered(chunks: int, usage: Usage):
    desk = Desk()
    desk.ledger.prices.configure({"openai-like": {"*": Price(1.0, 1.0)}, "b": {"gpt-9": Price(1000.0, 1000.0)}})
    failing = Relay(errors.EngineUnreachable("no"))
    inner = Fallback(Relay(errors.EngineUnreachable("no"), "c:z"), Retry(Relay(Answer(Usage(21, 4)), "b:gpt-9")))
    await pass_on(desk.charge(Fallback(failing, inner), Scope("relay")), chunks=chunks)
    (charge,) = desk.charges
    assert (charge.scope.engine, charge.scope.model, charge.usage) == ("b:gpt-9", "gpt-9", usage)
    assert charge.cost_nanousd == (usage.tokens_in + usage.tokens_out) * 1_000_000


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_relay_that_is_cut_off_is_charged_for_what_passed(breaks: bool):
    desk = Desk(Rule(tokens=10_000, mode="block"))
    engine = desk.charge(Relay(Answer(Usage(21, 4), breaks=breaks)), Scope("relay"))
    try:
        await pass_on(engine, chunks=1)
    except errors.EngineUnreachable:
        assert breaks
    assert desk.spent == [("gpt-9", 100, 2, True)]
    assert await desk.reserved("gpt-9") == 0


async def test_a_relay_that_nobody_answers_costs_nothing():
    desk = Desk(Rule(tokens=10_000, mode="block"))
    with pytest.raises(errors.EngineOverloaded):
        await pass_on(desk.charge(Relay(errors.EngineOverloaded("full"))))
    assert desk.charges == []
    assert await desk.reserved("gpt-9") == 0


async def test_counting_tokens_spends_none():
    desk = Desk()
    await pass_on(desk.charge(Relay(Answer(Usage())), Scope("count")))
    assert desk.charges == []


async def test_a_relay_past_a_limit_is_refused_before_it_is_sent():
    desk = Desk(Rule({"key": "k"}, tokens=100, mode="block"))
    engine = desk.charge(Relay(Answer(Usage(96, 4))), Scope("relay", key="k"))
    await pass_on(engine)
    with pytest.raises(errors.TokenLimitError, match="The day token limit of 100 for key k has been reached"):
        await engine.relay(FIELDS, {})


# --- calls that nobody answered ---------------------------------------------------------------------------------------


class Hangs:
    """An engine that was asked and has not said anything yet."""

    name, facts = "scripted:test", Scripted().facts

    def __init__(self) -> None:
        self.asked, self.closed = asyncio.Event(), False

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        yield ReplyStarted("test")
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_a_turn_that_is_stopped_before_its_first_token_costs_what_was_reserved():
    """Trust 11: a person who stops a turn early pays for what the model was given."""
    desk, engine = Desk(Rule(tokens=10_000, mode="block")), Hangs()
    app = App(Agent("helper", engine=engine), store=MemoryStore(clock=desk.clock), ledger=desk.ledger)
    async with app:
        conversation = app.conversation()
        sent = await conversation.send("x" * 4_000)
        await engine.asked.wait()
        await conversation.stop()
        await sent.result()
    assert engine.closed
    spent = await desk.ledger.lifetime_totals()
    assert (spent.calls, spent.tokens_in >= 1_000, spent.tokens_out, spent.estimated) == (1, True, 1_024, 1)
    assert await desk.reserved("test") == 0


@pytest.mark.parametrize(
    ("error", "charged"),
    [
        (errors.EngineOverloaded("full"), 0),
        (errors.EngineDenied("no"), 0),
        (errors.PromptRejected("no"), 0),
        (errors.EngineUnreachable("nothing listens"), 0),
        (errors.EngineTimeout("silent"), 100),
        (errors.EngineGarbled("nonsense"), 100),
    ],
)
async def test_a_call_that_may_have_reached_the_model_costs_its_input(error: errors.EngineError, charged: int):
    """Trust 11: only a call that was never sent, or was refused, costs nothing; streamed or relayed."""
    desk = Desk(Rule(tokens=10_000, mode="block"))
    with pytest.raises(type(error)):
        await ask(desk.charge(Scripted(error)))
    with pytest.raises(type(error)):
        await pass_on(desk.charge(Relay(error)))
    assert [one[1] for one in desk.spent] == [charged] * 2 * bool(charged)
    assert await desk.reserved("test") == 0


async def test_attempts_before_the_one_that_answered_cost_the_input_of_the_engine_that_lost_them():
    """Trust 11: a retry or a fallback after a time-out has spent the input once more."""
    desk = Desk(Rule(tokens=10_000, mode="block"))

    async def no_wait(_: float) -> None:
        return

    def spent() -> list[tuple[str, int, int]]:
        charges = [(one.scope.engine, one.usage.tokens_in, one.usage.tokens_out) for one in desk.charges]
        desk.told.clear()
        return charges

    first = Retry(Scripted(errors.EngineTimeout("1"), errors.EngineOverloaded("2"), name="a:x"), 2, sleep=no_wait)
    second = Retry(Scripted(errors.EngineTimeout("3"), name="b:x"), 1)
    answers = Scripted(Reply(assistant("hi"), usage=Usage(90, 5), model="y"), name="c:y")
    await ask(desk.charge(Fallback(first, second, answers)))
    assert spent() == [("a:x", 100, 0), ("b:x", 100, 0), ("c:y", 90, 5)]
    again = Retry(Scripted(errors.EngineTimeout("1"), say("hi", usage=Usage(90, 5)), name="b:x"), 2, sleep=no_wait)
    await ask(desk.charge(Fallback(Scripted(errors.EngineTimeout("1"), name="a:x"), again)))
    assert spent() == [("a:x", 100, 0), ("b:x", 190, 5)]
    late = Scripted(errors.EngineTimeout("2"), name="b:x")
    with pytest.raises(errors.EngineOverloaded):
        await ask(desk.charge(Fallback(Scripted(errors.EngineOverloaded("1"), name="a:x"), late)))
    assert spent() == [("b:x", 100, 0)]

    relays = Retry(Relays(errors.EngineTimeout("1"), Answer(Usage(90, 5))), 2, sleep=no_wait)
    await pass_on(desk.charge(Fallback(Relay(errors.EngineTimeout("0"), "a:x"), relays)))
    assert spent() == [("a:x", 100, 0), (relays.name, 190, 5)]
    failing = Retry(Relays(errors.EngineTimeout("1"), errors.EngineTimeout("2")), 2, sleep=no_wait)
    with pytest.raises(errors.EngineTimeout):
        await pass_on(desk.charge(Fallback(failing, Relay(errors.EngineTimeout("3"), "b:x"))))
    assert spent() == [("b:x", 100, 0), (failing.name, 200, 0)]
    assert await desk.reserved("x") == 0


async def test_a_limit_of_money_counts_what_the_paid_engine_lost_before_a_free_one_answered():
    desk = Desk(Rule(money=0.15, mode="block"))
    desk.ledger.prices.configure({"b": {"y": Price(1000.0, 1000.0)}})  # 100 tokens cost $0.10
    silent = errors.EngineTimeout("silent")
    free = Scripted(say("hi", usage=Usage(100, 5)), say("hi"), name="local:small")
    engine = desk.charge(Fallback(Scripted(silent, silent, name="b:y"), free))
    await ask(engine)
    with pytest.raises(errors.TokenLimitError):
        await ask(engine)
