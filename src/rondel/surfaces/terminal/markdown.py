"""Markdown that is still being written: which blocks are finished, and how a block looks. Knows no terminal."""

from __future__ import annotations

import re
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.segment import Segment


class _Heading(Heading):
    """A heading at the left, in bold: no box and no centre, which waste a narrow terminal's lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield text


class Block(Markdown):
    """Finished Markdown. Links show where they go: what a model calls a link is no reason to trust it."""

    elements = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup, self.parsed = text, _parse(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The empty lines around a block are its surroundings' business."""
        segments: list[Segment] = []
        for item in super().__rich_console__(console, options):
            segments += [item] if isinstance(item, Segment) else console.render(item, options)
        lines = list(Segment.split_lines(segments))
        while lines and _is_blank(lines[-1]):
            lines.pop()
        while lines and _is_blank(lines[0]):
            lines.pop(0)
        for line in lines:
            yield from _without_tail(line)
            yield Segment.line()


def _parse(text: str) -> list[Token]:
    """HTML is text here: what a model writes between angle brackets must not vanish."""
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table").parse(text)


def _is_blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _without_tail(line: list[Segment]) -> list[Segment]:
    """Without the spaces at the end: they would be copied, and they wrap when the window gets narrower."""
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else []


_FENCE = re.compile(r"\s*(`{3,}|~{3,})")


class MarkdownStream:
    """Takes text in pieces and gives each block once, when nothing that follows can change it any more."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._fence = ""
        """What will end the open block of code: until it comes, nothing needs to be read again."""

    @property
    def open(self) -> str:
        """What is not finished yet."""
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
        """The rest: nothing follows."""
        rest, self._pieces, self._fence = self.open, [], ""
        return split(rest)


def split(text: str) -> list[str]:
    """The blocks of a text, as Markdown. All but the last are finished: nothing that follows can change them."""
    starts = [token.map[0] for token in _parse(text) if token.level == 0 and token.map]
    starts = sorted(set(starts))[1:]
    if not starts:
        return [text] if text.strip() else []
    lines = [f"{line}\n" for line in text.split("\n")]  # what else `splitlines` takes for an end is none in Markdown
    lines[-1] = lines[-1][:-1]
    return ["".join(lines[start:end]) for start, end in pairwise([0, *starts, len(lines)])]
