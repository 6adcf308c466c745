"""Text of models, tools and files, made safe to print: it can neither move the cursor nor hide what it says. Pure."""

from __future__ import annotations

import re

_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Whole escape sequences go without a trace; what is left of half a one is harmless letters."""
_DROPPED = {
    code: None
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C, 0x200E, 0x200F)
    if code not in (9, 10)
}
"""Control characters but tab and new line, and the marks that turn the direction of writing around."""


def clean(text: str) -> str:
    """This text without anything that a terminal would obey."""
    if "\x1b" in text or "\x9b" in text:
        text = _SEQUENCES.sub("", text)
    return text.replace("\r\n", "\n").translate(_DROPPED)


def one_line(text: str, chars_max: int) -> str:
    """The same on one line, cut with the cut shown."""
    text = " ".join(clean(text).split())
    return text if len(text) <= chars_max else text[: max(0, chars_max - 1)] + "…"
