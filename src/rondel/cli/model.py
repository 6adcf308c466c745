"""`rondel model`: the embedded models in the user's cache folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from ..engines.local.weights import CATALOG, DEFAULT, EMBEDDERS, Weights, find, is_present, path_of
from ..errors import RondelError
from ..surfaces.terminal.listing import Listing
from ._options import CommandGroup, as_json
from ._output import show, show_json, tell
from ._weights import pull_with_bar


@click.group(cls=CommandGroup, invoke_without_command=True, help="Manage the embedded models.")
@click.pass_context
def model(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        context.invoke(list_models, as_json=False)


@model.command(name="list")
@as_json
def list_models(as_json: bool) -> None:
    """List the embedded models."""
    if as_json:
        show_json([_described(weights) for weights in (*CATALOG, *EMBEDDERS)])
        return
    made = Listing("model", "downloaded", "size", "licence", "what it is", growing=2)
    for weights in (*CATALOG, *EMBEDDERS):
        state = "yes" if is_present(weights) else "partly" if _part_of(weights) else "no"
        made.add_row(weights.name, state, _size(weights.size_bytes), weights.licence, weights.description)
    show(made)


@model.command()
@click.argument("name", default="", help="which model; by default, the smallest that is missing")
def pull(name: str) -> None:
    """Download a model. Ctrl-C keeps the partial download; the next pull continues it."""
    weights = find(name) if name else next((one for one in CATALOG if not is_present(one)), DEFAULT)
    path = asyncio.run(pull_with_bar(weights))
    tell(f"Downloaded {weights.title} to {path}")


@model.command()
@click.argument("name", help="which model")
def remove(name: str) -> None:
    """Remove a model from the cache folder."""
    weights = find(name)
    files = [path_of(weights), *([part] if (part := _part_of(weights)) else [])]
    removed = [file for file in files if file.exists()]
    if not removed:
        raise RondelError(f"the model {name!r} is not downloaded, so there is nothing to remove")
    try:
        for file in removed:
            file.unlink()
    except OSError as error:
        raise RondelError(f"the file {error.filename!r} could not be removed: {error.strerror}") from error
    tell(f"Removed {weights.title}.")


def _part_of(weights: Weights) -> Path | None:
    path = path_of(weights)
    part = path.with_name(f"{path.name}.part")
    return part if part.exists() else None


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


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"
