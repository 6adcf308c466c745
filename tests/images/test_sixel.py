"""Pictures as sixels: what a terminal draws is the picture, and asking it swallows nothing that was typed."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
import warnings
import zlib

import pytest
from PIL import Image

from rondel.surfaces.terminal.pictures import picture_for, protocol_of
from rondel.surfaces.terminal.sixel import to_sixels
from rondel.testing.png import draw_png

ROOM = (1_000, 400)
TOKEN = re.compile(r'#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|"1;1;(\d+);(\d+)|!(\d+)([?-~])|([?-~])|(\$)|(-)')


def drawn(text: str) -> Image.Image:
    """Draw sixels as a terminal does, on nothing."""
    assert text.startswith("\x1bP0;1q")
    assert text.endswith("\x1b\\")
    body, at = text[6:-2], 0
    image = Image.new("RGBA", (1, 1))
    colours: dict[str, tuple[int, int, int]] = {}
    colour, x, top = "", 0, 0
    while at < len(body):
        found = TOKEN.match(body, at)
        assert found, body[at : at + 20]
        at = found.end()
        defined, red, green, blue, chosen, width, height, times, repeated, once, back, down = found.groups()
        if defined:
            colours[defined] = (int(red) * 255 // 100, int(green) * 255 // 100, int(blue) * 255 // 100)
        elif chosen:
            colour = chosen
        elif width:
            image = Image.new("RGBA", (int(width), int(height)))
        elif back:
            x = 0
        elif down:
            x, top = 0, top + 6
        else:
            bits, wide = ord(repeated or once) - 63, int(times or 1)
            for bit in range(6):
                if bits >> bit & 1:
                    image.paste((*colours[colour], 255), (x, top + bit, x + wide, top + bit + 1))
            x += wide
    return image


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def apart(one: Image.Image, other: Image.Image) -> float:
    """Return by how much the colours of two pictures differ on average, of 255."""
    assert one.size == other.size
    pairs = zip(one.convert("RGB").tobytes(), other.convert("RGB").tobytes(), strict=True)
    return sum(abs(a - b) for a, b in pairs) / (one.width * one.height * 3)


@pytest.mark.parametrize("size", [(200, 100), (7, 5), (1, 1), (255, 13)])
def test_sixels_are_the_picture(size: tuple[int, int]) -> None:
    flat = Image.open(io.BytesIO(draw_png("200x200", "a fox"))).convert("RGB").resize(size)
    gradient = Image.merge("RGB", [Image.linear_gradient("L").rotate(turn).resize(size) for turn in (0, 90, 180)])
    assert apart(drawn(to_sixels(png(flat), ROOM)), flat) < 3
    assert apart(drawn(to_sixels(png(gradient), ROOM)), gradient) < 10  # 255 colours of 65,536


def test_a_large_picture_is_scaled_to_the_terminal_and_a_small_one_is_not() -> None:
    assert drawn(to_sixels(png(Image.new("RGB", (2_000, 400), "red")), ROOM)).size == (1_000, 200)
    assert drawn(to_sixels(png(Image.new("RGB", (20, 10), "red")), ROOM)).size == (20, 10)


def test_transparent_pixels_are_not_drawn() -> None:
    image = Image.new("RGBA", (12, 12), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (3, 3, 9, 9))
    shown = drawn(to_sixels(png(image), ROOM))
    assert shown.getpixel((0, 0)) == (0, 0, 0, 0)
    assert shown.getpixel((5, 5)) == (255, 0, 0, 255)


def test_a_broken_or_huge_picture_is_not_shown() -> None:
    whole = png(Image.new("RGB", (300, 300), "red"))
    assert picture_for(whole, "sixel") is not None
    assert picture_for(whole[:-40], "sixel") is None
    assert picture_for(b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "sixel") is None
    assert picture_for(png(Image.new("1", (10_000, 10_000))), "sixel") is None


def test_nothing_is_printed_about_a_picture_that_is_not_quite_right() -> None:
    whole = png(Image.new("RGB", (30, 30), "red"))
    about = b"acTL" + bytes(8)  # an animation of no pictures, of which Pillow warns
    wrong = whole[:33] + struct.pack(">I", 8) + about + struct.pack(">I", zlib.crc32(about)) + whole[33:]
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("always")
        assert picture_for(wrong, "sixel") is not None
    assert not printed


@pytest.mark.parametrize(("term", "protocol"), [("foot", "sixel"), ("mlterm-256color", "sixel"), ("xterm", "")])
def test_a_terminal_with_sixels_is_recognised(term: str, protocol: str) -> None:
    assert protocol_of({"TERM": term}) == protocol
    assert protocol_of({"TERM": term, "RONDEL_PICTURES": "sixel"}) == "sixel"


ASKING = """
import os, sys
from rondel.surfaces.terminal.sixel import shows_sixels
print("start", flush=True)
if sys.argv[1:]: os.read(int(sys.argv[1]), 1)
print(shows_sixels(), flush=True)
print("typed:", input(), flush=True)
"""


class Asked:
    """A process in a terminal that this test plays."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        ready, self._go = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", ASKING, str(ready)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "xterm"},
            pass_fds=(ready,),
            start_new_session=True,
            # The terminal belongs to the new session, as a shell would arrange it.
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(slave)
        os.close(ready)
        self._text = b""
        self.wait_for(b"start")

    def begin(self) -> None:
        os.write(self._go, b"x")

    def type(self, data: bytes) -> None:
        os.write(self._master, data)

    def wait_for(self, data: bytes) -> None:
        until = time.monotonic() + 20
        while data not in self._text:
            assert select.select([self._master], [], [], max(0, until - time.monotonic()))[0], self._text
            self._text += os.read(self._master, 1_000)

    @property
    def text(self) -> bytes:
        return self._text

    def close(self) -> None:
        self._process.wait(20)
        os.close(self._master)
        os.close(self._go)


@pytest.mark.parametrize(
    ("answer", "shows"), [(b"\x1b[?62;4;22c", b"True"), (b"\x1b[?1;2c", b"False"), (b"\x1b[?64;14c", b"False")]
)
def test_a_terminal_is_asked_and_what_is_typed_after_its_answer_is_kept(answer: bytes, shows: bytes) -> None:
    asked = Asked()
    asked.begin()
    asked.wait_for(b"\x1b[c")
    asked.type(answer + b"hello\n")
    asked.wait_for(b"typed: hello")
    asked.close()
    assert shows in asked.text


def test_a_terminal_in_which_something_was_typed_is_not_asked() -> None:
    asked = Asked()
    asked.type(b"hel")
    asked.begin()
    asked.wait_for(b"False")
    asked.type(b"lo\n")
    asked.wait_for(b"typed: hello")
    asked.close()
    assert b"\x1b[c" not in asked.text


def test_a_terminal_that_does_not_answer_is_waited_for_shortly() -> None:
    asked = Asked()
    asked.begin()
    asked.wait_for(b"\x1b[c")
    asked.wait_for(b"False")
    asked.type(b"hello\n")
    asked.wait_for(b"typed: hello")
    asked.close()
