"""Content that grows in a file until it is whole, and the two ways in which that fails.

Knows no place: whoever has bytes appends them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the bytes that are there, the bytes of the whole model, and what is going on. It may raise to give up."""

CHUNK_BYTES = 1 << 20


class PlaceFailed(Exception):
    """This place did not give the content; the next one may."""

    def __init__(self, why: str, *, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        super().__init__(why)


class DiskFailed(Exception):
    """Tells a disk that is full from a connection that broke: both are an OSError."""


class Part:
    """Content that grows in a file, hashed as it grows. What an earlier run left is hashed and kept."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None], *, size_bytes: int | None = None) -> None:
        self.path, self.size_bytes, self._on_bytes = path, size_bytes, on_bytes
        self._hash, self.size = hashlib.sha256(), 0
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._file.seek(0)
            while chunk := self._file.read(CHUNK_BYTES):
                self._count(chunk)
        except BaseException:  # who is told of the progress may give up here too
            self._file.close()
            raise
        if size_bytes is not None and self.size > size_bytes:
            self.restart()

    def append(self, chunk: bytes) -> None:
        if self.size_bytes is not None and self.size + len(chunk) > self.size_bytes:
            raise PlaceFailed(f"it gave more than the expected {self.size_bytes} bytes")
        try:
            self._file.write(chunk)
        except OSError as error:
            raise DiskFailed(str(error)) from error
        self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.size += len(chunk)
        self._on_bytes(self.size)

    def restart(self) -> None:
        self._file.truncate(0)
        self._hash, self.size = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
