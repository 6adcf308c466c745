"""Names of tools as a vendor's API takes them: letters, digits, `_` and `-`, and not too many.

A name that would be refused has a substitute on the wire, which is made of the name alone and so is the same in every
request. Whoever reads the reply knows the tools that were on offer, and gives a call its own name back: neither the
caller nor what runs the tool sees the substitute. Knows no single wire format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec

from ..dialect import ReplyReader
from ..errors import EngineError
from ..values import Delta, Part, PartFinished, PartStarted, Reply, ToolCall, ToolSpec

DIGITS = 8
"""So many digits tell the substitutes of names apart that begin alike."""
_GOOD = re.compile(r"[a-zA-Z0-9_-]+")
_BAD = re.compile(r"[^a-zA-Z0-9_-]")


def name_sent(name: str, length_max: int) -> str:
    """A tool's name, or its substitute where it is too long or has other characters."""
    if len(name) <= length_max and ((name.isidentifier() and name.isascii()) or _GOOD.fullmatch(name)):
        return name
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:DIGITS]
    return f"{_BAD.sub('_', name)[: length_max - DIGITS - 1]}_{digest}"


def choice_sent(choice: str, length_max: int) -> str:
    """The name in a `tool:<name>`, as it is sent."""
    return name_sent(choice.removeprefix("tool:"), length_max)


def reader_for(reader: ReplyReader, tools: Iterable[ToolSpec], length_max: int) -> ReplyReader:
    """The reader of an answer to a prompt with these tools."""
    names = _substituted(tools, length_max)
    return _OwnNames(reader, names) if names else reader


def with_own_names(reply: Reply, tools: Iterable[ToolSpec], length_max: int) -> Reply:
    names = _substituted(tools, length_max)
    if not names:
        return reply
    parts = tuple(_named(part, names) for part in reply.message.parts)
    return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))


def _substituted(tools: Iterable[ToolSpec], length_max: int) -> dict[str, str]:
    """The names that have a substitute, by that."""
    return {sent: spec.name for spec in tools if (sent := name_sent(spec.name, length_max)) != spec.name}


def _named(part: Part, names: Mapping[str, str]) -> Part:
    if isinstance(part, ToolCall) and part.name in names:
        return msgspec.structs.replace(part, name=names[part.name])
    return part


class _OwnNames:
    """A reader whose calls have their own names again."""

    __slots__ = ("_names", "_reader")

    def __init__(self, reader: ReplyReader, names: Mapping[str, str]) -> None:
        self._reader, self._names = reader, names

    def feed(self, data: bytes) -> list[Delta]:
        return [self._restored(delta) for delta in self._reader.feed(data)]

    def finish(self) -> list[Delta]:
        return [self._restored(delta) for delta in self._reader.finish()]

    @property
    def failure(self) -> EngineError | None:
        return self._reader.failure

    def _restored(self, delta: Delta) -> Delta:
        if isinstance(delta, (PartStarted, PartFinished)) and isinstance(delta.part, ToolCall):
            return msgspec.structs.replace(delta, part=_named(delta.part, self._names))
        return delta
