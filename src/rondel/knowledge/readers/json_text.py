"""JSON and JSON Lines: a line for each value, with the path that leads to it; a section for each top-level item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from ...contracts.knowledge import Document, Section, Unreadable
from ._decode import decoded

VALUES_MAX = 1_000_000


def read(data: bytes, name: str) -> Document:
    text = decoded(data)
    if name.lower().endswith((".jsonl", ".ndjson")):
        return Document("", tuple(_lines(text)))
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Unreadable(f"is not JSON: {error}") from error
    items: Iterable[tuple[str, Any]] = (("", value),)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        items = ((str(index), item) for index, item in enumerate(cast("list[Any]", value)))
    values = _Values()
    written = ((values.said(item, key), key) for key, item in items)
    return Document("", tuple(Section(said, (key,) if key else ()) for said, key in written if said))


def _lines(text: str) -> Iterator[Section]:
    values = _Values()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                value = msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise Unreadable(f"is not JSON in line {number}: {error}") from error
            if said := values.said(value, ""):
                yield Section(said, line=number)


class _Values:
    """Writes the values of a document, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def said(self, value: Any, path: str) -> str:
        return "\n".join(self._lines(value, path))

    def _lines(self, value: Any, path: str) -> Iterator[str]:
        """Yield `path: value` for each value in a tree. Not recursive, because the tree may be deep."""
        pending = [(path, value)]
        while pending:
            path, value = pending.pop()
            self._count += 1
            if self._count > VALUES_MAX:
                raise Unreadable(f"has more than {VALUES_MAX:,} values")
            if isinstance(value, dict):
                pairs = cast("dict[str, Any]", value).items()
                pending += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(list(pairs))]
            elif isinstance(value, list):
                items = cast("list[Any]", value)
                pending += [(f"{path}[{index}]", item) for index, item in reversed(list(enumerate(items)))]
            elif value is not None and value != "":
                yield f"{path}: {value}" if path else str(value)
