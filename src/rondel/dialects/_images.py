"""The images of a body that is otherwise passed on as it came. Pure; knows no single wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

from ..dialect import Json
from ..values import Media, Part
from ._wire import WireError

Edit: TypeAlias = Callable[[Media], Media]


def edit_blocks(
    blocks: Iterable[Json], edit: Edit, kind: str, read: Callable[[Json], Part], write: Callable[[Media], Json | None]
) -> None:
    """Put what the edit makes of each image in its place. `kind` is the type of the blocks that are images."""
    for block in blocks:
        if block.get("type") != kind:
            continue
        try:
            media = read(block)
        except WireError:
            continue  # the caller's mistake: the model's server says so
        if isinstance(media, Media) and (edited := edit(media)) is not media:
            written = write(edited) or {}
            block.clear()
            block.update(written)


def objects_in(value: object) -> Iterator[Json]:
    """The objects in what should be a list of objects."""
    if isinstance(value, list):
        yield from (one for one in cast("list[Any]", value) if isinstance(one, dict))
