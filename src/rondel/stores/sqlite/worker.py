"""How workers know who is alive: each locks a file beside the database, which is unlocked when the process ends.

A worker is dead when its lock can be taken or its file is gone. Knows no SQL.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from ...errors import StoreError
from ...files.lock import try_lock

_workers: WeakSet[Worker] = WeakSet()


def _leave_to_parent() -> None:
    """Close the handle in a forked process: it shares the lock, so its parent would seem alive after its death."""
    for worker in list(_workers):
        worker.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class Worker:
    """This worker: alive from `Worker.of(database)` until `close`, or until the process ends in any way."""

    def __init__(self, id: str, path: Path, handle: int) -> None:
        self.id, self._path = id, path
        self._handle: int | None = handle
        _workers.add(self)

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
            # Before it is locked, another worker that cleans up may think that the new file is a dead worker's.
            if try_lock(handle) and path.exists():
                return cls(id, path, handle)
            os.close(handle)

    def leave(self) -> None:
        """Close the handle of this process only: the lock is held as long as another one has it open."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def close(self) -> None:
        if self._handle is not None:  # else the file belongs to the process that this one was forked from
            self.leave()
            self._path.unlink(missing_ok=True)


def is_dead(database: Path, id: str) -> bool:
    return _is_free(_lock_path(database, id))


def tidy(database: Path) -> None:
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
        # A file of another user that we may not open: we cannot tell, so it counts as alive.
        return False
    try:
        free = try_lock(handle)
        if free and remove and sys.platform != "win32":
            # While the lock is held, so that a worker that is just starting notices that its file is gone.
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)
    if free and remove and sys.platform == "win32":
        # There an open file cannot be removed, not even by us; one that a new worker has opened stays.
        with suppress(OSError):
            path.unlink()
    return free


def _lock_path(database: Path, id: str) -> Path:
    return database.with_name(f"{database.name}.worker-{id}")
