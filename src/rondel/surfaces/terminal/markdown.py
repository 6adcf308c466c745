"""Markdown that is still being written: which blocks are finished, and how a block looks. Knows no terminal."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown


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
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)


class MarkdownStream:
    """Takes text in pieces and gives each block once, when nothing that follows can change it any more."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @property
    def open(self) -> str:
        """What is not finished yet."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def feed(self, text: str) -> str:
        """More text; gives the blocks that it finished, as Markdown."""
        self._pieces.append(text)
        return self._cut() if "\n" in text else ""

    def finish(self) -> str:
        """The rest: nothing follows."""
        rest, self._pieces = self.open, []
        return rest

    def _cut(self) -> str:
        """A block is finished when another one stands behind it."""
        text = self.open
        starts = [token.map[0] for token in Markdown(text).parsed if token.level == 0 and token.map]
        if len(starts) < 2:
            return ""
        lines = text.splitlines(keepends=True)
        at = starts[-1]
        self._pieces = ["".join(lines[at:])]
        return "".join(lines[:at])
