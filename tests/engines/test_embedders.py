"""Embedders: over HTTP against a server on loopback, in this process with the real model, and charged by the ledger."""

from __future__ import annotations

import base64
import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from tests.engines.scripted_http import ScriptedServer, answer

from rondel.charge import Scope
from rondel.contracts.embedder import Embedder
from rondel.contracts.ledger import Rule
from rondel.engines.local.minilm import LocalEmbedder
from rondel.engines.local.minilm.wordpiece import WordPiece
from rondel.errors import ConfigError, EngineDenied, EngineError, EngineGarbled, TokenLimitError
from rondel.ledger.ledger import Ledger
from rondel.project.embedders import make_embedder
from rondel.project.settings import Config, EngineSettings
from rondel.stores.memory import MemoryStore
from rondel.testing import WordEmbedder


def served(*vectors: Any, **more: Any) -> bytes:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return answer(json.dumps({"object": "list", "data": data, "model": "m-1", **more}))


def packed(*numbers: float) -> str:
    return base64.b64encode(array("f", numbers).tobytes()).decode()


def at(server: ScriptedServer, **settings: Any) -> Embedder:
    engine = EngineSettings(base_url=server.url, key="secret-key-1", **settings)
    return make_embedder("mine:small", Config(engines={"mine": engine}))


async def test_texts_become_vectors_of_length_one_in_their_order() -> None:
    usage = {"usage": {"prompt_tokens": 7, "total_tokens": 7}}
    async with ScriptedServer([served([3, 4], [0, 2], **usage)], [served(packed(1, 0))]) as server:
        embedder = at(server)
        assert (embedder.name, embedder.dimensions) == ("mine:small", None)
        first = await embedder.embed(["one", "two"])
        second = await embedder.embed(["three"])
        assert await embedder.embed([]) is not None
    assert [[round(number, 6) for number in vector] for vector in first.vectors] == [[0.6, 0.8], [0, 1]]
    assert (first.usage.tokens_in, first.model, list(second.vectors[0])) == (7, "m-1", [1, 0])
    assert embedder.dimensions == 2
    asked = server.requests[0]
    assert asked.target == "/v1/embeddings"
    assert asked.body == {"model": "small", "input": ["one", "two"], "encoding_format": "base64"}
    assert asked.headers["authorization"] == "Bearer secret-key-1"


async def test_the_answer_may_come_in_any_order() -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    async with ScriptedServer([answer(json.dumps({"data": data}))]) as server:
        assert [list(vector) for vector in (await at(server).embed(["a", "b"])).vectors] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (served([1, 0]), "sent 1 embeddings for 2 texts"),
        (answer('{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}'), "2 embeddings for 2"),
        (served([1, 0], [1]), "has 1 numbers, and 2 before"),
        (served([], []), "has 0 numbers"),
        (served("?", "?"), "not a list of numbers"),
        (served([1e300, 1e300], [1, 0]), "not finite"),
        (answer('{"hello": 1}'), "not a list of embeddings"),
        (answer("<html>hi</html>", content_type="text/html"), "web page"),
    ],
)
async def test_a_wrong_answer_is_an_error_that_says_so(body: bytes, said: str) -> None:
    async with ScriptedServer([body]) as server:
        with pytest.raises(EngineGarbled, match=said):
            await at(server, retry=_once()).embed(["a", "b"])


def _once() -> Any:
    from rondel.project.settings import RetrySettings

    return RetrySettings(attempts=1)


async def test_a_refused_key_is_an_error_without_the_key() -> None:
    refusal = answer(json.dumps({"error": {"message": "bad key secret-key-1"}}), 401)
    async with ScriptedServer([refusal]) as server:
        with pytest.raises(EngineDenied) as caught:
            await at(server).embed(["a"])
    assert "secret-key-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("anthropic:claude", "'anthropic' has no embeddings"),
        ("local:all-minilm", "did you mean 'all-minilm-l6-v2'"),
        ("ollama", "no model is set"),
        ("olama:x", "no embedder 'olama:x'; did you mean 'ollama'"),
        ("echo", "cannot embed"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_embedder(name, Config(), env={})


# --- the ledger -------------------------------------------------------------------------------------------------------


async def test_every_call_is_charged_as_an_embedding() -> None:
    store = MemoryStore()
    ledger = Ledger(store.ledger_store)
    embedder = ledger.charge_embedder(WordEmbedder(), Scope(agent="helper"))
    await embedder.embed(["one two", "three"])
    totals = await ledger.totals(by="kind", value="embedding")
    assert (totals.calls, totals.tokens_in) == (1, 3)
    assert (await ledger.totals(by="agent", value="helper")).tokens_in == 3
    assert (await ledger.totals(by="model", value="words")).tokens_in == 3


async def test_a_limit_is_a_limit_for_embeddings_too() -> None:
    rule = Rule(scope={"kind": "embedding"}, tokens=5, mode="block")
    ledger = Ledger(MemoryStore().ledger_store, rules=[rule])
    inner = WordEmbedder()
    embedder = ledger.charge_embedder(inner, Scope())
    await embedder.embed(["a few words here"])
    with pytest.raises(TokenLimitError):
        await embedder.embed(["many more words than that limit has left, by any count"])
    assert len(inner.texts) == 1


async def test_a_call_that_was_never_sent_costs_nothing_and_one_that_broke_off_does() -> None:
    ledger = Ledger(MemoryStore().ledger_store)
    async with ScriptedServer([answer("nonsense")]) as server:
        with pytest.raises(EngineGarbled):
            await ledger.charge_embedder(at(server, retry=_once()), Scope()).embed(["four chars each"])
    spent = (await ledger.totals(by="kind", value="embedding")).tokens_in
    assert spent > 0
    gone = EngineSettings(base_url=server.url, retry=_once())
    embedder = make_embedder("mine:small", Config(engines={"mine": gone}))
    with pytest.raises(Exception, match="Nothing is listening"):
        await ledger.charge_embedder(embedder, Scope()).embed(["text"])
    assert (await ledger.totals(by="kind", value="embedding")).tokens_in == spent


# --- the embedded model -----------------------------------------------------------------------------------------------


def test_words_are_split_as_the_model_learned_them() -> None:
    """The ids are those of the reference implementation (tokenizers 0.22 with the model's own tokenizer.json)."""
    tokens = WordPiece().tokens
    assert tokens("Hello, World!", 256) == [101, 7592, 1010, 2088, 999, 102]
    assert tokens("unaffable Grüße", 256) == [101, 14477, 20961, 3468, 24665, 2226, 17499, 102]
    assert tokens("東京 café\u200b\x00 C++", 256) == [101, 1879, 1755, 7668, 1039, 1009, 1009, 102]
    assert tokens("x" * 150, 256) == [101, 100, 102]
    assert tokens("a " * 999, 8) == [101, 1037, 1037, 1037, 1037, 1037, 1037, 102]


async def test_the_embedded_model_is_not_downloaded_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path))
    with pytest.raises(EngineError, match="is not downloaded; `rondel model pull all-minilm-l6-v2` fetches it"):
        await LocalEmbedder().embed(["a text"])
    assert list(tmp_path.rglob("*")) == []
