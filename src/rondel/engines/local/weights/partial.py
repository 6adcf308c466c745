"""A download on disk that grows until it is complete."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TypeAlias

from ....calling.threads import in_thread

CHUNK_BYTES = 1 << 20
Steps: TypeAlias = AsyncGenerator[tuple[int, str]]
"""The progress of a download: the bytes so far, and where they come from."""


class AddressFailed(Exception):
    """This address did not provide the content; the next one may."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        super().__init__(reason)


class PartialFile:
    """A file that is hashed as it grows. What an earlier download left in it is kept.

    With `versioned`, the server's name for the version of the content is kept next to it. If no hash is known, only
    this can tell whether the rest still belongs to the beginning; without it, the download starts again.
    """

    def __init__(self, path: Path, size_bytes: int | None = None, *, versioned: bool = False) -> None:
        self.path, self.size_bytes = path, size_bytes
        self.version, self.promised_sha256 = "", ""
        self._version_path = path.with_name(f"{path.name}.version") if versioned else None
        self._hash, self.size = hashlib.sha256(), 0
        self._file = path.open("a+b")
        if self._version_path is not None:
            self.version = self._version_path.read_text()[:1000] if self._version_path.exists() else ""
            if not self.version:
                self._file.truncate(0)
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._count(chunk)
        if size_bytes is not None and self.size > size_bytes:
            self.restart()

    async def append(self, chunk: bytes) -> None:
        """Write and hash in a thread, so that a slow disk does not block the event loop."""
        if self.size_bytes is not None and self.size + len(chunk) > self.size_bytes:
            raise AddressFailed(f"it sent more than the expected {self.size_bytes} bytes")
        await in_thread(self._append, chunk)

    def _append(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.size += len(chunk)

    def remember(self, version: str) -> None:
        if self._version_path is not None and version != self.version:
            self.version = version
            self._version_path.write_text(version)

    def finished(self, path: Path) -> None:
        """Move the complete file to its path."""
        os.replace(self.path, path)
        if self._version_path is not None:
            self._version_path.unlink(missing_ok=True)

    def restart(self) -> None:
        self._file.truncate(0)
        self._hash, self.size = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def flush(self) -> None:
        """Make the appended bytes survive a power failure."""
        await in_thread(self._flush)

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
