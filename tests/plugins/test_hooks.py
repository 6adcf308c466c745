"""Hooks and callbacks that are async where nothing waits, sync where something does, or that raise where it hurts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest

from rondel import Agent, App, Plugin, Prompt, Reply, tool
from rondel.errors import RondelError
from rondel.events import Event, Outcome, PluginFailed, RoundFinished, TurnFinished
from rondel.machine.turn import Turn
from rondel.plugin import HOOKS
from rondel.testing import MemoryStore, Pause, Scripted, call
from rondel.values import PartDelta, Usage
from tests.helpers import events_after, events_of, of, output_of, play, result_of, scripted, talking
from tests.ledger.conftest import Bench, bench
from tests.ledger.test_listeners import X

__all__ = ["bench"]


def a_turn(*plugins: Plugin, steps: tuple[Any, ...] = ("ok",), **fields: Any) -> list[Event]:
    agent, _ = scripted(*steps, plugins=list(plugins), **fields)

    return play(events_after("hi"), agent)


# --- async where nothing waits ----------------------------------------------------------------------------------------


async def nothing(self: Plugin, *_: object) -> None:
    """A hook that is async."""


@pytest.mark.parametrize("hook", ["applies", "check"])
def test_an_async_hook_that_nothing_waits_for_is_refused_when_the_class_is_made(hook: str):
    """Trust 8."""
    with pytest.raises(RondelError, match=f"plugin 'late': {hook} is called where nothing can wait, so it cannot be"):
        type("Late", (Plugin,), {hook: nothing})

    class Mixin:
        pass

    setattr(Mixin, hook, nothing)
    with pytest.raises(RondelError, match=f"plugin 'mixed': {hook} .* write `def {hook}`"):
        type("Mixed", (Mixin, Plugin), {})


@pytest.mark.parametrize("hook", ["applies"])
def test_one_that_is_put_on_the_class_later_is_refused_when_it_is_used(hook: str):
    """Trust 8."""
    late = type("Late", (Plugin,), {})
    setattr(late, hook, nothing)
    with pytest.raises(RondelError, match=f"plugin 'late': {hook}"):
        a_turn(late())


@pytest.mark.parametrize("hook", ["applies"])
def test_a_hook_that_returns_a_coroutine_in_disguise_is_reported(hook: str, recwarn: pytest.WarningsRecorder):
    """Trust 8: a decorator may hide it; what it returned is not left behind without a word."""

    def disguised(self: Plugin, *values: object) -> Awaitable[None]:
        return nothing(self, *values)

    events = a_turn(type("Late", (Plugin,), {hook: disguised})())
    failed = {(one.plugin, one.hook, one.message) for one in of(PluginFailed, events)}
    assert failed == {("late", hook, f"TypeError: {hook} returned a coroutine, and nothing can wait for it here")}
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


def test_a_lifespan_that_is_no_context_manager_is_refused_when_the_class_is_made():
    """Trust 8."""

    async def bare(self: Plugin, app: App) -> AsyncGenerator[None]:
        yield

    for lifespan in (bare, nothing):
        with pytest.raises(RondelError, match=r"plugin 'opens': lifespan .* @contextlib.asynccontextmanager"):
            type("Opens", (Plugin,), {"lifespan": lifespan})


@pytest.mark.parametrize("disguised", [False, True])
def test_an_async_on_event_sees_every_event_in_order_and_the_turn_waits_for_it(disguised: bool):
    """Trust 8: it was never awaited; also where a decorator hides that it is async."""
    seen: list[Event] = []

    class Slow(Plugin):
        async def on_event(self, turn: Turn, event: Event) -> None:
            await asyncio.sleep(0)
            seen.append(event)

    class Hidden(Plugin):
        def on_event(self, turn: Turn, event: Event) -> Awaitable[None]:
            return Slow().on_event(turn, event)

    events = a_turn(Hidden() if disguised else Slow(), steps=("one two three",))
    assert [type(event) for event in seen] == [type(event) for event in events]
    assert isinstance(seen[-1], TurnFinished)


async def test_an_async_on_event_sees_deltas_while_they_stream():
    pause, seen = Pause("One, ", "two."), asyncio.Event()

    class Watching(Plugin):
        async def on_event(self, turn: Turn, event: Event) -> None:
            if isinstance(event, PartDelta):
                seen.set()

    async with App(Agent("a", engine=Scripted(pause), plugins=[Watching()])) as app:
        turn = await app.conversation().send("Count.")
        await asyncio.wait_for(seen.wait(), 10)
        pause.release()
        assert (await turn.result()).output == "One, two."


def test_an_async_on_event_that_raises_is_reported_and_the_turn_goes_on():
    class Broken(Plugin):
        async def on_event(self, turn: Turn, event: Event) -> None:
            if isinstance(event, RoundFinished):
                raise ValueError("no")

    events = a_turn(Broken())
    assert [(one.plugin, one.message) for one in of(PluginFailed, events)] == [("broken", "ValueError: no")]
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE


async def test_async_listeners_of_the_ledger_hear_every_charge_in_order(bench: Bench, caplog: pytest.LogCaptureFixture):
    """Trust 8, L04: they were never awaited."""
    heard: list[int] = []

    async def late(recorded: Any) -> None:
        await asyncio.sleep(0)
        heard.append(recorded.charge.tokens)
        if recorded.charge.tokens == 2:
            raise ValueError("no")

    with caplog.at_level(logging.ERROR, "rondel.ledger"):
        async with bench.ledger() as ledger:
            ledger.on("usage.recorded", late)
            ledger.once("usage.recorded", lambda recorded: late(recorded))
            for tokens in (1, 2, 3):
                await ledger.record(X, Usage(tokens, 0))
    assert heard == [1, 1, 2, 3]
    assert "a listener to usage.recorded failed" in caplog.text


# --- sync where something waits ---------------------------------------------------------------------------------------


def test_hooks_without_async_work_too():
    """Trust 8: what waits for a hook takes a value as well."""
    seen: list[str] = []

    class Plain(Plugin):
        def on_turn_start(self, turn: Turn) -> None:
            seen.append("start")

        def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            return prompt.instruct("Be brief.")

        def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return reply.with_text("edited")

        def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
            seen.append("end")

    agent, engine = scripted("ok", plugins=[Plain()])

    assert play(output_of("hi"), agent) == "edited"
    assert engine.prompts[0].messages[0].text == "Be brief."
    assert seen == ["start", "end"]


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "on_event"])
def test_a_hook_that_raises_before_anything_can_wait_is_reported_all_the_same(hook: str):
    """Trust 8, P12: a plain function that raises, and one that takes other parameters, failed the turn."""

    @tool
    async def look() -> str:
        return "seen"

    def raises(self: Plugin, *_: object) -> None:
        raise ValueError("a bug")

    async def narrow(self: Plugin) -> None:
        """Takes nothing."""

    for broken, message in ((raises, "ValueError: a bug"), (narrow, "TypeError")):
        plugin = type("Broken", (Plugin,), {hook: broken})()
        events = a_turn(plugin, steps=(call("look"), "ok"), tools=[look])
        assert of(TurnFinished, events)[0].outcome is Outcome.DONE
        assert {(one.plugin, one.hook) for one in of(PluginFailed, events)} == {("broken", hook)}
        assert all(one.message.startswith(message) for one in of(PluginFailed, events))


def test_a_tool_that_returns_a_coroutine_in_disguise_is_awaited():
    """Trust 8: a lambda around an async function gave its repr to the model."""

    async def slow(city: str) -> str:
        return f"mild in {city}"

    def weather(city: str) -> Any:
        return slow(city)

    agent, engine = scripted(call("weather", city="Porto"), "ok", tools=[weather])

    play(result_of("hi"), agent)
    assert engine.prompts[1].messages[-1].parts[0].text == "mild in Porto"  # type: ignore[union-attr]


def test_a_tool_that_yields_is_refused_when_it_is_made():
    """Trust 8: nothing would ever run it."""

    def many(n: int) -> Any:
        yield n

    async def later(n: int) -> Any:
        yield n

    for function in (many, later):
        with pytest.raises(RondelError, match=f"tool '{function.__name__}' yields; return one value"):
            tool(function)


# --- applies ----------------------------------------------------------------------------------------------------------


def raises_applies(*, required: bool = False) -> Plugin:
    def applies(self: Plugin, turn: Turn) -> bool:
        raise ValueError("no idea")

    return type("Picky", (Plugin,), {"applies": applies, "required": required})()


async def test_applies_that_raises_is_reported_and_the_message_stays():
    """Trust 8, P12: the plugin is skipped, the others still work."""

    class Terse(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            return prompt.instruct("Be terse.")

    agent, engine = scripted("ok", plugins=[raises_applies(), Terse()])
    async with talking(agent) as conversation:
        view = await conversation.send("hi")
        events = await events_of(view)
        messages, output = [m.text for m in (await conversation.transcript()).messages], (await view.result()).output
    assert of(PluginFailed, events) == [PluginFailed("picky", "applies", "ValueError: no idea")]
    assert (messages, output) == (["hi", "ok"], "ok")
    assert engine.prompts[0].messages[0].text == "Be terse."


async def test_a_required_plugin_whose_applies_raises_fails_the_turn_and_the_message_stays():
    """Trust 8, P12: policy fails closed, and a later turn can answer what was said."""
    agent, engine = scripted(plugins=[raises_applies(required=True)])
    store = MemoryStore()
    async with App(agent, store=store) as app:
        conversation = app.conversation("c")
        result = await (await conversation.send("hi")).result(check=False)
        error, messages = result.error, (await conversation.transcript()).messages
    assert error == "plugin 'picky', applies: ValueError: no idea"
    assert messages[0].text == "hi"
    assert engine.prompts == []
    repaired, _ = scripted("Hello.")
    async with App(repaired, store=store.reopen()) as app:
        view = await app.conversation("c").resume()
        assert view is not None
        assert (await view.result(check=False)).output == "Hello."


def test_applies_that_raises_for_the_agent_that_takes_over_is_reported():
    """Trust 8: a hand-off binds other plugins in the middle of a turn."""

    class Over(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            import msgspec

            return msgspec.structs.replace(reply, next="agent:other")

    agent = Agent("helper", engine=Scripted("over"), plugins=[Over()])
    for required in (False, True):
        other = Agent("other", engine=Scripted("mine"), plugins=[raises_applies(required=required)])

        events = play(
            events_after("hi", agent="helper"), Agent("helper", engine=Scripted("over"), plugins=agent.plugins), other
        )
        outcome = of(TurnFinished, events)[0].outcome
        assert outcome is (Outcome.FAILED if required else Outcome.DONE)
        assert [one.hook for one in of(PluginFailed, events)] == ([] if required else ["applies"])
