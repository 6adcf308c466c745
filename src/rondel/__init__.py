"""Rondel: agents that talk, work and call each other."""

__version__ = "0.1.0"
