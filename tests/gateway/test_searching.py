"""What is looked for in a body without reading it."""

from __future__ import annotations

from typing import Any

import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.relay.request import GatewayRequest

from .asking import ALL, request

dialects = pytest.mark.parametrize("dialect", ALL)
LONG = "word " * 1_000


def tool(text: str) -> dict[str, Any]:
    return {"name": "t", "description": text, "input_schema": {"type": "object"}}


@dialects
@pytest.mark.parametrize("tools", [None, [], [tool("short")], [tool(LONG)]])
def test_a_text_is_found_wherever_it_stands_outside_the_tools(dialect: str, tools: list[Any] | None):
    body: dict[str, Any] = {} if tools is None else {"tools": tools}
    asked = request(dialect, "some-model", metadata={"user_id": "ann"}, other=["[inject]"], **body)
    for found in (b"some-model", b'"metadata"', b"ann", b"[inject]", b'"other"'):
        assert asked.holds(b"nowhere", found)
        assert asked.holds(found, b"nowhere")
    assert not asked.holds(b'"description"')
    assert asked.tools_hold(b'"description"') == bool(tools)
    assert not asked.tools_hold(b"ann")
    assert not asked.holds(b"nowhere", b"some.model")
    assert not asked.holds()


@dialects
@pytest.mark.parametrize(
    "body", [b'{"\xff": 1}', b'{"model": "\xff"}', b'{"model": "m", "\\ud800": 1}', b'{"model": 1']
)
def test_a_body_that_is_no_text_is_refused(dialect: str, body: bytes):
    with pytest.raises(PromptRejected, match=r"is not (a JSON object|JSON)"):
        GatewayRequest("r", DIALECTS[dialect](), body, {})


@dialects
def test_what_is_looked_through_is_all_but_the_tools(dialect: str):
    asked = request(dialect, tools=[tool("a description")])
    assert b"a description" not in asked.without_tools
    assert b"claude-sonnet-5" in asked.without_tools
    assert request(dialect).without_tools == request(dialect)._body  # pyright: ignore[reportPrivateUsage]
