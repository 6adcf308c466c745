"""Joins the rounds of a turn into the one reply that a caller sees. Pure.

The calls of lent tools are left out, the places of parts go on counting from round to round, usage adds up, and the
reply ends once. Knows no dialect and no network.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from ..template import said_before
from ..values import (
    Delta,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    StopReason,
    Text,
    ToolCall,
    Usage,
)


class Splice:
    """Feed it the deltas of every round; what it gives back is the caller's."""

    __slots__ = (
        "_calls_shown",
        "_ended",
        "_last",
        "_next",
        "_places",
        "_plain",
        "_said",
        "_started",
        "lent",
        "rounds",
        "usage",
    )

    def __init__(self, lent: Container[str]) -> None:
        self.lent = lent
        self.rounds = 0
        self.usage = Usage()
        self._last: ReplyFinished | None = None
        self._places: dict[int, int | None] = {}
        self._next = 0
        self._plain = True
        """Nothing was left out and nothing moved so far: pieces can pass as they are."""
        self._started = self._ended = False
        self._calls_shown = False
        self._said = ""
        """What the caller has of a sentence that goes on in another round."""

    def feed(self, delta: Delta) -> Delta | None:
        """The delta as the caller sees it; None when it is not for the caller."""
        if type(delta) is PartDelta:
            if self._plain:
                return delta
            place = self._places.get(delta.index)
            return None if place is None else PartDelta(place, delta.text)
        if isinstance(delta, PartStarted):
            place = self._place(delta.index, delta.part)
            self._said = said_before(delta.part) if self.rounds else ""
            return None if place is None else PartStarted(place, Text("") if self._said else delta.part)
        if isinstance(delta, PartFinished):
            place = self._places[delta.index] if delta.index in self._places else self._place(delta.index, delta.part)
            part, self._said = _without(delta.part, self._said), ""
            return None if place is None else PartFinished(place, part)
        if isinstance(delta, ReplyStarted):
            return self._start(delta)
        if isinstance(delta, ReplyFinished):
            self.rounds += 1
            self.usage += delta.usage
            self._last = delta
        return None

    def next_place(self) -> int:
        """A place for a part that no round has."""
        place, self._next = self._next, self._next + 1
        return place

    def finish(self, *, cut: bool = False) -> ReplyFinished:
        """The end of the reply. `cut` says that a limit ended it, and not the model."""
        last = self._last or ReplyFinished()
        stop: StopReason = last.stop
        if cut:
            stop = "length"
        elif stop == "calls" and not self._calls_shown:
            stop = "end"
        # What only the dialect knows of a round's end (its own usage, say) is not true of several rounds.
        return ReplyFinished(stop, self.usage, last.opaque if self.rounds == 1 else {})

    def _start(self, delta: ReplyStarted) -> ReplyStarted | None:
        self._calls_shown = False
        if self._started:
            self._places, self._plain = {}, False
            return None
        self._started = True
        return delta

    def _place(self, index: int, part: object) -> int | None:
        if isinstance(part, ToolCall):
            if part.name in self.lent:
                self._places[index], self._plain = None, False
                return None
            self._calls_shown = True
        place = self._places[index] = self.next_place()
        self._plain = self._plain and place == index
        return place


def _without(part: Part, said: str) -> Part:
    """A text without its beginning; of one that goes on in another round, the beginning."""
    if isinstance(part, Text) and not part.text and (begun := said_before(part)):
        return Text(begun)
    if said and isinstance(part, Text) and part.text.startswith(said):
        return msgspec.structs.replace(part, text=part.text[len(said) :])
    return part
