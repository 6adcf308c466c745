"""The measure: the same work as one hand-written asyncio loop. No plugins, no events, no store, no limits, no errors.

It uses the same HTTP client and the same JSON library as Rondel, so that a ratio says what the machine costs and not
what a library does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec

Json = dict[str, Any]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


async def add(a: int, b: int) -> int:
    return a + b


decode = msgspec.json.Decoder().decode
encode = msgspec.json.encode


class HttpModel:
    def __init__(self, base_url: str, model: str, session: aiohttp.ClientSession) -> None:
        self.url, self.model, self.session = f"{base_url}/v1/chat/completions", model, session

    async def stream(self, messages: list[Json]) -> AsyncIterator[Json]:
        body = encode({"model": self.model, "messages": messages, "tools": TOOLS, "stream": True})
        async with self.session.post(self.url, data=body, headers={"content-type": "application/json"}) as response:
            async for line in response.content:
                if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                    choices = decode(line[6:])["choices"]
                    if choices:
                        yield choices[0]["delta"]


async def run_turn(model: Any, messages: list[Json], show: Callable[[str], None]) -> str:
    """One turn: ask, show, call the tools, ask again."""
    while True:
        text: list[str] = []
        calls: dict[int, Json] = {}
        async for delta in model.stream(messages):
            if piece := delta.get("content"):
                text.append(piece)
                show(piece)
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": []})
                call["id"] = part.get("id") or call["id"]
                call["name"] = part["function"].get("name") or call["name"]
                call["arguments"].append(part["function"].get("arguments") or "")
        message: Json = {"role": "assistant", "content": "".join(text)}
        if not calls:
            messages.append(message)
            return message["content"]
        for call in calls.values():
            call["arguments"] = "".join(call["arguments"])
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ]
        messages.append(message)
        results = await asyncio.gather(*(add(**decode(call["arguments"])) for call in calls.values()))
        for call, result in zip(calls.values(), results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
