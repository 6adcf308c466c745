"""Cuts documents into chunks that follow their structure and have a limited length. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from ..contracts.knowledge import Chunk, Document, Section
from ..machine.tokens import estimate_tokens

HEADINGS_CHARS_MAX = 200
CHUNKS_MAX = 200_000  # of one document

_PARAGRAPH = re.compile(r"\n[ \t\f\v]*\n+")
_ENDS = ("\n", ". ", "! ", "? ", "。", "; ", " ")  # where a long paragraph is split, best first


def chunks_of(document: Document, tokens_max: int) -> tuple[Chunk, ...]:
    """Return the chunks of a document. Paragraphs under the same headings are joined up to the limit; a longer
    paragraph is split between lines or sentences."""
    made: list[Chunk] = []
    for (headings, page), sections in groupby(document.sections, key=_place):
        joined = " > ".join(heading for heading in headings if heading != document.title)[-HEADINGS_CHARS_MAX:]
        for text, line in _packed(_pieces(sections, tokens_max), tokens_max):
            made.append(Chunk(text, joined, line, page))
            if len(made) >= CHUNKS_MAX:
                return tuple(made)
    return tuple(made)


def _place(section: Section) -> tuple[tuple[str, ...], int | None]:
    return section.headings, section.page


def _packed(pieces: Iterable[tuple[str, int | None]], tokens_max: int) -> Iterator[tuple[str, int | None]]:
    kept: list[str] = []
    began: int | None = None
    tokens = 0
    for text, line in pieces:
        more = estimate_tokens(text)
        if kept and tokens + more > tokens_max:
            yield "\n\n".join(kept), began
            kept, tokens = [], 0
        if not kept:
            began = line
        kept.append(text)
        tokens += more
    if kept:
        yield "\n\n".join(kept), began


def _pieces(sections: Iterable[Section], tokens_max: int) -> Iterator[tuple[str, int | None]]:
    """Yield paragraphs with the line at which each begins, none longer than the limit."""
    for section in sections:
        at, text = 0, section.text
        line, counted = section.line, 0  # the line of the character at `counted`
        for found in (*_PARAGRAPH.finditer(text), None):
            end = len(text) if found is None else found.start()
            for piece, start in _split(text[at:end], tokens_max):
                if line is not None:
                    line += text.count("\n", counted, at + start)
                    counted = at + start
                yield piece, line
            at = end if found is None else found.end()


def _split(paragraph: str, tokens_max: int) -> Iterator[tuple[str, int]]:
    start = 0
    chars_max = tokens_max * 4
    if not paragraph.isascii():
        chars_max = max(1, int(chars_max * len(paragraph) / (4 * max(1, estimate_tokens(paragraph)))))
    while len(paragraph) - start > chars_max:
        least, most = start + chars_max // 2, start + chars_max
        ends = (paragraph.rfind(end, least, most) + len(end) for end in _ENDS)
        cut = next((end for end in ends if end > least), most)
        yield from _stripped(paragraph[start:cut], start)
        start = cut
    yield from _stripped(paragraph[start:], start)


def _stripped(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield a text without blank lines around it; indentation stays, because code needs it."""
    body = text.rstrip()
    if body.strip():
        blank = len(body) - len(body.lstrip("\n"))
        yield body[blank:], start + blank
