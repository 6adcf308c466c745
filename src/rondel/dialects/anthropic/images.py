"""Finds and edits the images in the messages of a body."""

from __future__ import annotations

from collections.abc import Iterator

from ...contracts.dialect import Json
from .._images import Edit, edit_blocks, objects_in
from .parts import read_block, write_block


def edit_images(messages: object, edit: Edit) -> None:
    edit_blocks(_blocks(messages), edit, "image", read_block, lambda media: write_block(media, replay=True))


def _blocks(messages: object) -> Iterator[Json]:
    for message in objects_in(messages):
        for block in objects_in(message.get("content")):
            yield block
            if block.get("type") == "tool_result":
                yield from objects_in(block.get("content"))
