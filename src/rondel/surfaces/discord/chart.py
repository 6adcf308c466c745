"""A bar chart as a PNG, for `/ai usage`."""

from __future__ import annotations

import io
from collections.abc import Sequence

WIDTH, BAR, GAP, LEFT, RIGHT, TOP = 720, 26, 12, 190, 110, 56
BACKGROUND, TEXT, FAINT = "#2b2d31", "#f2f3f5", "#949ba4"
COLOURS = ("#5865f2", "#3ba55d", "#faa61a", "#eb459e", "#00a8fc")
LABEL_CHARS_MAX = 26


def draw_bars(title: str, bars: Sequence[tuple[str, int]]) -> bytes:
    """Draw horizontal bars with their labels and numbers."""
    from PIL import Image, ImageDraw, ImageFont

    height = TOP + max(len(bars), 1) * (BAR + GAP) + GAP
    image = Image.new("RGB", (WIDTH, height), BACKGROUND)
    pen = ImageDraw.Draw(image)
    large, small = ImageFont.load_default(20), ImageFont.load_default(15)
    pen.text((20, 16), title, TEXT, font=large)
    most = max((number for _, number in bars), default=0) or 1
    for index, (label, number) in enumerate(bars):
        top = TOP + index * (BAR + GAP)
        width = max(2, round((WIDTH - LEFT - RIGHT) * number / most))
        pen.text((LEFT - 12, top + BAR / 2), _short(label), FAINT, font=small, anchor="rm")
        colour = COLOURS[index % len(COLOURS)]
        pen.rounded_rectangle((LEFT, top, LEFT + width, top + BAR), radius=5, fill=colour)
        pen.text((LEFT + width + 10, top + BAR / 2), f"{number:,}", TEXT, font=small, anchor="lm")
    if not bars:
        pen.text((20, TOP), "nothing yet", FAINT, font=small)
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()


def _short(label: str) -> str:
    line = " ".join(label.split())
    return line if len(line) <= LABEL_CHARS_MAX else line[: LABEL_CHARS_MAX - 1] + "…"
