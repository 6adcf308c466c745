"""A worker's sign of life: a lock on a file beside the database, which the system lets go when the process dies.

A worker is dead when its lock can be taken or its file is gone. Knows no SQL.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from ...errors import StoreError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        # Not lockf: its locks belong to a process, and two stores in one process must see each other.
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Worker:
    """This worker: alive from `Worker.of(database)` until `close`, or until the process ends in whatever way."""

    def __init__(self, id: str, path: Path, handle: int) -> None:
        self.id, self._path, self._handle = id, path, handle

    @classmethod
    def of(cls, database: Path) -> Worker:
        while True:
            id = uuid.uuid4().hex[:12]
            path = _lock_path(database, id)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise StoreError(
                    f"the folder of the database {database} cannot be written ({error.strerror}): "
                    "check its permissions, or give another path"
                ) from error
            # Another worker that tidies up may take the new file for a dead one's, before it is locked.
            if _try_lock(handle) and path.exists():
                return cls(id, path, handle)
            os.close(handle)

    def close(self) -> None:
        os.close(self._handle)
        self._path.unlink(missing_ok=True)


def is_dead(database: Path, id: str) -> bool:
    """Whether no process holds the lock of this worker any more."""
    return _is_free(_lock_path(database, id))


def tidy(database: Path) -> None:
    """Remove the lock files that dead workers left."""
    prefix = _lock_path(database, "").name
    for path in database.parent.iterdir():
        if path.name.startswith(prefix):
            _is_free(path, remove=True)


def _is_free(path: Path, *, remove: bool = False) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        # Somebody else's file that we may not even open: not ours to call dead.
        return False
    try:
        free = _try_lock(handle)
        if free and remove and sys.platform != "win32":
            # While the lock is held: a worker that is just being born notices that its file is gone.
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)
    if free and remove and sys.platform == "win32":
        # There a file that is open cannot be removed, ours included; one that a new worker opened stays.
        with suppress(OSError):
            path.unlink()
    return free


def _lock_path(database: Path, id: str) -> Path:
    return database.with_name(f"{database.name}.worker-{id}")
