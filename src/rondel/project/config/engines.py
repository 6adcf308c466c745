"""Checks the engines of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from ...contracts.endpoint import PROVIDERS, known_provider
from ...errors import ConfigError, nearest
from ...ledger.prices import Price
from ...text.document import Document, KeyPath, dotted
from ...text.redaction import is_web_address, shown_url
from ...tool import NAME
from ..lookup import import_attribute
from ..settings import Config, EngineSettings, TransformEntry

PRICE_MAX = 1e9
BUILTIN_ENGINES = ("local", "echo")


def canonical_engine(text: str, engines: Mapping[str, EngineSettings]) -> str:
    """Return `provider:model` for `Provider,model` and `provider/model`. A name without a known engine or provider
    stays as it is."""
    known = {name.lower(): name for name in (*BUILTIN_ENGINES, *PROVIDERS, *engines)}
    text = text.strip()
    if text.lower() in known:
        return known[text.lower()]
    for mark in ",:/":
        head, found, model = text.partition(mark)
        if found and model.strip() and (name := known.get(head.strip().lower())):
            return f"{name}:{model.strip()}"
    return text


def engine_problem(name: str, engines: Mapping[str, EngineSettings]) -> str:
    head, _, model = name.partition(":")
    if head == "local" and head not in engines and model and not model.endswith(".gguf"):
        from ...engines.local.weights import every_model

        known = tuple(weights.name for weights in every_model())
        return "" if model in known else f"there is no embedded model {model!r}{nearest(model, known)}"
    if head in engines or head in PROVIDERS or head in BUILTIN_ENGINES:
        return ""
    hint = nearest(head, (*engines, *PROVIDERS, *BUILTIN_ENGINES))
    if name and not model and "did you mean" not in hint:
        from ...engines.local.weights import every_model

        if any(weights.name == name for weights in every_model()):
            return f"there is no engine {name!r}; did you mean 'local:{name}'?"
        return f"there is no engine {name!r}; if it is a model, write its provider, too: provider:{name}{hint}"
    return f"there is no engine {name!r}{hint}"


def model_problem(name: str, engines: Mapping[str, EngineSettings]) -> str:
    """Return a sentence if an engine of another address is named without a model; empty if it has one."""
    head, _, model = name.partition(":")
    settings = engines.get(head, EngineSettings())
    if model or settings.model or known_provider(settings.provider or head).model:
        return ""
    return f"no model is set for the engine {name!r}; write {head}:<model>, or `model` under [engines.{head}]"


def engine_mistakes(document: Document, config: Config, overrides: Mapping[str, str]) -> Iterator[ConfigError]:
    for name, engine in config.engines.items():
        yield from _mistakes_of_engine(document, name, engine, config)
        for pattern, price in engine.prices.items():
            yield from price_mistakes(document, ("engines", name, "prices", pattern), price)
    if config.engine and (problem := engine_problem(config.engine, engines_named(document, config))):
        if "RONDEL_ENGINE" in overrides:
            yield ConfigError(f"the variable RONDEL_ENGINE: {problem}")
        else:
            yield document.error(("engine",), problem)


def engines_named(document: Document, config: Config) -> Mapping[str, EngineSettings]:
    """Return the engines of the file, also those that were left out because of a mistake."""
    tables = document.data.get("engines")
    named = cast("dict[str, Any]", tables) if isinstance(tables, dict) else {}
    return dict.fromkeys(named, EngineSettings()) | config.engines


def _mistakes_of_engine(document: Document, name: str, engine: EngineSettings, config: Config) -> Iterator[ConfigError]:
    path: KeyPath = ("engines", name)
    if not NAME.fullmatch(name):
        yield document.error(path, f"{name!r} is not a valid engine name: use 1 to 64 letters, digits, '_' or '-'")
    if name.lower() == "agent":
        yield document.error(path, f"{name!r} is reserved: `agent:<name>` names an agent; choose another name")
    known = (*PROVIDERS, "local")
    if engine.provider and engine.provider not in known and not engine.base_url:
        hint = nearest(engine.provider, known)
        yield document.error((*path, "provider"), f"there is no provider {engine.provider!r}{hint}")
    if not engine.provider and name not in known and not engine.base_url:
        yield document.error(path, f"the engine {name!r} has neither a provider nor a base_url; give it one of them")
    if engine.base_url and not is_web_address(engine.base_url):
        shown = shown_url(engine.base_url)
        yield document.error((*path, "base_url"), f"{shown!r} is not a web address; write http://host:port/path")
    if engine.dialect:
        from ...dialects import DIALECTS

        if engine.dialect not in DIALECTS:
            hint = nearest(engine.dialect, tuple(DIALECTS))
            yield document.error((*path, "dialect"), f"there is no dialect {engine.dialect!r}{hint}")
    for index, network in enumerate(cast("tuple[str | None, ...]", engine.image_networks)):
        if network is not None and (problem := _network_problem(network)):
            yield document.error((*path, "image_networks", index), problem)
    yield from _mistakes_of_transforms(document, path, engine, config)
    yield from _mistakes_of_fallback(document, name, engine, config)


def price_mistakes(document: Document, path: KeyPath, price: Price) -> Iterator[ConfigError]:
    if price.image is None and (price.input is None or price.output is None):
        yield document.error(path, f"{dotted(path)!r} is not a price; give it `input` and `output`, or `image`")
    for key, value in msgspec.structs.asdict(price).items():
        if value is not None and not 0 <= value < PRICE_MAX:
            unit = "for a picture" if key == "image" else "for a million tokens"
            message = f"{dotted((*path, key))!r} is {value!r}; a price is dollars {unit}, 0 or more"
            yield document.error((*path, key), message)


def _network_problem(text: str) -> str:
    from ipaddress import ip_network

    try:
        ip_network(text)
    except ValueError as error:
        return f"{text!r} is not a network ({error}); write it as 10.1.0.0/16, or one address as 10.1.2.3"
    return ""


def _mistakes_of_transforms(
    document: Document, path: KeyPath, engine: EngineSettings, config: Config
) -> Iterator[ConfigError]:
    lists: dict[KeyPath, tuple[TransformEntry, ...]] = {("transform",): engine.transform}
    lists |= {("model_transform", model): entries for model, entries in engine.model_transform.items()}
    for key, entries in lists.items():
        for index, entry in enumerate(cast("tuple[TransformEntry | None, ...]", entries)):
            if entry is None:
                continue
            from ...engines.transform import make_transform

            try:
                find = partial(import_attribute, project=config.project)
                make_transform(entry, document, (*path, *key, index), find=find)
            except ConfigError as mistake:
                yield mistake


def _mistakes_of_fallback(
    document: Document, name: str, engine: EngineSettings, config: Config
) -> Iterator[ConfigError]:
    for index, other in enumerate(cast("tuple[str | None, ...]", engine.fallback)):
        if other is None:
            continue
        problem = engine_problem(other, engines_named(document, config))
        if other == name:
            problem = f"the engine {name!r} cannot be its own fallback"
        if problem:
            yield document.error(("engines", name, "fallback", index), problem)
