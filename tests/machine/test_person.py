"""Who speaks: known to the turn, to the agents that work for it, and to the ledger."""

from __future__ import annotations

import asyncio

from rondel import Agent, App, CallContext, Plugin, tool
from rondel.charge import Scope
from rondel.events import MessageAdded, TurnStarted
from rondel.machine.turn import Turn
from rondel.testing import MemoryStore, Scripted, VirtualClock, call, say
from rondel.values import Person, Usage, system

from ..helpers import of

ADA = Person("42", "Ada", ("admin",), "discord")


class Notes(Plugin):
    """Notes who starts each turn."""

    def __init__(self) -> None:
        self.people: list[Person] = []

    async def on_turn_start(self, turn: Turn) -> None:
        self.people.append(turn.person)


async def test_a_turn_and_the_agents_below_it_know_who_started_it():
    notes = Notes()
    inner = Agent("inner", engine=Scripted("in"), plugins=[notes])
    engine = Scripted(call("inner", input="x"), "out")
    async with App(Agent("helper", engine=engine, tools=[inner], plugins=[notes])) as app:
        await (await app.conversation("c").send("Hello", person=ADA)).result()
        entries = [entry.event for entry in await app.conversation("c").entries()]
    assert notes.people == [ADA, ADA]
    assert of(TurnStarted, entries)[0].person == ADA
    assert of(MessageAdded, entries)[0].message.author == "42"


async def test_a_person_is_still_known_after_a_restart_and_is_charged_with_the_roles():
    @tool(approval="confirm")
    async def danger(context: CallContext) -> str:
        return context.turn.person.name

    store, notes = MemoryStore(clock=VirtualClock()), Notes()
    spent = Usage(10, 1)
    engine = Scripted(call("danger"), say("done", usage=spent))
    agent = Agent("helper", engine=engine, tools=[danger], plugins=[notes])
    async with asyncio.timeout(20), App(agent, store=store, clock=VirtualClock()) as app:
        await (await app.conversation("c").send("Hello", person=ADA)).result()
        (question,) = await app.conversation("c").questions()
    again = store.reopen()
    async with asyncio.timeout(20), App(agent, store=again, clock=VirtualClock()) as app:
        await (await app.conversation("c").answer(question.id, "yes")).result()
        assert engine.prompts[-1].messages[-1].parts[0].text == "Ada"  # type: ignore[union-attr]
        await app.ledger.lifetime_totals()
        charges = (await again.ledger_store.charges(0, 10**6, "", 500)).charges
    expected = Scope("chat", "test", "scripted:test", "helper", "c", "42", ("admin",))
    assert [charge.scope for charge in charges] == [expected] * len(charges) != []
    assert notes.people == [ADA, ADA]


async def test_the_roles_of_one_person_are_not_charged_to_another():
    """A second person steers: what follows is for that one, whose roles this turn does not know."""
    engine = Scripted("hi", "hello")
    async with App(Agent("helper", engine=engine)) as app:
        conversation = app.conversation("c")
        await (await conversation.send("Hello", person=ADA)).result()
        await (await conversation.send("And I?", person=Person("7"))).result()
        await app.ledger.lifetime_totals()
        scopes = [charge.scope for charge in (await app.store.ledger_store.charges(0, 10**10, "", 500)).charges]
    assert {(scope.person, scope.roles) for scope in scopes} == {("42", ("admin",)), ("7", ())}


async def test_messages_that_come_before_a_message_are_in_the_prompt_and_survive_a_restart():
    store = MemoryStore(clock=VirtualClock())
    around = system("Bob: the sky is green", id="around-1")
    engine = Scripted("Noted.", "Again.")
    agent = Agent("helper", engine=engine)
    async with App(agent, store=store, clock=VirtualClock()) as app:
        await (await app.conversation("c").send("Is it?", id="m-1", before=[around])).result()
    async with App(agent, store=store.reopen(), clock=VirtualClock()) as app:
        await (await app.conversation("c").send("Really?", id="m-2", before=[around])).result()
    said = [(message.role, message.text) for message in engine.prompts[-1].messages]
    assert said == [
        ("system", "Bob: the sky is green"),  # once, although it was given twice
        ("user", "Is it?"),
        ("assistant", "Noted."),
        ("user", "Really?"),
    ]


async def test_a_plugin_that_is_added_before_the_start_takes_part_in_every_agent():
    notes = Notes()
    app = App(Agent("one", engine=Scripted("1")), Agent("two", engine=Scripted("2")))
    app.registry.add_plugin(notes)
    async with app:
        await (await app.conversation(agent="one").send("Hello", person=ADA)).result()
        await (await app.conversation(agent="two").send("Hello", person=ADA)).result()
    assert notes.people == [ADA, ADA]
