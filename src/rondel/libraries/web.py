"""`web.fetch`: a page of the public web as plain text. Only http and https, and no private addresses.

A page is untrusted data: tags, scripts and styles are removed, and directives in it are not expanded.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from ..errors import ToolError
from ..fetching import FetchError
from ..fetching.http import PageFetcher

CHARS_MAX = 50_000
_HIDDEN = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "object"))
_BLOCK = re.compile(
    r"address|article|aside|blockquote|br|d[dlt]|div|fieldset|figure|footer|form|h[1-6r]|header|li|main|nav|[ou]l|p|pre"
    r"|section|table|tr"
)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset=["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.I)
_LOOKS_LIKE_HTML = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)


async def fetch(url: str) -> str:
    """The text of a web page.

    Args:
        url: its address, with http:// or https://
    """
    try:
        return page_text(await PageFetcher().page(url.strip()))
    except FetchError as error:
        raise ToolError(str(error)) from None


def page_text(data: bytes) -> str:
    """Return a page as lines of plain text. A note says so if it was cut."""
    text = _decoded(data)
    if _LOOKS_LIKE_HTML.match(text[:2_000]) or re.search(r"<(?:p|div|span|a|br|h[1-6])\b[^>]*>", text[:10_000], re.I):
        reader = _PageText()
        reader.feed(text)
        reader.close()
        text = reader.text()
    if len(text) > CHARS_MAX:
        text = (
            f"{text[:CHARS_MAX]}\n\n[... cut: the page has {len(text):,} characters, the first {CHARS_MAX:,} are shown]"
        )
    return text


def _decoded(data: bytes) -> str:
    if b"\0" in data[:1_000] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolError("the page is not text")
    found = _CHARSET.search(data[:2_048])
    named = found[1].decode("ascii") if found else ""
    for charset in ("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "", named, "utf-8"):
        try:
            if charset:
                return data.decode(charset).lstrip("\ufeff")
        except (LookupError, UnicodeError):
            continue
    return data.decode("utf-8", errors="replace")


class _PageText(HTMLParser):
    """Collects the visible text, with a line for each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif _BLOCK.fullmatch(tag):
            self._pieces.append("\n")
        elif tag in ("td", "th"):
            self._pieces.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _BLOCK.fullmatch(tag):
            self._pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "body" or tag == "html":
            self._hidden.clear()
        elif tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif _BLOCK.fullmatch(tag):
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._pieces.append(data)

    def text(self) -> str:
        lines = [" ".join(line.split()) for line in "".join(self._pieces).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


AGENTS = (fetch,)
