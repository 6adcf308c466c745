"""What coding agents send: nothing of it is lost in its own dialect, and nothing of it breaks another one."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any, cast

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.engines.http.encoder import PromptEncoder
from rondel.prompt import Prompt
from rondel.values import Message, Options, PartFinished, Reply, Text, ToolCall, ToolSpec, deltas_of, user

from .coding_agents import BODIES, SCHEMA, Json
from .helpers import NAMES
from .judges import judge_prompt, judge_reply, judge_stream

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
PAIRS = [(source, target) for source in NAMES for target in NAMES if source != target]
LEAKS = (
    *("cache_control", "x_new", "x_inner", "x_call", "SIG", "EmwK", "ENC-", "tomorrow", "srvtoolu", "rs_1", "phase"),
    *("context_management", "clear_thinking", "mcp_servers", "client_metadata", "prompt_cache", "namespace"),
)


def sent_again(name: str, body: Json) -> Json:
    """A body, read and written in its own dialect, over the wire."""
    dialect = DIALECTS[name]()
    return msgspec.json.decode(
        msgspec.json.encode(dialect.write_prompt(dialect.read_prompt(body), model=body["model"]))
    )


def same(value: Any) -> Any:
    """A body in the one of its spellings to which all others are equal: what is null is not there, one plain text is a
    string, an item's type goes without saying, and so does that an item is complete."""
    if isinstance(value, list):
        return [same(inner) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    raw = {key: same(inner) for key, inner in cast(Json, value).items() if inner is not None}
    if raw.get("type") == "message":
        raw.pop("type")
    if raw.get("refusal") and raw.get("role") == "assistant":
        raw["content"] = [{"type": "refusal", "refusal": raw.pop("refusal")}]
    content = raw.get("content")
    parts = cast("list[Json]", content) if isinstance(content, list) else []
    if len(parts) == 1 and set(parts[0]) - {"annotations"} == {"type", "text"}:
        raw["content"] = parts[0]["text"]
    return raw


def joined(messages: list[Json]) -> list[Json]:
    """Messages of users that follow each other are one to this API."""
    found: list[Json] = []
    for role, run in groupby(messages, lambda message: message["role"]):
        same_role = list(run)
        if role != "user" or len(same_role) == 1:
            found += same_role
            continue
        blocks: list[Json] = []
        for message in same_role:
            content = message["content"]
            blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
        found.append({"role": role, "content": blocks})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_in_the_same_dialect(name: str) -> None:
    body = BODIES[name]
    again = sent_again(name, body)
    if name == ANTHROPIC:
        again["messages"] = joined(again["messages"])
    assert same(again) == same(body)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_sent_again_is_sent_again_the_same(name: str) -> None:
    once = sent_again(name, BODIES[name])
    assert sent_again(name, once) == once


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_nothing_breaks_in_another_dialect(source: str, target: str) -> None:
    """Its provider's own types take the body, all that both know is in it, and nothing that only the source knows."""
    dialect = DIALECTS[target]()
    body = dialect.write_prompt(DIALECTS[source]().read_prompt(BODIES[source]), model="m")
    judge_prompt(target, body, stream=True)
    wire = msgspec.json.encode(body).decode()
    for words in ("You are a coding agent.", "Work in /repo.", "Fix it.", "seen", "The person is away now.", "Go on."):
        assert words in wire
    assert [leak for leak in LEAKS if leak in wire] == []
    assert dialect.read_prompt(body).messages


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_what_was_found_is_text_where_there_are_no_search_results(target: str) -> None:
    prompt = DIALECTS[ANTHROPIC]().read_prompt(BODIES[ANTHROPIC])
    wire = msgspec.json.encode(DIALECTS[target]().write_prompt(prompt, model="m")).decode()
    assert wire.count("T\\nhttps://e.x\\nfound") == 2
    assert "D\\nc" in wire


def test_a_search_result_whose_words_a_plugin_changed_is_a_text() -> None:
    raw = {"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text", "text": "found"}]}
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [raw]}]}
    (message,) = DIALECTS[ANTHROPIC]().read_prompt(body).messages
    part = message.parts[0]
    assert isinstance(part, Text)
    changed = Prompt.of(user(msgspec.structs.replace(part, text="other")))
    assert DIALECTS[ANTHROPIC]().write_prompt(changed, model="m")["messages"] == [{"role": "user", "content": "other"}]


# --- custom tools -----------------------------------------------------------------------------------------------------

CUSTOM: dict[str, Json] = {
    RESPONSES: {
        "type": "custom",
        "name": "patch",
        "description": "Edits.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: hunk+"},
    },
    CHAT: {
        "type": "custom",
        "custom": {
            "name": "patch",
            "description": "Edits.",
            "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: hunk+"}},
        },
    },
}
HELLO: dict[str, Json] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"model": "m", "input": "Hi"},
}


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
@pytest.mark.parametrize("target", NAMES)
def test_a_custom_tool_is_a_function_with_one_text_in_other_dialects(source: str, target: str) -> None:
    prompt = DIALECTS[source]().read_prompt({**HELLO[source], "tools": [CUSTOM[source]]})
    (tool,) = DIALECTS[target]().write_prompt(prompt, model="m")["tools"]
    if source == target:
        assert tool == CUSTOM[source]
        return
    inner = tool.get("function", tool)
    schema = inner.get("parameters") or inner.get("input_schema")
    assert (inner["name"], inner["description"], schema["required"]) == ("patch", "Edits.", ["input"])
    assert "start: hunk+" in schema["properties"]["input"]["description"]


@pytest.mark.parametrize("name", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("call", "given"),
    [
        (ToolCall("c1", "patch", {"input": "*** Begin"}), "*** Begin"),
        (ToolCall("c1", "patch", {"patch": "x"}), '{"patch":"x"}'),
        (ToolCall("c1", "patch", broken="*** Begin"), "*** Begin"),
        (ToolCall("c1", "patch"), ""),
    ],
)
def test_a_call_of_a_custom_tool_comes_back_as_one_from_any_model(name: str, call: ToolCall, given: str) -> None:
    """The model took it for a function; its caller reads what it has asked for."""
    dialect = DIALECTS[name]()
    prompt = dialect.read_prompt({**HELLO[name], "tools": [CUSTOM[name]]})
    reply = Reply(Message("assistant", (Text("So."), call, ToolCall("c2", "other", {"a": 1}))), stop="calls")
    writer = dialect.reply_writer(model="m", id="i", prompt=prompt)
    raw = b"".join(writer.feed(delta) for delta in deltas_of(reply))
    if name == RESPONSES:  # the SDK's types of a chat's chunks know functions only
        judge_stream(name, raw)
    reader = dialect.reply_reader()
    read = [delta.part for delta in reader.feed(raw) if isinstance(delta, PartFinished)]
    body = msgspec.json.decode(
        msgspec.json.encode(dialect.reply_writer(model="m", id="i", prompt=prompt).write_whole(reply))
    )
    judge_reply(name, body)
    for parts in (read, dialect.reply_reader().read_whole(body).message.parts):
        custom, plain = (part for part in parts if isinstance(part, ToolCall))
        assert custom.arguments == {"input": given}
        assert custom.opaque[name]["type"].startswith("custom")
        assert (plain.name, plain.arguments) == ("other", {"a": 1})
        assert "type" not in plain.opaque.get(name, {})


# --- smaller things ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_a_choice_falls_away_with_the_tool_that_cannot_be_offered(target: str) -> None:
    search = ToolSpec("web_search", opaque={ANTHROPIC: {"type": "web_search_20250305", "name": "web_search"}})
    read = ToolSpec("read", "", SCHEMA)
    prompt = Prompt.of(user("Hi"), tools=(search, read), options=Options(tool_choice="tool:web_search"))
    assert DIALECTS[ANTHROPIC]().write_prompt(prompt, model="m")["tool_choice"]["name"] == "web_search"
    body = DIALECTS[target]().write_prompt(prompt, model="m")
    assert "tool_choice" not in body
    assert len(body["tools"]) == 1


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_a_users_long_id_is_shortened_for_others_and_stays_in_its_own_dialect(target: str) -> None:
    long = "user_" + "a" * 100
    dialect = DIALECTS[target]()
    first = dialect.write_prompt(Prompt.of(user("Hi"), options=Options(user=long)), model="m")["user"]
    other = dialect.write_prompt(Prompt.of(user("Hi"), options=Options(user=long + "b")), model="m")["user"]
    assert (len(first), first != other, long in first) == (64, True, False)
    assert sent_again(target, {**HELLO[target], "user": long})["user"] == long


def test_an_assistants_item_without_an_id_gets_no_empty_one() -> None:
    body = {"model": "m", "input": [{"role": "assistant", "content": "So.", "phase": "final_answer"}]}
    (item,) = sent_again(RESPONSES, body)["input"]
    assert "id" not in item
    assert item["phase"] == "final_answer"


def test_the_response_that_a_prompt_goes_on_from_is_told_in_its_opaque() -> None:
    body = {"model": "m", "input": "Hi", "previous_response_id": "resp_1", "store": False}
    prompt = DIALECTS[RESPONSES]().read_prompt(body)
    assert prompt.opaque[RESPONSES]["previous_response_id"] == "resp_1"
    assert sent_again(RESPONSES, body)["store"] is False


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in NAMES for b in NAMES])
def test_of_a_foreign_prompt_nothing_is_kept_by_the_encoder(source: str, target: str) -> None:
    """Many callers' prompts go through one engine: they neither pile up there nor meet each other."""
    dialect = DIALECTS[target]()
    encoder = PromptEncoder(dialect)
    prompt = DIALECTS[source]().read_prompt(BODIES[source])
    message: Any = prompt.messages[-1]
    references = sys.getrefcount(message)
    more = {"x_more": 1, "model": None}
    body = msgspec.json.decode(encoder.encode(prompt, model="m", more=more))
    assert sys.getrefcount(message) == references
    expected = dialect.write_prompt(prompt, model="m") | {"x_more": 1}
    del expected["model"]
    assert body == msgspec.json.decode(msgspec.json.encode(expected))
