"""A store in one SQLite file: appended entries survive `kill -9`, and the event loop never waits for the disk."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
