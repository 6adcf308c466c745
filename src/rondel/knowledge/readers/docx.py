"""Word documents (DOCX): a section for each heading. A document is a ZIP file, which may be a bomb: the unpacked size
is limited, and XML with a document type is refused, because only that can define entities."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

from ...contracts.knowledge import Document, Section, Unreadable

XML_BYTES_MAX = 50_000_000
MEMBERS_MAX = 10_000
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"heading\s*([1-9])", re.I)


def read(data: bytes, name: str) -> Document:
    try:
        with ZipFile(BytesIO(data)) as archive:
            if len(archive.infolist()) > MEMBERS_MAX:
                raise Unreadable(f"is a ZIP file with more than {MEMBERS_MAX:,} members")
            body = _member(archive, "word/document.xml")
            styles = _member(archive, "word/styles.xml", required=False)
            core = _member(archive, "docProps/core.xml", required=False)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise Unreadable(f"is not a Word document that can be read: {error}") from error
    levels = dict(_levels(_xml(styles))) if styles else {}
    title = "".join(_xml(core).findtext("{http://purl.org/dc/elements/1.1/}title") or "") if core else ""
    sections, first = _sections(_xml(body), levels)
    return Document(" ".join(title.split())[:300] or first, tuple(sections))


def _member(archive: ZipFile, name: str, *, required: bool = True) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        if required:
            raise Unreadable("is a ZIP file, but not a Word document") from None
        return b""
    if info.flag_bits & 1:
        raise Unreadable("is protected by a password; save a copy without one")
    with archive.open(info) as file:
        # Not the size in the directory: a bomb lies about it.
        data = file.read(XML_BYTES_MAX + 1)
    if len(data) > XML_BYTES_MAX:
        raise Unreadable(f"unpacks to more than {XML_BYTES_MAX // 1_000_000} MB")
    return data


def _xml(data: bytes) -> ElementTree.Element:
    plain = data.replace(b"\0", b"")  # of UTF-16
    if b"<!DOCTYPE" in plain or b"<!ENTITY" in plain:
        raise Unreadable("has a document type in its XML, which no word processor writes")
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise Unreadable(f"is not a Word document that can be read: {error}") from error


def _levels(styles: ElementTree.Element) -> Iterator[tuple[str, int]]:
    """Yield the ids of styles for headings, whose names are English in every language of Word, and their levels."""
    for style in styles.iter(f"{_W}style"):
        named = style.find(f"{_W}name")
        text = "" if named is None else named.get(f"{_W}val", "")
        if found := _HEADING.fullmatch(text):
            yield style.get(f"{_W}styleId", ""), int(found[1])
        elif text.lower() == "title":
            yield style.get(f"{_W}styleId", ""), 1


def _sections(body: ElementTree.Element, levels: dict[str, int]) -> tuple[list[Section], str]:
    headings: list[tuple[int, str]] = []
    sections: list[Section] = []
    lines: list[str] = []
    first = ""

    def close() -> None:
        if text := "\n\n".join(lines).strip():
            sections.append(Section(text, tuple(text for _, text in headings)))
        lines.clear()

    for block in body.find(f"{_W}body") or ():
        if block.tag == f"{_W}tbl":
            lines += (" | ".join(_text(cell) for cell in _outer(row, "tc")) for row in _outer(block, "tr"))
            continue
        if not (text := _text(block)):
            continue
        style = block.find(f"{_W}pPr/{_W}pStyle")
        name = "" if style is None else style.get(f"{_W}val", "")
        found = _HEADING.fullmatch(name)
        level = levels.get(name, int(found[1]) if found else 0)
        if level:
            close()
            headings = [(above, words) for above, words in headings if above < level] + [(level, text[:300])]
            first = first or text[:300]
        else:
            lines.append(text)
    close()
    return sections, first


def _outer(block: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """Yield the outermost elements of a name: a table inside a cell counts as text of the cell."""
    for element in block:
        if element.tag == f"{_W}{name}":
            yield element
        else:
            yield from _outer(element, name)


def _text(block: ElementTree.Element) -> str:
    pieces: list[str] = []
    for element in block.iter():
        if element.tag == f"{_W}t":
            pieces.append(element.text or "")
        elif element.tag in (f"{_W}tab", f"{_W}br", f"{_W}cr") or (element.tag == f"{_W}p" and pieces):
            pieces.append(" ")
    return " ".join("".join(pieces).split())
