"""Finds and edits the images in the messages of a body."""

from __future__ import annotations

from .._images import Edit, edit_blocks, objects_in
from .parts import read_part, write_part


def edit_images(messages: object, edit: Edit) -> None:
    parts = (part for message in objects_in(messages) for part in objects_in(message.get("content")))
    edit_blocks(parts, edit, "image_url", read_part, write_part)
