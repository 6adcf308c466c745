"""The chat in a terminal. `Terminal(app).run(conversation)` talks until the person leaves."""

from .chat import Terminal

__all__ = ["Terminal"]
