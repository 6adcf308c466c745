"""A store in one SQLite file: what was appended survives `kill -9`, and the event loop never waits for a disk."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
