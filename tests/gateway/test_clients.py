"""The vendors' SDKs as people use them: async, with their helpers for tools, schemas and streams, counting and lists;
and programs that speak the compatible dialect without an SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest

from .asked import asked
from .callers import KEY, TIMEOUT_S, Callers, heard_completion, heard_message, heard_response, question
from .served import SHORT, Served
from .speech import DIALECTS, STREAM, Answer, Call, Say, Think, body, calls, chunk, error, events_of, played, says
from .upstream import Gate, Upstream


class Place(pydantic.BaseModel):
    city: str


# --- side by side -----------------------------------------------------------------------------------------------------


async def test_async_clients_stream_side_by_side(upstream: Upstream, served: Served) -> None:
    """Every pair at once, twice, each with an answer of its own."""
    pairs = [(caller, model, n) for caller in DIALECTS for model in DIALECTS for n in range(2)]
    names = {
        pair: upstream.plays(played(pair[1], Answer((Think("Hm."), Say(f"{pair}"), Call("c1", "look", {}))), True))
        for pair in pairs
    }
    heard: dict[Any, Any] = {}
    async with (
        anthropic.AsyncAnthropic(api_key=KEY, base_url=served.base_url, max_retries=0) as claude,
        openai.AsyncOpenAI(api_key=KEY, base_url=f"{served.base_url}/v1", max_retries=0) as gpt,
        asyncio.timeout(TIMEOUT_S),
        asyncio.TaskGroup() as group,
    ):

        async def ask(pair: tuple[str, str, int]) -> None:
            model, fields = f"{SHORT[pair[1]]}:{names[pair]}", question(pair[0], tools=True, thinking=True)
            if pair[0] == "anthropic":
                async with claude.messages.stream(model=model, **fields) as events:
                    heard[pair] = heard_message(await events.get_final_message())
            elif pair[0] == "openai-chat":
                fields["stream_options"] = {"include_usage": True}
                async with gpt.chat.completions.stream(model=model, **fields) as events:
                    heard[pair] = heard_completion(await events.get_final_completion())
            else:
                async with gpt.responses.stream(model=model, **fields) as events:
                    heard[pair] = heard_response(await events.get_final_response())

        for pair in pairs:
            group.create_task(ask(pair))
    heard = heard
    assert {pair: one.text for pair, one in heard.items()} == {pair: f"{pair}" for pair in pairs}
    assert {one.thoughts for one in heard.values()} == {"Hm."}
    assert all(one.calls == (("c1", "look", {}),) for one in heard.values())


# --- helpers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", DIALECTS)
def test_schemas_given_as_classes_come_back_as_objects(model: str, upstream: Upstream, callers: Callers) -> None:
    text = says('{"city": "Oslo"}')
    name = upstream.plays(*(played(model, text, model != caller) for caller in DIALECTS))
    id = f"{SHORT[model]}:{name}"
    messages: Any = [{"role": "user", "content": "Where?"}]
    claude = callers.anthropic.messages.parse(model=id, max_tokens=100, messages=messages, output_format=Place)
    chat = callers.openai.chat.completions.parse(model=id, messages=messages, response_format=Place)
    response = callers.openai.responses.parse(model=id, input="Where?", text_format=Place)
    parsed = (claude.parsed_output, chat.choices[0].message.parsed, response.output_parsed)
    assert parsed == (Place(city="Oslo"),) * 3
    for visit in upstream.visits(name, 3):
        assert asked(model, visit.body).schema["properties"]["city"]["type"] == "string"


@pytest.mark.parametrize("model", DIALECTS)
def test_text_comes_piece_by_piece_while_the_model_still_speaks(model: str, upstream: Upstream, callers: Callers):
    """Nothing is held back until the end: the first piece is read before the second is said."""
    for caller in DIALECTS:
        gate = Gate()
        events = events_of(model, says("Hello there"))
        half = next(n for n, event in enumerate(events) if b"Hell" in event) + 1
        name = upstream.plays([STREAM, *map(chunk, events[:half]), gate, *map(chunk, events[half:]), b"0\r\n\r\n"])
        pieces = []
        for piece in _pieces(callers, caller, f"{SHORT[model]}:{name}"):
            pieces.append(piece)
            gate.open()
        assert "".join(pieces) == "Hello there"
        assert len(pieces) > 1  # what arrives together may go on together


def _pieces(callers: Callers, caller: str, model: str) -> Iterator[str]:
    fields = question(caller)
    if caller == "anthropic":
        with callers.anthropic.messages.stream(model=model, **fields) as events:
            yield from events.text_stream
    elif caller == "openai-chat":
        for part in callers.openai.chat.completions.create(model=model, stream=True, **fields):
            if part.choices and (text := part.choices[0].delta.content):
                yield text
    else:
        for event in callers.openai.responses.create(model=model, stream=True, **fields):
            if event.type == "response.output_text.delta":
                yield event.delta


@pytest.mark.parametrize("model", DIALECTS)
def test_a_conversation_with_tools_goes_on_as_the_sdks_write_it(model: str, upstream: Upstream, callers: Callers):
    """What an SDK gives as an answer is put back into the next request as it is, thinking and signatures with it."""
    first = Answer((Think("Hm."), Say("Let me look."), Call("c1", "look", {"at": "a"})))
    for caller in DIALECTS:
        name = upstream.plays(played(model, first, model != caller), played(model, says("Seen."), model != caller))
        id, fields = f"{SHORT[model]}:{name}", question(caller, tools=True)
        if caller == "anthropic":
            message = callers.anthropic.messages.create(model=id, **fields)
            result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen a"}
            fields["messages"] += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": [result]},
            ]
            said = heard_message(callers.anthropic.messages.create(model=id, **fields))
        elif caller == "openai-chat":
            completion = callers.openai.chat.completions.create(model=id, **fields)
            fields["messages"] += [
                completion.choices[0].message,
                {"role": "tool", "tool_call_id": "c1", "content": "seen a"},
            ]
            said = heard_completion(callers.openai.chat.completions.create(model=id, **fields))
        else:
            response = callers.openai.responses.create(model=id, **fields)
            fields["input"] += [*response.output, {"type": "function_call_output", "call_id": "c1", "output": "seen a"}]
            said = heard_response(callers.openai.responses.create(model=id, **fields))
        assert said.text == "Seen."
        got = asked(model, upstream.visits(name, 2)[1].body)
        assert (got.calls, got.results) == ((("c1", "look", {"at": "a"}),), (("c1", "seen a"),))


# --- counting and lists -----------------------------------------------------------------------------------------------


def test_tokens_are_counted_by_the_upstream_where_it_can_else_by_estimate(
    upstream: Upstream, callers: Callers, web: httpx2.Client
) -> None:
    """R12: count_tokens is forwarded as it is; elsewhere the estimate names itself."""
    name = upstream.plays([body({"input_tokens": 4321})])
    messages: Any = [{"role": "user", "content": "Hi " * 200}]
    told = callers.anthropic.messages.count_tokens(model=f"a:{name}", messages=messages)
    assert told.input_tokens == 4321
    visit = upstream.visit(name)
    assert visit.target.startswith("/anthropic/v1/messages/count_tokens")
    assert visit.body == {"model": name, "messages": messages}
    for model in ("c:any", "r:any"):
        estimated = callers.anthropic.messages.count_tokens(model=model, messages=messages)
        assert 100 < estimated.input_tokens < 800
        got = web.post("/v1/messages/count_tokens", json={"model": model, "messages": messages}).json()
        assert set(got) == {"input_tokens", "tokenizer"}


def test_an_upstream_that_cannot_count_is_estimated_for(upstream: Upstream, callers: Callers) -> None:
    """R12"""
    name = upstream.plays(error("anthropic", 404, "not_found_error", "No such path."))
    messages: Any = [{"role": "user", "content": "Hi " * 200}]
    assert callers.anthropic.messages.count_tokens(model=f"a:{name}", messages=messages).input_tokens > 100


def test_models_are_listed_in_the_form_of_who_asks(callers: Callers) -> None:
    names = ["a:default-model", "c:default-model", "r:default-model"]
    assert [model.id for model in callers.openai.models.list()] == names
    assert [model.id for model in callers.anthropic.models.list()] == names
    assert callers.openai.models.retrieve("a:default-model").object == "model"
    assert callers.anthropic.models.retrieve("c:default-model").type == "model"
    with pytest.raises(openai.NotFoundError, match="'nobody'"):
        callers.openai.models.retrieve("nobody")
    with pytest.raises(anthropic.NotFoundError, match="'nobody'"):
        callers.anthropic.models.retrieve("nobody")


def test_the_sdks_raise_their_own_errors_for_what_a_model_of_another_dialect_says(upstream: Upstream, callers: Callers):
    rate = {"anthropic": anthropic.RateLimitError, "openai": openai.RateLimitError}
    bad = {"anthropic": anthropic.BadRequestError, "openai": openai.BadRequestError}
    for caller in DIALECTS:
        kind = "anthropic" if caller == "anthropic" else "openai"
        for model in DIALECTS:
            slow = upstream.plays(error(model, 429, "rate_limit_error", "Slow down.", retry_after="3"))
            with pytest.raises(rate[kind], match="Slow down") as raised:
                callers.ask(caller, f"{SHORT[model]}:{slow}", question(caller), streams=True)
            assert raised.value.response.headers["retry-after"] == "3"
            wrong = upstream.plays(error(model, 400, "invalid_request_error", "Too long."))
            with pytest.raises(bad[kind], match="Too long"):
                callers.ask(caller, f"{SHORT[model]}:{wrong}", question(caller))


# --- programs that speak the compatible dialect -----------------------------------------------------------------------

AIDER: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Act as an expert software developer.\nAlways use best practices."},
        {"role": "user", "content": "I have *added these files to the chat*.\n\nhello.py\n```\nprint(1)\n```"},
        {"role": "assistant", "content": "Ok, any changes I propose will be to those files."},
        {"role": "user", "content": "change 1 to 2"},
        {"role": "system", "content": "# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format."},
    ],
    "temperature": 0,
    "stream": True,
}
LLM: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Ten names for a pelican"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.7,
    "max_tokens": 200,
}
OLD: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi", "name": "ann"}],
    "n": 1,
    "stop": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "user": "ann",
    "tools": [{"type": "function", "function": {"name": "now"}}],
    "tool_choice": "auto",
    "functions": [],
}


@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("sent", [AIDER, LLM, OLD], ids=["aider", "llm", "old"])
def test_compatible_programs_are_understood_by_every_model(
    sent: dict[str, Any], model: str, upstream: Upstream, web: httpx2.Client
) -> None:
    """With and without `/v1`, as their base URLs have it."""
    streams = bool(sent.get("stream"))
    name = upstream.plays(*(played(model, says("Hello"), streams or model != "openai-chat") for _ in range(2)))
    for path in ("/v1/chat/completions", "/chat/completions"):
        got = web.post(path, json={"model": f"{SHORT[model]}:{name}", **sent}, headers={"authorization": "Bearer x"})
        assert got.status_code == 200, got.text
        if not streams:
            assert got.json()["choices"][0]["message"]["content"] == "Hello"
            continue
        events = [line.removeprefix("data: ") for line in got.text.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        parts = [json.loads(event) for event in events[:-1]]
        assert "".join(c["delta"].get("content") or "" for part in parts for c in part["choices"]) == "Hello"
        assert any(part.get("usage") for part in parts) is ("stream_options" in sent)
    got_body = json.dumps(upstream.visits(name, 2)[1].body)
    assert sent["messages"][-1]["content"].splitlines()[0] in got_body


def test_a_call_is_read_by_a_program_that_joins_the_pieces_itself(upstream: Upstream, web: httpx2.Client) -> None:
    name = upstream.plays(played("anthropic", calls(Call("c1", "look", {"at": "a"}), Call("c2", "look", {})), True))
    sent = {"model": f"a:{name}", "stream": True, **question("openai-chat", tools=True)}
    joined: dict[int, dict[str, str]] = {}
    for line in web.post("/v1/chat/completions", json=sent).text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for piece in choice["delta"].get("tool_calls", ()):
                    call = joined.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                    call["id"] += piece.get("id", "")
                    call["name"] += piece["function"].get("name") or ""
                    call["arguments"] += piece["function"].get("arguments") or ""
    assert joined == {
        0: {"id": "c1", "name": "look", "arguments": '{"at": "a"}'},
        1: {"id": "c2", "name": "look", "arguments": "{}"},
    }
