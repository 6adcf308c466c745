"""Tools for models without tool calling: describes tools in the prompt and finds calls in the reply's text.

`words` describes, `patterns` and `finding` find, `plugin` does both for a turn.
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
