"""Tools for models that know no tools: told of them in words, and heard when they write a call into their text.

`words` tells, `patterns` and `finding` hear, `plugin` does both for a turn.
"""

from .finding import FoundCall, find_calls
from .patterns import DEFAULT_PATTERNS, Pattern, ReadBody
from .plugin import TextTools
from .words import call_text, result_text

__all__ = [
    "DEFAULT_PATTERNS",
    "FoundCall",
    "Pattern",
    "ReadBody",
    "TextTools",
    "call_text",
    "find_calls",
    "result_text",
]
