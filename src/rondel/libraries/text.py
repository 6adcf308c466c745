"""`text.upper` and other functions on texts. Pure. Lengths count characters, and results have a limit."""

from __future__ import annotations

import re
from typing import Literal

from ..errors import ToolError

CHARS_MAX = 1_000_000  # the longest result: replacing a short word can make a text a million times longer


def upper(text: str) -> str:
    """The text in capital letters."""
    return text.upper()


def lower(text: str) -> str:
    """The text in small letters."""
    return text.lower()


def title(text: str) -> str:
    """The text with a capital letter at the beginning of each word."""
    return re.sub(r"\w[\w'’]*", lambda word: word[0][:1].upper() + word[0][1:].lower(), text)


def trim(text: str) -> str:
    """The text without white space around it."""
    return text.strip()


def truncate(text: str, length: int, mark: str = "…") -> str:
    """The beginning of the text, with a mark if something is left out.

    Args:
        text: the text
        length: how many characters at most, the mark included
        mark: what replaces the rest
    """
    if length < 0:
        raise ToolError(f"length is {length}; it must be 0 or more")
    if len(text) <= length:
        return text
    mark = mark[:length]
    return text[: length - len(mark)].rstrip() + mark


def replace(text: str, find: str, by: str = "") -> str:
    """The text with every occurrence of one text replaced by another.

    Args:
        text: the text
        find: what is replaced, literally
        by: what replaces it; nothing if it is left out
    """
    if not find:
        raise ToolError("find is empty; give the text to replace")
    if len(text) + text.count(find) * (len(by) - len(find)) > CHARS_MAX:
        raise ToolError(f"the text would have more than {CHARS_MAX:,} characters; replace less")
    return text.replace(find, by)


def count(text: str, of: Literal["characters", "words", "lines"] = "words") -> int:
    """How many words, characters or lines the text has.

    Args:
        text: the text
        of: what is counted
    """
    return {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}[of]


def lines(text: str, first: int = 1, last: int = 0) -> str:
    """Some lines of the text.

    Args:
        text: the text
        first: the first line, counted from 1
        last: the last line; 0 is the end of the text
    """
    if first < 1 or last < 0:
        raise ToolError(f"lines count from 1: there are none from {first} to {last}")
    return "\n".join(text.splitlines()[first - 1 : last or None])


def split(text: str, at: str = ",") -> list[str]:
    """The pieces of the text between separators, without white space around them; empty ones are left out.

    Args:
        text: the text
        at: the separator, literally
    """
    if not at:
        raise ToolError("at is empty; give a separator")
    return [piece for part in text.split(at) if (piece := part.strip())]


def join(pieces: list[str], by: str = ", ") -> str:
    """Several texts as one.

    Args:
        pieces: the texts, in order
        by: what goes between them
    """
    if sum(map(len, pieces)) + len(by) * len(pieces) > CHARS_MAX:
        raise ToolError(f"the text would have more than {CHARS_MAX:,} characters; join less")
    return by.join(pieces)


AGENTS = (upper, lower, title, trim, truncate, replace, count, lines, split, join)
