"""A caller and a model of the same dialect: nothing of what either says is lost, known here or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from ..dialects.judges import judge_prompt
from .raw import read_stream
from .served import SECRETS, SHORT, Served
from .speech import DIALECTS, END, PATHS, STREAM, body, chunk, events_of, piece_of, says, whole_of
from .upstream import Upstream

ANY = {"type": "object", "properties": {}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: SOURCE"}
TODAY: dict[str, dict[str, Any]] = {
    "anthropic": {
        "max_tokens": 32000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.3d3; cc_entrypoint=cli;"},
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>It is Monday.</system-reminder>\n\n"},
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
                ],
            },
            {"role": "system", "content": "Agents that you may start: none."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "cmVk"},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": True,
                        "content": [{"type": "text", "text": "no such file"}],
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "text", "text": "Go on."},
                ],
            },
            {"role": "system", "content": "The user has opened a file."},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "xhigh"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "tools": [
            {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}, "eager_input_streaming": True},
            {"name": "Write", "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **ANY}},
            {"type": "web_search_20260209", "name": "web_search", "max_uses": 8},
            {"type": "namespace", "name": "crm", "tools": [{"name": "look", "input_schema": {"type": "object"}}]},
            {"type": "of_tomorrow_20270101", "name": "tomorrow"},
        ],
        "metadata": {"user_id": '{"device_id":"44c6","account_uuid":"","session_id":"a1fb-20da"}'},
        "service_tier": "auto",
        "a_field_of_tomorrow": {"deep": [1, 2.5, None, True, "\u00e4\U0001f600"]},
    },
    "openai-chat": {
        "messages": [
            {"role": "system", "content": "You are a coding agent."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "no such file"},
            {"role": "developer", "content": "The user has opened a file."},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}},
            {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}},
            {"type": "of_tomorrow", "of_tomorrow": {"name": "t"}},
        ],
        "reasoning_effort": "xhigh",
        "verbosity": "low",
        "stream_options": {"include_usage": True, "include_obfuscation": False},
        "parallel_tool_calls": True,
        "prediction": {"type": "content", "content": "x"},
        "prompt_cache_key": "k",
        "logit_bias": {"1": -1},
        "store": False,
        "a_field_of_tomorrow": {"deep": [1, 2.5, None, True, "\u00e4\U0001f600"]},
    },
    "openai-responses": {
        "instructions": "You are a coding agent.",
        "input": [
            {
                "type": "additional_tools",
                "id": "at_1",
                "role": "developer",
                "tools": [
                    {
                        "type": "namespace",
                        "name": "functions",
                        "description": "",
                        "tools": [{"type": "custom", "name": "exec", "description": "Runs.", "format": GRAMMAR}],
                    },
                    {
                        "type": "namespace",
                        "name": "team",
                        "description": "Agents.",
                        "tools": [{"type": "function", "name": "list_agents", "strict": False, "parameters": ANY}],
                    },
                ],
            },
            {"type": "message", "id": "msg_0", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "ZW5j"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "ZW5k"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell", "arguments": "{}"},
            {"type": "function_call", "call_id": "c3", "name": "list_agents", "namespace": "team", "arguments": "{}"},
            {"type": "function_call_output", "id": "fco_1", "call_id": "c3", "output": "[]"},
            {"type": "function_call_output", "call_id": "c1", "output": "no such file"},
            {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "patch", "input": "*** Begin"},
            {
                "type": "custom_tool_call_output",
                "id": "ctco_1",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "done"}, {"type": "input_text", "text": "in 0.1 s"}],
            },
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "A file is open."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        ],
        "tools": [
            {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {}}},
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "p"}},
            {"type": "namespace", "name": "crm", "description": "CRM", "tools": []},
            {"type": "web_search", "external_web_access": True},
            {"type": "of_tomorrow", "size": 3},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "xhigh", "summary": "auto", "context": "all_turns"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "019a",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-turn-metadata": '{"turn_id":"01a1"}', "thread_id": "019a"},
        "a_field_of_tomorrow": {"deep": [1, 2.5, None, True, "\u00e4\U0001f600"]},
    },
}
HEADERS = {
    "anthropic": {
        "anthropic-beta": "claude-code-20250219,context-management-2025-06-27,mid-conversation-system-2026-04-07",
        "anthropic-version": "2023-06-01",
        "anthropic-dangerous-direct-browser-access": "true",
        "x-claude-code-session-id": "a1fb-20da",
        "x-stainless-retry-count": "0",
        "x-app": "cli",
    },
    "openai-chat": {"openai-organization": "org-1", "x-stainless-lang": "python", "x-session-affinity": "ses_1"},
    "openai-responses": {
        "openai-beta": "responses=v9",
        "originator": "codex_exec",
        "session-id": "019a",
        "thread-id": "019a",
        "x-client-request-id": "019a",
        "x-codex-turn-metadata": '{"turn_id":"01a1","sandbox":"seccomp"}',
        "x-openai-internal-codex-responses-lite": "true",
    },
}


@pytest.fixture(scope="module")
def web(served: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served.base_url, timeout=20.0, headers={"authorization": "Bearer mine"}) as web:
        yield web


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_today_s_coding_agents_send_arrives_as_it_was_sent(
    dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client
) -> None:
    answer = [STREAM, chunk(b"".join(events_of(dialect, says("Hello")))), END]
    name = upstream.plays(answer if streams else [body(whole_of(dialect, says("Hello")))])
    sent = {"model": f"{SHORT[dialect]}:{name}", **TODAY[dialect], "stream": streams}
    if not streams:
        sent.pop("stream_options", None)
    got = web.post(f"{PATHS[dialect]}?beta=true", json=sent, headers=HEADERS[dialect])
    assert got.status_code == 200, got.text
    visit = upstream.visit(name)
    assert visit.body == {**sent, "model": name}
    assert list(visit.body) == list(sent)
    assert visit.target.endswith(f"{PATHS[dialect]}?beta=true")
    assert {key: visit.headers.get(key) for key in HEADERS[dialect]} == HEADERS[dialect]
    key = visit.headers.get("x-api-key") or visit.headers["authorization"].removeprefix("Bearer ")
    assert key == SECRETS[SHORT[dialect]]
    assert "mine" not in str(visit.headers)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_model_streams_arrives_byte_for_byte_whatever_the_split(
    dialect: str, upstream: Upstream, web: httpx2.Client
) -> None:
    """X03: events across any split, also inside a character; unknown events and comments pass."""
    events = events_of(dialect, says("Hello \u00e4\U0001f600 there"))
    odd = b": a comment\n\n" + _unknown(dialect)
    raw = b"".join([*events[:3], odd, piece_of(dialect, "\U0001f600"), *events[3:]])
    name = upstream.plays([STREAM, *(chunk(raw[at : at + 7]) for at in range(0, len(raw), 7)), END])
    sent = {"model": f"{SHORT[dialect]}:{name}", **TODAY[dialect], "stream": True}
    got = web.post(PATHS[dialect], json=sent)
    assert got.content == raw
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["x-request-id"] == "up-1"


def _unknown(dialect: str) -> bytes:
    if dialect == "openai-chat":
        data = {"id": "chatcmpl-up", "object": "of.tomorrow", "created": 1, "model": "m", "choices": [], "more": 1}
        return b"data: " + json.dumps(data).encode() + b"\n\n"
    return b'event: of_tomorrow\ndata: {"type": "of_tomorrow",\ndata: "sequence_number": 3}\n\n'


def test_a_header_in_several_lines_arrives_whole(upstream: Upstream, web: httpx2.Client) -> None:
    name = upstream.plays([body(whole_of("anthropic", says("Hello")))])
    sent = {"model": f"a:{name}", "max_tokens": 5, "messages": []}
    got = web.post("/v1/messages", json=sent, headers=[("anthropic-beta", "one,two"), ("anthropic-beta", "three")])
    assert got.status_code == 200
    assert upstream.visit(name).headers["anthropic-beta"].replace(" ", "") == "one,two,three"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_answer_arrives_byte_for_byte(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    raw = json.dumps({**whole_of(dialect, says("Hello")), "of_tomorrow": [1.50, "\u00e4"]}, indent=1).encode()
    name = upstream.plays([body(raw, x_request_id="up-2")])
    got = web.post(PATHS[dialect], json={"model": f"{SHORT[dialect]}:{name}", **TODAY[dialect], "stream": False})
    assert got.content == raw
    assert got.headers["x-request-id"] == "up-2"


def test_a_caller_that_asked_for_no_usage_sees_none(upstream: Upstream, web: httpx2.Client) -> None:
    """The upstream is asked for it all the same: otherwise nothing would be metered."""
    events = events_of("openai-chat", says("Hello"))
    name = upstream.plays([STREAM, *map(chunk, events), END])
    messages = [{"role": "user", "content": "Hi"}]
    got = web.post("/v1/chat/completions", json={"model": f"c:{name}", "messages": messages, "stream": True})
    assert upstream.visit(name).body["stream_options"] == {"include_usage": True}
    assert got.content == b"".join(event for event in events if b'"usage"' not in event)


@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("caller", DIALECTS)
def test_what_today_s_coding_agents_send_breaks_no_model_of_another_dialect(
    caller: str, model: str, upstream: Upstream, web: httpx2.Client
) -> None:
    if caller == model:
        return
    name = upstream.plays([STREAM, chunk(b"".join(events_of(model, says("Hello")))), END])
    sent = {"model": f"{SHORT[model]}:{name}", **TODAY[caller], "stream": True}
    got = web.post(PATHS[caller], json=sent, headers=HEADERS[caller])
    assert got.status_code == 200, got.text
    assert read_stream(caller, got.content)[:2] == ("Hello", ("end",))
    visit = upstream.visit(name)
    judge_prompt(model, visit.body, stream=True)
    said = json.dumps(visit.body)
    assert "of_tomorrow" not in said
    assert "And now?" in said
    assert "no such file" in said
    assert "open" in said
    assert not set(HEADERS[caller]) & set(visit.headers) - {"anthropic-version"}
