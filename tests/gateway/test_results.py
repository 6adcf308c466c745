"""What tools gave, in every dialect: that it failed, and what was to be seen."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from rondel.dialects import DIALECTS as MADE
from rondel.engines.http.encoder import PromptEncoder
from rondel.prompt import HISTORY, Node, Prompt
from rondel.values import Media, Message, Text, ToolCall, ToolResult, user

from .callers import PNG, question
from .served import SHORT, Served
from .speech import PATHS, says, whole
from .upstream import Upstream

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def sent(served: Served, upstream: Upstream, model: str, *results: Any, tail: tuple[Any, ...] = ()) -> dict[str, Any]:
    """What a model is asked when an Anthropic caller gives these results of its calls, and says something more."""
    name = upstream.plays(whole(model, says("Hello")))
    fields = question("anthropic", "Hi", tools=True)
    made = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {"at": "a"}} for n in range(len(results))]
    told = [{"type": "tool_result", "tool_use_id": f"c{n}", **result} for n, result in enumerate(results)]
    fields["messages"] += [{"role": "assistant", "content": made}, {"role": "user", "content": [*told, *tail]}]
    asked = {**fields, "model": f"{SHORT[model]}:{name}"}
    got = httpx2.post(served.base_url + PATHS["anthropic"], json=asked)
    assert got.status_code == 200, got.text
    return upstream.visit(name).body


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"content": "no such file", "is_error": True}, "Error: no such file"),
        ({"content": [{"type": "text", "text": "no such file"}], "is_error": True}, "Error: no such file"),
        ({"content": "Error: no such file", "is_error": True}, "Error: no such file"),
        ({"content": "error: no such file", "is_error": True}, "error: no such file"),
        ({"content": "", "is_error": True}, "Error"),
        ({"is_error": True}, "Error"),
        ({"content": "found it", "is_error": False}, "found it"),
        ({"content": "found it"}, "found it"),
    ],
)
def test_a_model_is_told_that_a_tool_failed(result: dict[str, Any], told: str, served: Served, upstream: Upstream):
    """Trust 25: Chat and Responses have no field for it, so the text says it, once."""
    messages = sent(served, upstream, "openai-chat", result)["messages"]
    assert [m["content"] for m in messages if m["role"] == "tool"] == [told]
    items = sent(served, upstream, "openai-responses", result)["input"]
    assert [item["output"] for item in items if item.get("type") == "function_call_output"] == [told]
    blocks = sent(served, upstream, "anthropic", result)["messages"][2]["content"]
    assert blocks == [{"type": "tool_result", "tool_use_id": "c0", **result}]


def test_a_failure_with_an_image_says_so_too(served: Served, upstream: Upstream) -> None:
    """Trust 25: also where the first thing that came of it is no text."""
    result = {"content": [IMAGE, {"type": "text", "text": "half of it"}], "is_error": True}
    messages = sent(served, upstream, "openai-chat", result)["messages"]
    assert messages[2]["content"][0] == {"type": "text", "text": "Error:"}
    output = sent(served, upstream, "openai-responses", result)["input"][2]["output"]
    assert output[0] == {"type": "input_text", "text": "Error:"}
    assert [part["type"] for part in output] == ["input_text", "input_image", "input_text"]


@pytest.mark.parametrize("tail", [(), ({"type": "text", "text": "Well?"},)], ids=["alone", "with_words"])
def test_the_image_of_a_result_makes_no_second_user_message(tail: tuple[Any, ...], served: Served, upstream: Upstream):
    """Trust 25: many Chat templates refuse two messages of the user in a row."""
    results = [{"content": [{"type": "text", "text": "seen"}, IMAGE]}, {"content": [IMAGE]}]
    messages = sent(served, upstream, "openai-chat", *results, tail=tail)["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "user"]
    kinds = [part["type"] for part in messages[-1]["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", *(["text"] if tail else [])]
    if tail:
        assert messages[-1]["content"][-1] == {"type": "text", "text": "Well?"}


def as_json(body: Any) -> Any:
    return json.loads(json.dumps(body))


@pytest.mark.parametrize("dialect", MADE)
@pytest.mark.parametrize("model", ["", "foreign"])
def test_a_history_that_grows_is_written_as_if_it_came_at_once(dialect: str, model: str) -> None:
    """Trust 25: wherever a conversation stood when it was written last, its results and what the user says next are
    written together."""
    image = Media("image", "image/png", b"png")
    history: list[Message] = [user("Hi")]
    for n in range(8):
        result = ToolResult(f"c{n}", (Text("seen"), image) if n % 2 else (Text("seen"),))
        history += [Message("assistant", (ToolCall(f"c{n}", "look"),)), Message("tool", (result,)), user(f"And {n}?")]
    made = MADE[dialect]()
    growing = PromptEncoder(made)
    for end in range(1, len(history) + 1):
        prompt = Prompt((Node(HISTORY, children=tuple(history[:end])),), model=model)
        assert json.loads(growing.encode(prompt, model="m")) == as_json(made.write_prompt(prompt, model="m")), end
