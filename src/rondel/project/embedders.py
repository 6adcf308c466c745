"""Makes the embedder that is named: `provider:model`, a name in `[engines]`, or `local:all-minilm-l6-v2`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..contracts.embedder import Embedder
from ..contracts.endpoint import known_provider
from ..engine import dialect_of
from ..errors import ConfigError, nearest
from .config.engines import engine_problem
from .engines import make_engine
from .settings import Config, EngineSettings

LOCAL = "local"


def default_embedder() -> str:
    """Return the name of the embedded model if its extra is installed, else an empty text: only words are searched."""
    from ..engines.local.minilm.embedder import has_runtime
    from ..engines.local.weights import EMBEDDERS

    return f"{LOCAL}:{EMBEDDERS[0].name}" if has_runtime() else ""


def is_local(name: str, engines: Mapping[str, EngineSettings]) -> bool:
    head = name.partition(":")[0]
    settings = engines.get(head, EngineSettings())
    return (settings.provider or head) == LOCAL and not settings.base_url


def embedder_problem(name: str, engines: Mapping[str, EngineSettings]) -> str:
    """Return why there is no such embedder; an empty text if there is one."""
    head, _, model = name.partition(":")
    if is_local(name, engines):
        from ..engines.local.weights import EMBEDDERS

        known = tuple(weights.name for weights in EMBEDDERS)
        return "" if not model or model in known else f"there is no embedded embedder {model!r}{nearest(model, known)}"
    if problem := engine_problem(name, engines):
        return problem.replace("no engine", "no embedder", 1)
    settings = engines.get(head, EngineSettings())
    if head == "echo":
        return "'echo' cannot embed; name a provider and an embedding model"
    dialect = settings.dialect or known_provider(settings.provider or head).dialect
    if not dialect.startswith("openai"):
        return f"{head!r} has no embeddings; name an engine with OpenAI's API, such as ollama:nomic-embed-text"
    if not model and not settings.model:
        return f"no model is set for the embedder {name!r}; write {head}:<model>"
    return ""


def make_embedder(name: str, config: Config | None = None, *, env: Mapping[str, str] | None = None) -> Embedder:
    """Return the embedder of this name. It retries, but has no fallback: vectors of two models cannot be compared."""
    config = config or Config()
    config.check_trusted()
    if problem := embedder_problem(name, config.engines):
        raise ConfigError(problem, path=config.path)
    if is_local(name, config.engines):
        from ..engines.local.minilm import LocalEmbedder
        from ..engines.local.weights import EMBEDDERS

        head, _, model = name.partition(":")
        weights = next((one for one in EMBEDDERS if one.name == model), EMBEDDERS[0])
        return LocalEmbedder(weights, threads=config.engines.get(head, EngineSettings()).threads)
    from ..engines.http.embedder import HttpEmbedder

    engine = make_engine(name, config, env=os.environ if env is None else env, alone=True)
    assert dialect_of(engine), f"{name} relays"
    return HttpEmbedder(engine)
