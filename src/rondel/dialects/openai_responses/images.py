"""Finds and edits the images in the input of a body: in messages and in results of calls."""

from __future__ import annotations

from collections.abc import Iterator

from ...contracts.dialect import Json
from .._images import Edit, edit_blocks, objects_in
from .parts import read_input_content, write_input_part


def edit_images(messages: object, edit: Edit) -> None:
    edit_blocks(_parts(messages), edit, "input_image", lambda raw: read_input_content([raw])[0], write_input_part)


def _parts(messages: object) -> Iterator[Json]:
    for item in objects_in(messages):
        yield from objects_in(item.get("content"))
        yield from objects_in(item.get("output"))
