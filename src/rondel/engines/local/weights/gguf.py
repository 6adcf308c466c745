"""What a GGUF file says about itself: name, licence, size, context, and whether its template has tools.

The file is untrusted, so every length is checked and only a few short values are kept.
"""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

from ....errors import EngineError
from ....values import Value

ENTRIES_MAX = 4096
ITEMS_MAX = 4_000_000
TEXT_BYTES_MAX = 1 << 20
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<I", 7: "<?", 10: "<Q", 11: "<q", 12: "<Q"}
# 6 and 12 are floats, whose values are not used: only their size matters
_SIZES = {kind: struct.calcsize(form) for kind, form in _FORMATS.items()}
_TEMPLATE = "tokenizer.chat_template"
_TOOLS = re.compile(r"\{[{%][^{}'\"]*\btools\b")  # the variable; the word may also be in a text


class Metadata(Value, frozen=True):
    """Empty or 0 where the file does not say."""

    name: str = ""
    licence: str = ""
    architecture: str = ""
    context_tokens: int = 0
    has_tools: bool = False
    """Whether the chat template, or a second one for this, writes tools in the model's own format."""


def read_metadata(path: Path) -> Metadata:
    """Return what the file says. Raises EngineError if it is not a GGUF file or is damaged."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _metadata(_Reader(content).entries())
    except OSError as error:
        raise EngineError(f"the file {str(path)!r} cannot be read ({error.strerror})", provider="local") from error
    except (ValueError, struct.error) as error:
        raise EngineError(f"{str(path)!r} is not a GGUF file, or is damaged ({error})", provider="local") from error


def _metadata(found: dict[str, str | int]) -> Metadata:
    def text(key: str) -> str:
        value = found.get(key, "")
        return value if isinstance(value, str) else ""

    architecture = text("general.architecture")
    context_tokens = found.get(f"{architecture}.context_length", 0)
    return Metadata(
        name=text("general.name")[:200],
        licence=(text("general.license") or text("general.license.name"))[:200],
        architecture=architecture[:50],
        context_tokens=context_tokens if isinstance(context_tokens, int) else 0,
        has_tools=any(_TOOLS.search(text(key)) for key in (_TEMPLATE, f"{_TEMPLATE}.tool_use")),
    )


class _Reader:
    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._at = content, 0

    def entries(self) -> dict[str, str | int]:
        """Return the short texts and whole numbers by their keys."""
        if self._bytes(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, _, number = self._number("<I"), self._number("<Q"), self._number("<Q")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not supported; 2 and 3 are")
        if number > ENTRIES_MAX:
            raise ValueError(f"it has {number} entries; at most {ENTRIES_MAX} are read")
        found = dict[str, str | int]()
        for _ in range(number):
            key, kind = self._text(), self._number("<I")
            value = self._value(kind)
            if value is not None:
                found[key] = value
        return found

    def _value(self, kind: int) -> str | int | None:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _FORMATS:
            raise ValueError(f"an entry has the unknown type {kind}")
        return self._number(_FORMATS[kind])

    def _skip_array(self) -> None:
        kind, number = self._number("<I"), self._number("<Q")
        if number > ITEMS_MAX:
            raise ValueError(f"a list has {number} items; at most {ITEMS_MAX} are read")
        if kind in _SIZES:
            self._bytes(number * _SIZES[kind])
        elif kind == _STRING:
            # Runs 300,000 times for a large vocabulary, so nothing is decoded and nothing else is called.
            at, content, unpack = self._at, self._content, struct.Struct("<Q").unpack_from
            for _ in range(number):
                at += 8 + unpack(content, at)[0]
            self._at = at
        else:
            raise ValueError(f"a list has items of the type {kind}")

    def _text(self) -> str:
        length = self._number("<Q")
        if length > TEXT_BYTES_MAX:
            raise ValueError(f"a text has {length} bytes; at most {TEXT_BYTES_MAX} are read")
        return self._bytes(length).decode("utf-8", errors="replace")

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return value

    def _bytes(self, number: int) -> bytes:
        end = self._at + number
        if end > len(self._content):
            raise ValueError("it ends too early")
        # A slice of a mmap is a copy; arrays of numbers are only skipped.
        found = self._content[self._at : end] if number <= TEXT_BYTES_MAX else b""
        self._at = end
        return found
