"""`rondel model`: the embedded models in the user's cache folder, and the one that is loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from ..engines.local import background
from ..engines.local.frames import Status
from ..engines.local.prefix import states_of
from ..engines.local.weights import (
    DEFAULT,
    EMBEDDERS,
    RECOMMENDED,
    Weights,
    downloaded_bytes,
    every_model,
    find,
    is_present,
    path_of,
    tool_format_of,
)
from ..errors import RondelError
from ..surfaces.terminal.listing import Listing
from ._options import CommandGroup, as_json
from ._output import show, show_json, tell
from ._weights import licence_of, pull_with_bar


@click.group(cls=CommandGroup)
def model() -> None:
    """Manage the embedded models."""


@model.command(name="list")
@as_json
def list_models(as_json: bool) -> None:
    """List the embedded models."""
    models = (*every_model(), *EMBEDDERS)
    if as_json:
        show_json([_described(weights) for weights in models])
        return
    made = Listing("model", "downloaded", "size", "licence", "what it is", growing=2)
    for weights in models:
        made.add_row(weights.name, _state(weights), weights.size, weights.licence, weights.description)
    show(made)


@model.command(name="show")
@click.argument("name", help="which model")
@as_json
def show_model(name: str, as_json: bool) -> None:
    """Show what is known about a model, and how it calls tools."""
    weights = find(name)
    tool_format, why = _tool_format(weights)
    if as_json:
        show_json(_described(weights) | {"tool_format": tool_format, "tool_format_why": why})
        return
    made = Listing()
    made.add_row("name", weights.name)
    made.add_row("title", weights.title)
    made.add_row("what it is", weights.description)
    made.add_row("downloaded", _state(weights))
    made.add_row("size", weights.size)
    made.add_row("licence", weights.licence)
    made.add_row("file", str(path_of(weights)))
    made.add_row("sha256", weights.sha256 or "recorded by the first download")
    made.add_row("tools", f"{tool_format}: {why}" if tool_format else why)
    show(made)


def _tool_format(weights: Weights) -> tuple[str, str]:
    if weights in EMBEDDERS:
        return "", "none: it does not chat"
    if weights.card.tool_format is None and not is_present(weights):
        return "", "its chat template decides, once it is downloaded"
    return tool_format_of(weights.card, path_of(weights))


def _state(weights: Weights) -> str:
    return "yes" if is_present(weights) else "partly" if downloaded_bytes(path_of(weights)) else "no"


@model.command()
@click.argument("model", default="", help="a name, an https address, a .gguf file, or hf:owner/repo/file.gguf")
@click.option("--name", default="", help="what to call a model that is given by its address or file")
def pull(model: str, name: str) -> None:
    """Download a model. Ctrl-C keeps the partial download; the next pull continues it."""
    weights, is_new = asyncio.run(_pull(model, name))
    title, path, licence = weights.title or weights.name, path_of(weights), licence_of(weights)
    tell(f"{f'Downloaded {title} to' if is_new else f'{title} is already there:'} {path} (licence: {licence})")
    tell(f"Use it with --engine local:{weights.name}, or /model local:{weights.name} in a chat.")


async def _pull(model: str, name: str) -> tuple[Weights, bool]:
    """Return the model, and whether anything was downloaded."""
    from ..engines.local.weights.reference import is_reference, resolve

    if is_reference(model):
        weights = await resolve(model, name)
    elif name:
        raise RondelError(f"{model!r} already has a name; --name is for addresses and files")
    else:
        weights = find(model) if model else DEFAULT if is_present(RECOMMENDED) else RECOMMENDED
    if is_present(weights):
        return weights, False
    await pull_with_bar(weights)
    return find(weights.name), True


@model.command()
@click.argument("name", help="which model")
def remove(name: str) -> None:
    """Remove a model from the cache folder."""
    weights = find(name)
    path = path_of(weights)
    beside = [path.with_name(f"{path.name}{suffix}") for suffix in (".part", ".part.version", ".json")]
    removed = [file for file in (path, *beside, *states_of(path)) if file.exists()]
    if not removed:
        raise RondelError(f"the model {name!r} is not downloaded, so there is nothing to remove")
    try:
        for file in removed:
            file.unlink()
    except OSError as error:
        raise RondelError(f"the file {error.filename!r} could not be removed: {error.strerror}") from error
    tell(f"Removed {weights.title or name}.")


@model.command()
@as_json
def status(as_json: bool) -> None:
    """Show which model is loaded in the background."""
    found = asyncio.run(background.status())
    if as_json:
        show_json(None if found is None else {key: getattr(found, key) for key in Status.__struct_fields__})
    elif found is None:
        tell("No model is loaded in the background.")
    else:
        what = Path(found.model).name or "no model yet"
        memory = f"{found.memory_bytes / 1e9:.1f} GB of memory"
        ends = "in use" if found.ends_in_s is None else f"ends in {found.ends_in_s:.0f} s"
        tell(f"{what}: process {found.pid}, {memory}, {found.threads} threads, {ends}.")


@model.command()
def stop() -> None:
    """Unload the model in the background and free its memory."""
    stopped = asyncio.run(background.stop())
    tell("Stopped the background process." if stopped else "No model is loaded in the background.")


def _described(weights: Weights) -> dict[str, object]:
    return {
        "name": weights.name,
        "title": weights.title,
        "description": weights.description,
        "present": is_present(weights),
        "size_bytes": weights.size_bytes,
        "licence": weights.licence,
        "sha256": weights.sha256,
        "path": str(path_of(weights)),
    }
