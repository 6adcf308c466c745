"""Bytes as text, whatever their encoding."""

from __future__ import annotations

from ...contracts.knowledge import Unreadable

_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe\0\0", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def decoded(data: bytes) -> str:
    """Return the text in UTF-8, or in the encoding that its first bytes name, or else in Windows's Western one. Raises
    Unreadable for bytes that are not text."""
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "")
    if not encoding:
        if b"\0" in data[:8_192]:
            raise Unreadable("is not text")
        encoding = "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8" or _looks_binary(data):
            raise Unreadable("is not text") from None
        text = data.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _looks_binary(data: bytes) -> bool:
    """Return whether many of the first bytes are control characters that no text has."""
    head = data[:8_192]
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
    return controls * 50 > len(head)
