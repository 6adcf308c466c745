"""What is looked for in a body without reading it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.request import Request
from rondel.gateway.searching import FIELD_BYTES_MAX, FIELD_BYTES_MIN, FIELDS_MAX, Search

from .asking import ALL, request

dialects = pytest.mark.parametrize("dialect", ALL)
LONG = "word " * FIELD_BYTES_MIN


def tool(text: str) -> dict[str, Any]:
    return {"name": "t", "description": text, "input_schema": {"type": "object"}}


@dialects
@pytest.mark.parametrize("tools", [None, [], [tool("short")], [tool(LONG)]])
def test_a_text_is_found_wherever_it_stands(dialect: str, tools: list[Any] | None):
    body: dict[str, Any] = {} if tools is None else {"tools": tools}
    asked = request(dialect, "some-model", metadata={"user_id": "ann"}, other=["[lend]"], **body)
    for found in (b"some-model", b'"metadata"', b"ann", b"[lend]", b'"other"'):
        assert asked.holds(b"nowhere", found)
        assert asked.holds(found, b"nowhere")
    assert asked.holds(b'"description"') == bool(tools)
    assert asked.tools_hold(b'"description"') == bool(tools)
    assert not asked.tools_hold(b"ann")
    assert not asked.holds(b"nowhere", b"some.model")
    assert not asked.holds()


def test_tools_that_come_again_are_no_others_of_their_size():
    ours, theirs = (request("anthropic", tools=[tool(LONG + end)]) for end in ("abc", "xyz"))
    for _ in range(2):
        assert [asked.tools_hold(b"abc") for asked in (ours, theirs)] == [True, False]
        assert [asked.tools_hold(b"xyz") for asked in (ours, theirs)] == [False, True]


def test_a_few_fields_of_some_length_are_remembered_and_no_more():
    search = Search((b"x",))
    sizes = [FIELD_BYTES_MIN - 1, FIELD_BYTES_MAX + 1, *range(FIELD_BYTES_MIN, FIELD_BYTES_MIN + 2 * FIELDS_MAX)]
    for size in sizes:
        assert search.finds_again(msgspec.Raw(b" " * (size - 1) + b"x"))
        assert not search.finds_again(msgspec.Raw(b" " * size))
    assert list(search._known) == sizes[-FIELDS_MAX:]  # pyright: ignore[reportPrivateUsage]


@dialects
@pytest.mark.parametrize(
    "body", [b'{"\xff": 1}', b'{"model": "\xff"}', b'{"model": "m", "\\ud800": 1}', b'{"model": 1']
)
def test_a_body_that_is_no_text_is_refused(dialect: str, body: bytes):
    with pytest.raises(PromptRejected, match=r"is not (a JSON object|JSON)"):
        Request("r", DIALECTS[dialect](), body, {})


@dialects
def test_what_is_looked_through_is_all_but_the_tools(dialect: str):
    asked = request(dialect, tools=[tool("a description")])
    assert b"a description" not in asked.said
    assert b"claude-sonnet-5" in asked.said
    assert request(dialect).said == request(dialect)._body  # pyright: ignore[reportPrivateUsage]
