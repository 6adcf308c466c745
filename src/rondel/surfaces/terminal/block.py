"""How a block of Markdown looks. Imported with the first answer, because rich's Markdown imports a highlighter."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.segment import Segment

from .markdown import parse


class _Heading(Heading):
    """A heading at the left, in bold: no box and no centre, which waste a narrow terminal's lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield text


class Block(Markdown):
    """Finished Markdown. Links show their addresses: a model may give a link a misleading text."""

    elements = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup, self.parsed = text, parse(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the block without the empty lines around it: the screen adds those."""
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


def _is_blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _without_tail(line: list[Segment]) -> list[Segment]:
    """Without the spaces at the end: they would be copied, and they wrap when the window gets narrower."""
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else []
