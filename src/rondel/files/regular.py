"""Reads files that people name: only regular files of limited size, nothing that blocks or never ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import ConfigError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return the content of a regular file of at most `bytes_max`, or raise a ConfigError that names the file."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                raise ConfigError(f"is {_KINDS.get(kind, 'something else')}, not a regular file", path=str(path))
            data = file.read(bytes_max + 1)
    except IsADirectoryError:
        raise ConfigError("is a folder, not a regular file", path=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=str(path)) from None
    except ValueError:  # a NUL in its name
        raise ConfigError(f"{str(path)!r} cannot be the name of a file") from None
    if len(data) > bytes_max:
        raise ConfigError(f"is longer than {size_text(bytes_max)}; give a smaller one", path=str(path))
    return data


def size_text(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MB" if size_bytes % (1 << 20) == 0 else f"{size_bytes:,} bytes"
