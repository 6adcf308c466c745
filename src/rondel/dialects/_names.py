"""Names of tools in the form that providers accept: letters, digits, `_` and `-`, up to a length.

A name that would be refused is replaced on the wire by one that is derived only from it, and so is the same in every
request. The reader of the reply knows the tools of the prompt and restores the names of calls: neither the caller nor
the tool sees the replacement. Knows no single wire format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec

from ..contracts.dialect import Json, ReplyReader
from ..errors import EngineError
from ..values import Delta, Part, PartFinished, PartStarted, Reply, ToolCall, ToolSpec

DIGITS = 8  # digits of a hash that distinguishes names with the same beginning
_GOOD = re.compile(r"[a-zA-Z0-9_-]+")
_BAD = re.compile(r"[^a-zA-Z0-9_-]")


def name_sent(name: str, length_max: int) -> str:
    """Return a tool's name, or its replacement if it is too long or has other characters."""
    if len(name) <= length_max and ((name.isidentifier() and name.isascii()) or _GOOD.fullmatch(name)):
        return name
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:DIGITS]
    return f"{_BAD.sub('_', name)[: length_max - DIGITS - 1]}_{digest}"


def choice_sent(choice: str, length_max: int) -> str:
    return name_sent(choice.removeprefix("tool:"), length_max)


def reader_for(reader: ReplyReader, tools: Iterable[ToolSpec], length_max: int) -> ReplyReader:
    names = {sent: spec.name for spec in tools if (sent := name_sent(spec.name, length_max)) != spec.name}
    return _OwnNames(reader, names) if names else reader


def _named(part: Part, names: Mapping[str, str]) -> Part:
    if isinstance(part, ToolCall) and part.name in names:
        return msgspec.structs.replace(part, name=names[part.name])
    return part


class _OwnNames:
    """A reader that restores the names of tools in calls."""

    def __init__(self, reader: ReplyReader, names: Mapping[str, str]) -> None:
        self._reader, self._names = reader, names

    def feed(self, data: bytes) -> list[Delta]:
        return [self._restored(delta) for delta in self._reader.feed(data)]

    def finish(self) -> list[Delta]:
        return [self._restored(delta) for delta in self._reader.finish()]

    def read_whole(self, body: Json) -> Reply:
        reply = self._reader.read_whole(body)
        parts = tuple(_named(part, self._names) for part in reply.message.parts)
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=parts))

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        return self._reader.read_error(status, body, provider=provider, model=model)

    @property
    def failure(self) -> EngineError | None:
        return self._reader.failure

    def _restored(self, delta: Delta) -> Delta:
        if isinstance(delta, (PartStarted, PartFinished)) and isinstance(delta.part, ToolCall):
            return msgspec.structs.replace(delta, part=_named(delta.part, self._names))
        return delta
