"""Cards: messages of Discord's components (V2) that hold text, buttons, pictures and files in one frame.

A card's text may be twice as long as a message's, and its buttons stay beside what they are about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import discord

CARD_CHARS_MAX = 3_800  # Discord takes 4,000, all texts of a card together
ROW_BUTTONS_MAX = 5
BLURPLE, AMBER, GREY = 0x5865F2, 0xFAA61A, 0x4E5058

Control: TypeAlias = "discord.ui.Button[Any] | discord.ui.Select[Any]"


def card(
    *texts: str, colour: int = BLURPLE, controls: Sequence[Control] = (), image: str = "", file: str = ""
) -> discord.ui.LayoutView:
    """Return a card. `image` and `file` are names of attachments of the same message."""
    frame: discord.ui.Container[Any] = discord.ui.Container(accent_colour=colour)
    for text in texts:
        frame.add_item(discord.ui.TextDisplay(text))
    if image:
        frame.add_item(discord.ui.MediaGallery(discord.MediaGalleryItem(f"attachment://{image}")))
    if file:
        frame.add_item(discord.ui.File(f"attachment://{file}"))
    for row in _rows(controls):
        frame.add_item(discord.ui.ActionRow(*row))
    view = discord.ui.LayoutView(timeout=None)
    view.add_item(frame)
    # discord.py remembers every view that can still be clicked, for ever. Ours are handled by their ids.
    view.stop()
    return view


def _rows(controls: Sequence[Control]) -> Iterable[Sequence[Control]]:
    """Put buttons five to a row, and a menu into a row of its own."""
    row: list[Control] = []
    for control in controls:
        if row and (isinstance(control, discord.ui.Select) or len(row) == ROW_BUTTONS_MAX):
            yield row
            row = []
        row.append(control)
        if isinstance(control, discord.ui.Select):
            yield row
            row = []
    if row:
        yield row


def text_of(message: discord.Message) -> str:
    """Return what a message says: its text, or the texts of its card."""
    if message.content:
        return message.content
    pending, found = list[Any](message.components), list[str]()
    while pending:
        part = pending.pop(0)
        pending[:0] = getattr(part, "children", ())
        if isinstance(part, discord.TextDisplay):
            found.append(part.content)
    return "\n".join(found)
