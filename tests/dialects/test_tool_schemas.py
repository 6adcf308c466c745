"""The schemas of tools stay JSON text until something reads them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.errors import PromptRejected
from rondel.gateway.relay.request import Request
from rondel.prompt import Prompt
from rondel.values import ToolSpec

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
    return Request("r", DIALECTS[dialect](), data, {}).prompt


@pytest.mark.parametrize("caller", DIALECTS)
@pytest.mark.parametrize("model", DIALECTS)
def test_a_schema_is_sent_on_as_it_came_without_being_read(caller: str, model: str):
    prompt = _asked(caller, _body(caller, SCHEMA))
    sent = msgspec.json.encode(DIALECTS[model]().write_prompt(prompt, model="m"))
    assert json.dumps(SCHEMA, ensure_ascii=False).encode() in sent
    assert isinstance(prompt.tools[0].schema_json, msgspec.Raw)


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


def test_a_schema_that_was_given_as_text_is_a_dict_to_its_reader():
    given = ToolSpec("f", "does", msgspec.Raw(msgspec.json.encode(SCHEMA)))
    assert msgspec.json.decode(msgspec.json.encode(given))["schema"] == SCHEMA
    assert given == ToolSpec("f", "does", SCHEMA)
    assert given.schema == SCHEMA
    assert msgspec.structs.replace(given, schema_json={"type": "object"}).schema == {"type": "object"}


def test_a_schema_that_cannot_be_read_is_the_fault_of_the_prompt():
    spec = ToolSpec("f", "", msgspec.Raw(b'{"maximum": 1e999}'))
    with pytest.raises(PromptRejected, match="the schema of the tool 'f' cannot be read"):
        assert spec.schema
