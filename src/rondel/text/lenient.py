"""Parses the JSON that models write: strict, then relaxed, then repaired. Nothing is ever evaluated.

Relaxed also accepts comments, single quotes, bare keys, trailing commas and Python's literals. Repaired also closes
cut-off values, adds missing commas, and finds the object inside other text. All run in linear time.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias, cast

import msgspec

Object: TypeAlias = dict[str, Any]

DEPTH_MAX = 100
INPUT_CHARS_MAX = 1_000  # how much of a text without parameters is passed on as `input`


def parse_object(text: str) -> Object | None:
    value = _json(text)
    return cast(Object, value) if isinstance(value, dict) else None


def relaxed(text: str) -> Object | None:
    reader = _Parser(text, repair=False)
    try:
        value, end = reader.read(reader.skip(0))
        return value if reader.skip(end) == len(text) else None
    except _Unreadable:
        return None


def repaired(text: str) -> Object | None:
    """Return the first object in a text that is not empty and can be repaired, or None."""
    reader = _Parser(text, repair=True)
    at = text.find("{")
    try:
        while at >= 0:
            value, end = reader.read(at)
            if value:
                return value
            at = text.find("{", end)
    except _Unreadable:
        pass
    return None


def parse_parameters(text: str) -> Object:
    """Parse the parameters of a call that a model wrote as text. JSON, relaxed JSON, `key=value` or `key: value` lines
    (values tried as JSON), else the text itself as `input`."""
    text = text.strip()
    if not text:
        return {}
    for read in (parse_object, relaxed, _read_lines):
        if (found := read(text)) is not None:
            return found
    return {"input": text[:INPUT_CHARS_MAX]}


def repair_arguments(text: str) -> Object:
    """Parse the arguments of a native call: strict, relaxed or repaired; empty if all fail."""
    inner = _json(text)
    if isinstance(inner, str):  # some models put the JSON into a JSON string
        text = inner
    for read in (parse_object, relaxed, repaired):
        if (found := read(text)) is not None:
            return found
    return {}


# --- single values and lines ------------------------------------------------------------------------------------------

_LINE = re.compile(r"""\s*+["']?([A-Za-z_][\w.-]*+)["']?[ \t]*+(?:=|:(?!//))(.*+)""")
_NUMBER = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?")
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]++")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NOT_FINITE = frozenset(("nan", "infinity", "inf"))
_MISSING = object()


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return _MISSING


def _read_lines(text: str) -> Object | None:
    found: Object = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        found[match[1]] = _line_value(match[2].strip())
    return found


def _line_value(text: str) -> Any:
    bare = text.removesuffix(",").rstrip()
    for written in (text, bare):
        if (value := _json(written)) is not _MISSING:
            return value
    if (value := _literal(bare)) is not _MISSING:
        return value
    if len(bare) > 1 and bare[0] == bare[-1] == "'":
        return bare[1:-1]
    return value if (value := relaxed(bare)) is not None else text


def _literal(word: str) -> Any:
    """Return the value of a bare word, or `_MISSING`. A number that JSON cannot express becomes null."""
    if (value := _WORDS.get(word.lower(), _MISSING)) is not _MISSING:
        return value
    if word.lstrip("+-").lower() in _NOT_FINITE:
        return None
    try:
        if _NUMBER.fullmatch(word):
            number = float(word) if any(mark in word for mark in ".eE") else int(word)
            return number if math.isfinite(number) else None
        if _HEX.fullmatch(word):
            return int(word, 16)
    except (ValueError, OverflowError):  # more digits than Python converts
        pass
    return _MISSING


# --- the reader -------------------------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:\s++|//[^\n]*+|#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_WORD = re.compile(r"""[^\s{}\[\]:,"'/#]++|.""", re.DOTALL)
_BARE_VALUE = re.compile(r"[^,}\]\n]*+")
_TO_QUOTE = {
    '"': re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL),
    "'": re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+", re.DOTALL),
}
_AFTER_STRING = re.compile(r"""[ \t]*+(?:[\n\r,:}\]"']|/[/*]|\Z)""")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", "\r\n": ""} | {c: c for c in "\"'\\/"}


class _Unreadable(Exception):
    """The text is not an object."""


class _Open:
    """An unfinished object or array, and what must come next."""

    def __init__(self, items: Object | list[Any]) -> None:
        self.items = items
        self.closing = "}" if isinstance(items, dict) else "]"
        self.key = ""
        self.wants = "item"  # `item` (an object's key, an array's value), `colon`, `value`, or `comma`

    def put(self, value: Any) -> None:
        if isinstance(self.items, dict):
            self.items[self.key] = value
        else:
            self.items.append(value)
        self.wants = "comma"


class _Parser:
    """Parses a text in one pass, with a stack instead of recursion: a text may open a million brackets."""

    def __init__(self, text: str, *, repair: bool) -> None:
        self.text, self.repair, self.stack = text, repair, list[_Open]()

    def skip(self, at: int) -> int:
        """Skip white space and comments. An unclosed comment hides the rest."""
        at = cast("re.Match[str]", _BLANK.match(self.text, at)).end()
        return len(self.text) if self.repair and self.text.startswith("/*", at) else at

    def read(self, at: int) -> tuple[Object, int]:
        """Return the object that starts here, and where it ends."""
        if self.text[at : at + 1] != "{":
            raise _Unreadable
        root: Object = {}
        self.stack = [_Open(root)]
        at += 1
        while self.stack:
            at = self.skip(at)
            if at >= len(self.text):
                self._must_repair()
                break
            mark = self.text[at]
            if mark in "}]":
                self._close(mark)
                at += 1
            elif mark in ",:":
                self._separate(mark)
                at += 1
            else:
                at = self._read_item(mark, at)
        return root, at

    def _must_repair(self) -> None:
        if not self.repair:
            raise _Unreadable

    def _close(self, mark: str) -> None:
        top = self.stack[-1]
        if mark != top.closing or top.wants in ("colon", "value"):
            self._must_repair()
        if any(opened.closing == mark for opened in self.stack):
            while self.stack.pop().closing != mark:
                pass

    def _separate(self, mark: str) -> None:
        top = self.stack[-1]
        if top.wants != ("comma" if mark == "," else "colon"):
            self._must_repair()
        if mark == ",":
            top.wants = "item"  # a key without a value is left out
        elif top.wants == "colon":
            top.wants = "value"

    def _read_item(self, mark: str, at: int) -> int:
        top = self.stack[-1]
        if top.wants == "comma":
            self._must_repair()
            top.wants = "item"
        if top.wants == "item" and isinstance(top.items, dict):
            return self._read_key(top, mark, at)
        if top.wants == "colon":
            self._must_repair()
        if mark in "{[":
            return self._open(top, mark, at)
        if mark in _TO_QUOTE:
            value, at = self._read_string(mark, at + 1, in_value=True)
        else:
            value, at = self._read_word(at)
        top.put(value)
        return at

    def _read_key(self, top: _Open, mark: str, at: int) -> int:
        if mark in "{[":
            self._must_repair()
            return at + 1
        if mark in _TO_QUOTE:
            top.key, at = self._read_string(mark, at + 1, in_value=False)
        else:
            word = cast("re.Match[str]", _WORD.match(self.text, at))
            top.key, at = word[0], word.end()
        top.wants = "colon"
        return at

    def _open(self, top: _Open, mark: str, at: int) -> int:
        if len(self.stack) >= DEPTH_MAX:
            raise _Unreadable
        inner = _Open({} if mark == "{" else [])
        top.put(inner.items)
        self.stack.append(inner)
        return at + 1

    def _read_word(self, at: int) -> tuple[Any, int]:
        word = cast("re.Match[str]", _WORD.match(self.text, at))
        if (value := _literal(word[0])) is not _MISSING:
            return value, word.end()
        self._must_repair()
        bare = cast("re.Match[str]", _BARE_VALUE.match(self.text, at))
        return _well_formed(bare[0].strip()), bare.end()

    def _read_string(self, quote: str, at: int, *, in_value: bool) -> tuple[str, int]:
        """Read from after the opening quote to the closing one. When repairing, a quote that is not followed by JSON
        syntax is part of the text (`"he said "no" to it"`), and the end of the text closes the string."""
        begin, to_quote = at, _TO_QUOTE[quote]
        while True:
            end = cast("re.Match[str]", to_quote.match(self.text, at)).end()
            if end >= len(self.text) or self.text[end] != quote:  # cut off, perhaps after a lone backslash
                self._must_repair()
                return _unescaped(self.text[begin:end]), len(self.text)
            if not (self.repair and in_value) or _AFTER_STRING.match(self.text, end + 1):
                return _unescaped(self.text[begin:end]), end + 1
            at = end + 1


def _unescaped(raw: str) -> str:
    return _well_formed(_ESCAPE.sub(_escaped, raw) if "\\" in raw else raw)


def _escaped(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    return _ESCAPED.get(match[3], match[0])  # `\d` in a regular expression stays as it is


def _well_formed(text: str) -> str:
    """Join surrogate pairs, and replace lone ones, which no wire format can carry."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
