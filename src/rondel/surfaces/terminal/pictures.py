"""Shows pictures in terminals that can (kitty's and iTerm2's protocols, sixels), and saves them for all others.

The bytes of a picture are written in Base64 or as sixels only, so nothing in them can control the terminal.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import ControlType, Segment

from ...contracts.images import image_name
from ...files.media import image_type
from ...files.private import private_folder, state_folder
from ...values import Media
from .sixel import room_for, shows_sixels, to_sixels

Protocol: TypeAlias = Literal["kitty", "iterm2", "sixel", ""]
VARIABLE = "RONDEL_PICTURES"  # a protocol or `none`, if the terminal is not recognised
ROWS = 20
CHUNK = 4096  # what kitty takes in one sequence
SHOWN_BYTES_MAX = 8_000_000


def protocol_of(env: Mapping[str, str]) -> Protocol:
    """Return how this terminal shows pictures; empty if it cannot, or inside a multiplexer, which removes them."""
    chosen = env.get(VARIABLE, "").strip().lower()
    if chosen in ("kitty", "iterm2", "sixel"):
        return chosen
    if chosen or env.get("TMUX") or env.get("STY"):
        return ""
    program, term = env.get("TERM_PROGRAM", ""), env.get("TERM", "")
    if env.get("KITTY_WINDOW_ID") or "kitty" in term or program == "ghostty" or "ghostty" in term:
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty", "vscode") or env.get("KONSOLE_VERSION"):
        return "iterm2"
    return "sixel" if term.startswith(("foot", "mlterm")) else ""


def protocol_here() -> Protocol:
    """Return how the terminal of this process shows pictures: by its environment, or else by its own answer. Call this
    only where nothing else reads the terminal."""
    protocol = protocol_of(os.environ)
    if protocol or os.environ.get(VARIABLE, "").strip():
        return protocol
    return "sixel" if shows_sixels() else ""


class Picture:
    """A picture, for a console. One that is not a terminal leaves it out."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences = sequences

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for sequence in self._sequences:
            yield Segment(sequence, None, [(ControlType.BELL,)])  # a control segment is written as it is
        yield Segment.line()


def picture_for(data: bytes, protocol: Protocol) -> Picture | None:
    """Return a picture as a terminal with this protocol shows it, or None if it cannot: kitty decodes PNG only."""
    kind = image_type(data)
    if not kind or len(data) > SHOWN_BYTES_MAX or (protocol == "kitty" and kind != "image/png"):
        return None
    return Picture(sequences) if (sequences := list(_sequences(data, protocol))) else None


def _sequences(data: bytes, protocol: Protocol) -> Iterator[str]:
    if protocol == "sixel":
        if sixels := to_sixels(data, room_for(ROWS)):
            yield sixels
        return
    if not protocol:
        return
    text = base64.b64encode(data).decode()
    if protocol == "iterm2":
        yield f"\x1b]1337;File=inline=1;size={len(data)};height={ROWS};preserveAspectRatio=1:{text}\x07"
        return
    for start in range(0, len(text), CHUNK):
        more = int(start + CHUNK < len(text))
        head = f"a=T,f=100,q=2,r={ROWS},m={more}" if start == 0 else f"m={more}"
        yield f"\x1b_G{head};{text[start : start + CHUNK]}\x1b\\"


def save_picture(picture: Media) -> Path:
    """Save a picture for this user only, and return its path. The same picture is saved once."""
    folder = state_folder() / "pictures"
    private_folder(folder)
    stem, _, suffix = image_name(picture.name.rpartition(".")[0], image_type(picture.data)).rpartition(".")
    path = folder / f"{stem}-{sha256(picture.data).hexdigest()[:12]}.{suffix}"
    if not path.exists():
        write_new(path, picture.data)
    return path


def write_new(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file that only this user can read. Raises FileExistsError unless it may be replaced."""
    how = os.O_TRUNC if replace else os.O_EXCL
    file = os.open(path, os.O_WRONLY | os.O_CREAT | how | getattr(os, "O_CLOEXEC", 0), 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
