"""What is computed from a growing history is computed once, and is what it would be if it were computed anew."""

from __future__ import annotations

import sys

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.dialects import DIALECTS
from rondel.encoder import FOREIGN_BYTES_MAX, FOREIGN_MAX, PromptEncoder
from rondel.growing import Growing
from rondel.prompt import Node, Prompt
from rondel.values import Media, Message, Text, ToolCall, ToolResult, assistant, system, user

MESSAGES = st.sampled_from(
    [
        user("hello"),
        user("a picture", Media("image", "image/png", data=b"x")),
        assistant("hi"),
        assistant("let me see", ToolCall("c1", "look", {"a": 1})),
        Message("tool", (ToolResult("c1", (Text("seen"),), "look"),)),
        Message("tool", (ToolResult("c1", (Text("seen"), Media("image", "image/png", data=b"y")), "look"),)),
        system("a note in the middle"),
        Message("assistant"),
    ]
)


def histories() -> st.SearchStrategy[list[tuple[Message, ...]]]:
    """The prompts of some rounds: mostly the same history with more at its end, sometimes another one."""
    return st.lists(st.tuples(st.booleans(), st.lists(MESSAGES, max_size=4)), max_size=6).map(_grown)


def _grown(steps: list[tuple[bool, list[Message]]]) -> list[tuple[Message, ...]]:
    first = user("first")
    rounds: list[tuple[Message, ...]] = []
    for goes_on, more in steps:
        before = rounds[-1] if rounds and goes_on else (system("be kind"), first)
        rounds.append((*before, *more))
    return rounds


@settings(max_examples=100, deadline=None, derandomize=True)
@given(histories(), st.sampled_from(sorted(DIALECTS)))
def test_a_prompt_that_was_written_in_pieces_is_the_prompt(rounds: list[tuple[Message, ...]], name: str):
    dialect = DIALECTS[name]()
    encoder = PromptEncoder(dialect)
    for messages in rounds:
        prompt = Prompt.of(*messages)
        body = dialect.write_prompt(prompt, model="m")
        assert msgspec.json.decode(encoder.encode(prompt, model="m")) == msgspec.json.decode(msgspec.json.encode(body))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(histories(), st.sampled_from(sorted(DIALECTS)), st.lists(MESSAGES, max_size=2))
def test_what_stands_behind_the_history_is_written_behind_it(
    rounds: list[tuple[Message, ...]], name: str, behind: list[Message]
):
    dialect = DIALECTS[name]()
    encoder = PromptEncoder(dialect)
    for messages in rounds:
        rule, tail = Node("rule", text="be kind", role="system"), Node("clock", text="it is late", role="system")
        prompt = Prompt((rule, Node("history", children=messages[1:]), *behind, tail))
        body = dialect.write_prompt(prompt, model="m")
        assert msgspec.json.decode(encoder.encode(prompt, model="m")) == msgspec.json.decode(msgspec.json.encode(body))


def test_only_the_new_end_of_a_history_is_worked_on():
    seen: list[int] = []

    def add(total: int, messages: tuple[Message, ...]) -> int:
        seen.append(len(messages))
        return total + len(messages)

    growing = Growing(0, add)
    history = tuple(user(str(n)) for n in range(100))
    other = tuple(user(str(n)) for n in range(50))
    assert growing.of(history[:90]) == 90
    assert growing.of(other) == 50
    assert growing.of(history) == 100
    assert growing.of(history[10:]) == 90
    assert growing.of((*history[:50], user("else"), *history[51:])) == 100
    assert growing.of(()) == 0
    assert seen == [90, 50, 10, 90, 100]


def test_a_loose_end_is_worked_on_again_and_what_stands_before_it_is_not():
    seen: list[int] = []

    def add(total: int, messages: tuple[Message, ...]) -> int:
        seen.append(len(messages))
        return total + len(messages)

    growing = Growing(0, add, loose=3, whole=lambda message: message.role == "tool")
    history = tuple(user(str(n)) for n in range(100))
    assert growing.of(history[:90]) == 90
    assert growing.of((*history[:88], user("marked"), *history[89:95])) == 95
    assert growing.of(history[:95]) == 95
    assert growing.of(history) == 100
    result = Message("tool")
    assert growing.of((*history[:96], result, result, result, history[99])) == 100
    assert seen == [87, 3, 5, 3, 5, 3, 2, 3, 5]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(MESSAGES, min_size=16, max_size=24),
    st.lists(st.tuples(st.integers(0, 6), st.lists(MESSAGES, max_size=4)), max_size=5),
    st.sampled_from(sorted(DIALECTS)),
)
def test_a_foreign_prompt_whose_end_comes_otherwise_is_the_prompt(
    history: list[Message], steps: list[tuple[int, list[Message]]], name: str
):
    dialect = DIALECTS[name]()
    encoder, messages = PromptEncoder(dialect), (user("first"), *history)
    for again, more in steps:
        messages = (*messages[: max(1, len(messages) - again)], *more)
        prompt = Prompt.of(system("be kind"), *messages).replace(model="m")
        body = dialect.write_prompt(prompt, model="m")
        assert msgspec.json.decode(encoder.encode(prompt, model="m")) == msgspec.json.decode(msgspec.json.encode(body))


def test_other_instructions_are_noticed():
    dialect = DIALECTS["openai-chat"]()
    encoder = PromptEncoder(dialect)
    first = user("hi")
    for text in ("be kind", "be brief", "be kind"):
        prompt = Prompt((Node("i", text=text, role="system"), first))
        assert text.encode() in encoder.encode(prompt, model="m")


def test_more_fields_win_and_none_leaves_a_field_out():
    encoder = PromptEncoder(DIALECTS["openai-chat"]())
    body = msgspec.json.decode(encoder.encode(Prompt.of(user("hi")), model="m", more={"stream": None, "x": 1}))
    assert body["x"] == 1
    assert "stream" not in body


def test_a_long_prompt_of_a_foreign_program_is_written_in_pieces_and_the_same():
    dialect = DIALECTS["openai-chat"]()
    encoder = PromptEncoder(dialect)
    history = [user(str(n)) for n in range(40)]
    for size in (30, 40, 39, 40):
        prompt = Prompt.of(system("be kind"), *history[:size]).replace(model="m")
        body = dialect.write_prompt(prompt, model="m")
        assert msgspec.json.decode(encoder.encode(prompt, model="m")) == msgspec.json.decode(msgspec.json.encode(body))


def test_of_foreign_programs_prompts_only_some_are_kept_and_no_huge_one():
    encoder = PromptEncoder(DIALECTS["openai-chat"]())
    firsts: list[Message] = []
    for n in range(FOREIGN_MAX + 5):
        history = [user(f"{n} {m}") for m in range(20)]
        firsts.append(history[0])
        encoder.encode(Prompt.of(*history).replace(model="m"), model="m")
    counts = [sys.getrefcount(message) for message in firsts]
    assert counts[0] < counts[-2]
    huge = [user("x" * FOREIGN_BYTES_MAX), *(user(str(m)) for m in range(20))]
    before = sys.getrefcount(huge[0])
    encoder.encode(Prompt.of(*huge).replace(model="m"), model="m")
    after = sys.getrefcount(huge[0])
    assert after == before


def test_what_is_forgotten_is_worked_on_anew():
    seen: list[int] = []
    growing = Growing(0, lambda total, messages: seen.append(len(messages)) or total + len(messages))
    history = tuple(user(str(n)) for n in range(10))
    growing.of(history)
    growing.forget(history)
    growing.forget(())
    assert growing.of(history) == 10
    assert seen == [10, 10]
