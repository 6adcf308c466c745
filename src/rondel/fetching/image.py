"""Detects an image's type from its first bytes: the declared type cannot be trusted. Pure."""

from __future__ import annotations

KINDS = "PNG, JPEG, GIF and WebP"  # the kinds that models can see


def image_type(data: bytes) -> str:
    """Return the media type of an image that models can see, or an empty text."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return ""
