"""The tools of a body are decoded once, if the next body has the same; whatever came before, a prompt is the same."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.relay.request import TOOLS_BYTES_MAX, TOOLS_KEPT, GatewayRequest
from rondel.prompt import Prompt

PROPERTIES = {f"field_{n}": {"type": "string", "description": "a field, größer"} for n in range(4)}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["field_0"]}
MESSAGES = [{"role": "user", "content": "hi"}]


def _body(dialect: str, schema: Any) -> dict[str, Any]:
    if dialect == "anthropic":
        return {"model": "m", "max_tokens": 5, "messages": MESSAGES, "tools": [{"name": "f", "input_schema": schema}]}
    function = {"name": "f", "parameters": schema}
    if dialect == "openai-chat":
        return {"model": "m", "messages": MESSAGES, "tools": [{"type": "function", "function": function}]}
    return {"model": "m", "input": MESSAGES, "tools": [{"type": "function", **function}]}


def _asked(dialect: str, body: dict[str, Any] | bytes) -> Prompt:
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return GatewayRequest("r", DIALECTS[dialect](), data, {}).prompt


@pytest.mark.parametrize("caller", DIALECTS)
@pytest.mark.parametrize("model", DIALECTS)
def test_a_schema_is_sent_on_as_it_came(caller: str, model: str):
    prompt = _asked(caller, _body(caller, SCHEMA))
    sent = msgspec.json.encode(DIALECTS[model]().write_prompt(prompt, model="m"))
    assert msgspec.json.encode(SCHEMA) in sent


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tools_of_the_same_length_are_told_apart(dialect: str):
    for word in ("one", "two", "one"):
        schema = {**SCHEMA, "description": word}
        (spec,) = _asked(dialect, _body(dialect, schema)).tools
        assert spec.schema == schema


def _tools_of(text: bytes) -> Any:
    body = b'{"model": "m", "messages": [], "tools": %b}' % text
    return GatewayRequest("r", DIALECTS["openai-chat"](), body, {}).field("tools")


def test_the_same_few_tools_are_decoded_once_and_long_ones_again():
    texts = [b'[{"name": "tool_%d"}]' % n for n in range(TOOLS_KEPT + 1)]
    first = [_tools_of(text) for text in texts[:-1]]
    assert all(_tools_of(text) is tools for text, tools in zip(texts, first, strict=False))
    _tools_of(texts[-1])
    assert _tools_of(texts[0]) is not first[0]
    long = b'[{"name": "%b"}]' % (b"x" * TOOLS_BYTES_MAX)
    assert _tools_of(long) == _tools_of(long)
    assert _tools_of(long) is not _tools_of(long)


def test_known_tools_do_not_keep_the_body_they_came_in():
    tracemalloc.start()
    try:
        body = b'{"model": "m", "messages": "%b", "tools": [{"name": "f"}]}' % (b"x" * 5_000_000)
        assert GatewayRequest("r", DIALECTS["openai-chat"](), body, {}).field("tools") == [{"name": "f"}]
        del body
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_reading_a_prompt_leaves_shared_tools_as_they_are(dialect: str):
    body = _body(dialect, SCHEMA)
    body["tools"][0]["strict"] = True
    body["tools"].append({"type": "newer_20300101", "name": "g", "input_schema": SCHEMA})
    before = json.dumps(body)
    prompt = DIALECTS[dialect]().read_prompt(body)
    for model in DIALECTS.values():
        model().write_prompt(prompt, model="m")
    assert json.dumps(body) == before


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("schema", [SCHEMA, {"type": "object"}, {}, None])
def test_a_prompt_is_the_same_whether_its_tools_were_decoded_before_or_not(dialect: str, schema: Any):
    body = _body(dialect, schema)
    assert _asked(dialect, body) == DIALECTS[dialect]().read_prompt(body)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("tools", ["f", {"name": "f"}, [1], [None], [{}], [{"type": 1}]])
def test_tools_that_are_wrong_are_refused_with_the_same_sentence(dialect: str, tools: Any):
    body = {**_body(dialect, {}), "tools": tools}
    with pytest.raises(PromptRejected) as undecoded:
        _asked(dialect, body)
    with pytest.raises(PromptRejected) as decoded:
        DIALECTS[dialect]().read_prompt(body)
    assert str(undecoded.value) == str(decoded.value)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("schema", ["x" * 200, list(range(100)), 1])
def test_a_schema_that_is_not_an_object_is_refused(dialect: str, schema: Any):
    with pytest.raises(PromptRejected, match="must be an object"):
        _asked(dialect, _body(dialect, schema))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_whose_bytes_are_no_text_is_refused(dialect: str):
    data = json.dumps(_body(dialect, {"type": "object", "description": "?" * 200})).encode()
    with pytest.raises(PromptRejected, match="'tools' of the body is not JSON"):
        _asked(dialect, data.replace(b"????", b"\xff\xff\xff\xff"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("levels", [100, 400, 900, 100_000])
@pytest.mark.parametrize("kind", ["", "newer_20300101"])
def test_a_schema_that_is_nested_deep_is_sent_or_refused(dialect: str, levels: int, kind: str):
    body = _body(dialect, "deep")
    if kind:
        body["tools"] = [{"type": kind, "name": "f", "input_schema": "deep", "parameters": "deep"}]
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    try:
        prompt = _asked(dialect, json.dumps(body).encode().replace(b'"deep"', deep))
        assert deep in msgspec.json.encode(DIALECTS[dialect]().write_prompt(prompt, model="m"))
    except PromptRejected:
        assert levels > 400


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_of_one_dialect_is_kept_decoded(dialect: str):
    tool = {"type": "newer_20300101", "name": "f", "input_schema": SCHEMA, "parameters": SCHEMA}
    (spec,) = _asked(dialect, {**_body(dialect, {}), "tools": [tool]}).tools
    assert spec.opaque == {dialect: tool}
