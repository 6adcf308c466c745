"""Which engine is taken: by its name, and when nobody named any."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

import rondel.project.engines
from rondel.engine import Engine
from rondel.engines.fallback import Fallback
from rondel.engines.local import LocalEngine
from rondel.engines.local.weights import CATALOG, DEFAULT, Weights, path_of
from rondel.errors import EngineDenied, install_extra
from rondel.project.config import load
from rondel.project.engines import NeedsWeights, Picked, ask_address, chat_models, check_engine, make_engine, pick
from rondel.project.settings import Config
from rondel.prompt import Prompt
from rondel.testing import Echo
from rondel.values import Delta, PartFinished, user

from .files import sentence, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of weights, and a runtime for embedded models, whatever this machine has."""
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rondel.project.engines, "has_runtime", lambda: True)


def config_of(folder: Path, toml: str, **env: str) -> Config:
    write(folder / "rondel.toml", toml)
    return load(folder, {"HOME": str(folder), **env})


def servers(**models: list[str]) -> Callable[[str], Awaitable[bytes | None]]:
    """A prober to whom these ports answer with these models."""

    async def probe(url: str) -> bytes | None:
        port = url.split("/")[2].partition(":")[2]
        assert url == f"http://127.0.0.1:{port}/v1/models"
        found = models.get(f"port_{port}")
        return None if found is None else json.dumps({"data": [{"id": model} for model in found]}).encode()

    return probe


def picked(config: Config | None = None, env: Mapping[str, str] | None = None, **models: list[str]) -> Picked:
    return asyncio.run(pick(config, env=env or {}, probe=servers(**models)))


# --- by name ----------------------------------------------------------------------------------------------------------


def test_a_provider_and_a_model_are_an_engine_that_is_asked_again() -> None:
    engine = make_engine("openai:gpt-5-mini", env={"OPENAI_API_KEY": "hunter2"})
    assert "Retry(" in repr(engine)
    assert engine.name == "openai:gpt-5-mini"
    assert "hunter2" not in repr(engine)


def test_a_provider_alone_means_its_usual_model() -> None:
    assert make_engine("anthropic", env={"ANTHROPIC_API_KEY": "k"}).name.startswith("anthropic:claude-")


def test_a_missing_key_says_which_variable() -> None:
    said = sentence(lambda: make_engine("gemini:x", env={}))
    assert said == (
        "the engine 'gemini:x' has no key: set the variable GEMINI_API_KEY or GOOGLE_API_KEY, "
        "or `key` under [engines.gemini] in rondel.toml"
    )


def test_a_configured_engine_has_its_settings_and_its_fallbacks(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        """
        [engines.fast]
        base_url = "http://127.0.0.1:9"
        model = "tiny"
        retry.attempts = 1
        fallback = ["anthropic:claude-haiku-4-5", "echo"]
        facts = {window_tokens = 1234, tools = false}
        """,
    )
    engine = make_engine("fast", config, env={})
    assert isinstance(engine, Fallback)
    assert (engine.name, engine.facts.window_tokens, engine.facts.tools) == ("fast:tiny", 1234, False)
    assert repr(engine).startswith("Fallback(HttpEngine(Endpoint('fast', 'http://127.0.0.1:9', 'openai-chat'")
    assert "Endpoint('anthropic', " in repr(engine)
    assert make_engine("fast:other", config, env={}).name == "fast:other"


def test_a_table_of_a_provider_changes_what_its_name_means(tmp_path: Path) -> None:
    config = config_of(tmp_path, '[engines.openai]\nkey = "k"\ndialect = "openai-chat"')
    assert "'openai-chat', key=set" in repr(make_engine("openai:x", config, env={}))


def test_a_local_server_needs_a_model() -> None:
    assert "set for the engine 'ollama'; write ollama:<model>" in sentence(lambda: make_engine("ollama", env={}))
    assert make_engine("ollama:qwen3:8b", env={}).name == "ollama:qwen3:8b"


def test_echo_and_embedded_models_have_names() -> None:
    assert isinstance(make_engine("echo"), Echo)
    assert make_engine("local:smollm2-135m").name == "local:smollm2-135m"
    assert make_engine("local").name == "local:smollm2-135m"


def test_a_file_of_weights_is_an_engine(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"")
    config = config_of(tmp_path, '[engines.mine]\nprovider = "local"\nmodel = "mine.gguf"\ncontext_tokens = 512')
    engine = make_engine("mine", config)
    assert isinstance(engine, LocalEngine)
    assert engine.facts.window_tokens == 512
    wrong = '[engines.mine]\nprovider = "local"\ntool_format = "json"'
    assert "'json'" in sentence(lambda: config_of(tmp_path, wrong))
    assert "does not exist; correct the path" in sentence(lambda: make_engine("local:other.gguf", config))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "gpt-4",
            "there is no engine 'gpt-4'; if it is a model, write its provider, too: provider:gpt-4; available: a",
        ),
        ("smollm2-135m", "there is no engine 'smollm2-135m'; did you mean 'local:smollm2-135m'?"),
        ("antropic:x", "there is no engine 'antropic:x'; did you mean 'anthropic'?"),
        ("local:smolm2", "there is no embedded model 'smolm2'; did you mean 'smollm2-135m'?"),
        ("", "there is no engine ''; available: "),
    ],
)
def test_an_unknown_name_gets_the_nearest(name: str, said: str) -> None:
    assert sentence(lambda: make_engine(name)).startswith(said)


# --- the best that is there -------------------------------------------------------------------------------------------


def test_a_configured_engine_comes_before_all(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'engine = "echo"')
    found = picked(config, {"ANTHROPIC_API_KEY": "k"}, port_11434=["llama"])
    assert (found.name, found.why) == ("echo", f"set in {tmp_path}/rondel.toml:1")
    config = config_of(tmp_path, 'engine = "echo"', RONDEL_ENGINE="openai:x")
    assert str(picked(config, {"OPENAI_API_KEY": "k"})) == "openai:x: set in $RONDEL_ENGINE"


def test_a_table_of_an_engine_is_enough_to_be_configured(tmp_path: Path) -> None:
    config = config_of(tmp_path, '[engines.a]\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n[engines.openai]')
    found = picked(config, {"ANTHROPIC_API_KEY": "k"})
    assert (found.name, found.why) == ("a", f"the first engine in {tmp_path}/rondel.toml")


def test_a_configured_server_says_which_model_it_has(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'engine = "vllm"')
    assert picked(config, port_8000=["served"]).name == "vllm:served"
    assert "no server at http://127.0.0.1:8000/v1 lists its models" in sentence(lambda: picked(config))


def test_a_key_comes_before_a_server_and_the_providers_have_an_order() -> None:
    keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k"}
    found = picked(env=keys, port_11434=["llama"])
    assert found.name.startswith("anthropic:")
    assert found.why == "ANTHROPIC_API_KEY is set"
    assert picked(env={"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k"}).why == "OPENAI_API_KEY is set"
    assert picked(env={"GOOGLE_API_KEY": "k", "OPENAI_API_KEY": " "}).name.startswith("gemini:")


def test_a_server_on_loopback_comes_before_the_embedded_model() -> None:
    found = picked(port_1234=["text-embedding-nomic", "qwen3-8b", "gemma"], port_8080=[])
    assert found.name == "lmstudio:qwen3-8b"
    assert found.why == "found a local server at 127.0.0.1:1234, and no engine or API key is set"
    assert found.hints == ("it also has gemma",)
    assert picked(port_1234=["x"], port_11434=["llama3"]).name == "ollama:llama3"


def test_the_embedded_model_is_the_last_and_says_what_a_pull_would_give() -> None:
    found = picked()
    assert found.name == "local:smollm2-135m"
    assert found.needs_pull is DEFAULT
    assert isinstance(found.engine, NeedsWeights)
    assert found.why == "no engine, API key or local server found"
    assert found.hints[0] == (
        f"SmolLM2 135M Instruct {DEFAULT.description}; "
        "`rondel model pull qwen2.5-coder-1.5b` (1.1 GB) downloads a better one"
    )


def _put(weights: Weights) -> None:
    """A file of the right size where the weights are kept."""
    path = path_of(weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(weights.size_bytes)


def test_the_best_model_in_the_cache_is_taken() -> None:
    for weights in CATALOG:
        if weights.sha256:
            _put(weights)
    found = picked()
    assert (found.name, found.needs_pull) == ("local:qwen2.5-coder-1.5b", None)
    assert isinstance(found.engine, LocalEngine)
    assert not any("model pull" in hint for hint in found.hints)


def test_with_nothing_at_all_the_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rondel.project.engines, "has_runtime", lambda: False)
    said = sentence(picked)
    assert said.startswith("there is no engine: set a key (such as ANTHROPIC_API_KEY")
    assert install_extra("local") in said


# --- weights that are missing -----------------------------------------------------------------------------------------


async def _answers(engine: Engine) -> list[Delta]:
    return [delta async for delta in engine.stream(Prompt.of(user("hi")))]


MISSING = "the model 'smollm2-135m' is not downloaded; `rondel model pull smollm2-135m` downloads it (98 MB)"


def test_nothing_is_downloaded_by_a_prompt() -> None:
    with pytest.raises(EngineDenied) as caught:
        asyncio.run(_answers(NeedsWeights(Echo(), DEFAULT)))
    assert str(caught.value) == MISSING


def test_a_model_that_is_not_downloaded_cannot_be_chosen() -> None:
    assert sentence(lambda: check_engine("local:smollm2-135m", Config())) == MISSING
    _put(DEFAULT)
    check_engine("local:smollm2-135m", Config())


def test_weights_that_came_since_the_engine_was_made_are_used() -> None:
    engine = NeedsWeights(Echo(), DEFAULT)
    _put(DEFAULT)
    assert any(isinstance(delta, PartFinished) for delta in asyncio.run(_answers(engine)))


def test_how_long_a_model_stays_loaded_is_a_number_of_seconds(tmp_path: Path) -> None:
    said = sentence(lambda: make_engine("local", env={"RONDEL_KEEP": "soon"}))
    assert said == "the variable RONDEL_KEEP is 'soon'; it must be a number of seconds"
    assert "it must be 0 or more" in sentence(lambda: config_of(tmp_path, "[engines.local]\nkeep_s = -1"))
    assert config_of(tmp_path, "[engines.local]\nkeep_s = 0").engines["local"].keep_s == 0


# --- asking servers ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(*pieces: bytes, close: bool = True) -> AsyncIterator[str]:
    """A server on loopback that answers any request with these bytes."""

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if not close:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/models"
    finally:
        await ended.wait()
        server.close()
        await server.wait_closed()


def asked(*pieces: bytes, close: bool = True, timeout_s: float = 5.0) -> bytes | None:
    async def main() -> bytes | None:
        async with answering(*pieces, close=close) as url:
            return await ask_address(url, timeout_s=timeout_s)

    return asyncio.run(main())


def test_a_server_that_answers_is_read_to_its_end_or_its_length() -> None:
    assert asked(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n", b'{"data"', b":[]}") == b'{"data":[]}'
    assert asked(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}", close=False) == b"{}"


def test_anything_else_is_no_server() -> None:
    assert asked(b"HTTP/1.0 404 Not Found\r\n\r\n{}") is None
    assert asked(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}") is None
    assert asked(b"HTTP/1.1 200 OK\r\n", close=False, timeout_s=0.05) is None
    assert asked(b"x" * 200_000) is None
    assert asyncio.run(ask_address("http://127.0.0.1:1/v1/models")) is None
    assert asyncio.run(ask_address("https://127.0.0.1/v1/models")) is None


def test_an_endless_answer_is_cut() -> None:
    body = asked(b"HTTP/1.0 200 OK\r\n\r\n", *[b"x" * 100_000] * 20)
    assert body is not None
    assert len(body) == 1_000_000


def test_the_models_that_can_talk_are_found_in_either_list() -> None:
    assert chat_models(b'{"data": [{"id": "bge-m3"}, {"id": "llama"}], "object": "list"}') == ["llama"]
    assert chat_models(b'{"models": [{"name": "qwen3:8b"}, {"name": "nomic-embed-text"}]}') == ["qwen3:8b"]
    for nonsense in (
        b"",
        b"<html>",
        b"[]",
        b'{"data": 3}',
        b'{"data": [{"id": 3}]}',
        b"\xff",
        b'{"a":' + b"[" * 100_000,
    ):
        assert chat_models(nonsense) == []
