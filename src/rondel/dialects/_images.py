"""Edits the images of a body that is otherwise relayed unchanged. Knows no single wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

from ..contracts.dialect import Json
from ..values import Media, Part
from ._wire import WireError

Edit: TypeAlias = Callable[[Media], Media]


def edit_blocks(
    blocks: Iterable[Json], edit: Edit, kind: str, read: Callable[[Json], Part], write: Callable[[Media], Json | None]
) -> None:
    """Replace each image by the result of `edit`. `kind` is the type of image blocks."""
    for block in blocks:
        if block.get("type") != kind:
            continue
        try:
            media = read(block)
        except WireError:
            continue  # the caller's mistake, which the model's server will report
        if isinstance(media, Media) and (edited := edit(media)) is not media:
            written = write(edited) or {}
            block.clear()
            block.update(written)


def objects_in(value: object) -> Iterator[Json]:
    if isinstance(value, list):
        yield from (one for one in cast("list[Any]", value) if isinstance(one, dict))
