"""What was asked for and could not be told to the model: its names are in a header, and in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .callers import question
from .served import SHORT, Served, engines
from .speech import PATHS, played, says
from .upstream import Upstream

WEB = {"type": "web_search_20250305", "name": "web_search"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
HEARD: list[dict[str, Any]] = [
    {"role": "user", "content": [AUDIO]},
    {"role": "assistant", "content": "I hear."},
    {"role": "user", "content": "And?"},
]
"""A sound that an earlier model could hear; in the newest message it is refused."""
LOOKS: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}

CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("openai-chat", "anthropic", {"logprobs": True, "top_logprobs": 3}, "logprobs, top_logprobs"),
    ("openai-chat", "anthropic", {"web_search_options": {"search_context_size": "low"}}, "web_search_options"),
    ("openai-chat", "anthropic", {"web_search_options": {}}, "web_search_options"),
    (
        "openai-chat",
        "openai-responses",
        {"modalities": ["text", "audio"], "audio": {"voice": "x"}},
        "audio, modalities",
    ),
    ("openai-chat", "anthropic", {"prediction": {"content": "x"}, "store": True}, "prediction, store"),
    ("openai-chat", "anthropic", {"seed": 7, "logit_bias": {"1": 2}}, "logit_bias, seed"),
    ("openai-chat", "openai-responses", {"stop": ["x"], "seed": 7}, "seed, stop"),
    ("openai-chat", "anthropic", {"response_format": {"type": "json_object"}}, "response_format"),
    ("openai-chat", "anthropic", {"messages": HEARD}, "input_audio"),
    ("openai-responses", "anthropic", {"tools": [{"type": "web_search"}, LOOKS]}, "tools.web_search"),
    ("openai-responses", "openai-chat", {"truncation": "auto", "max_tool_calls": 3}, "max_tool_calls"),
    (
        "openai-responses",
        "openai-chat",
        {"text": {"verbosity": "low"}, "metadata": {"a": "b"}},
        "metadata, text.verbosity",
    ),
    ("openai-responses", "openai-chat", {"conversation": "conv_1"}, "conversation"),
    ("anthropic", "openai-chat", {"tools": [WEB]}, "tools.web_search"),
    ("anthropic", "openai-responses", {"stop_sequences": ["x"], "top_k": 5}, "stop_sequences, top_k"),
    ("anthropic", "openai-chat", {"mcp_servers": [{"type": "url", "url": "u", "name": "n"}]}, "mcp_servers"),
]


def ask(served: Served, upstream: Upstream, caller: str, model: str, name: str = "", **fields: Any) -> httpx2.Response:
    name = upstream.plays(played(model, says("Hello"), bool(fields.get("stream"))), name=name)
    asked = {**question(caller, "Hi"), **fields, "model": f"{SHORT[model]}:{name}"}
    got = httpx2.post(served.base_url + PATHS[caller], json=asked)
    assert got.status_code == 200, got.text
    return got


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("caller", "model", "fields", "names"), CASES)
def test_what_a_model_is_not_told_is_named(
    caller: str, model: str, fields: dict[str, Any], names: str, streams: bool, served: Served, upstream: Upstream
) -> None:
    """Trust 25: a field of one dialect that another one does not have was left out without a word."""
    assert ask(served, upstream, caller, model, **fields, stream=streams).headers["x-rondel-dropped"] == names


@pytest.mark.parametrize(
    ("caller", "model", "fields"),
    [
        ("openai-chat", "anthropic", {}),
        ("openai-chat", "anthropic", {"logprobs": False, "presence_penalty": 0, "modalities": ["text"]}),
        ("openai-chat", "anthropic", {"response_format": {"type": "text"}, "service_tier": "auto", "user": "u" * 99}),
        ("openai-chat", "anthropic", {"reasoning_effort": "xhigh", "stream": True, "stream_options": {}}),
        ("openai-responses", "anthropic", {"store": True, "include": ["reasoning.encrypted_content"]}),
        ("openai-responses", "openai-chat", {"reasoning": {"effort": "low", "summary": "auto"}}),
        ("anthropic", "openai-chat", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
        ("openai-chat", "openai-chat", {"logprobs": True, "web_search_options": {}, "seed": 7}),
        ("anthropic", "anthropic", {"tools": [WEB], "top_k": 5}),
        ("openai-responses", "openai-responses", {"tools": [{"type": "web_search"}]}),
    ],
)
def test_nothing_is_named_where_nothing_is_lost(
    caller: str, model: str, fields: dict[str, Any], served: Served, upstream: Upstream
) -> None:
    """Trust 25: a header that is always there warns of nothing."""
    assert "x-rondel-dropped" not in ask(served, upstream, caller, model, **fields).headers


def test_what_a_known_model_refuses_is_named_too(served: Served, upstream: Upstream) -> None:
    """Trust 20, 25: what is left out because of the model's facts is left out as well."""
    told = {"temperature": 0.2, "reasoning_effort": "low"}
    got = ask(served, upstream, "openai-chat", "anthropic", "claude-haiku-4-5", **told)
    assert got.headers["x-rondel-dropped"] == "temperature"
    got = ask(served, upstream, "openai-chat", "anthropic", "claude-haiku-4-5", **told, max_tokens=512)
    assert got.headers["x-rondel-dropped"] == "reasoning_effort"


def test_the_names_of_a_hostile_caller_are_bounded_and_harmless(served: Served, upstream: Upstream) -> None:
    """Trust 25: a name is the caller's own text."""
    fields: dict[str, Any] = {"a\r\nset-cookie: x": 1, "\u202e\x00\x1b]0;": 1, "x" * 100_000: 1}
    fields |= {f"field_{n:05}": 1 for n in range(10_000)}
    got = ask(served, upstream, "openai-chat", "anthropic", **fields)
    names = got.headers["x-rondel-dropped"]
    assert "set-cookie" not in got.headers
    assert len(names) < 1_000
    assert names.isascii()
    assert names.isprintable()
    assert names.endswith("and 9973 more")


def test_the_log_names_it(upstream: Upstream, tmp_path: Path) -> None:
    """Trust 25: whoever looks at a request later sees it, too."""
    with Served(tmp_path, '[gateway.routes]\ndefault = "c"\n' + engines(upstream)) as served:
        ask(served, upstream, "openai-chat", "anthropic", logprobs=True)
    lines = [line for file in tmp_path.rglob("gateway*.jsonl") for line in file.read_text().splitlines()]
    assert [line["dropped"] for line in map(json.loads, lines) if line["event"] == "request"] == [["logprobs"]]
