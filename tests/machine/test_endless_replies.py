"""Engines that never stop talking: limits hold while a reply streams, whatever kind of engine it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rondel import Agent, App, Limits, Options, tool, values
from rondel.charge import Charge
from rondel.contracts.ledger import Rule
from rondel.engines.fallback import Fallback
from rondel.engines.retry import Retry
from rondel.engines.transform import Transformed, make_transform
from rondel.errors import ReplyTooLong
from rondel.events import LimitHit, RoundFinished
from rondel.ledger.ledger import Ledger
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, call
from tests.helpers import events_of

DELTAS_MAX = 3_000_000  # So that a limit that does not hold fails a test, and does not fill the memory


class Endless:
    """Says the same for ever, and counts how often it did."""

    name, facts = "scripted:test", values.ModelFacts()

    def __init__(self, part: values.Part | None, *deltas: values.Delta) -> None:
        self.part, self.deltas = part, deltas
        self.said, self.closed = 0, False

    async def stream(self, prompt: Prompt) -> AsyncIterator[values.Delta]:
        yield values.ReplyStarted("test")
        if self.part is not None:
            yield values.PartStarted(0, self.part)
        try:
            while self.said < DELTAS_MAX:
                for delta in self.deltas:
                    self.said += 1
                    yield delta
                if not self.said % 1_000:
                    await asyncio.sleep(0)
        finally:
            self.closed = True


WORD = values.PartDelta(0, "word ")
KINDS: dict[str, Callable[[], Endless]] = {
    "text": lambda: Endless(values.Text(""), WORD),
    "thinking": lambda: Endless(values.Thinking(""), WORD),
    "arguments": lambda: Endless(values.ToolCall("c", "look"), WORD),
    "empty deltas": lambda: Endless(values.Text(""), values.PartDelta(0, "")),
    "empty parts": lambda: Endless(
        None, values.PartStarted(0, values.Text("")), values.PartFinished(0, values.Text(""))
    ),
    "calls": lambda: Endless(
        None, values.PartStarted(0, values.ToolCall("", "x")), values.PartFinished(0, values.ToolCall("", "x"))
    ),
    "notices": lambda: Endless(None, values.Notice("still here")),
    "blocks": lambda: Endless(None, values.PartFinished(0, values.Foreign({"x": {"data": "y" * 1_000}}))),
}


def ended(engine: Any, limits: Limits, *rules: Rule, **settings: Any) -> tuple[str, str, list[Any], list[Charge]]:
    """The limit that ended a turn, what was kept of its reply, the events, and the charges: a watcher that falls behind
    misses live events."""

    async def main() -> tuple[str, str, list[Any], list[Charge]]:
        store = MemoryStore()
        agent = Agent("talker", engine=engine, limits=limits, **settings)
        async with App(agent, store=store, ledger=Ledger(store.ledger_store, rules=rules)) as app:
            events = await events_of(await app.conversation().send("go"))
        hit = [event.name for event in events if isinstance(event, LimitHit)]
        kept = "".join(event.message.text for event in events if isinstance(event, RoundFinished))
        charges = (await store.ledger_store.charges(0, 100_000, "", 100)).charges
        return hit[0] if hit else "", kept, events, list(charges)

    return asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_without_an_end_is_cut_off(kind: str):
    """Trust 16: text, thinking, arguments, and any number of things that say nothing."""
    engine = KINDS[kind]()
    limit, kept, _, charges = ended(engine, Limits(reply_tokens=5_000, reply_bytes=2_000_000))
    assert limit == ("limits.reply_bytes" if kind == "blocks" else "limits.reply_tokens")
    assert engine.closed
    assert engine.said < (1_000 if kind in ("empty parts", "calls") else 20_000)  # a part costs more than a delta
    (charge,) = charges
    assert charge.usage.estimated
    if kind == "text":
        assert kept.startswith("word word")
        assert 5_000 < len(kept) / 4 < 5_010
        assert charge.usage.tokens_out == -(-len(kept) // 4)


def test_a_tree_of_agents_has_its_tokens_while_a_reply_streams():
    """Trust 16: `tree_tokens`, in the middle of a reply."""
    engine = KINDS["text"]()
    limit, kept, *_ = ended(engine, Limits(tree_tokens=2_000))
    assert limit == "limits.tree_tokens"
    assert len(kept) / 4 < 2_010


def test_a_limit_of_the_ledger_holds_while_a_reply_streams():
    """Trust 16: a rule that blocks."""
    engine = KINDS["text"]()
    limit, kept, *_ = ended(engine, Limits(), Rule(tokens=3_000, mode="block"))
    assert limit == "ledger.limits"
    assert kept
    assert len(kept) / 4 < 3_000 + 1_024


def test_a_model_that_ignores_tokens_max_is_cut_off():
    """Trust 16: by far more than any other way of counting explains."""
    engine = KINDS["thinking"]()
    limit, *_ = ended(engine, Limits(), options=Options(tokens_max=100))
    assert limit == "options.tokens_max"
    assert engine.said < 6_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "kind"), [({"name": "reasoning", "enable": False}, "thinking"), ("enhancetool", "arguments")]
)
async def test_what_a_transform_leaves_out_or_holds_back_is_bounded(transform: Any, kind: str):
    """Trust 16: nobody behind the transform sees that the model goes on."""
    engine = KINDS[kind]()
    wrapped = Fallback(Retry(Transformed(engine, [make_transform(transform)])))
    with pytest.raises(ReplyTooLong):
        async for _ in wrapped.stream(Prompt.of(values.user("go"))):
            pass
    assert engine.closed
    assert engine.said < 500_000


def test_tokens_that_no_upstream_tells_count_for_the_tree():
    """Trust 16: a server without usage spends the tokens of the tree all the same."""

    @tool
    def look() -> str:
        return "x" * 4_000

    engine = Scripted(*[call("look", f"c{n}") for n in range(30)])
    limit, _, events, _ = ended(engine, Limits(tree_tokens=5_000), tools=[look])
    assert limit == "limits.tree_tokens"
    assert sum(isinstance(event, RoundFinished) for event in events) < 6
