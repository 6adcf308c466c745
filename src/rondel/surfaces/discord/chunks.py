"""Splits an answer into messages that Discord takes: at most 2,000 characters each, with balanced code blocks.

Discord toggles code at every run of three or more backticks, wherever it is; so does this. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LIMIT = 2_000
FENCE = "```"
LANGUAGE_CHARS_MAX = 40

_RUN = re.compile(r"`{3,}")
_LANGUAGE = re.compile(rf"([A-Za-z0-9_+\-.#]{{0,{LANGUAGE_CHARS_MAX}}})\n")
_SENTENCE = re.compile(r"[.!?…][\"')\]]*\s+")
_ITEM = re.compile(r"\s*([-*+•]|\d+[.)])\s")


def size(text: str) -> int:
    """Return the length as the strictest of Discord's clients counts it: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def chunks(text: str, limit: int = LIMIT) -> list[str]:
    """Split a text. Paragraphs, lists, tables and code blocks stay whole where they fit into a message."""
    if FENCE not in text and size(text) <= limit:  # most answers
        return [body] if (body := text.strip("\n")).strip() else []
    writer = _Writer(limit)
    for kind, piece, language in _segments(text):
        if kind == "code":
            writer.add_code(piece, language)
        else:
            for block in _blocks(piece):
                writer.add(block)
    writer.flush()
    return writer.done


class _Writer:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.done: list[str] = []
        self._current = ""

    def flush(self) -> None:
        body = self._current.strip("\n")
        if body.strip():
            self.done.append(body)
        self._current = ""

    def add(self, block: str) -> None:
        if not self._fits(block) and size(block.strip("\n")) <= self.limit:
            self.flush()
            block = block.lstrip("\n")
        while not self._fits(block):
            cut = self._cut(block, self.limit - size(self._current))
            self._current, block = self._current + block[:cut], block[cut:].lstrip(" ")
            self.flush()
        self._current += block

    def _fits(self, block: str) -> bool:
        return size(self._current) + size(block.rstrip("\n")) <= self.limit

    def _cut(self, text: str, room: int) -> int:
        """Return where to cut: after a line, a sentence or a word, else anywhere; 0 to begin with a new message."""
        start = text[: _prefix(text, room)]
        least = len(start) // 3
        if (line := start.rfind("\n") + 1) > least:
            return line
        sentences = [found.end() for found in _SENTENCE.finditer(start)]
        if sentences and sentences[-1] > least:
            return sentences[-1]
        if self._current.strip() and room < self.limit // 2:
            return 0
        return start.rfind(" ") + 1 or len(start)

    def add_code(self, content: str, language: str | None) -> None:
        """Add a code block; `language` is None for code within a line."""
        opening = FENCE if language is None else f"{FENCE}{language}\n"
        closing = FENCE if language is None or content.endswith("\n") else f"\n{FENCE}"
        whole = size(opening) + size(content) + size(closing)
        if size(self._current) + whole > self.limit >= whole:
            self.flush()
        while size(self._current) + size(opening) + size(content) + size(closing) > self.limit:
            room = self.limit - size(self._current) - size(opening) - size(f"\n{FENCE}")
            if room < self.limit // 4 and self._current.strip():
                self.flush()
                continue
            if room < self.limit // 4:
                self._current = ""
                room = self.limit - size(opening) - size(f"\n{FENCE}")
            start = content[: _prefix(content, room)]
            line = start.rfind("\n")
            piece, content = (content[:line], content[line + 1 :]) if line > 0 else (start, content[len(start) :])
            self._current += f"{opening}{piece}\n{FENCE}"
            self.flush()
        self._current += f"{opening}{content}{closing}"


def _prefix(text: str, room: int) -> int:
    """Return how many characters of a text take at most so many UTF-16 units."""
    if text[: max(room, 0)].isascii():
        return max(room, 0)
    used = 0
    for index, char in enumerate(text):
        used += 2 if ord(char) > 0xFFFF else 1
        if used > room:
            return index
    return len(text)


def _segments(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield plain text and code in turn, each code with its language. Code that does not end, ends with the text."""
    at = 0
    while opening := _RUN.search(text, at):
        if opening.start() > at:
            yield "text", text[at : opening.start()], None
        named = _LANGUAGE.match(text, opening.end())
        start = named.end() if named else opening.end()
        closing = _RUN.search(text, start)
        end = closing.start() if closing else len(text)
        if text[start:end].strip():
            yield "code", text[start:end], named[1] if named else None
        at = closing.end() if closing else len(text)
    if at < len(text):
        yield "text", text[at:], None


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs, lists and tables, each with the line breaks after it."""
    block, kind = "", ""
    for line in text.splitlines(keepends=True):
        found = _kind(line, kind)
        if block.strip() and found not in (kind, "blank"):
            yield block
            block = ""
        block += line
        kind = found
    if block:
        yield block


def _kind(line: str, before: str) -> str:
    if not line.strip():
        return "blank"
    if line.lstrip().startswith("|"):
        return "table"
    if _ITEM.match(line) or (before == "list" and line.startswith((" ", "\t"))):
        return "list"
    return "text"


def sentence_of(error: Exception) -> str:
    """Return what an error says, for a person to read. A name at its beginning stays as it is written."""
    text = str(error)
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
