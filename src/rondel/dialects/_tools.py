"""Reads the tools of a body.

Programs send the same tools with each request, and with coding agents they are most of it. So the last few are kept, in
the form in which they came and as they were read. Knows no single wire format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from ..contracts.dialect import Json
from ._wire import WireError, decode_json, each

T = TypeVar("T")

KEPT_MAX = 8
KEPT_BYTES_MAX = 256 * 1024  # longer ones are read again with each request


class ToolsReader(Generic[T]):
    """`read` reads one tool. Its values are frozen, so that requests can share them."""

    def __init__(self, read: Callable[[Json], T]) -> None:
        self._read = read
        self._kept: list[tuple[msgspec.Raw, tuple[T, ...]]] = []

    def __call__(self, body: Json) -> tuple[T, ...]:
        """Return the tools of a body, whose field `tools` may be JSON text. Raises WireError."""
        text = body.get("tools")
        if type(text) is not msgspec.Raw:
            return tuple(each(text, "tools", self._read))
        for known, tools in self._kept:
            if known == text:
                return tools
        tools = tuple(each(_decoded(text), "tools", self._read))
        if len(text) <= KEPT_BYTES_MAX:
            # A copy, because the text is a part of a body, which would be kept with it.
            self._kept = [(text.copy(), tools), *self._kept[: KEPT_MAX - 1]]
        return tools


def _decoded(text: msgspec.Raw) -> object:
    try:
        return decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("tools", f"is not JSON: {error}") from None
