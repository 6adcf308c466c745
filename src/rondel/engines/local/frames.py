"""What the background process and its clients say to each other: frames of a kind, a length and a payload."""

from __future__ import annotations

import asyncio
import struct
from enum import IntEnum
from functools import cache
from typing import Literal

from ...contracts.dialect import Json
from ...values import Value

FRAME_BYTES_MAX = 64 << 20
_HEAD = struct.Struct("<BI")


class FrameKind(IntEnum):
    HELLO = 1
    CHUNK = 2
    END = 3
    FAILED = 4
    STATUS = 5
    OTHER_VERSION = 6


class FrameError(Exception):
    """The other side left, or is not one of ours."""


class Hello(Value, frozen=True):
    """The first frame. Its first fields must stay: processes of different versions read them."""

    version: str
    do: Literal["ask", "keep", "status", "stop"]
    keep_s: float = 0.0
    settings: tuple[str, int, int] = ("", 0, 0)
    body: Json = {}
    schema: Json | None = None


class Status(Value, frozen=True):
    pid: int
    model: str
    context_tokens: int
    threads: int
    requests: int
    memory_bytes: int
    started: float
    ends_in_s: float | None


@cache
def version() -> str:
    """Return the versions that must be the same on both sides."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "none"

    return f"rondel {of('rondel')}, xllamacpp {of('xllamacpp')}"


async def read_frame(reader: asyncio.StreamReader) -> tuple[FrameKind, bytes]:
    try:
        kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        if length > FRAME_BYTES_MAX:
            raise FrameError(f"a frame has {length} bytes")
        return FrameKind(kind), await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ValueError, OSError) as error:
        raise FrameError(str(error)) from error


async def write_frame(writer: asyncio.StreamWriter, kind: FrameKind, payload: bytes) -> None:
    writer.write(_HEAD.pack(kind, len(payload)) + payload)
    await writer.drain()
