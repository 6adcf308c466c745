"""Markdown that is still being written: which blocks are finished."""

from __future__ import annotations

import re
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token


def parse(text: str) -> list[Token]:
    """HTML is text here: what a model writes between angle brackets must not vanish."""
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table").parse(text)


_FENCE = re.compile(r"\s*(`{3,}|~{3,})")


class MarkdownStream:
    """Takes text in pieces and gives each block once, when nothing that follows can change it any more."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._fence = ""  # what will end the open block of code: until it comes, nothing needs to be read again

    @property
    def open(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def feed(self, text: str) -> list[str]:
        """More text; gives the blocks that it finished."""
        self._pieces.append(text)
        if "\n" not in text or (self._fence and self._fence not in self.open[-len(text) - len(self._fence) :]):
            return []
        blocks = split(self.open)
        self._pieces = blocks[-1:]
        opening = _FENCE.match(self.open)
        self._fence = opening[1] if opening else ""
        return blocks[:-1]

    def finish(self) -> list[str]:
        rest, self._pieces, self._fence = self.open, [], ""
        return split(rest)


def split(text: str) -> list[str]:
    """The blocks of a text, as Markdown. All but the last are finished: nothing that follows can change them."""
    starts = [token.map[0] for token in parse(text) if token.level == 0 and token.map]
    starts = sorted(set(starts))[1:]
    if not starts:
        return [text] if text.strip() else []
    lines = [f"{line}\n" for line in text.split("\n")]  # `splitlines` also splits where Markdown does not
    lines[-1] = lines[-1][:-1]
    return ["".join(lines[start:end]) for start, end in pairwise([0, *starts, len(lines)])]
