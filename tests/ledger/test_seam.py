"""There is no way to an engine but past the ledger: what each way there charges is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import rondel
from rondel import Agent, App, Plugin, tool
from rondel.charge import Charge, Scope
from rondel.contracts.ledger import Rule
from rondel.engine import EngineInfo
from rondel.errors import RondelError
from rondel.events import LimitHit, Nested, SpendingWarned, TurnFinished, UsageRecorded
from rondel.ledger.charging import ChargedEngine
from rondel.ledger.ledger import Ledger
from rondel.machine.trigger import ModelQuestion, Trigger
from rondel.plugins.auto_reply import AutoReply
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, VirtualClock, call, say
from rondel.values import Media, Person, Usage, user


async def test_what_an_app_shows_of_an_engine_cannot_be_asked():
    engine = Scripted()
    async with App(Agent("helper"), engine=engine, make_engine=lambda name: Scripted(name=name)) as app:
        for shown in (app.registry.resolve("helper").engine, app.registry.engine("other:model")):
            assert isinstance(shown, EngineInfo)
            assert not hasattr(shown, "stream")
            assert not hasattr(shown, "relay")
            assert (shown.name, shown.facts.images) in {("scripted:test", True), ("other:model", True)}
        assert app.registry.engine("other:model") is app.registry.engine("other:model")
        assert isinstance(app.charge(app.registry.engine("other:model"), Scope()), ChargedEngine)


# --- every way to an engine -------------------------------------------------------------------------------------------

SPENT = Usage(10, 5)


def said(text: str = "fine") -> Any:
    return say(text, usage=SPENT)


class Summaries(Plugin):
    """Asks for a summary beside the conversation, as a plugin may."""

    async def on_turn_start(self, turn: Any) -> None:
        async for _ in turn.engine_named("", kind="summary").stream(Prompt.of(user("sum up"))):
            pass


@tool
async def nothing() -> str:
    return "done"


async def charged(
    app_of: Callable[[Scripted], App], send: Callable[[App], Awaitable[Any]], engine: Scripted
) -> list[Charge]:
    async with app_of(engine) as app:
        await send(app)
        await app.drain()
        await app.ledger.lifetime_totals()
        charges = (await app.store.ledger_store.charges(0, 10**6, "", 500)).charges
    engine.check_done()
    return list(charges)


async def hello(app: App) -> None:
    await (await app.conversation("c1").send("Hello", person=Person("ada"))).result()


async def picture(app: App) -> None:
    image = Media("image", mime="image/png", data=b"\x89PNG")
    await (await app.conversation("c1").send(["What is it?", image], person=Person("ada"))).result()


def app_with(*agents: Agent, **fields: Any) -> Callable[[Scripted], App]:
    return lambda engine: App(*agents, engine=engine, clock=VirtualClock(), **fields)


WAYS: dict[str, tuple[Callable[[Scripted], App], Callable[[App], Awaitable[Any]], list[Any], list[str]]] = {
    "a conversation": (app_with(Agent("helper")), hello, [said()], ["chat"]),
    "a conversation with tools": (
        app_with(Agent("helper", tools=[nothing])),
        hello,
        [rondel.values.Reply(call("nothing").message, stop="calls", usage=SPENT), said()],
        ["chat", "chat"],
    ),
    "a picture": (app_with(Agent("helper")), picture, [said()], ["chat"]),
    "an agent that works for another": (
        app_with(Agent("helper", tools=[Agent("inner")])),
        hello,
        [rondel.values.Reply(call("inner", input="x").message, stop="calls", usage=SPENT), said("in"), said()],
        ["chat", "agent", "chat"],
    ),
    "a question of a trigger": (
        app_with(
            Agent(
                "helper", plugins=[AutoReply(text="Go on.", trigger=Trigger(model=ModelQuestion("Enough? <<input>>")))]
            )
        ),
        hello,
        [said(), said("no")],
        ["chat", "question"],
    ),
    "a summary of a plugin": (
        app_with(Agent("helper", plugins=[Summaries()])),
        hello,
        [said(), said()],
        ["summary", "chat"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_call_of_every_kind_is_charged(way: str):
    """L05: every kind is recorded, under its own name and the conversation that people see."""
    app_of, send, steps, kinds = WAYS[way]
    charges = asyncio.run(charged(app_of, send, Scripted(*steps)))
    assert [charge.scope.kind for charge in charges] == kinds
    for charge in charges:
        scope = charge.scope
        assert (scope.conversation, scope.person, scope.model, scope.engine) == ("c1", "ada", "test", "scripted:test")
        assert scope.agent in ("helper", "inner")
        assert charge.usage == SPENT


def test_ask_and_run_are_charged_as_well():
    """L05: the shortest way there is."""
    seen: list[int] = []

    class Watch(Plugin):
        def on_event(self, turn: Any, event: Any) -> None:
            if isinstance(event, UsageRecorded):
                seen.append(event.charge.tokens)

    assert rondel.run(Agent("helper", engine=Scripted(said()), plugins=[Watch()]), "hi").output == "fine"
    assert seen == [15]


async def test_what_a_surface_knows_is_charged_to_and_survives_an_answer():
    @tool(approval="confirm")
    async def danger() -> str:
        return "done"

    asked = rondel.values.Reply(call("danger").message, stop="calls", usage=SPENT)
    engine = Scripted(asked, said())
    store = MemoryStore()
    known = Scope(channel="general", guild="g", roles=("free", "new"), key="k", project="desk", person="id-7")
    async with App(Agent("helper", tools=[danger]), engine=engine, store=store) as app:
        await (await app.conversation("c1").send("Hello", person=Person("ada"), scope=known)).result()
        (question,) = await app.conversation("c1").questions()
    async with App(Agent("helper", tools=[danger]), engine=engine, store=store.reopen()) as app:
        await (await app.conversation("c1").answer(question.id, "yes")).result()
        charges = (await app.store.ledger_store.charges(0, 10**6, "", 500)).charges
    assert len(charges) == 2
    for charge in charges:
        expected = Scope("chat", "test", "scripted:test", "helper", "c1").over(known)
        assert charge.scope == expected


# --- a limit in a turn ------------------------------------------------------------------------------------------------


def run_with(rule: Rule, *steps: Any) -> tuple[list[Any], Any]:
    async def main() -> tuple[list[Any], Any]:
        store, clock = MemoryStore(), VirtualClock()
        ledger = Ledger(store.ledger_store, rules=[rule], clock=clock)
        async with App(Agent("helper"), engine=Scripted(*steps), store=store, clock=clock, ledger=ledger) as app:
            for _ in steps[:-1]:
                await (await app.conversation("c1").send("Hello")).result()
            view = await app.conversation("c1").send("And now?")
            events = [event async for event in view]
            return events, await view.result(check=False)

    return asyncio.run(main())


def test_a_limit_ends_a_turn_with_its_name_and_its_sentence():
    """L02: in a turn it is an outcome like that of every other limit."""
    rule = Rule({"model": "test"}, tokens=15, mode="block")
    events, result = run_with(rule, said(), said())
    sentence = "The day token limit of 15 for model test has been reached."
    assert [event for event in events if isinstance(event, LimitHit)] == [LimitHit("ledger.limits", sentence)]
    (finished,) = (event for event in events if isinstance(event, TurnFinished))
    assert (finished.outcome, finished.reason) == ("limited", sentence)
    assert (result.output, result.error, result.limit, result.ran) == ("", sentence, "ledger.limits", False)


def test_a_warning_is_seen_once_in_a_turn_by_plugins_and_watchers():
    """L04: plugins see it, too."""
    events, result = run_with(Rule({"model": "test"}, tokens=10), said(), said("and on"))
    assert [event.message for event in events if isinstance(event, SpendingWarned)] == [
        "The day token limit of 10 for model test has been reached."
    ]
    assert result.output == "and on"


def test_what_an_inner_agent_spends_is_seen_above():
    async def main() -> list[Any]:
        agent = Agent("helper", tools=[Agent("inner")])
        first = rondel.values.Reply(call("inner", input="x").message, stop="calls", usage=SPENT)
        async with App(agent, engine=Scripted(first, said("in"), said())) as app:
            return [event async for event in await app.conversation().send("go")]

    events = asyncio.run(main())
    inner = [event.event for event in events if isinstance(event, Nested)]
    assert sum(isinstance(event, UsageRecorded) for event in inner) == 1
    assert sum(isinstance(event, UsageRecorded) for event in events) == 2


def test_an_app_with_a_wrong_rule_is_told_before_it_starts():
    with pytest.raises(RondelError, match="did you mean 'person'"):
        Rule({"persn": "ada"}, tokens=5)
