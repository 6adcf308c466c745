"""A store in memory, as strict as the one on disk."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
