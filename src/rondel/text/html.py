"""Reads HTML of strangers within a limit of time. The time of Python's parser grows with the square of some pages."""

from __future__ import annotations

import time
from html.parser import HTMLParser


class TooSlow(ValueError):
    """A page took longer to read than its reader allows."""


class HtmlReader(HTMLParser):
    """A parser whose `feed` and `close` raise TooSlow after `seconds_max`."""

    def __init__(self, seconds_max: float) -> None:
        super().__init__(convert_charrefs=True)
        self._seconds_max = seconds_max
        self._deadline = time.monotonic() + seconds_max

    def updatepos(self, i: int, j: int) -> int:
        """Called by the parser after each piece, whatever it is."""
        if time.monotonic() > self._deadline:
            raise TooSlow(f"took more than {self._seconds_max:g} seconds to read")
        return super().updatepos(i, j)
