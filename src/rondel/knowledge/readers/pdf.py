"""PDF: a section for each page. The only file that knows pypdf, which is imported with the first PDF."""

from __future__ import annotations

import logging
import time
from io import BytesIO

from ...contracts.knowledge import Document, Section, Unreadable
from ...errors import install_extra

PAGES_MAX = 5_000
CHARS_MAX = 20_000_000
SECONDS_MAX = 120.0


def read(data: bytes, name: str) -> Document:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise Unreadable(f"is a PDF, which needs the extra: {install_extra('knowledge')}") from error
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns about every oddity in a file
    try:
        reader = PdfReader(BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("is protected by a password; save a copy without one")
        sections = _pages(reader)
        title = (reader.metadata.title if reader.metadata else "") or ""
    except PyPdfError as error:
        raise Unreadable(f"is not a PDF that can be read: {error}") from error
    except RecursionError:
        raise Unreadable("is a PDF whose objects are nested too deeply") from None
    if not sections:
        raise Unreadable("has no text: its pages may be pictures, and pictures are not read")
    return Document(" ".join(str(title).split())[:300], tuple(sections))


def _pages(reader: object) -> list[Section]:
    from pypdf import PdfReader

    assert isinstance(reader, PdfReader)
    count = len(reader.pages)
    if count > PAGES_MAX:
        raise Unreadable(f"has {count:,} pages; a PDF may have {PAGES_MAX:,}")
    sections: list[Section] = []
    chars, deadline = 0, time.monotonic() + SECONDS_MAX

    def check_time(*_: object) -> None:
        if time.monotonic() > deadline:
            raise Unreadable(f"took more than {SECONDS_MAX:g} seconds to read")

    # pypdf itself bounds what it parses of one page, to two million tokens.
    for number, page in enumerate(reader.pages, 1):
        # Before each operation: a page may draw a form that draws others, and so on, each of them many times.
        text = page.extract_text(visitor_operand_before=check_time).replace("\0", "")
        chars += len(text)
        if text.strip():
            sections.append(Section(text, page=number))
        if chars > CHARS_MAX:
            raise Unreadable(f"has more than {CHARS_MAX:,} characters of text")
        check_time()
    return sections
