"""What callers send again is read once, and what is read is the same as if it were read anew."""

from __future__ import annotations

import json

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.reading import ALIKE_MAX, LIST_BYTES_MAX, LONG_BYTES, OBJECT_BYTES, Readings
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
    readings, body = Readings(list_bytes_min=0), BODIES[dialect]
    first, again = (prompt_of(body, dialect, readings) for _ in range(2))
    assert first == again == prompt_of(body, dialect)
    assert any(a is b for a, b in zip(first.nodes, again.nodes, strict=True))
    assert all(a is b for a, b in zip(first.tools, again.tools, strict=True))


def test_only_the_new_end_of_a_conversation_is_read() -> None:
    readings = Readings(list_bytes_min=0)
    first = prompt_of(conversation("one", "two"), readings=readings)
    longer = prompt_of(conversation("one", "two", "three"), readings=readings)
    assert [a is b for a, b in zip(first.nodes, longer.nodes, strict=False)] == [True, True]
    assert longer == prompt_of(conversation("one", "two", "three"))


def test_the_same_words_in_another_dialect_are_read_by_that_dialect() -> None:
    readings, body = Readings(list_bytes_min=0), conversation("one")
    prompt_of(body, "anthropic", readings)
    assert prompt_of(body, "openai-chat", readings) == prompt_of(body, "openai-chat")
    assert prompt_of(body, "anthropic", readings) == prompt_of(body, "anthropic")


def test_callers_with_other_keys_share_no_reading() -> None:
    readings = Readings(list_bytes_min=0)
    mine, theirs = (prompt_of(conversation("one"), readings=readings, key=key) for key in ("mine", "theirs"))
    assert mine == theirs
    assert mine.nodes[0] is not theirs.nodes[0]


def test_a_mistake_is_told_with_its_place_every_time() -> None:
    readings = Readings(list_bytes_min=0)
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
    for readings in (Readings(list_bytes_min=0), None):
        with pytest.raises(PromptRejected) as caught:
            Request("r", DIALECTS["anthropic"](), body, {}, readings=readings).prompt  # noqa: B018
        said.append(str(caught.value))
    assert said[0].partition("not JSON")[0] == said[1].partition("not JSON")[0]


def test_what_is_remembered_has_a_limit_and_what_comes_again_stays() -> None:
    readings = Readings(20 * OBJECT_BYTES, list_bytes_min=0)
    kept = prompt_of(conversation("often"), readings=readings).nodes[0]
    for n in range(100):
        prompt_of(conversation(f"once {n}"), readings=readings)
        assert prompt_of(conversation("often"), readings=readings).nodes[0] is kept
    first = prompt_of(conversation("once 0"), readings=readings).nodes[0]
    for n in range(100):
        prompt_of(conversation(f"other {n}"), readings=readings)
    assert prompt_of(conversation("once 0"), readings=readings).nodes[0] is not first


def test_a_very_long_conversation_is_not_remembered() -> None:
    readings, body = Readings(list_bytes_min=0), conversation("x" * LIST_BYTES_MAX)
    first, again = (prompt_of(body, readings=readings) for _ in range(2))
    assert first == again
    assert first.nodes[0] is not again.nodes[0]


def test_what_is_short_is_not_worth_remembering() -> None:
    readings, body = Readings(), conversation("Hi")
    first, again = (prompt_of(body, readings=readings) for _ in range(2))
    assert first == again
    assert first.nodes[0] is not again.nodes[0]


def test_what_changes_near_the_end_is_read_anew_and_what_stands_before_it_is_not() -> None:
    """Some callers mark the newest message for the provider's cache, and take the mark away with the next request."""
    readings, texts = Readings(list_bytes_min=0), ("one", "two", "three")
    marked = conversation(*texts)
    marked["messages"][-1]["cache_control"] = {"type": "ephemeral"}
    first = prompt_of(marked, readings=readings)
    longer = prompt_of(conversation(*texts, "four"), readings=readings)
    assert [a is b for a, b in zip(first.nodes, longer.nodes, strict=False)] == [True, True, False]
    assert longer == prompt_of(conversation(*texts, "four"))


def test_a_conversation_that_is_taken_up_at_an_earlier_place_reads_as_what_it_is() -> None:
    readings, texts = Readings(list_bytes_min=0), ("one", "two", "three", "four")
    whole = prompt_of(conversation(*texts), readings=readings)
    earlier = prompt_of(conversation(*texts[:3]), readings=readings)
    assert earlier == prompt_of(conversation(*texts[:3]))
    assert [a is b for a, b in zip(whole.nodes, earlier.nodes, strict=False)] == [True, True, True]


def test_conversations_that_begin_alike_do_not_push_each_other_out() -> None:
    readings = Readings(list_bytes_min=0)
    firsts = [prompt_of(conversation("hello", f"{n} " * 99), readings=readings) for n in range(ALIKE_MAX)]
    for n, first in enumerate(firsts):
        longer = prompt_of(conversation("hello", f"{n} " * 99, "more"), readings=readings)
        assert longer.nodes[:2] == first.nodes
        assert longer.nodes[1] is first.nodes[1]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("cut", range(4))
def test_white_space_and_brackets_in_texts_are_no_end_of_an_object(indent: int | None, cut: int) -> None:
    texts = ('a }, {"role": "user"}]', "[{", '\\"},', "}]")

    def read(texts: tuple[str, ...], readings: Readings | None = None) -> Prompt:
        body = json.dumps(conversation(*texts), indent=indent).encode()
        return Request("r", DIALECTS["anthropic"](), body, {}, readings=readings).prompt

    readings, other = Readings(list_bytes_min=0), (*texts[:cut], "other", *texts[cut + 1 :])
    assert read(texts, readings) == read(texts)
    assert read(other, readings) == read(other)
    assert read((*texts, "more"), readings) == read((*texts, "more"))
    assert read(texts[: cut + 1], readings) == read(texts[: cut + 1])


def test_a_long_conversation_that_comes_out_of_nowhere_is_kept_when_it_comes_again() -> None:
    """One that grows is short at first; what comes once and is long mostly never comes again."""
    readings = Readings()
    texts = ["x" * 1_000 for _ in range(LONG_BYTES // 1_000 + 1)]
    first, again, third = (
        prompt_of(conversation(*texts, *more), readings=readings) for more in ((), ("a",), ("a", "b"))
    )
    assert [prompt.once for prompt in (first, again, third)] == [True, False, False]
    assert not any(a is b for a, b in zip(first.nodes, again.nodes, strict=False))
    assert all(a is b for a, b in zip(again.nodes, third.nodes, strict=False))
    assert third == prompt_of(conversation(*texts, "a", "b"))


def test_a_conversation_that_grew_long_is_kept_all_the_while() -> None:
    readings = Readings()
    texts = ["x" * 1_000 for _ in range(LONG_BYTES // 1_000 + 4)]
    prompts = [prompt_of(conversation(*texts[:count]), readings=readings) for count in range(10, len(texts), 2)]
    assert not any(prompt.once for prompt in prompts)
    assert all(a is b for a, b in zip(prompts[0].nodes, prompts[-1].nodes, strict=False))
