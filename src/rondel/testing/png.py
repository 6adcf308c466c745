"""Draws PNG files without a library: for tests that need real pictures."""

from __future__ import annotations

import struct
import zlib

SIDE = 64  # of a picture if none is asked for


def draw_png(size: str = "", prompt: str = "") -> bytes:
    """Return a PNG file of a size such as `1024x1024`: a colour that depends on the prompt, from dark to bright."""
    given = [int(side) for side in size.split("x")] if "x" in size else [SIDE, SIDE]
    width, height = given
    seed = zlib.crc32(prompt.encode("utf-8", "replace"))
    tint = (64 + seed % 192, 64 + (seed >> 8) % 192, 64 + (seed >> 16) % 192)
    rows = (bytes(one * (y + 1) // height for one in tint) * width for y in range(height))
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits for each of red, green and blue
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
