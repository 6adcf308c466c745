"""The trace of a conversation: a tree from the journal's entries, as lines, Markdown and JSON."""

from __future__ import annotations

import asyncio

import msgspec

from rondel import Agent, App, Fallback, tool
from rondel.errors import EngineDenied, EngineOverloaded
from rondel.events import Outcome, TurnFinished
from rondel.testing import Echo, Pause, Scripted, VirtualClock, call, calls, say
from rondel.tools.ask_user import ask_user
from rondel.tools.finish import finish
from rondel.trace import CUT_OFF, TraceNode, build, read, round_text
from rondel.values import Notice, Usage, deltas_of
from tests.helpers import events_of, of, play, scripted
from tests.jobs.workbench import Bench, app_of, tell


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def fail() -> str:
    raise ValueError("it is broken")


async def trace_of(app: App, *texts: str) -> TraceNode:
    conversation = app.conversation()
    for text in texts:
        await events_of(await conversation.send(text))
    return await read(app.store, conversation.id)


def test_the_tree_has_agent_input_prompt_rounds_calls_and_results():
    """O01: a tree of agent, input, prompt, output, error, ran, time and tokens."""
    agent, _ = scripted(
        calls(call("add", "one", a=1, b=2), call("fail", "two")),
        say("It is *3*.", usage=Usage(10, 5)),
        prompt="You add.",
        tools=[add, fail],
    )
    root = play(lambda app: trace_of(app, "1 + 2?"), agent, clock=VirtualClock())
    (turn,) = root.children
    assert (turn.kind, turn.name, turn.input, turn.prompt) == ("turn", "helper", "1 + 2?", "You add.")
    assert (turn.outcome, turn.output, turn.ran, turn.usage) == ("done", "It is *3*.", True, Usage(10, 5))
    first, second = turn.children
    assert (first.kind, first.name, second.output) == ("round", "scripted:test", "It is *3*.")
    added, failed = first.children
    assert (added.name, added.arguments, added.output, added.outcome) == ("add", {"a": 1, "b": 2}, "3", "done")
    assert (failed.error, failed.outcome) == ("'fail' failed: ValueError: it is broken", "failed")
    assert added.seconds is not None
    assert root.usage == Usage(10, 5)


def test_a_line_says_what_was_called_at_which_depth():
    """O01: "Depth d: called tool X with args ...", also inside agents that work for a call."""
    inner, _ = scripted(call("add", "k", a=2, b=2), "four", name="adder", tools=[add])
    outer, _ = scripted(call("adder", "c", input="2 + 2"), "It is four.", tools=[inner])
    root = play(lambda app: trace_of(app, "ask the adder"), outer)
    lines = root.lines()
    assert 'Depth 1: called tool adder with args {"input":"2 + 2"}' in lines
    assert 'Depth 2: called tool add with args {"a":2,"b":2}' in lines
    assert lines[0] == "Depth 0: agent helper was asked 'ask the adder': done"
    call_node = root.children[0].children[0].children[0]
    (nested,) = call_node.children
    assert (nested.kind, nested.name, nested.input, nested.output) == ("turn", "adder", "2 + 2", "four")
    assert nested.inputs == {"input": "2 + 2"}


def test_a_round_that_another_engine_answered_says_why_the_first_one_failed():
    engine = Fallback(Scripted(EngineDenied("the key is refused"), name="a:m"), Scripted("Here.", name="b:m"))
    root = play(lambda app: trace_of(app, "hello"), Agent("helper", engine=engine), clock=VirtualClock())
    assert root.lines() == [
        "Depth 0: agent helper was asked 'hello': done",
        "Depth 0: notice: a:m failed: the key is refused (asking b:m instead)",
        "Depth 0: asked a:m, answered by b:m (0 ms)",
    ]


def test_the_notices_of_a_round_are_bounded():
    engine = Scripted([*(Notice("x" * 5_000) for _ in range(100)), *deltas_of(say("Here."))])
    (turn,) = play(lambda app: trace_of(app, "hello"), Agent("helper", engine=engine)).children
    assert [len(node.output) for node in turn.children if node.name == "notice"] == [1_000] * 20


def test_a_turn_that_no_engine_answered_says_why_each_one_failed():
    engines = Scripted(EngineDenied("no key"), name="a:m"), Scripted(EngineOverloaded("busy"), name="b:m")
    root = play(lambda app: trace_of(app, "hello"), Agent("helper", engine=Fallback(*engines)))
    assert root.children[0].error == "a:m failed: no key; then b:m failed: busy"


def test_json_has_no_cycle_and_reads_back_the_same():
    """O01: JSON without cycles."""
    inner, _ = scripted("deep", name="inner")
    outer, _ = scripted(call("inner", "c", input="x"), "done", tools=[inner])
    root = play(lambda app: trace_of(app, "one"), outer)
    assert msgspec.json.decode(root.to_json(), type=TraceNode) == root


async def test_a_held_question_and_its_answer_are_in_the_trace_of_one_turn():
    agent, _ = scripted(call("ask_user", "q", question="Which colour?"), "Red it is.", tools=[ask_user])
    async with App(agent) as app:
        conversation = app.conversation()
        await events_of(await conversation.send("paint it"))
        waiting = await read(app.store, conversation.id)
        await events_of(await conversation.answer("ask:q", "red", by="ann"))
        done = await read(app.store, conversation.id)
    held = waiting.children[0].children[0].children[0]
    assert (waiting.outcome, held.outcome, held.question, held.answer) == ("waiting", "waiting", "Which colour?", "")
    (turn,) = done.children
    held = turn.children[0].children[0]
    assert (turn.outcome, held.answer, held.output) == ("done", "red (by ann)", "red")


async def test_a_failure_a_steering_line_and_a_turn_at_work_are_told():
    agent, engine = scripted(ValueError("no luck"))
    async with App(agent) as app:
        conversation = app.conversation()
        await events_of(await conversation.send("fail"))
        pause = Pause("I ", "am")
        engine.add(pause, "heard")
        view = await conversation.send("work")
        await pause.reached.wait()
        await conversation.steer("faster")
        under_way = await read(app.store, conversation.id)
        pause.release()
        assert of(TurnFinished, await events_of(view))[0].outcome is Outcome.DONE
        done = await read(app.store, conversation.id)
    assert under_way.children[1].outcome == CUT_OFF
    failed, worked = done.children
    assert (failed.outcome, "no luck" in failed.error) == ("failed", True)
    assert [(node.name, node.output) for node in worked.children if node.kind == "note"] == [("steered", "faster")]
    assert worked.output == "heard"


def test_a_tool_that_ends_the_turn_gives_its_output():
    agent, _ = scripted(call("finish", "f", text="All done."), tools=[finish])
    root = play(lambda app: trace_of(app, "go"), agent)
    assert root.children[0].output == "All done."


def test_nothing_yet_is_an_empty_tree():
    root = build([], {}, conversation="c")
    assert (root.children, root.lines()) == ((), [])
    assert asyncio.run(_read_missing()).children == ()


async def _read_missing() -> TraceNode:
    async with App(Agent("a"), engine="echo") as app:
        return await read(app.store, "nobody")


def test_the_directives_of_an_agents_words_are_calls_and_its_prompt_is_shown_as_it_was_sent():
    """O01: template agents and recruited ones are in the tree; prompts as they were sent."""
    almanac = Agent("almanac", template="In {{ .Input }} it is mild.")
    weather, _ = scripted("Sunny.", name="weather", prompt='Say more than "{{ .Get "almanac" }}" of {{ .Input }}.')
    guide = Agent("guide", template='Hello. {{ .Get "weather" "Paris" }} {{ .Get "nobody" }}')
    root = play(lambda app: trace_of(app, "hi"), guide, weather, almanac, engine=Echo(), clock=VirtualClock())
    assert root.lines()[:9] == [
        "Depth 0: agent guide was asked 'hi': done",
        "Depth 0: carried out the directives of its template (0 ms)",
        'Depth 1: called tool weather with args {"input":"Paris"}',
        "Depth 1: agent weather was asked 'Paris': done",
        "Depth 1: carried out the directives of its prompt (0 ms)",
        'Depth 2: called tool almanac with args {"input":"Paris"}',
        "Depth 2: agent almanac was asked 'Paris': done",
        "Depth 2: filled in its template (0 ms)",
        "Depth 1: asked scripted:test (0 ms)",
    ]
    assert "no agent is named 'nobody'" in root.lines()[9]
    assert root.lines()[-1] == "Depth 0: filled in its template (0 ms)"
    (turn,) = root.children
    (inner,) = turn.children[0].children[0].children
    assert (turn.sent, turn.prompt) == ("", 'Hello. {{ .Get "weather" "Paris" }} {{ .Get "nobody" }}')
    assert inner.sent == 'Say more than "In Paris it is mild." of Paris.'
    assert [node.name for _, node in root.walk() if node.asked] == ["scripted:test"]


WEATHER = 'Unknown. {{ .Get "almanac" }} Enjoy!'


def own_words(root: TraceNode) -> list[str]:
    """What the agent that was asked did in its rounds, the calls of each behind it."""
    (turn,) = root.children
    return [round_text(node) + "".join(f" + {call.name}" for call in node.children) for node in turn.children]


def test_a_round_that_asks_no_model_says_what_was_done_in_it():
    """O01: rounds of functions, of templates and of sentences that go on are told apart."""

    def lookup(city: str) -> str:
        return WEATHER if city == "Paris" else "Sunny."

    almanac = Agent("almanac", template="Mild.")
    weather = Agent("weather", function=lookup, expands_output=True, recruits=["almanac"])
    plain = play(lambda app: trace_of(app, "Rome"), weather, almanac, engine=Echo())
    assert own_words(plain) == ["ran its function + weather", "answered with its function's result"]
    interrupted = play(lambda app: trace_of(app, "Paris"), weather, almanac, engine=Echo())
    assert own_words(interrupted) == [
        "ran its function + weather",
        "carried out the directives in its function's result + almanac",
        "resumed its reply",
    ]
    speaker, _ = scripted(WEATHER, prompt='{{ .Get "almanac" }}', expands_output=True, recruits=["almanac"])
    spoken = play(lambda app: trace_of(app, "hi"), speaker, almanac)
    assert own_words(spoken) == [
        "carried out the directives of its prompt + almanac",
        "asked scripted:test + almanac",
        "resumed its reply",
    ]
    assert [node.name for _, node in spoken.walk() if node.asked] == ["scripted:test"]
    assert interrupted.children[0].output == "Unknown. Mild. Enjoy!"


def test_work_in_the_background_and_who_hears_of_it_are_in_the_trace():
    """O01: background jobs, with the turns that they took and the turn that heard of them."""

    async def main() -> TraceNode:
        bench = Bench()
        agent, _ = scripted(call("slow", "s", topic="tea"), "it has begun", "I know", tools=[bench.tool])
        async with asyncio.timeout(20), app_of(agent) as app:
            await tell(app, "look up tea")
            bench.go.set()
            await app.drain()
            await tell(app, "and?")
            return await read(app.store, "c")

    first, second = asyncio.run(main()).children
    (job,) = [node for node in first.children if node.kind == "job"]
    assert (job.name, job.outcome, "all about tea" in job.output) == ("slow", "done", True)
    assert 'called tool slow with args {"topic":"tea"}' in "".join(job.lines())
    rounds = [node for _, node in job.walk() if node.kind == "round"]
    assert [node.did for node in rounds] == [
        "ran the next step of the job",
        "answered with the result of the job's last step",
    ]
    heard = second.children[0]
    assert (heard.name, heard.output.splitlines()[-1]) == ("job result", "slow completed: all about tea")
