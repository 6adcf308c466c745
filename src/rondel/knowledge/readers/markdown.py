"""Markdown: a section for each heading, with the headings above it. Lines in blocks of code are not headings."""

from __future__ import annotations

import re

from ...contracts.knowledge import Document, Section
from ._decode import decoded

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TITLE = re.compile(r"title:[ \t]*['\"]?(.+?)['\"]?[ \t]*$", re.M)


def read(data: bytes, name: str) -> Document:
    lines = decoded(data).split("\n")
    title, first = _front_matter(lines)
    headings: list[tuple[int, str]] = []
    sections: list[Section] = []
    body: list[str] = []
    began, fence = first + 1, ""

    def close(end: int) -> None:
        if any(line.strip() for line in body):
            sections.append(Section("\n".join(body), tuple(text for _, text in headings), line=began))

    for number, line in enumerate(lines[first:], first + 1):
        if found := _FENCE.match(line):
            mark = found[1]
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        level, text = (0, "") if fence else _heading(line, body)
        if not level:
            body.append(line)
            continue
        if not line.lstrip().startswith("#"):
            body.pop()  # the heading is the line above the underline
        close(number)
        headings = [(above, words) for above, words in headings if above < level] + [(level, text)]
        title = title or text
        body, began = [], number + 1
    close(len(lines))
    return Document(title, tuple(sections))


def _heading(line: str, body: list[str]) -> tuple[int, str]:
    if found := _HEADING.match(line):
        return len(found[1]), found[2]
    if body and body[-1].strip() and (len(body) < 2 or not body[-2].strip()) and (found := _UNDERLINE.match(line)):
        above = body[-1].strip()
        if not above.startswith(("|", "-", "*", ">", "#")):
            return (1 if found[1][0] == "=" else 2), above
    return 0, ""


def _front_matter(lines: list[str]) -> tuple[str, int]:
    """Return the title of a block of YAML at the top, and the first line after the block."""
    if lines[0].rstrip() != "---":
        return "", 0
    for number, line in enumerate(lines[1:200], 1):
        if line.rstrip() in ("---", "..."):
            found = _TITLE.search("\n".join(lines[1:number]))
            return found[1][:200] if found else "", number + 1
    return "", 0
