"""Citations as people read them: markers `[n]` in a text, and the list of sources below it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..values import Citation, Part, Text

LABEL_CHARS_MAX = 60

# A space before it, then one or several numbers. What follows distinguishes a link from a marker.
MARKER = re.compile(r" ?\[(\d{1,4}(?:\s?,\s?\d{1,4}){0,9})\](?![(:])")
_IN_LINK = re.compile(r"\]\(([^()\s]+)((?: \[\d+\])+)\)")
_FENCE = re.compile(r"`+")
_INCOMPLETE = re.compile(r"(?: ?\[[\d, ]{0,60}\]?| |`+)$")  # what the next piece of a stream may complete


def source_key(citation: Citation) -> tuple[object, ...]:
    """Return what two citations of the same source have in common."""
    if citation.url:
        return (citation.url,)
    return citation.path, citation.line, citation.page, "" if citation.path else citation.title or citation.quote


def label_of(citation: Citation) -> str:
    """Return a short name for a source: its title, or else the host or the name of the file."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(citation.url).hostname or "").removeprefix("www.")
    except ValueError:  # anyone may have written it
        host = ""
    text = " ".join(citation.title.split()) or host or citation.path.rpartition("/")[2] or citation.url or "source"
    text = text.replace("[", "(").replace("]", ")")
    return text if len(text) <= LABEL_CHARS_MAX else f"{text[: LABEL_CHARS_MAX - 1]}…"


def sources_line(sources: Sequence[Citation]) -> str:
    """Return `Sources: [1] [Guide](guide.md:12), …`; an empty text if there are none."""
    if not sources:
        return ""
    return "Sources: " + ", ".join(_linked(source) for source in sources)


def _linked(source: Citation) -> str:
    label, address = label_of(source), source.address
    return f"[{source.number}] " + (f"[{label}]({address})" if address else label)


def sources_of(parts: Iterable[Part]) -> tuple[Citation, ...]:
    """Return the sources that a message cites, each once, in the order of their numbers."""
    return with_markers(parts)[1]


def with_markers(
    parts: Iterable[Part], number_of: Callable[[Citation], int] | None = None
) -> tuple[str, tuple[Citation, ...]]:
    """Return the text of a message with a marker for each citation, and its sources, each once.

    A source with a number has its markers in the text. Citations of a provider have none: they get the number that
    `number_of` returns, or the next one, and their markers come after what they are for.
    """
    texts = [part for part in parts if isinstance(part, Text)]
    numbers: dict[tuple[object, ...], int] = {}
    sources: dict[int, Citation] = {}
    for citation in (citation for text in texts for citation in text.citations if citation.number):
        numbers.setdefault(source_key(citation), citation.number)
        sources.setdefault(citation.number, citation)
    written: list[str] = []
    for text in texts:
        marks: dict[int, list[int]] = {}
        for citation in text.citations:
            if citation.number or not (citation.address or citation.title):
                continue
            key = source_key(citation)
            if key not in numbers:
                numbers[key] = number_of(citation) if number_of is not None else max(sources, default=0) + 1
            number = numbers[key]
            sources.setdefault(number, msgspec.structs.replace(citation, number=number))
            end = len(text.text) if citation.end is None else min(citation.end, len(text.text))
            if number not in marks.setdefault(end, []):
                marks[end].append(number)
        written.append(_marked(text.text, marks))
    return "".join(written), tuple(sources[number] for number in sorted(sources))


def _marked(text: str, marks: Mapping[int, Sequence[int]]) -> str:
    if not marks:
        return text
    pieces: list[str] = []
    at = 0
    for end in sorted(marks):
        pieces += [text[at:end], *(f" [{number}]" for number in marks[end])]
        at = end
    # A marker that came inside of a link goes behind it.
    return _IN_LINK.sub(r"](\1)\2", "".join([*pieces, text[at:]]))


class MarkerFilter:
    """Reads the markers of a text as it streams: those of known sources stay and become citations, others are removed.

    Code is left alone, and so is `word[n]` with an unknown number, which may be an index.
    """

    def __init__(self, sources: Mapping[int, Citation]) -> None:
        self._sources = sources
        self._held = ""
        self._fence = ""
        self._last = ""
        self.length = 0
        """How many characters were returned."""
        self.citations: list[Citation] = []
        self.unknown: set[int] = set()

    def feed(self, text: str) -> str:
        """Return what can be shown; a marker that is not complete yet is held back."""
        text = self._held + text
        found = _INCOMPLETE.search(text)
        end = len(text) if found is None else found.start()
        self._held = text[end:]
        return self._filtered(text[:end])

    def finish(self) -> str:
        text, self._held = self._held, ""
        return self._filtered(text)

    def _filtered(self, text: str) -> str:
        if "[" not in text and "`" not in text:
            return self._shown(text)
        pieces: list[str] = []
        at = 0
        for fence in (*_FENCE.finditer(text), None):
            end = len(text) if fence is None else fence.start()
            body = text[at:end]
            pieces.append(self._shown(body) if self._fence else self._plain(body))
            if fence is not None:
                self._toggle(fence[0])
                pieces.append(self._shown(fence[0]))
                at = fence.end()
        return "".join(pieces)

    def _toggle(self, marks: str) -> None:
        if not self._fence:
            self._fence = marks
        elif marks == self._fence:
            self._fence = ""

    def _plain(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        for found in MARKER.finditer(text):
            before = text[found.start() - 1 : found.start()] or (self._last if found.start() == 0 else "")
            pieces.append(self._shown(text[at : found.start()]))
            pieces.append(self._marker(found, before))
            at = found.end()
        pieces.append(self._shown(text[at:]))
        return "".join(pieces)

    def _marker(self, found: re.Match[str], before: str) -> str:
        given = [int(number) for number in found[1].split(",")]
        known = [number for number in given if number in self._sources]
        if not known and not found[0].startswith(" ") and (before.isalnum() or before in ("_", "]", ")")):
            return self._shown(found[0])
        self.unknown.update(number for number in given if number not in self._sources)
        if not known:
            return ""
        space = " " if found[0].startswith(" ") else ""
        start = self.length + len(space)
        shown = self._shown(f"{space}[{', '.join(map(str, known))}]")
        for number in known:
            self.citations.append(msgspec.structs.replace(self._sources[number], start=start, end=self.length))
        return shown

    def _shown(self, text: str) -> str:
        if self._fence and len(self._fence) < 3 and "\n\n" in text:
            self._fence = ""  # code in a line ends with its paragraph
        self.length += len(text)
        self._last = text[-1:] or self._last
        return text
