"""Merges the rounds of a turn into the one reply that a caller sees. Pure.

Calls of injected tools are left out, part indexes continue from round to round, usage adds up, and the reply ends once.
A sentence that a directive interrupts is one part, however many rounds it takes. Does not know dialects.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from ...text.template import said_before
from ...values import (
    Delta,
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


class ReplyMerger:
    """Takes the deltas of every round and returns those that the caller sees."""

    def __init__(self, injected: Container[str]) -> None:
        self.injected = injected
        self.rounds = 0
        self.usage = Usage()
        self._last: ReplyFinished | None = None
        self._indexes: dict[int, int | None] = {}
        self._next = 0
        self._plain = True  # nothing has been left out or renumbered so far, so deltas can pass unchanged
        self._started = False
        self._calls_shown = False
        self._interrupted: tuple[int, str] | None = None
        """The index of a sentence that another round continues, and the text that the caller has so far."""

    def feed(self, delta: Delta) -> Delta | None:
        """Return the delta as the caller sees it, or None if it is not for the caller."""
        if type(delta) is PartDelta:
            if self._plain:
                return delta
            shown = self._indexes.get(delta.index)
            return None if shown is None else PartDelta(shown, delta.text)
        if isinstance(delta, PartFinished):
            shown = (
                self._indexes[delta.index] if delta.index in self._indexes else self._renumber(delta.index, delta.part)
            )
            if shown is not None and (begun := _begun(delta.part)):
                self._interrupted = shown, begun
                return None
            return None if shown is None else PartFinished(shown, delta.part)
        if isinstance(delta, ReplyStarted):
            return self._start(delta)
        if isinstance(delta, ReplyFinished):
            self.rounds += 1
            self.usage += delta.usage
            self._last = delta
        return None

    def start_part(self, delta: PartStarted) -> list[Delta]:
        """Return the deltas that the caller sees when a part starts."""
        part = delta.part
        if _begun(part):  # no text has been streamed: the round that continues the sentence repeats all of it
            self._indexes[delta.index], self._plain = None, False
            return []
        if self._interrupted is not None and said_before(part) == self._interrupted[1]:
            self._indexes[delta.index], self._plain = self._interrupted[0], False
            self._interrupted = None
            return []
        shown = self._renumber(delta.index, part)
        return [] if shown is None else [*self.release(), PartStarted(shown, part)]

    def release(self) -> list[Delta]:
        """Finish a sentence that no round continues."""
        if self._interrupted is None:
            return []
        (shown, begun), self._interrupted = self._interrupted, None
        return [PartFinished(shown, Text(begun))]

    def next_index(self) -> int:
        index, self._next = self._next, self._next + 1
        return index

    def finish(self, *, cut: bool = False) -> ReplyFinished:
        """Return the end of the reply. `cut` says that a limit ended it, not the model."""
        last = self._last or ReplyFinished()
        stop: StopReason = last.stop
        if cut:
            stop = "length"
        elif stop == "calls" and not self._calls_shown:
            stop = "end"
        # What only the dialect knows about the end of a round, such as its own usage, does not hold for several.
        return ReplyFinished(stop, self.usage, last.opaque if self.rounds == 1 else {})

    def _start(self, delta: ReplyStarted) -> ReplyStarted | None:
        self._calls_shown = False
        if self._started:
            self._indexes, self._plain = {}, False
            return None
        self._started = True
        return delta

    def _renumber(self, index: int, part: object) -> int | None:
        if isinstance(part, ToolCall):
            if part.name in self.injected:
                self._indexes[index], self._plain = None, False
                return None
            self._calls_shown = True
        shown = self._indexes[index] = self.next_index()
        self._plain = self._plain and shown == index
        return shown


def _begun(part: object) -> str:
    """Return the beginning of a sentence that another round continues; empty for any other part."""
    return said_before(part) if isinstance(part, Text) and not part.text else ""


PARAGRAPH = "\n\n"


class Paragraphs:
    """Makes the text of each round a paragraph, for a dialect that has one text for all rounds."""

    def __init__(self) -> None:
        self._ends = ""  # the last characters of the text so far
        self._due = False
        self.gaps: dict[int, tuple[str, bool]] = {}  # the line breaks before a part's text, and whether they were sent

    def begin_round(self) -> None:
        self._due = bool(self._ends)

    def feed(self, delta: Delta) -> Delta:
        if type(delta) is PartDelta:
            if delta.index not in self.gaps or not delta.text:
                return delta
            gap, sent = self.gaps[delta.index]
            self.gaps[delta.index] = gap, True
            return delta if sent else PartDelta(delta.index, gap + delta.text)
        if isinstance(delta, PartStarted) and isinstance(delta.part, Text):
            if self._due:
                self._due = False
                sent = bool(delta.part.text)
                self.gaps[delta.index] = _gap(self._ends), sent
                return PartStarted(delta.index, self._set_off(delta.index, delta.part)) if sent else delta
        elif isinstance(delta, PartFinished) and isinstance(delta.part, Text) and delta.part.text:
            part = self._set_off(delta.index, delta.part)
            self._ends = part.text[-len(PARAGRAPH) :]
            return PartFinished(delta.index, part)
        return delta

    def _set_off(self, index: int, part: Text) -> Text:
        gap, _ = self.gaps.get(index, ("", True))
        return msgspec.structs.replace(part, text=gap + part.text) if gap else part


def _gap(ends: str) -> str:
    """Return the line breaks that start a paragraph after a text with this ending."""
    return PARAGRAPH[len(ends) - len(ends.rstrip("\n")) :]
