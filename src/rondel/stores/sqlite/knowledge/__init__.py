"""Knowledge bases in a file of their own beside the store's: a large sync delays no conversation, and the file can be
deleted, because all of it can be made again. `rows` has the SQL, `matrix` the vectors in memory."""

from .store import SqliteKnowledge

__all__ = ["SqliteKnowledge"]
