"""HTML: a section for each heading, with the visible text in lines. Scripts, styles and navigation are left out."""

from __future__ import annotations

import re

from ...contracts.knowledge import Document, Section, Unreadable
from ...text.html import HtmlText, TooSlow
from ._decode import decoded

SECONDS_MAX = 120.0
_HIDDEN_ROLES = frozenset(("navigation", "search"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset=["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.I)


def read(data: bytes, name: str) -> Document:
    parser = _Sections(SECONDS_MAX)
    try:
        parser.feed(page_text(data))
        parser.close()
    except TooSlow as error:
        raise Unreadable(str(error)) from None
    return parser.document()


def page_text(data: bytes) -> str:
    """Return the text of a page in the encoding that it names. Raises Unreadable for bytes that are not text."""
    if (found := _CHARSET.search(data[:2_048])) and found[1].lower() not in (b"utf-8", b"utf8"):
        try:
            return data.decode(found[1].decode("ascii"))
        except (LookupError, UnicodeError):
            pass
    return decoded(data)


class _Sections(HtmlText):
    hides = HtmlText.hides | {"nav", "head", "title"}

    def __init__(self, seconds_max: float) -> None:
        super().__init__(seconds_max)
        self._headings: list[tuple[int, str]] = []
        self._sections: list[Section] = []
        self._began = 1
        self._heading = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HEADINGS and not self._hidden:
            self._close()
            self._heading = _HEADINGS[tag]
        elif _is_navigation(tag, attrs):
            self._hidden.append(tag)
        else:
            super().handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in _HEADINGS and self._heading:
            # Documentation marks links to headings with a pilcrow.
            text = " ".join(self.take_text().split()).rstrip("¶ ")
            self._headings = [(level, words) for level, words in self._headings if level < self._heading]
            self._headings.append((self._heading, text[:300]))
            self._heading, self._began = 0, self.getpos()[0]
        else:
            super().handle_endtag(tag)

    def _close(self) -> None:
        if text := self.take_text():
            self._sections.append(Section(text, tuple(text for _, text in self._headings if text), line=self._began))
        self._began = self.getpos()[0]

    def document(self) -> Document:
        self._close()
        title = self.title or next((text for _, text in self._headings[:1]), "")
        return Document(title[:300], tuple(self._sections))


def _is_navigation(tag: str, attrs: list[tuple[str, str | None]]) -> bool:
    """Return whether an element is marked as navigation. Only these kinds count: they always have an end tag."""
    return tag in ("div", "ul", "section", "form") and dict(attrs).get("role") in _HIDDEN_ROLES
