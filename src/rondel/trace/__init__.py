"""What happened in a conversation, as a tree: turns, rounds, calls, and the agents that worked for a call.

Built from the journal's entries alone, so a trace of yesterday and one of a turn that is still at work are made the
same way: `tree` reads them, `drafts` folds them, `node` is what comes of it and `text` how it is written. Knows no
terminal and no clock.
"""

from .drafts import CUT_OFF
from .node import NodeKind, TraceNode
from .text import arguments_text, facts_text, seconds_text, tokens_text
from .tree import LEVELS_MAX, build, read

__all__ = [
    "CUT_OFF",
    "LEVELS_MAX",
    "NodeKind",
    "TraceNode",
    "arguments_text",
    "build",
    "facts_text",
    "read",
    "seconds_text",
    "tokens_text",
]
