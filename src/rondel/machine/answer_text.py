"""Extracts the text of an answer from a turn's events, without thinking and arguments of calls.

A `PartDelta` does not say what it is a piece of: the `PartStarted` before it does.
"""

from __future__ import annotations

from ..events import Event, Lagged, RoundFinished
from ..values import PartDelta, PartFinished, PartStarted, Text

BETWEEN_ROUNDS = "\n\n"


class AnswerText:
    """Call `feed` with every event of a turn and print what it returns, which may be empty.

    A blank line separates the texts of several rounds (before a tool call and after it). After `Lagged`, the missing
    text is returned at the end of its round.
    """

    def __init__(self) -> None:
        self._chars: dict[int, int] = {}  # the characters returned of each text part of this reply, by the part's index
        self._reply = ""  # the text returned of this reply
        self._gap = False
        self._lagged = False

    def feed(self, event: Event) -> str:
        """Return the next piece of the answer, which may be empty."""
        if type(event) is PartDelta:
            return self._more(event.index, event.text) if event.index in self._chars else ""
        if isinstance(event, PartStarted):
            if isinstance(event.part, Text):
                # Text at the start of a part is the beginning of a sentence that an earlier round has shown.
                self._chars[event.index] = len(event.part.text)
                self._gap = self._gap and not event.part.text
        elif isinstance(event, PartFinished):
            if isinstance(event.part, Text):
                return self._more(event.index, event.part.text[self._chars.get(event.index, 0) :])
        elif isinstance(event, Lagged):
            self._lagged = True
        elif isinstance(event, RoundFinished):
            return self._round_finished(event)
        return ""

    def _more(self, index: int, text: str) -> str:
        self._chars[index] = self._chars.get(index, 0) + len(text)
        return self._said(text)

    def _said(self, text: str) -> str:
        if not text:
            return ""
        self._reply += text
        if self._gap:
            self._gap, text = False, BETWEEN_ROUNDS + text
        return text

    def _round_finished(self, event: RoundFinished) -> str:
        missed = ""
        if self._lagged and event.next != "again":
            whole = event.message.text
            missed = self._said(whole[len(self._reply) :] if whole.startswith(self._reply) else whole)
        self._gap = self._gap or bool(self._reply)
        self._chars, self._reply, self._lagged = {}, "", False
        return missed
