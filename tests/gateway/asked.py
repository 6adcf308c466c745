"""What an upstream was asked, whatever the dialect: so that one table can say what must arrive."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Asked(NamedTuple):
    system: str
    texts: tuple[str, ...]  # What the user says
    images: tuple[str, ...]
    documents: tuple[str, ...]
    tools: tuple[str, ...]
    calls: tuple[tuple[str, str, Any], ...]
    results: tuple[tuple[str, str], ...]
    schema: Any
    thinks: bool


def asked(dialect: str, body: dict[str, Any]) -> Asked:
    return {"anthropic": _messages, "openai-chat": _chat, "openai-responses": _responses}[dialect](body)


def _blocks(content: Any, kind: str = "text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content or ())


def _joined(content: Any) -> str:
    return "".join(block.get("text", "") for block in _blocks(content))


def _messages(body: dict[str, Any]) -> Asked:
    blocks = [(m["role"], block) for m in body["messages"] for block in _blocks(m["content"])]
    of = {
        kind: [block for _, block in blocks if block["type"] == kind]
        for kind in ("image", "document", "tool_use", "tool_result")
    }
    return Asked(
        _joined(body.get("system", "")),
        tuple(block["text"] for role, block in blocks if role == "user" and block["type"] == "text"),
        tuple(block["source"]["data"] for block in of["image"]),
        tuple(block["source"]["data"] for block in of["document"]),
        tuple(tool["name"] for tool in body.get("tools", ())),
        tuple((block["id"], block["name"], block["input"]) for block in of["tool_use"]),
        tuple((block["tool_use_id"], _joined(block["content"])) for block in of["tool_result"]),
        body.get("output_config", {}).get("format", {}).get("schema"),
        body.get("thinking", {}).get("type") in ("enabled", "adaptive"),
    )


def _chat(body: dict[str, Any]) -> Asked:
    messages: list[dict[str, Any]] = body["messages"]
    blocks = [block for m in messages if m["role"] == "user" for block in _blocks(m["content"])]
    made = [call for m in messages for call in m.get("tool_calls") or ()]
    return Asked(
        "".join(_joined(m["content"]) for m in messages if m["role"] in ("system", "developer")),
        tuple(block["text"] for block in blocks if block["type"] == "text"),
        tuple(_data(block["image_url"]["url"]) for block in blocks if block["type"] == "image_url"),
        tuple(_data(block["file"]["file_data"]) for block in blocks if block["type"] == "file"),
        tuple(tool["function"]["name"] for tool in body.get("tools", ())),
        tuple((c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made),
        tuple((m["tool_call_id"], _joined(m["content"])) for m in messages if m["role"] == "tool"),
        body.get("response_format", {}).get("json_schema", {}).get("schema"),
        bool(body.get("reasoning_effort")),
    )


def _responses(body: dict[str, Any]) -> Asked:
    items: list[dict[str, Any]] = (
        [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    )
    users = [block for i in items if i.get("role") == "user" for block in _blocks(i["content"], "input_text")]
    made = [item for item in items if item.get("type") == "function_call"]
    results = [item for item in items if item.get("type") == "function_call_output"]
    told = [_joined(item["content"]) for item in items if item.get("role") in ("system", "developer")]
    return Asked(
        (body.get("instructions") or "") + "".join(told),
        tuple(block["text"] for block in users if block["type"] == "input_text"),
        tuple(_data(block["image_url"]) for block in users if block["type"] == "input_image"),
        tuple(_data(block["file_data"]) for block in users if block["type"] == "input_file"),
        tuple(tool.get("name", tool["type"]) for tool in body.get("tools", ())),
        tuple((item["call_id"], item["name"], json.loads(item["arguments"])) for item in made),
        tuple((item["call_id"], _joined(item["output"])) for item in results),
        body.get("text", {}).get("format", {}).get("schema"),
        bool((body.get("reasoning") or {}).get("effort")),
    )


def _data(url: str) -> str:
    return url.partition("base64,")[2]
