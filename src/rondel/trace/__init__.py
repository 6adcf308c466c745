"""What happened in a conversation, as a tree: turns, rounds, calls, and the agents that worked for a call.

Built from the journal's entries alone, so a trace of yesterday and one of a turn that is still at work are made the
same way: `tree` reads them, `fold` applies them to `drafts`, `node` is what comes of it; `text` and `markdown` are how
it is written, `page` is it as an HTML page. Knows no terminal, no clock and no price list.
"""

from .markdown import markdown
from .node import NodeKind, Price, TraceNode
from .text import (
    CUT_OFF,
    WRONG,
    arguments_text,
    details,
    facts_text,
    money_text,
    note_text,
    round_text,
    seconds_text,
    tokens_text,
)
from .tree import LEVELS_MAX, build, only_turn, read

__all__ = [
    "CUT_OFF",
    "LEVELS_MAX",
    "WRONG",
    "NodeKind",
    "Price",
    "TraceNode",
    "arguments_text",
    "build",
    "details",
    "facts_text",
    "markdown",
    "money_text",
    "note_text",
    "only_turn",
    "read",
    "round_text",
    "seconds_text",
    "tokens_text",
]
