"""Reads TOML with the line of every key, and changes single values: tomllib parses them, a small scanner finds them."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .document import DEPTH_MAX, Document, KeyPath, read_text

_BLANK = re.compile(r"(?:[ \t\n\r]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    re.compile(r'"""(?:[^\\"]|\\.|"(?!""))*"{3,5}', re.S),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.S),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_PAIR = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=\s*([^#\n]*?)\s*(?:#|$)")
_BARE_TEXT = re.compile(r"[^\W\d][\w:./ -]*")
_SCALAR = re.compile(r"[^,\]}#\n]*")


def read_toml(path: Path) -> Document:
    text = read_text(path)
    try:
        data, lines = tomllib.loads(text), _Scanner(text).lines
    except ValueError as error:  # TOMLDecodeError, or Python's own error for a number with thousands of digits
        raise _syntax_error(str(error), text, path) from None
    except RecursionError:
        raise ConfigError("is nested too deeply to be read", path=str(path)) from None
    document = Document(str(path), data, lines)
    for at in lines:
        if len(at) > DEPTH_MAX:
            raise document.error(at, f"is nested more than {DEPTH_MAX} levels deep; make it flatter")
    return document


def _syntax_error(said: str, text: str, path: Path) -> ConfigError:
    line = None
    if found := re.search(r"\(at line (\d+), column \d+\)", said):
        line = int(found[1])
    elif "end of document" in said:
        line = text.rstrip().count("\n") + 1
    what = re.sub(r"\s*\(at (?:line \d+, column \d+|end of document)\)", "", said)
    found = _PAIR.match(text.split("\n")[line - 1]) if line else None
    if found is not None and what == "Cannot overwrite a value":
        return ConfigError(f"{found[1]!r} is set twice; remove one of them", path=str(path), line=line)
    hint = ""
    if found is not None and what == "Invalid value" and _BARE_TEXT.fullmatch(found[2]):
        hint = f'; a text needs quotes: {found[1]} = "{found[2]}"'
    return ConfigError(f"this is not valid TOML: {what[:1].lower()}{what[1:]}{hint}", path=str(path), line=line)


def with_value(text: str, path: KeyPath, value: str | float | None) -> str:
    """Return the text with this value at this path; None removes the key. Everything else stays unchanged, with its
    comments. Raises ValueError if more of the file would have to be rewritten, as in an inline table."""
    expected, scanned = tomllib.loads(text), _Scanner(text)
    _assign(expected, path, value)
    written = json.dumps(value, ensure_ascii=False)
    line = f"{path[-1]} = {written}\n"
    header = scanned.headers.get(path[:-1])
    if (span := scanned.spans.get(path)) is not None:
        start, begin, end = span
        if value is None:
            start = text.rfind("\n", 0, start) + 1
            new = text[:start] + text[text.find("\n", end) + 1 or len(text) :]
        else:
            new = text[:begin] + written + text[end:]
    elif value is None:
        return text
    elif header is not None:
        new = text[:header].rstrip("\n") + "\n" + line + text[header:]
    elif len(path) == 1:
        new = line + text
    else:
        new = f"{text.rstrip()}\n\n[{'.'.join(map(str, path[:-1]))}]\n{line}"
    try:
        if tomllib.loads(new) == expected:
            return new
    except tomllib.TOMLDecodeError:
        pass
    raise ValueError("this cannot be changed without changing more of the file")


def _assign(data: Any, path: KeyPath, value: Any) -> None:
    for step in path[:-1]:
        data = data[step] if isinstance(step, int) else data.setdefault(step, {})
    if value is None:
        data.pop(path[-1], None)
    else:
        data[path[-1]] = value


class _Scanner:
    """Scans the text once and records the line of each key, table and list item, where each value is, and where the
    header of each table ends."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._tables_in: dict[KeyPath, int] = {}
        self.lines: dict[KeyPath, int] = {}
        self.spans: dict[KeyPath, tuple[int, int, int]] = {}  # where the key starts, and where its value does and ends
        self.headers: dict[KeyPath, int] = {}
        table: KeyPath = ()
        while self._skip(_BLANK):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    @property
    def _line(self) -> int:
        return bisect_right(self._line_starts, self._at)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        if found := pattern.match(self._text, self._at):
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _header(self) -> KeyPath:
        is_list = self._text.startswith("[[", self._at)
        line = self._line
        self._at += 2 if is_list else 1
        *outer, last = self._key()
        self._at = self._text.index("]", self._at) + (2 if is_list else 1)
        path: KeyPath = ()
        for name in outer:
            path = self._newest((*path, name))
            self.lines.setdefault(path, line)
        path = (*path, last)
        if is_list:
            index = self._tables_in.get(path, 0)
            self._tables_in[path] = index + 1
            self.lines.setdefault(path, line)
            path = (*path, index)
        else:
            path = self._newest(path)
        self.lines[path] = line
        self.headers[path] = self._text.find("\n", self._at) + 1 or len(self._text)
        return path

    def _newest(self, path: KeyPath) -> KeyPath:
        # The name of a list of tables means its last table.
        return (*path, self._tables_in[path] - 1) if path in self._tables_in else path

    def _pair(self, table: KeyPath) -> None:
        start, line, path = self._at, self._line, table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._skip(_SPACE)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        begin = self._at
        self._value(path)
        self.spans[path] = (start, begin, begin + len(self._text[begin : self._at].rstrip()))

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            start = self._skip(_SPACE)
            begin = self._at
            if start in ("'", '"'):
                self._string()
                names.append(tomllib.loads(f"key = {self._text[begin : self._at]}")["key"])
            else:
                self._skip(_BARE_KEY)
                names.append(self._text[begin : self._at])
            if self._skip(_SPACE) != ".":
                return names
            self._at += 1

    def _string(self) -> None:
        for pattern in _STRINGS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return

    def _value(self, path: KeyPath) -> None:
        start = self._skip(_SPACE)
        if start in ("'", '"'):
            self._string()
        elif start == "[":
            self._list(path)
        elif start == "{":
            self._inline_table(path)
        else:
            self._skip(_SCALAR)

    def _list(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._skip(_BLANK) != "]":
            self.lines[(*path, index)] = self._line
            self._value((*path, index))
            index += 1
            if self._skip(_BLANK) == ",":
                self._at += 1
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while self._skip(_BLANK) != "}":
            self._pair(path)
            if self._skip(_BLANK) == ",":
                self._at += 1
        self._at += 1
