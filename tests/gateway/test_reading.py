"""What callers send again is read once, and what is read is the same as if it were read anew."""

from __future__ import annotations

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.reading import OBJECT_BYTES, OBJECT_BYTES_MAX, Readings
from rondel.gateway.request import Request
from rondel.prompt import Prompt

from ..dialects.coding_agents import BODIES, Json

USER = {"role": "user", "content": "Hi"}


def prompt_of(body: Json, dialect: str = "anthropic", readings: Readings | None = None, key: str = "") -> Prompt:
    return Request("r", DIALECTS[dialect](), msgspec.json.encode(body), {}, key=key, readings=readings).prompt


def conversation(*texts: str) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text} for text in texts]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_comes_again_is_read_once_and_reads_the_same(dialect: str) -> None:
    readings, body = Readings(), BODIES[dialect]
    first, again = (prompt_of(body, dialect, readings) for _ in range(2))
    assert first == again == prompt_of(body, dialect)
    assert any(a is b for a, b in zip(first.nodes, again.nodes, strict=True))
    assert all(a is b for a, b in zip(first.tools, again.tools, strict=True))


def test_only_the_new_end_of_a_conversation_is_read() -> None:
    readings = Readings()
    first = prompt_of(conversation("one", "two"), readings=readings)
    longer = prompt_of(conversation("one", "two", "three"), readings=readings)
    assert [a is b for a, b in zip(first.nodes, longer.nodes, strict=False)] == [True, True]
    assert longer == prompt_of(conversation("one", "two", "three"))


def test_the_same_words_in_another_dialect_are_read_by_that_dialect() -> None:
    readings, body = Readings(), conversation("one")
    prompt_of(body, "anthropic", readings)
    assert prompt_of(body, "openai-chat", readings) == prompt_of(body, "openai-chat")
    assert prompt_of(body, "anthropic", readings) == prompt_of(body, "anthropic")


def test_callers_with_other_keys_share_no_reading() -> None:
    readings = Readings()
    mine, theirs = (prompt_of(conversation("one"), readings=readings, key=key) for key in ("mine", "theirs"))
    assert mine == theirs
    assert mine.nodes[0] is not theirs.nodes[0]


def test_a_mistake_is_told_with_its_place_every_time() -> None:
    readings = Readings()
    body = {"model": "m", "max_tokens": 9, "messages": [USER, {"role": "user", "content": [{"type": 7}]}]}
    said: list[str] = []
    for remembered in (readings, readings, None):
        with pytest.raises(PromptRejected) as caught:
            prompt_of(body, readings=remembered)
        said.append(str(caught.value))
    assert "messages[1]" in said[0]
    assert said == [said[0]] * 3


@pytest.mark.parametrize("messages", [b'["a"]', b"[1]", b"7", b'"hi"', b'[{"role":"user","content":"\xff"}]', b"[[]]"])
def test_what_is_no_list_of_objects_is_refused_as_without_remembering(messages: bytes) -> None:
    body = b'{"model":"m","max_tokens":9,"messages":' + messages + b"}"
    said: list[str] = []
    for readings in (Readings(), None):
        with pytest.raises(PromptRejected) as caught:
            Request("r", DIALECTS["anthropic"](), body, {}, readings=readings).prompt  # noqa: B018
        said.append(str(caught.value))
    assert said[0].partition("not JSON")[0] == said[1].partition("not JSON")[0]


def test_what_is_remembered_has_a_limit_and_what_comes_again_stays() -> None:
    readings = Readings(bytes_max=20 * OBJECT_BYTES)
    kept = prompt_of(conversation("often"), readings=readings).nodes[0]
    for n in range(100):
        prompt_of(conversation(f"once {n}"), readings=readings)
        assert prompt_of(conversation("often"), readings=readings).nodes[0] is kept
    first = prompt_of(conversation("once 0"), readings=readings).nodes[0]
    for n in range(100):
        prompt_of(conversation(f"other {n}"), readings=readings)
    assert prompt_of(conversation("once 0"), readings=readings).nodes[0] is not first


def test_a_very_long_message_is_not_remembered() -> None:
    readings, body = Readings(), conversation("x" * OBJECT_BYTES_MAX)
    first, again = (prompt_of(body, readings=readings) for _ in range(2))
    assert first == again
    assert first.nodes[0] is not again.nodes[0]
