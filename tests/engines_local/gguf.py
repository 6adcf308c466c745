"""GGUF files that tests make: small ones without tensors, and copies of a real one with other metadata."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(key) + struct.pack("<II", 4, value)


def gguf(**metadata: Any) -> bytes:
    """A file with this metadata (dots are written as two underscores) and no tensors."""
    entries = b"".join(entry(key.replace("__", "."), value) for key, value in metadata.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata)) + entries


def with_template(source: Path, target: Path, template: str) -> None:
    """Copy a model with another chat template."""
    content = source.read_bytes()
    tensors, entries = struct.unpack_from("<QQ", content, 8)
    at, head = 24, content[:24]
    kept = bytearray()
    for _ in range(entries):
        start, at = at, _after_entry(content, at)
        length = struct.unpack_from("<Q", content, start)[0]
        if content[start + 8 : start + 8 + length] != b"tokenizer.chat_template":
            kept += content[start:at]
        else:
            kept += entry("tokenizer.chat_template", template)
    infos = at
    for _ in range(tensors):
        at = _after_text(content, at)
        at += 4 + 8 * struct.unpack_from("<I", content, at)[0] + 12
    made = head + bytes(kept) + content[infos:at]
    target.write_bytes(made + bytes(-len(made) % 32) + content[at + -at % 32 :])


_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _after_text(content: bytes, at: int) -> int:
    return at + 8 + int(struct.unpack_from("<Q", content, at)[0])


def _after_entry(content: bytes, at: int) -> int:
    at = _after_text(content, at)
    kind = struct.unpack_from("<I", content, at)[0]
    return _after_value(content, at + 4, kind)


def _after_value(content: bytes, at: int, kind: int) -> int:
    if kind == 8:
        return _after_text(content, at)
    if kind != 9:
        return at + _SIZES[kind]
    item, number = struct.unpack_from("<IQ", content, at)
    at += 12
    if item in _SIZES:
        return at + number * _SIZES[item]
    for _ in range(number):
        at = _after_value(content, at, item)
    return at
