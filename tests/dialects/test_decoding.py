"""Messages that are decoded by their dialect read the same as those that are taken apart field by field."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given

from rondel.dialect import Again, Dialect
from rondel.dialects import DIALECTS
from rondel.dialects.anthropic.plain import PlainMessage
from rondel.errors import PromptRejected
from rondel.prompt import Prompt

from .coding_agents import BODIES, Json
from .helpers import NAMES
from .strategies import PROMPTS
from .test_round_trips import QUICK

TEXT = {"type": "text", "text": "Hi"}
MARK = {"cache_control": {"type": "ephemeral"}}
CALL = {"type": "tool_use", "id": "c", "name": "look", "input": {"at": [1, {"x": None}]}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "found"}
PLAIN: list[Json] = [
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": ""},
    {"role": "user", "content": []},
    {"role": "assistant", "content": [TEXT, CALL, {"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
    {"role": "user", "content": [RESULT, {**RESULT, "content": "", "is_error": True}, {**RESULT, "content": [TEXT]}]},
    {"role": "user", "content": [TEXT, RESULT, TEXT]},
]
OTHERS: list[Json] = [
    {"role": "user", "content": [{**TEXT, **MARK}]},
    {"role": "user", "content": [{**TEXT, "citations": None}]},
    {"role": "user", "content": [{**RESULT, **MARK, "is_error": None}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    {"role": "assistant", "content": [{**CALL, "caller": {"type": "direct"}}]},
    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
    {"role": "assistant", "content": [{"type": "tomorrow", "x": 1}]},
    {"role": "assistant", "content": "Hi", "id": "m"},
    {"role": "system", "content": "Be brief."},
]
WRONG: list[Any] = [
    {"role": "owner", "content": "Hi"},
    {"role": "user"},
    {"role": "user", "content": 7},
    {"role": "user", "content": [{"type": "text", "text": 7}]},
    {"role": "user", "content": [{"type": "tool_result", "content": "found"}]},
    {"role": "assistant", "content": [{**CALL, "input": "no object"}]},
]


def decoded(dialect: Dialect, body: Json) -> Prompt:
    """A body's prompt, with its messages decoded as their dialect likes it best."""
    field = dialect.messages_field
    return dialect.read_prompt({**body, field: Again(dialect.decode_messages(msgspec.json.encode(body[field])), [])})


def anthropic(*messages: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": list(messages)}


@pytest.mark.parametrize("name", NAMES)
def test_what_coding_agents_send_reads_the_same(name: str) -> None:
    dialect = DIALECTS[name]()
    assert decoded(dialect, BODIES[name]) == dialect.read_prompt(BODIES[name])


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_reads_the_same(name: str) -> None:
    dialect = DIALECTS[name]()

    @QUICK
    @given(PROMPTS[name])
    def check(prompt: Prompt) -> None:
        body = dialect.write_prompt(prompt, model=prompt.model)
        assert decoded(dialect, body) == dialect.read_prompt(body)

    check()


@pytest.mark.parametrize("messages", [PLAIN, OTHERS, [*PLAIN, *OTHERS]])
def test_plain_messages_and_others_read_the_same(messages: list[Json]) -> None:
    dialect, body = DIALECTS["anthropic"](), anthropic(*messages)
    assert decoded(dialect, body) == dialect.read_prompt(body)


def test_what_is_not_plain_leaves_the_messages_around_it_plain() -> None:
    data = msgspec.json.encode([*PLAIN, *OTHERS])
    plain = [isinstance(message, PlainMessage) for message in DIALECTS["anthropic"]().decode_messages(data)]
    assert plain == [True] * len(PLAIN) + [False] * len(OTHERS)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_told_with_the_same_words(wrong: Any) -> None:
    dialect, body = DIALECTS["anthropic"](), anthropic(PLAIN[0], wrong)
    said: list[str] = []
    for read in (dialect.read_prompt, partial(decoded, dialect)):
        with pytest.raises(PromptRejected) as caught:
            read(body)
        said.append(str(caught.value))
    assert "messages[1]" in said[0]
    assert said[0] == said[1]
