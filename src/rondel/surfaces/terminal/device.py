"""The terminal as a device: its user and its colours. Knows no chat."""

from __future__ import annotations

import os
import shutil
from typing import IO

from ...values import Person
from .console import SafeConsole

USER = Person("user")
"""Who types in a terminal. Not the login name: models read who denied a call."""


def console_for(buffer: IO[str], target: IO[str], *, interactive: bool) -> SafeConsole:
    """Return a console that writes to a buffer, in the colours of the terminal that will show it."""
    colours = SafeConsole(target).color_system if interactive and not os.environ.get("NO_COLOR") else None
    width = shutil.get_terminal_size().columns
    return SafeConsole(buffer, force_terminal=interactive, color_system=colours, no_color=colours is None, width=width)
