"""The gateway lends the search of knowledge bases to any client of any model, and serves embeddings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.engines.scripted_http import ScriptedServer, answer

from .served import Served
from .upstream import WAIT_S

KEYS = '[gateway.keys.ann]\nkey = "ann-key-1"\nmodels = ["up:*"]\nbudget = {tokens = 1000, window = "day"}\n'
KEYS += '[gateway.keys.bob]\nkey = "bob-key-2"\nmodels = ["other:*"]\n'


def reply(**message: Any) -> bytes:
    stop = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "finish_reason": stop, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return answer(
        json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})
    )


def searched() -> bytes:
    arguments = json.dumps({"query": "money back", "limit": 1})
    function = {"name": "search_knowledge", "arguments": arguments}
    return reply(tool_calls=[{"id": "c1", "type": "function", "function": function}])


def embedded(*vectors: list[float], tokens: int = 5) -> bytes:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return answer(json.dumps({"data": data, "model": "m", "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}))


def config(server: ScriptedServer, more: str = "") -> str:
    return (
        f'engine = "up"\n[engines.up]\nbase_url = "{server.url}"\nmodel = "m"\nretry = {{attempts = 1}}\n'
        f'[engines.other]\nbase_url = "{server.url}/other"\nmodel = "m"\nretry = {{attempts = 1}}\n{more}'
    )


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("/v1/messages", {"max_tokens": 99, "messages": [{"role": "user", "content": "Money?"}]}),
    "openai-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Money?"}]}),
    "openai-responses": ("/v1/responses", {"input": "Money?"}),
}


def citations(dialect: str, body: Any) -> tuple[str, list[str]]:
    if dialect == "anthropic":
        block = body["content"][-1]
        return block["text"], [citation["source"] for citation in block["citations"]]
    if dialect == "openai-chat":
        message = body["choices"][0]["message"]
        return message["content"], [note["url_citation"]["url"] for note in message["annotations"]]
    content = body["output"][-1]["content"][0]
    return content["text"], [note["file_id"] for note in content["annotations"]]


async def test_every_client_gets_the_documents_and_citations_in_its_own_dialect(tmp_path: Path) -> None:
    """K02: the gateway lends the tool, and citations travel in all three dialects."""
    scripts = [[step] for _ in ASKED for step in (searched(), reply(content="Within 14 days [1], not 30 [8]."))]
    async with ScriptedServer(*scripts) as server:
        base = '[knowledge.docs]\nfolders = ["docs"]\nembedder = "none"\n'
        text = config(server, f'[gateway]\nplugins = ["knowledge"]\n{base}')
        files = {"docs/refunds.md": "# Refunds\n\nMoney back within 14 days."}

        def ask() -> list[tuple[str, list[str]]]:
            with Served(tmp_path / "p", text, files=files) as served, httpx2.Client(timeout=WAIT_S) as web:
                said: list[tuple[str, list[str]]] = []
                for dialect, (path, body) in ASKED.items():
                    got = web.post(f"{served.base_url}{path}", json={"model": "up", **body})
                    assert got.status_code == 200, got.text
                    said.append(citations(dialect, got.json()))
                return said

        said = await asyncio.to_thread(ask)
    assert said == [("Within 14 days [1], not 30.", ["docs/refunds.md:3"])] * 3
    offered = server.requests[0].body["tools"]
    assert [tool["function"]["name"] for tool in offered] == ["search_knowledge"]
    assert "> Money back within 14 days." in json.dumps(server.requests[1].body)


def streamed(dialect: str, events: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The text and the sources of a streamed answer, as a client of the dialect reads them."""
    text, sources = "", list[str]()
    for event in events:
        if dialect == "openai-chat":
            for choice in event.get("choices", ()):
                text += choice["delta"].get("content") or ""
                sources += [note["url_citation"]["url"] for note in choice["delta"].get("annotations", ())]
        elif event["type"] == "content_block_delta":
            text += event["delta"].get("text", "")
            sources += [event["delta"]["citation"]["source"]] if "citation" in event["delta"] else []
        elif event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "response.output_text.annotation.added":
            sources.append(event["annotation"]["file_id"])
    return text, sources


async def test_a_streamed_answer_has_its_citations_in_every_dialect(tmp_path: Path) -> None:
    """K02: streamed, through the gateway, in all three dialects."""
    scripts = [[step] for _ in ASKED for step in (searched(), reply(content="Within 14 days [1], not 30 [8]."))]
    async with ScriptedServer(*scripts) as server:
        base = '[knowledge.docs]\nfolders = ["docs"]\nembedder = "none"\n'
        text = config(server, f'[gateway]\nplugins = ["knowledge"]\n{base}')
        files = {"docs/refunds.md": "# Refunds\n\nMoney back within 14 days."}

        def ask() -> dict[str, tuple[str, list[str]]]:
            with Served(tmp_path / "p", text, files=files) as served, httpx2.Client(timeout=WAIT_S) as web:
                said: dict[str, tuple[str, list[str]]] = {}
                for dialect, (path, body) in ASKED.items():
                    got = web.post(f"{served.base_url}{path}", json={"model": "up", "stream": True, **body})
                    data = [line[6:] for line in got.text.splitlines() if line.startswith("data: {")]
                    said[dialect] = streamed(dialect, [json.loads(line) for line in data])
                return said

        said = await asyncio.to_thread(ask)
    assert said == dict.fromkeys(ASKED, ("Within 14 days [1], not 30.", ["docs/refunds.md:3"]))


async def test_embeddings_are_served_with_keys_budgets_and_fallbacks(tmp_path: Path) -> None:
    scripts = [
        [embedded([3, 4], [0, 1])],
        [embedded([1, 0])],
        [answer("{}", 500)],
        [embedded([0, 1], tokens=990)],
    ]
    async with ScriptedServer(*scripts) as server:
        more = KEYS + '[gateway.routes]\nembedding = "up:small"\n[gateway.fallback]\nembedding = ["up:spare"]\n'
        more += "[gateway]\ncool_down_s = 0\n"

        def ask() -> None:
            with (
                Served(tmp_path / "p", config(server, more)) as served,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="ann-key-1", max_retries=0) as ann,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="bob-key-2", max_retries=0) as bob,
            ):
                two = ann.embeddings.create(model="up:small", input=["one", "two"])
                assert [[round(x, 5) for x in item.embedding] for item in two.data] == [[0.6, 0.8], [0, 1]]
                assert (two.usage.prompt_tokens, two.model) == (5, "m")
                routed = ann.embeddings.create(model="whatever", input="one", encoding_format="float")
                assert routed.data[0].embedding == [1, 0]
                with pytest.raises(openai.PermissionDeniedError, match="may not use 'up:small'"):
                    bob.embeddings.create(model="up:small", input="x")
                with pytest.raises(openai.BadRequestError, match=r"`input\[1\]` is not a text"):
                    ann.embeddings.create(model="up:small", input=["a", 3])  # type: ignore[list-item]
                with pytest.raises(openai.BadRequestError, match="`input` is missing"):
                    ann.embeddings.create(model="up:small", input=[])
                spare = ann.embeddings.create(model="up:small", input="one")
                assert list(spare.data[0].embedding) == [0, 1]
                with pytest.raises(openai.RateLimitError):
                    ann.embeddings.create(model="up:small", input="one " * 30)

        await asyncio.to_thread(ask)
    assert [request.body["model"] for request in server.requests] == ["small", "small", "small", "spare"]
    assert all(request.target == "/v1/embeddings" for request in server.requests)


async def test_a_model_that_is_no_embedder_is_named(tmp_path: Path) -> None:
    async with ScriptedServer() as server:

        def ask() -> None:
            with Served(tmp_path / "p", config(server)) as served, httpx2.Client(timeout=WAIT_S) as web:
                got = web.post(f"{served.base_url}/v1/embeddings", json={"model": "nothing", "input": "x"})
                assert (got.status_code, "no embedder is named 'nothing'" in got.text) == (400, True)
                assert web.get(f"{served.base_url}/v1/embeddings").status_code == 405

        await asyncio.to_thread(ask)
