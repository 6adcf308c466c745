"""Reads the text of untrusted HTML within a time limit. On its own, Python's parser takes quadratic time for some
pages.
"""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

_BLOCK = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figure", "footer"),
        *("form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section"),
        *("table", "tr", "ul"),
    )
)
_MARKUP = re.compile("<[a-zA-Z/!?]")
_NO_COMMENT, _COMMENT_END = re.compile("-?>"), re.compile("--!?>")
_LONG_NUMBER = re.compile("&#(?:[0-9]{4000,}+|0*+[1-9][0-9]{19,}+);?")
"""No character has a number this large, and Python refuses to read one of 4,300 digits."""

PIECE_CHARS = 1 << 16
TAG_CHARS_MAX = 1 << 18
"""A longer tag is left out, such as one with a picture in it: the parser needs 200 bytes for each of its characters."""
HIDDEN_DEPTH_MAX = 100  # how many open elements an end tag searches


class TooSlow(ValueError):
    """A page took longer to read than its reader allows."""


class HtmlText(HTMLParser):
    """Collects the visible text, with a line for each block, and the title. `feed` and `close` raise TooSlow after
    `seconds_max`."""

    hides = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "object"))

    def __init__(self, seconds_max: float) -> None:
        super().__init__(convert_charrefs=True)
        self._seconds_max = seconds_max
        self._deadline = time.monotonic() + seconds_max
        self._pieces: list[str] = []
        self._hidden: list[str] = []  # the open elements whose text is not shown
        self._titles: list[str] = []  # the pieces of the first one
        self._in_title = False

    def feed(self, data: str) -> None:
        data = _LONG_NUMBER.sub("\ufffd", data)
        for start in range(0, len(data), PIECE_CHARS):
            super().feed(data[start : start + PIECE_CHARS])
            if len(self.rawdata) > TAG_CHARS_MAX:
                self._shorten()

    def close(self) -> None:
        """Read the rest. Unfinished elements are not shown, as in browsers."""
        # The parser would treat it as text, and search all of it again from each "<" in it.
        if _MARKUP.match(self.rawdata):
            self.rawdata = ""
        super().close()

    def _shorten(self) -> None:
        """Drop most of a tag, comment or script that has not ended: the parser reads it again with each piece."""
        if self.cdata_elem in self.hides:
            opening, kept = "", 64  # its end may have begun
        elif self.rawdata.startswith("<!--"):
            opening, kept = "<!-- ", 3
        elif _MARKUP.match(self.rawdata):
            opening, kept = "<!x", 0  # a declaration: ends with the next ">"
        else:
            return
        cut = len(self.rawdata) - kept
        self.updatepos(0, cut)
        self.rawdata = opening + self.rawdata[cut:]

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Find the end of a comment where browsers find it."""
        found = _NO_COMMENT.match(self.rawdata, i + 4) or _COMMENT_END.search(self.rawdata, i + 4)
        return found.end() if found else -1

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Treat `<![` as a comment up to the next `>`, as browsers do."""
        return self.parse_bogus_comment(i, report)

    def updatepos(self, i: int, j: int) -> int:
        """Called by the parser after each piece, whatever it is."""
        if time.monotonic() > self._deadline:
            raise TooSlow(f"took more than {self._seconds_max:g} seconds to read")
        return super().updatepos(i, j)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" and not self._titles and self._hidden in ([], ["head"])
        if tag == "body":
            self._hidden.clear()
        elif tag in self.hides or tag in self._hidden[-1:]:
            self._hidden.append(tag)
        elif tag in ("td", "th"):
            self._pieces.append(" ")
        elif tag in _BLOCK:
            self._pieces.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCK:
            self._pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if tag in ("body", "html"):
            self._hidden.clear()
        elif tag in self._hidden[-HIDDEN_DEPTH_MAX:]:
            while self._hidden.pop() != tag:
                pass
        elif tag in _BLOCK:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._titles.append(data)
        if not self._hidden:
            self._pieces.append(data)

    @property
    def title(self) -> str:
        return " ".join("".join(self._titles).split())

    def take_text(self) -> str:
        """Return the text that was read since the last call."""
        lines = [" ".join(line.split()) for line in "".join(self._pieces).split("\n")]
        self._pieces = []
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
