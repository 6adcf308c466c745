"""What is computed from a growing history is computed once, and is what it would be if it were computed anew."""

from __future__ import annotations

import sys

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.dialects import DIALECTS
from rondel.engines.http.encoder import FRAME_BYTES_MAX, FRAMES_MAX, PromptEncoder
from rondel.machine.prefix_cache import PrefixCache
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


@settings(derandomize=True)
@given(histories(), st.sampled_from(sorted(DIALECTS)))
def test_a_prompt_that_was_written_in_pieces_is_the_prompt(rounds: list[tuple[Message, ...]], name: str):
    dialect = DIALECTS[name]()
    encoder = PromptEncoder(dialect)
    for messages in rounds:
        prompt = Prompt.of(*messages)
        body = dialect.write_prompt(prompt, model="m")
        assert msgspec.json.decode(encoder.encode(prompt, model="m")) == msgspec.json.decode(msgspec.json.encode(body))


@settings(derandomize=True)
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

    cache = PrefixCache(0, add)
    history = tuple(user(str(n)) for n in range(100))
    other = tuple(user(str(n)) for n in range(50))
    assert cache.of(history[:90]) == 90
    assert cache.of(other) == 50
    assert cache.of(history) == 100
    assert cache.of(history[10:]) == 90
    assert cache.of((*history[:50], user("else"), *history[51:])) == 100
    assert cache.of(()) == 0
    assert seen == [90, 50, 10, 90, 100]


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


def test_instructions_are_kept_with_those_of_a_few_other_prompts_unless_they_are_long():
    encoder = PromptEncoder(DIALECTS["openai-chat"]())

    def encode(instructions: Message) -> None:
        encoder.encode(Prompt.of(instructions, user("a"), user("b")).replace(model="m"), model="m")

    short, long = system("be kind"), system("be kind " * (FRAME_BYTES_MAX // 8))
    before = sys.getrefcount(short)
    encode(long)
    assert sys.getrefcount(long) == before
    encode(short)
    assert sys.getrefcount(short) > before
    for n in range(FRAMES_MAX):
        encode(system(f"be number {n}"))
    assert sys.getrefcount(short) == before


def test_nothing_is_kept_of_the_messages_that_another_program_sent():
    encoder = PromptEncoder(DIALECTS["openai-chat"]())
    first = user("hello")
    before = sys.getrefcount(first)
    encoder.encode(Prompt.of(first, *(user(str(n)) for n in range(20))).replace(model="m"), model="m")
    assert sys.getrefcount(first) == before
