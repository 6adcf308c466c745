"""Pictures as sixels, which many terminals show: xterm, foot, mlterm, Windows Terminal, tmux and others.

A sixel is one character for six pixels of one colour, one below the other. Decoding and scaling is Pillow's; without it
there are no sixels.
"""

from __future__ import annotations

import io
import os
import re
import select
import shutil
import sys
import time
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

ASK, ANSWER = b"\x1b[c", re.compile(rb"\x1b\[\?([\d;]*)c")
ASK_S = 0.5
SIXEL = b"4"  # among the abilities in the answer
CELL = (10, 20)  # pixels of a character, if the terminal does not say
WIDTH_MAX = 1_000  # a wider picture takes long to write
PIXELS_MAX = 50_000_000  # a small file may claim to be a huge picture
COLOURS = 255
CLEAR = 255  # the index of pixels that are not drawn
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")

_ONLY = [bytes(colour == index for index in range(256)) for colour in range(COLOURS)]
_CHARACTERS = bytes(63 + bits for bits in range(64)) + bytes(192)
_RUN = re.compile(rb"\?{4,}|([^?])\1{3,}")


def shows_sixels() -> bool:
    """Ask the terminal whether it shows sixels. What was typed before stays unread."""
    try:
        import termios
    except ImportError:  # Windows
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    source = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(source) != os.getpgrp():
            return False  # in the background, changing the terminal's mode would suspend this process
    except OSError:
        return False  # the terminal of another session
    before = termios.tcgetattr(source)
    asking = [*before[:3], before[3] & ~(termios.ICANON | termios.ECHO), *before[4:]]
    try:
        termios.tcsetattr(source, termios.TCSANOW, asking)
        if _can_read(source, 0):
            return False  # typed already: the answer would come after it
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), ASK)
        return SIXEL in _answer(source).split(b";")
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)


def _answer(source: int) -> bytes:
    """Return the abilities that the terminal reports. Nothing after them is read."""
    until, read = time.monotonic() + ASK_S, b""
    while _can_read(source, until - time.monotonic()) and (byte := os.read(source, 1)):
        read += byte
        if found := ANSWER.search(read):
            return found[1]
    return b""


def _can_read(source: int, wait_s: float) -> bool:
    return bool(select.select([source], [], [], max(wait_s, 0))[0])


def room_for(rows: int) -> tuple[int, int]:
    """Return the width and height in pixels of this many rows of the terminal."""
    size = shutil.get_terminal_size()
    try:
        import fcntl
        import struct
        import termios

        answered = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        lines, columns, width, height = struct.unpack("4H", answered)
    except (ImportError, OSError, ValueError):
        lines = columns = width = height = 0
    cell = (width // columns, height // lines) if lines and columns and width and height else CELL
    return min(size.columns * cell[0], WIDTH_MAX), min(rows, size.lines) * cell[1]


def to_sixels(data: bytes, room: tuple[int, int]) -> str:
    """Return what makes a terminal draw this picture, scaled down to fit into so many pixels; empty if it cannot be
    decoded, or without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a picture's faults, which Pillow would print; the limits are below
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
            if opened.width * opened.height > PIXELS_MAX:
                return ""
            opened.draft("RGB", room)
            image = opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ""
    image.thumbnail(room)
    indexed = image.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    indexed.paste(CLEAR, mask=image.getchannel("A").point([255] * 128 + [0] * 128))
    return _written(indexed)


def _written(image: Image.Image) -> str:
    width, height = image.size
    pixels = image.tobytes()
    palette = bytes(image.getpalette() or ())
    out = [b'\x1bP0;1q"1;1;%d;%d' % (width, height)]
    for index in range(0, min(len(palette), COLOURS * 3), 3):
        out.append(b"#%d;2;%d;%d;%d" % (index // 3, *(round(part / 2.55) for part in palette[index : index + 3])))
    for top in range(0, height, 6):
        lines = [pixels[line * width : (line + 1) * width] for line in range(top, min(top + 6, height))]
        for colour in sorted({pixel for line in lines for pixel in set(line)} - {CLEAR}):
            bits = 0
            for shift, line in enumerate(lines):
                if colour in line:
                    # A byte for each pixel, 1 where it has the colour: as one number, all are shifted at once.
                    bits |= int.from_bytes(line.translate(_ONLY[colour]), "little") << shift
            row = bits.to_bytes(width, "little").translate(_CHARACTERS).rstrip(b"?")
            out.append(b"#%d%b$" % (colour, _RUN.sub(_short, row)))
        out.append(b"-")
    out.append(b"\x1b\\")
    return b"".join(out).decode("ascii")


def _short(run: re.Match[bytes]) -> bytes:
    return b"!%d%b" % (len(run[0]), run[0][:1])
