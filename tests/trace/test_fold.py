"""What single events become in a trace: nothing that was kept is left out."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from rondel.errors import RondelError
from rondel.events import (
    Answer,
    CallFinished,
    CallHeld,
    Digest,
    DurableEvent,
    EngineChanged,
    Entry,
    FactsLearned,
    HandedOff,
    HistoryGiven,
    InputsRead,
    JobFinished,
    JobStarted,
    Learned,
    LimitHit,
    MessageAdded,
    MessageQueued,
    Outcome,
    PluginFailed,
    QuestionAnswered,
    Trimmed,
    TurnFinished,
    TurnStarted,
    Warned,
)
from rondel.question import Question
from rondel.tool import NoResult
from rondel.trace import TraceNode, build, facts_text, only_turn
from rondel.trace.page import Scale, interval
from rondel.values import Message, Text, ToolCall, ToolResult, Usage, Value, assistant, user
from tests.trace.journals import BEGAN, called, journal, said, turn


def notes(*events: DurableEvent) -> list[tuple[str, str]]:
    (only,) = build(journal(*turn(said("hm"), *events)), {}).children
    return [(node.name, node.output) for node in only.children if node.kind == "note"]


def test_hand_offs_limits_warnings_and_failures_of_plugins_are_notes():
    """O01: hand-offs, limits, warnings and what plugins did wrong are in the trace."""
    assert notes(
        HandedOff("painter", by="helper", reason="it is about colours"),
        LimitHit("limits.rounds", "the turn used its 40 rounds"),
        Warned("retrieve", "there is no folder 'texts'"),
        PluginFailed("mine", "on_prompt", "KeyError: 'x'"),
        Trimmed(3, 100, 50),
    ) == [
        ("handed off", "by helper to painter: it is about colours"),
        ("limit reached", "the turn used its 40 rounds"),
        ("warning", "retrieve: there is no folder 'texts'"),
        ("plugin failed", "mine, on_prompt: KeyError: 'x'"),
        ("trimmed", "the oldest 3 messages were left out of the prompt"),
    ]


class MoonRose(Value, frozen=True, tag="moon_rose"):
    phase: str
    usage: Usage = Usage()
    seconds: float = 0.0


def test_an_event_of_a_kind_that_nobody_told_the_trace_of_is_shown_with_its_fields():
    """O01: unknown kinds of events are shown, not dropped."""
    strange = MoonRose("full", Usage(7, 1), 2.0)
    (only,) = build(journal(*turn(said("hm"), strange)), {}).children  # type: ignore[arg-type]
    note = only.children[-1]
    assert (note.kind, note.name, note.arguments) == ("note", "moon rose", {"phase": "full"})
    assert (note.usage, note.seconds, only.usage) == (Usage(7, 1), 2.0, Usage(7, 1))
    assert 'Depth 0: moon rose: {"phase":"full"}' in only.lines()
    (before,) = build(journal(strange), {}).children  # type: ignore[arg-type]
    assert before.name == "moon rose"


def test_facts_belong_to_the_turn_that_learned_them_also_inside_another():
    """O01: facts are in the trace."""
    learned = FactsLearned("t1/c", "weather", (Learned("weather.city", "Paris"),), Usage(5, 5), "x:m")
    mine = FactsLearned("t1", "helper", (Learned("helper.mood", "good"),))
    entries = journal(*turn(said("", ToolCall("c", "weather")), *called("c", "weather", "sunny"), learned, mine))
    inner = journal(*turn(said("sunny"), id="t1/c", agent="weather"))
    (outer,) = build(entries, {"talk/c": inner}, conversation="talk").children
    (weather,) = outer.children[0].children[0].children
    assert (weather.facts, weather.usage) == ({"weather.city": "Paris"}, Usage(5, 5))
    assert (outer.facts, outer.usage) == ({"helper.mood": "good"}, Usage(5, 5))


def test_inputs_that_were_read_out_of_a_text_are_the_turns_inputs():
    read = InputsRead("t1", "helper", {"city": "Paris"}, Usage(9, 2), "x:m")
    (only,) = build(journal(*turn(read, said("hm"))), {}).children
    assert (only.inputs, only.usage, only.children[0].inputs) == ({"city": "Paris"}, Usage(9, 2), {"city": "Paris"})


def test_a_job_in_the_background_has_its_own_turns_and_ends_after_its_turn():
    """O01: background jobs are in the trace, with what they did."""
    begun = JobStarted("j1", "report", "writer", BEGAN)
    ended = JobFinished("j1", "done", Digest("j1", "report", True, "three pages"))
    entries = journal(*turn(said("I am on it"), begun), ended)
    inner = journal(*turn(said("page one", tokens=4), id="j", agent="writer"))
    root = build(entries, {"talk/j1": inner}, conversation="talk")
    job = root.children[0].children[-1]
    assert (job.kind, job.name, job.outcome, job.output, job.seconds) == ("job", "report", "done", "three pages", 2.0)
    assert (job.children[0].name, job.usage, root.usage) == ("writer", Usage(4, 4), Usage(4, 4))
    assert "Depth 1: job report in the background: done" in root.lines()
    waiting = build(journal(*turn(said("I am on it"), begun)), {}).children[0].children[-1]
    assert (waiting.outcome, waiting.seconds) == ("at work", None)
    failed = JobFinished("j1", "failed", Digest("j1", "report", False, "no paper"))
    assert build(journal(*turn(begun), failed), {}).children[0].children[-1].error == "no paper"


def test_a_soft_failure_is_an_outcome_of_its_own():
    """O01: soft failures are in the trace."""
    said_so = str(NoResult("the page is empty", "Try another one."))
    entries = journal(*turn(said("", ToolCall("c", "look")), *called("c", "look", said_so), said("Nothing.")))
    call = build(entries, {}).children[0].children[0].children[0]
    assert (call.outcome, call.error, call.output, call.went_wrong) == ("no result", "", said_so, True)
    assert build(entries, {}).lines()[2] == "Depth 1: called tool look with args {}, no result"


def test_a_call_without_its_round_is_shown_in_the_turn():
    """A turn that goes on after an answer may be told of without its beginning."""
    held = CallHeld(Question("q", "ask", "Which one?", call_id="c"))
    answered = QuestionAnswered(Answer("q", "the red one", "ann"))
    finished = CallFinished(ToolResult("c", (Text("the red one"),), "ask_user"))
    (only,) = build(journal(TurnStarted("t1", "helper"), held, answered, finished), {}).children
    (call,) = only.children
    assert (call.kind, call.question, call.answer, call.output) == (
        "call",
        "Which one?",
        "the red one (by ann)",
        "the red one",
    )


def test_a_turn_that_was_stopped_before_it_began_does_not_end_the_one_before_it():
    entries = journal(*turn(said("hi")), TurnFinished("t2", Outcome.STOPPED, "stopped before it began"))
    (only,) = build(entries, {}).children
    assert (only.outcome, only.children[-1].name) == ("done", "a turn was stopped")


def test_calls_with_the_same_id_in_two_turns_show_each_its_own_work():
    """Models count their calls anew in every turn."""
    first = turn(said("", ToolCall("c", "sub")), *called("c", "sub", "one"))
    second = turn(said("", ToolCall("c", "sub")), *called("c", "sub", "two"), id="t2")
    inner = journal(*turn(said("one"), id="t1/c", agent="sub"), *turn(said("two"), id="t2/c", agent="sub"))
    root = build(journal(*first, *second), {"talk/c": inner}, conversation="talk")
    assert [[t.output for t in node.children[0].children[0].children] for node in root.children] == [["one"], ["two"]]


def test_the_last_word_of_a_tool_is_told_once_and_an_error_once():
    final = CallFinished(ToolResult("c", (Text("All done."),), "finish", final=True))
    events = [said("", ToolCall("c", "finish")), final, MessageAdded(assistant("All done."))]
    (only,) = build(journal(*turn(*events)), {}).children
    assert (only.output, [node.kind for node in only.children]) == ("All done.", ["round"])
    assert notes(MessageAdded(Message("error", (Text("control cannot go to the agent 'x'"),)))) == [
        ("error", "control cannot go to the agent 'x'")
    ]


def test_what_nobody_heard_yet_and_a_foreign_history_are_told():
    assert notes(MessageQueued(user("and faster", id="m"))) == [("not read yet", "and faster")]
    given = HistoryGiven((user("hi"), assistant("hello"), user("what is 2 + 2?")))
    (only,) = build(journal(TurnStarted("t1", "helper"), given, said("4")), {}).children
    assert (only.input, only.children[0].output) == ("what is 2 + 2?", "3 messages")


def test_a_call_of_an_idempotent_tool_ran_though_no_start_was_kept_and_a_refused_one_did_not():
    calls = said("", ToolCall("a", "add"), ToolCall("b", "shell"))
    ran = CallFinished(ToolResult("a", (Text("3"),), "add"), 0.1)
    refused = CallFinished(ToolResult("b", (Text("not allowed"),), "shell", is_error=True))
    (only,) = build(journal(*turn(calls, ran, refused)), {}).children
    assert [call.ran for call in only.children[0].children] == [True, False]


# --- money ------------------------------------------------------------------------------------------------------------


def dollars(engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
    assert at > BEGAN
    return Decimal(usage.tokens_in) / 1000 if engine == "x:model" else None


def priced(*events: DurableEvent) -> TraceNode:
    inner = journal(*turn(said("sunny", tokens=30), id="t1/c", agent="weather"))
    return build(journal(*turn(*events)), {"talk/c": inner}, conversation="talk", price=dollars)


def test_money_is_added_up_from_the_inside_out():
    """O01: tokens and money for each node and in total."""
    root = priced(said("", ToolCall("c", "weather"), tokens=10), *called("c", "weather", "sunny"), said("ok", tokens=5))
    (outer,) = root.children
    first, last = outer.children
    (call,) = first.children
    assert [node.cost for node in (first, call, last)] == [Decimal("0.01"), Decimal("0.03"), Decimal("0.005")]
    assert (outer.cost, root.cost, root.unpriced) == (Decimal("0.045"), Decimal("0.045"), 0)
    assert facts_text(root) == "1.0 s, 45 in, 45 out, $0.045"
    assert msgspec.json.decode(root.to_json(), type=TraceNode) == root


def test_a_price_that_nobody_knows_is_never_zero():
    root = priced(said("one", tokens=10), said("two", tokens=10, engine="y:model"))
    assert (root.cost, root.unpriced) == (Decimal("0.01"), 1)
    assert facts_text(root).endswith("at least $0.010")
    unknown = priced(said("two", tokens=10, engine="y:model"))
    assert (unknown.cost, unknown.unpriced) == (None, 1)


# --- one turn, and when -----------------------------------------------------------------------------------------------


def test_one_turn_is_found_by_number_from_the_end_and_by_id():
    root = build(journal(*turn(said("a")), *turn(said("b"), id="turn_number_2")), {}, conversation="talk")
    for wanted, output in (("1", "a"), ("2", "b"), ("last", "b"), ("-2", "a"), ("number_2", "b"), ("t1", "a")):
        assert [node.output for node in only_turn(root, wanted).children] == [output], wanted


@pytest.mark.parametrize("wanted", ["0", "3", "-3", "x", "1.5", "²", "9" * 5000])
def test_a_turn_that_is_not_there_is_named_with_what_there_is(wanted: str):
    root = build(journal(*turn(said("a")), *turn(said("b"), id="t2")), {}, conversation="talk")
    with pytest.raises(RondelError, match="in conversation 'talk': it has 2; give a number from 1 to 2, or last"):
        only_turn(root, wanted)


def test_rounds_and_calls_begin_when_they_began_and_not_when_they_were_written():
    entries = [
        Entry(1, 100.0, TurnStarted("t", "helper")),
        Entry(2, 103.0, said("", ToolCall("c", "add"), seconds=2.0)),
        Entry(3, 104.5, CallFinished(ToolResult("c", (Text("3"),), "add"), 1.0)),
    ]
    (only,) = build(entries, {}).children
    (one,) = only.children
    assert (one.at, one.ended_at) == (101.0, 103.0)
    assert (one.children[0].at, one.children[0].ended_at) == (103.5, 104.5)


def test_a_time_line_draws_days_of_waiting_short():
    day = 86_400.0
    scale = Scale([(0.0, 10.0), (5.0, 20.0), (day, day + 20.0)])
    assert scale.position(0.0) == 0.0
    assert scale.position(20.0) == pytest.approx(20 / 41.6)
    assert scale.position(day) == pytest.approx(21.6 / 41.6)
    assert scale.position(day + 20.0) == scale.position(day * 9) == 1.0
    assert Scale([]).position(5.0) == 0.0
    assert interval(TraceNode("turn", "helper", at=0.0, ended_at=9.0, seconds=1.0)) is None


def test_a_round_says_which_engine_was_asked_and_which_model_answered_where_that_is_another():
    def round_of(engine: str, model: str, answered_by: str = "") -> str:
        event = msgspec.structs.replace(said("hm", engine=engine), model=model, answered_by=answered_by)
        return build(journal(*turn(event)), {}).children[0].lines()[1].removeprefix("Depth 0: ")

    assert round_of("anthropic:claude-x", "") == "asked anthropic:claude-x (500 ms)"
    assert round_of("anthropic:claude-x", "claude-x") == "asked anthropic:claude-x (500 ms)"
    assert round_of("anthropic:claude-x", "claude-x-2027") == "asked anthropic:claude-x (claude-x-2027) (500 ms)"
    fallback = "asked anthropic:claude-x, answered by local:small"
    assert round_of("anthropic:claude-x", "", "local:small") == f"{fallback} (500 ms)"
    assert round_of("anthropic:claude-x", "local:small", "local:small") == f"{fallback} (500 ms)"
    assert round_of("anthropic:claude-x", "small-2027", "local:small") == f"{fallback} (small-2027) (500 ms)"


def test_a_round_is_priced_by_the_engine_that_answered():
    root = priced(msgspec.structs.replace(said("one", tokens=10, engine="first:m"), answered_by="x:model"))
    assert (root.cost, root.unpriced) == (Decimal("0.01"), 0)
    other = priced(msgspec.structs.replace(said("one", tokens=10), answered_by="y:model"))
    assert (other.cost, other.unpriced) == (None, 1)


def test_another_model_for_a_conversation_is_a_note():
    assert notes(EngineChanged("other"), EngineChanged("")) == [
        ("model changed", "other answers from here on"),
        ("model changed", "each agent uses its own engine again"),
    ]
