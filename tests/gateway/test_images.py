"""The gateway serves pictures in OpenAI's form, with keys, budgets and fallbacks; the official SDK is the judge."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from rondel.testing.png import draw_png
from rondel.text.multipart import read_form
from tests.engines.scripted_http import ScriptedServer, answer

from .served import Served
from .upstream import WAIT_S

PNG = draw_png("8x8")
KEYS = '[gateway.keys.ann]\nkey = "ann-key-1"\nmodels = ["up:*"]\nbudget = {tokens = 6000, window = "day"}\n'
KEYS += '[gateway.keys.bob]\nkey = "bob-key-2"\nmodels = ["other:*"]\n'


def drawn(tokens: int = 1_000, **more: Any) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": tokens, "input_tokens_details": {"image_tokens": 4, "text_tokens": 5}}
    data = [{"b64_json": base64.b64encode(PNG).decode()}]
    return answer(json.dumps({"created": 1, "data": data, "usage": usage, **more}))


def config(server: ScriptedServer, more: str = "") -> str:
    return (
        f'engine = "echo"\n[images]\nengine = "up:gpt-image-1"\nfallback = ["up:spare"]\n'
        f'size = "512x512"\noptions = {{quality = "low"}}\n'
        f'[engines.up]\nbase_url = "{server.url}"\nretry = {{attempts = 1}}\n'
        f'[engines.other]\nbase_url = "{server.url}/other"\nretry = {{attempts = 1}}\n'
        f"{more}[gateway]\ncool_down_s = 0\n"
    )


async def test_pictures_are_served_with_keys_budgets_and_fallbacks(tmp_path: Path) -> None:
    scripts = [[drawn()], [drawn()], [answer("{}", 500)], [drawn()], [drawn(4_000)]]
    async with ScriptedServer(*scripts) as server:

        def ask() -> None:
            with (
                Served(tmp_path / "p", config(server, KEYS)) as served,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="ann-key-1", max_retries=0) as ann,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="bob-key-2", max_retries=0) as bob,
            ):
                one = ann.images.generate(model="up:gpt-image-2", prompt="a fox", size="1024x1024", quality="high")
                assert one.data is not None
                assert base64.b64decode(one.data[0].b64_json or "") == PNG
                assert one.usage is not None
                assert (one.usage.total_tokens, one.usage.input_tokens_details.image_tokens) == (1_009, 4)
                routed = ann.images.generate(prompt="a fox", response_format="url")  # no model: that of [images]
                assert routed.data is not None
                assert (routed.data[0].url or "").startswith("data:image/png;base64,")
                with pytest.raises(openai.PermissionDeniedError, match="may not use 'up:gpt-image-1'"):
                    bob.images.generate(model="up:gpt-image-1", prompt="x")
                with pytest.raises(openai.BadRequestError, match="the prompt is empty"):
                    ann.images.generate(prompt=" ")
                with pytest.raises(openai.BadRequestError, match="at most 32,000"):
                    ann.images.generate(prompt="x" * 1_000_000)
                with pytest.raises(openai.BadRequestError, match="ask for 1 to 10"):
                    ann.images.generate(prompt="x", n=1_000)
                spare = ann.images.generate(prompt="a fox")
                assert spare.data is not None
                ann.images.generate(model="up:gpt-image-1", prompt="a fox")
                with pytest.raises(openai.RateLimitError):
                    ann.images.generate(model="up:gpt-image-1", prompt="a fox")

        await asyncio.to_thread(ask)
    bodies = [request.body for request in server.requests]
    assert [body["model"] for body in bodies] == ["gpt-image-2", "gpt-image-1", "gpt-image-1", "spare", "gpt-image-1"]
    assert (bodies[0]["quality"], bodies[0]["size"]) == ("high", "1024x1024")
    assert (bodies[1]["quality"], bodies[1]["size"]) == ("low", "512x512")  # the settings of [images]


async def test_pictures_are_edited_with_files(tmp_path: Path) -> None:
    async with ScriptedServer([drawn()], [drawn()]) as server:

        def ask() -> None:
            with (
                Served(tmp_path / "p", config(server)) as served,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="none", max_retries=0) as client,
            ):
                file = io.BytesIO(PNG)
                file.name = "fox.png"
                client.images.edit(model="up:gpt-image-1", image=file, prompt="a hat", n=1, mask=("m.png", PNG))
                client.images.edit(model="up:gpt-image-1", image=[("a.png", PNG), ("b.png", PNG)], prompt="both")
                with pytest.raises(openai.BadRequestError, match="is not a picture"):
                    client.images.edit(image=("x.png", b"<svg><script>alert(1)</script></svg>"), prompt="a hat")

        await asyncio.to_thread(ask)
    one, two = (read_form(asked.headers["content-type"], asked.body) for asked in server.requests)
    assert [part.name for part in one if part.filename] == ["image", "mask"]
    assert [part.data for part in two if part.filename] == [PNG, PNG]


def said(**message: Any) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
    return answer(json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": {}}))


def draws() -> bytes:
    function = {"name": "generate_image", "arguments": json.dumps({"prompt": "a red fox"})}
    return said(content="One moment.", tool_calls=[{"id": "c1", "type": "function", "function": function}])


async def test_the_picture_of_an_agent_reaches_its_caller_or_is_named(tmp_path: Path) -> None:
    rounds = [[step] for _ in range(5) for step in (draws(), drawn(), said(content="Your fox."))]
    async with ScriptedServer(*rounds, [said(content="It is red.")]) as server:
        agent = 'agents:\n  painter:\n    prompt: You draw.\n    engine: "up:m"\n    tools: [generate_image]\n'
        named = "[The picture a-red-fox.png cannot be sent in this protocol.]"

        def ask() -> None:
            with (
                Served(tmp_path / "p", config(server), files={"agents/painter.yaml": agent}) as served,
                openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="any", max_retries=0) as client,
            ):
                made = client.responses.create(model="agent:painter", input="Draw a fox.")
                (picture,) = [item for item in made.output if item.type == "image_generation_call"]
                assert base64.b64decode(picture.result or "") == PNG
                assert made.output_text == "One moment.Your fox."
                with client.responses.stream(model="agent:painter", input="Draw a fox.") as stream:
                    (streamed,) = [o for o in stream.get_final_response().output if o.type == "image_generation_call"]
                assert base64.b64decode(streamed.result or "") == PNG
                ask = {"role": "user", "content": "Draw a fox."}
                chat = client.chat.completions.create(model="agent:painter", messages=[ask])  # type: ignore[list-item]
                assert chat.choices[0].message.content == f"One moment.\n\nYour fox.\n\n{named}"
                body: dict[str, Any] = {"model": "agent:painter", "max_tokens": 99, "messages": [ask]}
                whole = httpx2.post(f"{served.base_url}/v1/messages", json=body, timeout=WAIT_S).json()
                assert [block["text"] for block in whole["content"]] == ["One moment.", "Your fox.", named]
                lines = httpx2.post(f"{served.base_url}/v1/messages", json={**body, "stream": True}, timeout=WAIT_S)
                assert named in lines.text
                later = client.responses.create(model="agent:painter", input="Which?", previous_response_id=made.id)
                assert later.output_text == "It is red."

        await asyncio.to_thread(ask)


async def test_what_is_no_request_for_a_picture_is_one_sentence(tmp_path: Path) -> None:
    async with ScriptedServer([answer("<html>hi", content_type="text/html")]) as server:
        cases: list[tuple[str, dict[str, Any], int, str]] = [
            ("generations", {"json": {"model": "nothing", "n": "x", "prompt": "x"}}, 400, "not 'x'"),
            ("generations", {"json": {}}, 400, "`prompt` is missing"),
            ("generations", {"json": {"prompt": "x", "stream": True}}, 400, "cannot be streamed"),
            ("generations", {"json": {"prompt": "x", "response_format": "svg"}}, 400, "b64_json or url"),
            ("generations", {"content": b"nonsense"}, 400, "cannot be read"),
            ("generations", {"json": {"prompt": "x", "images": [1]}}, 400, "/v1/images/edits"),
            ("edits", {"json": {"prompt": "x"}}, 400, "no picture to edit"),
            ("edits", {"json": {"prompt": "x", "images": [{"image_url": "http://x/y.png"}]}}, 400, "is not data"),
            ("edits", {"data": {"prompt": "x"}, "files": {"image": ("x.png", b"")}}, 400, "not a picture"),
            ("generations", {"json": {"prompt": "x", "model": "up:flux"}}, 502, "web page"),
        ]

        def ask() -> None:
            text = config(server).replace('fallback = ["up:spare"]\n', "")
            with Served(tmp_path / "p", text) as served, httpx2.Client(timeout=WAIT_S) as web:
                for path, sent, status, said in cases:
                    got = web.post(f"{served.base_url}/v1/images/{path}", **sent)
                    assert (got.status_code, said in got.text) == (status, True), (sent, got.text)
                assert web.get(f"{served.base_url}/v1/images/edits").status_code == 405

        await asyncio.to_thread(ask)
