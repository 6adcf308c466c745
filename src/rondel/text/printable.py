"""Makes text of models, tools, files and people safe to print.

`clean` removes sequences that control a terminal; `visible_line`, `visible_lines` and `visible_block` remove nothing
and name invisible characters, for a person who must read all of a text. `guard_streams` cleans all that is written to a
terminal, also by log handlers and tracebacks. Only the terminal's `console.py` and `reader.py` bypass it, to style text
that is clean.
"""

from __future__ import annotations

import io
import re
import sys
from typing import IO, TextIO, cast

_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x90\x98\x9c-\x9f]*+(?:\x07|\x1b\\|\x9c)"
)
"""Escape sequences with their arguments; the rest of an incomplete one is harmless letters. The search for an end stops
at the next beginning, which keeps it linear."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and new line, and the marks that change the direction of writing."""

BLANKS_MAX = 20  # a longer run of blanks is replaced by its length: it could push the rest of a line out of sight
EMPTY_LINES_MAX = 3
_PRINTABLE_BUT_UNSEEN = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
    )
)  # Fillers, variation selectors and blank symbols, which Unicode counts as printable
_MARKS = "⟨⟩⇥"  # the marks that this module writes; in a text they are named, so that no text can imitate them
_BLANKS = re.compile(rf" {{{BLANKS_MAX + 1},}}| +$")
_FENCES = re.compile(r"`{3,}")


def clean(text: str) -> str:
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub("", _SEQUENCES.sub("", text).replace("\r\n", "\n"))


def one_line(text: str, chars_max: int) -> str:
    text = " ".join(clean(text).split())
    return text if len(text) <= chars_max else text[: max(0, chars_max - 1)] + "…"


def json_for_terminal(text: str) -> str:
    """Escape characters in JSON that control a terminal, without changing its values."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_line(text: str, *, kept: str = "") -> str:
    """Return a line with everything visible, but for the characters in `kept`."""
    if not (text.isascii() and text.isprintable()):
        text = "".join([char if char in kept else _shown(char) for char in text])
    return _BLANKS.sub(lambda found: f"⟨{len(found[0]):,} blanks⟩", text)


def visible_lines(text: str, *, kept: str = "") -> list[str]:
    """Return the lines of a text, with everything visible."""
    lines: list[str] = []
    empty = 0
    for line in text.split("\n"):
        if not line:
            empty += 1
            continue
        lines += _empty_lines(empty)
        lines.append(visible_line(line, kept=kept))
        empty = 0
    return [*lines, *_empty_lines(empty)]


def visible_block(text: str) -> str:
    """Return a block of Markdown's code in which nothing is rendered, and which no text ends. Parts of it may have been
    made visible before: marks stay."""
    lines = "\n".join(visible_lines(text, kept=_MARKS))
    return f"```\n{_FENCES.sub(lambda found: f'⟨{len(found[0]):,} backticks⟩', lines)}\n```"


def _empty_lines(count: int) -> list[str]:
    return [""] * count if count <= EMPTY_LINES_MAX else [f"⟨{count:,} empty lines⟩"]


def _shown(char: str) -> str:
    if char == "\t":
        return "⇥   "
    if not char.isprintable() or char in _MARKS or ord(char) in _PRINTABLE_BUT_UNSEEN:
        return f"⟨U+{ord(char):04X}⟩"
    return char


class TerminalStream(io.TextIOBase):
    """Cleans everything that is written to a terminal. It has no `buffer`, so bytes cannot bypass it. `raw` is for
    callers that clean the text themselves and add styling."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.raw.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.raw.errors

    def write(self, text: str) -> int:
        self.raw.write(clean(text))
        return len(text)

    def flush(self) -> None:
        if not self.raw.closed:
            self.raw.flush()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def fileno(self) -> int:
        return self.raw.fileno()

    def writable(self) -> bool:
        return True


def guard_streams() -> None:
    """Clean what is written to stdout and stderr if they are terminals. Files and pipes get the text unchanged."""
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is not None and not isinstance(stream, TerminalStream) and stream.isatty():
            setattr(sys, name, TerminalStream(stream))


def raw_stream(stream: IO[str]) -> TextIO:
    """Return the stream without its guard, for text that was cleaned before it was styled."""
    return stream.raw if isinstance(stream, TerminalStream) else cast("TextIO", stream)
