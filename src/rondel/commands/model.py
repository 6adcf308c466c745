"""`rondel model`: the embedded models, fetched into and removed from the user's cache folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..errors import RondelError
from ..surfaces.terminal.listing import Listing
from ..weights import CATALOG, DEFAULT, Weights, find, is_present, path_of
from ._output import show, show_json, tell
from ._weights import pull_with_bar


def list_models(*, as_json: bool) -> None:
    if as_json:
        show_json([_described(weights) for weights in CATALOG])
        return
    made = Listing("model", "here", "size", "licence", "what it is", growing=2)
    for weights in CATALOG:
        here = "yes" if is_present(weights) else "part" if _part_of(weights) else "no"
        made.add_row(weights.name, here, _size(weights.size_bytes), weights.licence, weights.description)
    show(made)


def pull_model(name: str) -> None:
    """Without a name, the model that is the next better one to what is here."""
    weights = find(name) if name else _next_better()
    path = asyncio.run(pull_with_bar(weights))
    tell(f"{weights.title} is here: {path}")


def remove_model(name: str) -> None:
    weights = find(name)
    files = [path_of(weights), *([part] if (part := _part_of(weights)) else [])]
    removed = [file for file in files if file.exists()]
    if not removed:
        raise RondelError(f"the model {name!r} is not here, so there is nothing to remove")
    try:
        for file in removed:
            file.unlink()
    except OSError as error:
        raise RondelError(f"the file {error.filename!r} could not be removed: {error.strerror}") from error
    tell(f"{weights.title} was removed.")


def _next_better() -> Weights:
    return next((weights for weights in CATALOG if not is_present(weights)), DEFAULT)


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
