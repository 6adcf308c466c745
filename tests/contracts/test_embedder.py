"""The contract of an embedder: every embedder passes these tests unchanged. A new one is a row in EMBEDDERS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from rondel.charge import Scope
from rondel.contracts.embedder import Embedder
from rondel.engine import close
from rondel.engines.local.minilm import LocalEmbedder
from rondel.engines.local.weights import EMBEDDERS as WEIGHTS
from rondel.errors import EngineError
from rondel.ledger.ledger import Ledger
from rondel.project.embedders import make_embedder
from rondel.project.settings import Config, EngineSettings, RetrySettings
from rondel.stores.memory import MemoryStore
from rondel.testing import WordEmbedder
from tests.engines.scripted_http import Request, ScriptedServer, Step, answer
from tests.helpers import pull_weights

TEXTS = ["The train leaves at nine.", "Cats sleep all day.", "When does the train leave?"]


@asynccontextmanager
async def scripted() -> AsyncIterator[Embedder]:
    yield WordEmbedder()


@asynccontextmanager
async def charged() -> AsyncIterator[Embedder]:
    yield Ledger(MemoryStore().ledger_store).charge_embedder(WordEmbedder(), Scope())


@asynccontextmanager
async def over_http() -> AsyncIterator[Embedder]:
    def play(request: Request) -> list[Step]:
        vectors = [WordEmbedder()._vector(text.lower().split()) for text in request.body["input"]]  # pyright: ignore[reportPrivateUsage]
        data = [{"index": index, "embedding": [3 * number for number in v]} for index, v in enumerate(vectors)]
        return [answer(json.dumps({"data": data, "usage": {"prompt_tokens": 9, "total_tokens": 9}}))]

    async with ScriptedServer(*[play] * 5) as server:
        engine = EngineSettings(base_url=server.url, retry=RetrySettings(attempts=1))
        yield make_embedder("mine:small", Config(engines={"mine": engine}))


@asynccontextmanager
async def local() -> AsyncIterator[Embedder]:
    await asyncio.to_thread(pull_weights, WEIGHTS[0])
    yield LocalEmbedder(threads=1)


EMBEDDERS = [scripted, charged, over_http, pytest.param(local, marks=pytest.mark.weights)]
Open = Callable[[], AbstractAsyncContextManager[Embedder]]


def cosine(left: object, right: object) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("open_embedder", EMBEDDERS)
async def test_texts_become_vectors_that_say_how_near_they_are(open_embedder: Open) -> None:
    async with open_embedder() as embedder:
        assert isinstance(embedder, Embedder)
        assert ":" in embedder.name
        embedded = await embedder.embed(TEXTS)
        train, cats, question = embedded.vectors
        assert {len(vector) for vector in embedded.vectors} == {embedder.dimensions}
        assert all(cosine(vector, vector) == pytest.approx(1, abs=1e-3) for vector in embedded.vectors)
        assert cosine(question, train) > cosine(question, cats)
        assert embedded.usage.tokens_in > 0
        (again,) = (await embedder.embed([TEXTS[1]])).vectors
        assert cosine(again, cats) == pytest.approx(1, abs=1e-3), "each text counts alone, in its place"
        await close(embedder)


@pytest.mark.parametrize("open_embedder", EMBEDDERS)
async def test_no_text_costs_nothing_and_a_long_one_counts_by_its_beginning(open_embedder: Open) -> None:
    async with open_embedder() as embedder:
        none = await embedder.embed([])
        assert (none.vectors, none.usage.tokens_in) == ([], 0)
        (vector,) = (await embedder.embed(["word " * 20_000])).vectors
        assert cosine(vector, vector) == pytest.approx(1, abs=1e-3)
        await close(embedder)


async def test_an_embedder_that_cannot_be_asked_raises_an_error_of_engines(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path_factory.mktemp("empty")))
    settings = EngineSettings(base_url="http://127.0.0.1:1", retry=RetrySettings(attempts=1))
    for embedder in (LocalEmbedder(), make_embedder("mine:small", Config(engines={"mine": settings}))):
        with pytest.raises(EngineError):
            await embedder.embed(["a text"])
