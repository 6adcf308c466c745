"""Knowledge bases in a file of their own next to the store's: a large sync delays no conversation, and the file can be
deleted, because everything in it can be rebuilt. `rows` has the SQL, `matrix` the vectors in memory."""

from .store import SqliteKnowledge

__all__ = ["SqliteKnowledge"]
