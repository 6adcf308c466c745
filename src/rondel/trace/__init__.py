"""What happened in a conversation, as a tree: turns, rounds, calls, and the agents that worked for a call.

Built only from the journal's entries, for finished and running turns alike: `tree` reads the entries, `fold` applies
them to `drafts`, which become a tree of `node`; `text`, `markdown` and `page` (HTML) render it.
"""

from .markdown import markdown
from .node import TraceNode
from .provenance import sent_messages
from .text import CUT_OFF, arguments_text, details, facts_text, note_text, round_text, seconds_text, tokens_text
from .tree import build, only_turn, read

__all__ = [
    "CUT_OFF",
    "TraceNode",
    "arguments_text",
    "build",
    "details",
    "facts_text",
    "markdown",
    "note_text",
    "only_turn",
    "read",
    "round_text",
    "seconds_text",
    "sent_messages",
    "tokens_text",
]
