"""The tools of a body are read once, if the next body has the same; whatever came before, a prompt is the same."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from rondel.contracts.dialect import Json
from rondel.dialects import DIALECTS
from rondel.dialects._tools import KEPT_BYTES_MAX, KEPT_MAX, ToolsReader
from rondel.errors import PromptRejected
from rondel.gateway.relay.request import GatewayRequest
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
def test_the_same_tools_are_read_once(dialect: str):
    body = _body(dialect, SCHEMA)
    (first,) = _asked(dialect, body).tools
    (again,) = _asked(dialect, {**body, "messages" if "messages" in body else "input": [*MESSAGES, *MESSAGES]}).tools
    assert again is first


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tools_of_the_same_length_are_told_apart(dialect: str):
    for word in ("one", "two", "one"):
        schema = {**SCHEMA, "description": word}
        (spec,) = _asked(dialect, _body(dialect, schema)).tools
        assert spec.schema == schema


def test_few_tools_are_kept_and_long_ones_not_at_all():
    read: list[Json] = []
    reader = ToolsReader[Json](lambda raw: read.append(raw) or raw)

    def times_read(*texts: bytes) -> int:
        read.clear()
        for text in texts:
            assert len(reader({"tools": msgspec.Raw(text)})) == 1
        return len(read)

    texts = [b'[{"name": "tool_%d"}]' % n for n in range(KEPT_MAX + 1)]
    assert times_read(*texts[:-1], *texts[:-1]) == KEPT_MAX
    assert times_read(texts[-1], texts[0]) == 2
    long = b'[{"name": "%b"}]' % (b"x" * KEPT_BYTES_MAX)
    assert times_read(long, long) == 2


def test_kept_tools_do_not_keep_the_body_they_came_in():
    reader = ToolsReader[Json](lambda raw: raw)
    tracemalloc.start()
    try:
        body = b'{"messages": "%b", "tools": [{"name": "f"}]}' % (b"x" * 5_000_000)
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        assert reader(dict(fields)) == ({"name": "f"},)
        del body, fields
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


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
    with pytest.raises(PromptRejected, match="'tools' is not JSON"):
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
