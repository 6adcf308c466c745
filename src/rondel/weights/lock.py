"""One process at a time: others wait while one fetches the same weights.

Knows nothing of how they are fetched; it sees files grow.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..errors import EngineError
from .part import Progress
from .table import Weights

LOCK_SILENCE_S = 300.0


@contextmanager
def locked(path: Path, weights: Weights, report: Progress) -> Generator[None]:
    """Wait while another process fetches the same weights, as long as it gets on.

    The lock is the system's, on a file that stays: it ends with its process, whatever ends that.
    """
    with path.open("a+b") as file:
        seen, since = -1, time.monotonic()
        while not _try_lock(file):
            size = _growing_bytes(path.parent, weights)
            if size != seen:
                seen, since = size, time.monotonic()
            elif time.monotonic() - since > LOCK_SILENCE_S:
                raise EngineError(
                    f"another process has been fetching the weights of {weights.name!r} without getting on; "
                    f"end it and try again (it holds {str(path)!r})",
                    provider="local",
                    model=weights.name,
                )
            report(min(size, weights.size_bytes), weights.size_bytes, "another process fetches it")
            time.sleep(0.2)
        yield


def _growing_bytes(folder: Path, weights: Weights) -> int:
    total = 0
    for file in folder.glob(f"{weights.file}*.part"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
