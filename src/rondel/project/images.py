"""Makes the image engine that is named: `provider:model`, or a name in `[engines]`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ..contracts.endpoint import known_provider
from ..contracts.images import IMAGE_BYTES_MAX, ImageEngine, ImageRequest
from ..errors import ConfigError, PromptRejected
from ..text.document import Document
from .config.engines import BUILTIN_ENGINES, canonical_engine, engine_problem
from .engines import posting_engine
from .settings import Config, EngineSettings, ImageSettings

FETCH_S = 60.0  # how long a picture may take that a server only gives the address of


def image_problem(name: str, engines: Mapping[str, EngineSettings]) -> str:
    """Return why there is no such image engine; an empty text if there is one."""
    head, _, model = name.partition(":")
    settings = engines.get(head, EngineSettings())
    if (settings.provider or head) in BUILTIN_ENGINES and not settings.base_url:
        return f"{head!r} makes no pictures; name a provider and an image model, such as openai:gpt-image-1"
    if problem := engine_problem(name, engines):
        return problem.replace("no engine", "no image engine", 1)
    dialect = settings.dialect or known_provider(settings.provider or head).dialect
    if not dialect.startswith("openai"):
        return f"{head!r} makes no pictures; name an engine with OpenAI's images API, such as openai:gpt-image-1"
    if not model and not settings.model:
        return f"no model is set for the image engine {name!r}; write {head}:<model>"
    return ""


def image_mistakes(
    document: Document, given: ImageSettings, engines: Mapping[str, EngineSettings]
) -> Iterator[ConfigError]:
    """Return what is wrong in `[images]`."""
    named = {("images", "engine"): given.engine}
    named |= {("images", "fallback", index): name for index, name in enumerate(given.fallback)}
    for path, name in named.items():
        if name and (problem := image_problem(canonical_engine(name, engines), engines)):
            yield document.error(path, problem)
    if given.fallback and not given.engine:
        yield document.error(("images",), "[images] has a fallback, but no engine; set `engine`")
    try:
        ImageRequest("x", size=given.size)
    except PromptRejected as error:
        yield document.error(("images", "size"), str(error))


def make_image_engine(name: str, config: Config | None = None, *, env: Mapping[str, str] | None = None) -> ImageEngine:
    """Return the image engine of this name. Failures that cost nothing are retried."""
    config = config or Config()
    config.check_trusted()
    if problem := image_problem(name, config.engines):
        raise ConfigError(problem, path=config.path)
    from ..engines.http.images import HttpImageEngine
    from ..fetching.http import HttpFetcher

    settings = config.engines.get(name.partition(":")[0], EngineSettings())
    fetcher = HttpFetcher(allowed=settings.image_networks, bytes_max=IMAGE_BYTES_MAX, seconds_max=FETCH_S)
    return HttpImageEngine(posting_engine(name, config, os.environ if env is None else env), fetcher.image)


def make_image_engines(config: Config, *, env: Mapping[str, str] | None = None) -> dict[str, ImageEngine]:
    """Return the engines of `[images]` by their names, in order. A missing key is reported when an engine is asked."""
    names = (config.images.engine, *config.images.fallback) if config.images.engine else ()
    canonical = (canonical_engine(name, config.engines) for name in names)
    return {name: make_image_engine(name, config, env=env) for name in canonical}
