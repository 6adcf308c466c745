"""The loop through the top: what a surface sees, and what the transcript says afterwards."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import rondel
from rondel import Agent, App, Limits, Outcome, Plugin, Prompt, Reply, tool
from rondel.errors import AgentFailed, EngineOverloaded, RondelError
from rondel.events import (
    CallFinished,
    CallStarted,
    HandedOff,
    HistoryGiven,
    LimitHit,
    MessageAdded,
    PluginFailed,
    RoundFinished,
    TurnFinished,
    TurnStarted,
)
from rondel.machine.turn import Turn
from rondel.testing import Pause, Scripted, call, calls, say
from rondel.tool import NO_RESULT
from rondel.values import (
    Message,
    PartDelta,
    ReplyStarted,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    deltas_of,
    user,
)
from tests.helpers import events_after, events_of, of, play, result_of, scripted, talking


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def test_a_turn_streams_its_answer_and_rests():
    """F01, F11: states are working, then completed; the result has output, error, ran and agent."""
    agent, engine = scripted("Hello there.")
    async with App(agent) as app:
        view = await app.conversation().send("hi")
        states = [state async for state in view.states()]
        result = await view.result()
    assert states == ["working", "completed"]
    assert result == rondel.AgentResult("Hello there.", "", True, "helper")
    engine.check_done()


def test_watchers_see_the_deltas_between_start_and_finish():
    agent, _ = scripted("Hello there.")

    events = play(events_after("hi"), agent)
    kinds = [type(event).__name__ for event in events]
    assert kinds[:2] == ["TurnStarted", "MessageAdded"]
    assert kinds[-1] == "TurnFinished"
    assert of(PartDelta, events) == [PartDelta(0, "Hello there.")]
    assert kinds.index("PartDelta") < kinds.index("RoundFinished")


async def test_a_tool_call_is_answered_and_the_model_reads_the_result():
    agent, engine = scripted(call("add", a=2, b=40), "It is 42.", tools=[add])
    async with App(agent) as app:
        view = await app.conversation().send("2 + 40?")
        events, result = await events_of(view), await view.result()
    assert result.output == "It is 42."
    assert [e.name for e in of(CallStarted, events)] == ["add"]
    assert engine.prompts[1].messages[-1] == Message("tool", (ToolResult("call-add", (Text("42"),), "add"),))
    engine.check_done()


async def test_the_users_message_is_there_exactly_once_in_every_round():
    """P13: also in tool rounds and in the next turn."""
    agent, engine = scripted(call("add", a=1, b=1), call("add", "again", a=2, b=2), "4", "5", tools=[add])
    async with talking(agent) as conversation:
        await (await conversation.send("first question")).result()
        await (await conversation.send("second question")).result()
    texts = [[m.text for m in prompt.messages if m.role == "user"] for prompt in engine.prompts]
    assert texts == [["first question"]] * 3 + [["first question", "second question"]]


def test_control_goes_to_the_human_by_default_and_to_itself_when_a_plugin_says_so():
    """F02: human stops after one round; self starts the next round with the extended history."""

    class GoOn(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="self") if "more" in reply.text else reply

    agent, engine = scripted("one, more follows", "two", plugins=[GoOn()])

    assert play(result_of("count"), agent).output == "two"
    assert engine.prompts[1].messages[-1].text == "one, more follows"
    engine.check_done()


async def test_control_passes_to_another_agent_and_returns():
    """F02: agent:<id> really passes control; the next turn is the first agent's again."""

    class ToTheExpert(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="agent:expert") if turn.agent.name == "clerk" else reply

    clerk, front = scripted("I pass you on.", "I pass you on again.", name="clerk", plugins=[ToTheExpert()])
    expert, back = scripted("I know it.", "I still know it.", name="expert", prompt="You are the expert.")
    async with talking(clerk, expert) as conversation:
        view = await conversation.send("a hard question")
        events = await events_of(view)
        first = await view.result()
        second = await (await conversation.send("and now?")).result()
    assert first.output == "I know it."
    assert second.output == "I still know it."
    assert [e.agent for e in of(HandedOff, events)] == ["expert"]
    assert [e.agent for e in of(RoundFinished, events)] == ["clerk", "expert"]
    assert back.prompts[0].messages[0].text == "You are the expert."
    assert back.prompts[0].messages[-1].text == "I pass you on."
    front.check_done()
    back.check_done()


def test_a_hand_off_to_nobody_is_said_and_ends_the_turn():
    class ToNobody(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="agent:ghost")

    agent, _ = scripted("over to the ghost", plugins=[ToNobody()])

    events = play(events_after("hi"), agent)
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE
    assert "no" in of(MessageAdded, events)[-1].message.text
    assert "'ghost'" in of(MessageAdded, events)[-1].message.text


class Forever(Plugin):
    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, next="self")


async def test_a_turn_that_goes_on_by_itself_stops_at_its_limit_and_says_so():
    """F03: three self-rounds by default, then a completed state that says so."""
    agent, engine = scripted("1", "2", "3", "4", plugins=[Forever()])
    async with App(agent) as app:
        view = await app.conversation().send("go")
        events, result = await events_of(view), await view.result(check=False)
    finished = of(TurnFinished, events)[0]
    assert (result.output, result.error, result.limit) == ("4", finished.reason, "limits.continuations")
    assert finished.state == "completed"
    assert "limits.continuations" in finished.reason
    assert [e.name for e in of(LimitHit, events)] == ["limits.continuations"]
    engine.check_done()


async def test_the_round_limit_is_an_outcome_with_a_name():
    """F03: configurable."""
    agent, engine = scripted(*(call("add", f"c{i}", a=i, b=1) for i in range(2)), tools=[add], limits=Limits(rounds=2))
    async with App(agent) as app:
        view = await app.conversation().send("go")
        finished, result = of(TurnFinished, await events_of(view))[0], await view.result(check=False)
    assert finished.outcome is Outcome.LIMITED
    assert finished.reason == "the turn used its 2 rounds; raise limits.rounds or ask for less"
    assert (result.output, result.error, result.limit) == ("", finished.reason, "limits.rounds")
    engine.check_done()


def test_a_stop_beats_a_hand_off_beats_self_beats_human():
    """F07: the precedence is written down, whatever the order of the plugins."""

    def wants(target: str, name: str) -> Plugin:
        async def on_reply(self: Plugin, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next=target) if turn.agent.name == "helper" else reply

        return type(name, (Plugin,), {"on_reply": on_reply, "name": name})()

    for plugins in (
        [wants("self", "a"), wants("agent:other", "b"), wants("human", "c")],
        [wants("human", "c"), wants("agent:other", "b"), wants("self", "a")],
    ):
        agent, _ = scripted("x", plugins=plugins)
        other, _ = scripted("y", name="other")

        events = play(events_after("go"), agent, other)
        assert [e.agent for e in of(HandedOff, events)] == ["other"]


def test_two_plugins_that_both_want_self_start_one_round_with_the_first_message():
    """F07: of equals the one that spoke first stays; nothing is overwritten."""

    class Says(Plugin):
        def __init__(self, text: str) -> None:
            self.text = text

        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            if turn.transcript.turn_rounds:
                return reply
            return msgspec.structs.replace(reply, next="self", next_message=user(self.text))

    agent, engine = scripted("first", "second", plugins=[Says("from the outer"), Says("from the inner")])

    assert play(result_of("go"), agent).output == "second"
    assert engine.prompts[1].messages[-1].text == "from the inner"
    engine.check_done()


async def test_a_stop_in_mid_stream_closes_the_request_and_keeps_what_was_said():
    """F05: state canceled, the upstream request is closed, the partial answer stays in the transcript."""
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("So far so ")
        engine.add(pause)
        conversation = app.conversation()
        view = await conversation.send("talk")
        await pause.reached.wait()
        assert await view.stop()
        events = await events_of(view)
        engine.add("fresh")
        after = await (await conversation.send("again")).result()
        closed, transcript = pause.closed, await conversation.transcript()
    assert closed
    assert of(TurnFinished, events)[0].state == "canceled"
    assert [m.text for m in transcript.messages] == ["talk", "So far so ", "again", "fresh"]
    assert after.output == "fresh"


async def test_a_stop_before_the_start_leaves_the_engine_alone():
    """F05: a turn that waits for its place can be stopped, too."""
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("first")
        engine.add(pause)
        conversation = app.conversation()
        first = await conversation.send("one")
        await pause.reached.wait()
        second = await conversation.send("two")
        assert await second.stop()
        states = [state async for state in second.states()]
        pause.release()
        first, second, asked = await first.result(), await second.result(), len(engine.prompts)
    assert states == ["working", "canceled"]
    assert (first.output, second.output, second.ran) == ("first", "", False)
    assert asked == 1


async def test_a_stop_while_tools_run_answers_every_call():
    """F05: no call stays open, so the conversation can go on."""
    reached = asyncio.Event()

    @tool
    async def hang() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    agent, engine = scripted(calls(call("hang"), call("add", a=1, b=1)), "fine", tools=[hang, add])
    async with talking(agent) as conversation:
        view = await conversation.send("go")
        await reached.wait()
        await view.stop()
        await events_of(view)
        assert (await (await conversation.send("and?")).result()).output == "fine"
    results = {r.name: r for m in engine.prompts[1].messages if m.role == "tool" for r in m.parts}
    assert results["hang"].is_error
    assert "stopped" in results["hang"].text
    assert results["add"].text in ("2", results["hang"].text)


async def test_a_failed_engine_fails_the_turn_with_name_code_provider_and_message():
    """F06: the error is kept, is sent to the model for one round only, and the chat goes on."""
    error = EngineOverloaded("the model is overloaded", provider="acme", model="m", code="529")
    agent, engine = scripted(error, "better now", "still fine")
    async with talking(agent) as conversation:
        view = await conversation.send("hi")
        finished = of(TurnFinished, await events_of(view))[0]
        failed = await view.result(check=False)
        await (await conversation.send("again")).result(check=False)
        await (await conversation.send("more")).result(check=False)
        transcript = await conversation.transcript()
    assert finished.state == "failed"
    assert finished.failure is not None
    assert msgspec.structs.asdict(finished.failure) == {
        "name": "EngineOverloaded",
        "message": "the model is overloaded",
        "code": "529",
        "provider": "acme",
        "agent": "helper",
    }
    assert (failed.output, failed.error) == ("", "the model is overloaded")
    kept = [m for m in transcript.messages if m.role == "error"]
    assert [m.duration for m in kept] == [1]
    sent = [[m.text for m in prompt.messages if "overloaded" in m.text] for prompt in engine.prompts]
    assert [len(texts) for texts in sent] == [0, 1, 0]


async def test_a_history_from_elsewhere_does_not_send_what_models_never_get():
    given = user("hi"), Message("system", (Text("only for people"),), duration=0), assistant("hello")
    agent, engine = scripted("fine")
    async with talking(agent) as conversation:
        await (await conversation.app.journals.open(conversation.id)).append(HistoryGiven(given, owed=False))
        await conversation.ask("how are you?")
    assert [message.text for message in engine.prompts[0].messages] == ["hi", "hello", "how are you?"]


async def test_a_failed_turn_can_be_taken_up_again():
    agent, _ = scripted(EngineOverloaded("busy"), "here I am")
    async with talking(agent) as conversation:
        await (await conversation.send("hi")).result(check=False)
        view = await conversation.resume()
        assert view is not None
        first = await view.result(check=False)
        result, nothing_left = first, await conversation.resume()
    assert result.output == "here I am"
    assert nothing_left is None


def test_a_blank_prompt_asks_nobody():
    """F08: ran is False and no model is called."""
    agent, engine = scripted()

    result = play(result_of("   "), agent)
    assert (result.ran, result.output, result.error) == (False, "", "")
    assert engine.prompts == []


async def test_a_hard_failure_stops_all_calls_at_once_and_names_the_agent():
    """F09: the agent that failed is named; siblings are not left open; the next turn works."""
    weather, _ = scripted(EngineOverloaded("weather service down"), name="weather", description="The weather.")
    agent, engine = scripted(calls(call("weather", input="Paris"), call("add", a=1, b=1)), "ok", tools=[weather, add])
    async with talking(agent) as conversation:
        view = await conversation.send("go")
        finished = of(TurnFinished, await events_of(view))[0]
        result = await view.result(check=False)
        after = await (await conversation.send("go on")).result(check=False)
    assert finished.outcome is Outcome.FAILED
    assert "agent 'weather' failed: weather service down" in result.error
    assert result.agent == "weather"
    assert after.output == "ok"
    assert len(engine.prompts) == 2


def test_an_error_raised_as_agent_failed_in_a_tool_is_hard():
    """F09."""

    @tool
    async def lookup() -> str:
        raise AgentFailed("archive", "the index is gone")

    agent, _ = scripted(call("lookup"), tools=[lookup])

    assert play(result_of("go"), agent).agent == "archive"


def test_a_soft_failure_goes_on_with_a_note_and_the_marker_never_shows():
    """F09: the model is told that there was no useful result; ran stays true."""

    @tool
    async def search(query: str) -> str:
        return NO_RESULT

    agent, engine = scripted(call("search", query="x"), "I found nothing.", tools=[search])

    result = play(result_of("go"), agent)
    assert (result.output, result.ran, result.error) == ("I found nothing.", True, "")
    assert engine.prompts[1].messages[-1].parts[0].text == "No useful result."


def test_a_structured_soft_failure_says_why_and_what_to_try():
    """F09."""

    @tool
    async def search(query: str) -> rondel.NoResult:
        return rondel.NoResult("The archive ends in 1990.", "Ask for an earlier year.")

    agent, engine = scripted(call("search", query="x"), "ok", tools=[search])

    play(result_of("go"), agent)
    told = engine.prompts[1].messages[-1].parts[0].text
    assert told == "No useful result. The archive ends in 1990. Ask for an earlier year."


def test_agents_that_call_agents_stop_at_the_depth_limit_and_the_error_names_the_path():
    """F04: nested agents at most 6, and tools at most 5 levels; the error names depth and trace."""
    told: list[str] = []

    def answer(prompt: Prompt):
        last = prompt.messages[-1]
        if last.role == "tool":
            told.append(last.parts[0].text)
            return say("done")
        return call("mirror", input="deeper")

    mirror = Agent("mirror", engine=Scripted(*[answer] * 40), tools=["mirror"], description="Calls itself.")

    scene = result_of("go")
    assert play(scene, mirror).output == "done"
    assert "nested 5 levels deep" in told[0]
    assert "limits.tool_levels" in told[0]
    assert "mirror -> mirror -> mirror" in told[0]

    told.clear()
    deep = Agent(
        "mirror", engine=Scripted(*[answer] * 40), tools=["mirror"], limits=Limits(tool_levels=50), description="Same."
    )
    assert play(scene, deep).output == "done"
    assert "agents are nested 6 levels deep" in told[0]
    assert "limits.agent_levels" in told[0]


async def test_an_inner_agents_events_are_nested_in_the_stream_of_the_outer():
    inner, _ = scripted("sunny", name="weather", prompt="You know the weather.")
    agent, engine = scripted(call("weather", "w1", input="Paris"), "It is sunny.", tools=[inner])
    async with App(agent) as app:
        conversation = app.conversation()
        view = await conversation.send("go")
        events = await events_of(view)
        child = await app.store.read(f"{conversation.id}/w1")
    nested = [e.event for e in events if type(e).__name__ == "Nested"]
    assert PartDelta(0, "sunny") in nested
    started = child[0].event
    assert isinstance(started, TurnStarted)
    assert (started.path, started.instructions) == (("helper",), "You know the weather.")
    assert engine.prompts[1].messages[-1].parts[0].text == "sunny"


async def test_messages_of_one_conversation_queue_in_order_and_others_run_beside_them():
    agent, engine = scripted()
    async with App(agent) as app:
        pause = Pause("first")
        engine.add(pause, "elsewhere", "second")
        here, there = app.conversation("here"), app.conversation("there")
        first = await here.send("one")
        await pause.reached.wait()
        second = await here.send("two")
        other = await (await there.send("three")).result()
        pause.release()
        found = other.output, (await first.result()).output, (await second.result()).output
    assert found == ("elsewhere", "first", "second")


async def test_a_message_sent_while_it_works_steers_the_running_turn():
    reached, go = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        reached.set()
        await go.wait()
        return "worked"

    agent, engine = scripted(call("work"), "in French then", tools=[work])
    async with talking(agent) as conversation:
        view = await conversation.send("go")
        await reached.wait()
        await conversation.steer("in French please")
        go.set()
        assert (await view.result()).output == "in French then"
    assert [m.role for m in engine.prompts[1].messages] == ["user", "assistant", "tool", "user"]
    assert engine.prompts[1].messages[-1].text == "in French please"


def test_a_message_that_comes_just_as_the_turn_ends_is_still_answered():
    class Late(Plugin):
        async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
            if len(engine.prompts) == 1:
                await app_of[0].conversation(turn.conversation).steer("one more thing")

    app_of: list[App] = []
    agent, engine = scripted("first", "second", plugins=[Late()])

    async def scene(app: App):
        app_of.append(app)
        conversation = app.conversation()
        with await conversation.watch() as watcher:
            await conversation.send("hi")
            done = 0
            async for _, event in watcher:
                done += isinstance(event, TurnFinished)
                if done == 2:
                    return [m.text for m in (await conversation.transcript()).messages]

    assert play(scene, agent) == ["hi", "first", "one more thing", "second"]


async def test_a_message_with_the_same_id_is_heard_once():
    """Q02: dedupe by id."""
    agent, engine = scripted("once")
    async with talking(agent) as conversation:
        await (await conversation.send("hi", id="m1")).result()
        await (await conversation.send("hi", id="m1")).result()
        assert [m.text for m in (await conversation.transcript()).messages] == ["hi", "once"]
    engine.check_done()


def test_a_call_without_an_id_or_with_a_repeated_one_gets_its_own():
    reply = Reply(
        Message("assistant", tuple(ToolCall(i, "add", {"a": 1, "b": n}) for n, i in enumerate(("", "x", "x"))))
    )
    agent, engine = scripted(reply, "ok", tools=[add])

    assert play(result_of("go"), agent).output == "ok"
    results = engine.prompts[1].messages[-1].parts
    assert [r.text for r in results] == ["1", "2", "3"]
    assert len({r.call_id for r in results}) == 3


def test_a_plugin_that_raises_is_reported_and_skipped():
    """P12: later plugins still run."""

    class Broken(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            raise ValueError("no idea")

    class Terse(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            return prompt.instruct("Be terse.")

    agent, engine = scripted("ok", plugins=[Broken(), Terse()])

    events = play(events_after("hi"), agent)
    assert of(PluginFailed, events) == [PluginFailed("broken", "on_prompt", "ValueError: no idea")]
    assert engine.prompts[0].messages[0].text == "Be terse."
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE


@pytest.mark.parametrize(
    "hook",
    [
        *("on_turn_start", "on_prompt", "on_reply", "on_tool_call", "on_tool_result", "on_turn_end", "on_event"),
        "applies",
    ],
)
async def test_a_plugin_that_raises_in_any_hook_does_not_end_the_turn(hook: str):
    """P12."""

    async def fails(self: Plugin, *_: object) -> None:
        raise ValueError("no idea")

    def fails_at_once(self: Plugin, *_: object) -> None:
        raise ValueError("no idea")

    plugin = type("Broken", (Plugin,), {hook: fails_at_once if hook in ("on_event", "applies") else fails})()
    agent, _ = scripted(call("add", a=1, b=1), "2", tools=[add], plugins=[plugin])
    async with App(agent) as app:
        view = await app.conversation().send("hi")
        events, result = await events_of(view), await view.result()
    assert result.output == "2"
    assert {(e.plugin, e.hook) for e in of(PluginFailed, events)} == {("broken", hook)}


def test_a_required_plugin_that_raises_fails_the_turn_closed():
    class Guard(Plugin):
        required = True

        async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall:
            raise ValueError("cannot decide")

    ran: list[int] = []

    @tool
    async def danger() -> str:
        ran.append(1)
        return "boom"

    agent, _ = scripted(call("danger"), tools=[danger], plugins=[Guard()])

    result = play(result_of("hi"), agent)
    assert "plugin 'guard', on_tool_call: ValueError: cannot decide" in result.error
    assert ran == []


def test_none_from_an_editing_hook_is_reported_with_the_plugins_name():
    class Forgets(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt):
            prompt.instruct("lost")

    agent, _ = scripted("ok", plugins=[Forgets()])

    failed = of(PluginFailed, play(events_after("hi"), agent))
    assert [(f.plugin, f.hook) for f in failed] == [("forgets", "on_prompt")]
    assert "returned None" in failed[0].message


def test_an_unknown_hook_is_an_error_at_class_creation_that_names_the_nearest():
    with pytest.raises(RondelError, match="'on_promt' is not a hook; did you mean 'on_prompt'"):

        class Typo(Plugin):  # pyright: ignore[reportUnusedClass]
            async def on_promt(self, turn: Turn, prompt: Prompt) -> Prompt:
                return prompt


def test_a_plugin_that_holds_the_stream_sees_the_reply_before_anybody_else():
    """Trust 6: it need not say that it edits, only that it does not."""

    class Censor(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return reply.with_text(reply.text.replace("secret", "******"))

    class Looks(Plugin):
        holds_stream = False

        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return reply

    for plugins in ([Censor()], [Looks(), Censor()], [Censor(), Looks()]):
        agent, _ = scripted("the secret word", plugins=plugins)

        async def scene(app: App):
            turn = await app.conversation().send("hi")
            return await events_of(turn), await turn.result()

        events, result = play(scene, agent)
        assert "".join(e.text for e in of(PartDelta, events)) == result.output == "the ****** word"


async def test_what_was_shown_is_kept_when_a_plugin_edits_it_too_late():
    """Trust 6: a plugin that says that it edits nothing, and does, is reported, and its text is not taken."""

    class Late(Plugin):
        holds_stream = False

        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return reply.with_text("something else")

    agent, _ = scripted("the word", plugins=[Late()])
    async with App(agent) as app:
        turn = await app.conversation().send("hi")
        events, result = await events_of(turn), await turn.result()
    assert "".join(e.text for e in of(PartDelta, events)) == result.output == "the word"
    (failed,) = of(PluginFailed, events)
    assert (failed.plugin, failed.hook) == ("late", "on_reply")
    assert "already shown" in failed.message


async def test_usage_adds_up_over_rounds():
    one, two = Usage(10, 2, 4), Usage(20, 3)
    agent, _ = scripted(msgspec.structs.replace(call("add", a=1, b=1), usage=one), say("2", usage=two), tools=[add])
    async with App(agent) as app:
        assert of(TurnFinished, await events_of(await app.conversation().send("hi")))[0].usage == Usage(30, 5, 4)


async def test_an_engine_that_breaks_in_mid_stream_keeps_the_turn_answerable():
    def broken(prompt: Prompt):
        return [ReplyStarted("m"), PartDelta(7, "a delta without a part")]

    agent, _ = scripted(broken, "fine")
    async with talking(agent) as conversation:
        first = await (await conversation.send("hi")).result(check=False)
        second = await (await conversation.send("again")).result(check=False)
    assert first.error
    assert second.output == "fine"


def test_results_of_a_round_come_to_the_model_in_the_order_of_its_calls():
    go = asyncio.Event()

    @tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    @tool
    async def quick() -> str:
        go.set()
        return "quick"

    agent, engine = scripted(calls(call("slow"), call("quick")), "ok", tools=[slow, quick])

    events = play(events_after("go"), agent)
    assert [e.result.name for e in of(CallFinished, events)] == ["quick", "slow"]
    assert [r.name for r in engine.prompts[1].messages[-1].parts] == ["slow", "quick"]


def test_an_agents_own_plugins_stand_in_the_middle_and_take_the_place_of_defaults_of_their_name():
    class Mine(Plugin):
        pass

    class Trim(Plugin):
        pass

    first, second, mine = Trim(), Trim(), Mine()
    plugins = rondel.default_plugins(first, mine, second)
    names = [plugin.name for plugin in plugins]
    before = ["limits", "approval", "inputs", "facts", "soft_failures", "repair"]
    assert names == [*before, "mine", "trim", "trim", "text_tools", "log"]
    assert plugins[7:9] == [first, second]


def test_a_model_that_repeats_the_ids_of_its_calls_makes_new_calls():
    """Many servers count their calls from 0 in every answer; an agent that works for one of them has its own transcript
    all the same."""
    inner, _ = scripted("first", "second", name="inner")
    outer, _ = scripted(
        [*deltas_of(Reply(assistant(ToolCall("call_0", "inner", {"input": "one"})), stop="calls"))],
        [*deltas_of(Reply(assistant(ToolCall("call_0", "inner", {"input": "two"})), stop="calls"))],
        "done",
        tools=[inner],
    )

    results = [event.result for event in of(CallFinished, play(events_after("go"), outer))]
    assert [result.text for result in results] == ["first", "second"]
    assert results[0].call_id != results[1].call_id
