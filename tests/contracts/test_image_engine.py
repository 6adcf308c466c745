"""The contract of an image engine: every one passes these tests unchanged. A new one is a row in ENGINES."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from rondel.charge import Scope
from rondel.contracts.images import ImageEngine, ImageRequest
from rondel.engine import close
from rondel.errors import EngineError, PromptRejected
from rondel.files.media import image_type
from rondel.ledger.ledger import Ledger
from rondel.project.images import make_image_engine
from rondel.project.settings import Config, EngineSettings, RetrySettings
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, ScriptedImages
from rondel.testing.png import draw_png
from rondel.values import Media
from tests.engines.scripted_http import Request, ScriptedServer, Silence, Step, answer

PNG = draw_png("8x8")
REFUSAL = '{"error": {"message": "no foxes", "type": "invalid_request_error"}}'


@asynccontextmanager
async def scripted(does: str = "draw") -> AsyncIterator[tuple[ImageEngine, asyncio.Event]]:
    pause = Pause()
    steps = {"draw": (), "refuse": (PromptRejected("no foxes"),), "wait": (pause,)}[does]
    yield ScriptedImages(*steps), pause.reached


@asynccontextmanager
async def charged(does: str = "draw") -> AsyncIterator[tuple[ImageEngine, asyncio.Event]]:
    async with scripted(does) as (engine, asked):
        yield Ledger(MemoryStore().ledger_store).charge_images(engine, Scope()), asked


@asynccontextmanager
async def over_http(does: str = "draw") -> AsyncIterator[tuple[ImageEngine, asyncio.Event]]:
    def play(request: Request) -> list[Step]:
        count = request.body["n"] if isinstance(request.body, dict) else 1
        data = [{"b64_json": base64.b64encode(PNG).decode()}] * count
        draws: Step = answer(json.dumps({"data": data, "usage": {"input_tokens": 5, "output_tokens": 9}}))
        return [{"draw": draws, "refuse": answer(REFUSAL, 400), "wait": Silence()}[does]]

    async with ScriptedServer(*[play] * 3) as server:
        settings = EngineSettings(base_url=server.url, retry=RetrySettings(attempts=1))
        yield make_image_engine("mine:gpt-image-1", Config(engines={"mine": settings})), server.asked


Open = Callable[..., AbstractAsyncContextManager[tuple[ImageEngine, asyncio.Event]]]
each_engine = pytest.mark.parametrize("open_engine", [scripted, charged, over_http])


@each_engine
async def test_a_prompt_becomes_pictures_as_data_and_what_they_cost(open_engine: Open) -> None:
    async with open_engine() as (engine, _):
        assert isinstance(engine, ImageEngine)
        assert ":" in engine.name
        made = await engine.generate(ImageRequest("a Red fox!", 2))
        assert [image.name for image in made.images] == ["a-red-fox.png", "a-red-fox-1.png"]
        assert [image_type(image.data) for image in made.images] == [image.mime for image in made.images]
        assert made.usage.tokens_out > 0
        edited = await engine.generate(ImageRequest("a hat", sources=(Media("image", "image/png", PNG, name="x.png"),)))
        assert len(edited.images) == 1
        await close(engine)


@each_engine
async def test_what_is_refused_is_an_error_of_engines(open_engine: Open) -> None:
    async with open_engine("refuse") as (engine, _):
        with pytest.raises(EngineError, match="no foxes"):
            await engine.generate(ImageRequest("a fox"))


@each_engine
async def test_a_call_can_be_given_up(open_engine: Open) -> None:
    async with open_engine("wait") as (engine, asked), asyncio.TaskGroup() as group:
        drawing = group.create_task(engine.generate(ImageRequest("a fox")))
        await asked.wait()
        drawing.cancel()
    assert drawing.cancelled()
