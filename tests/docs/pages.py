"""The pages of the documentation and the fenced blocks in them. Knows no language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1\2[`~]* *$", re.M | re.S)
_FILE = re.compile(r"# ([\w./-]+\.(?:toml|yaml|py))\n")


class Block(msgspec.Struct, frozen=True):
    """A fenced block: where it begins, its language, and the file that it stands for, if it says so.

    A file is named by the first line's comment (`# agents/weather.yaml`), or behind the language.
    """

    page: Path
    line: int
    language: str
    file: str
    text: str

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        indent, _, info, body = found.groups()
        words = info.split()
        if indent:
            body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        named = _FILE.match(body)
        file = words[1] if len(words) > 1 else named[1] if named else ""
        line = text.count("\n", 0, found.start()) + 2
        yield Block(page, line, words[0] if words else "", file, body)


def without_blocks(page: Path) -> str:
    """A page's prose: what stands in blocks and in `code` is left out."""
    return re.sub(r"`[^`\n]*`", "`code`", _FENCE.sub("", page.read_text(encoding="utf-8")))


def rows_after(name: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without the table's own heading."""
    _, found, rest = f"\n{text_of(name)}".partition(f"\n{heading}\n")
    assert found, f"{name} has no heading {heading!r}"
    table = re.search(r"(?:^\|.*\n)+", rest, re.M)
    assert table, f"{name} has no table below {heading!r}"
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def codes_in(cell: str) -> list[str]:
    """What stands in `backticks` in a cell."""
    return re.findall(r"`([^`]+)`", cell)
