"""Passes a model's output on to watchers until a directive interrupts it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from ...text.template import may_begin, scan
from ...values import Delta, PartDelta, PartFinished, PartStarted, ReplyFinished, Text, ToolCall
from .script import Script


class OutputStream:
    """Passes deltas on up to the first directive, and holds back text that may become one."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pending = ""
        self._held: list[Delta] = []
        self.texts: dict[int, str] = {}
        self.parts = 0  # the highest index of a part, plus one
        self.has_calls = False
        self.stopped_at: int | None = None  # the part that a directive interrupted
        self._said: list[str] = []
        self.end: ReplyFinished | None = None

    @property
    def said(self) -> str:
        return "".join(self._said)

    def put(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted):
            self.parts = max(self.parts, delta.index + 1)
            self.has_calls = self.has_calls or isinstance(delta.part, ToolCall)
            if isinstance(delta.part, Text):
                self.texts[delta.index] = ""
        if isinstance(delta, ReplyFinished):
            self.end = delta
        elif isinstance(delta, PartDelta) and delta.index in self.texts:
            yield from self._more(delta)
        elif isinstance(delta, PartFinished) and delta.index in self.texts:
            yield from self._finished(delta)
        else:
            yield delta

    def _more(self, delta: PartDelta) -> Iterable[Delta]:
        if self.stopped_at is not None:
            self._held.append(delta)
            return
        self._pending += delta.text
        found = self._script.parse_output(self._pending)
        if found.directives:
            self.stopped_at = delta.index
            end = found.directives[0].start
            self._held.append(PartDelta(delta.index, self._pending[end:]))
        else:
            end = may_begin(self._pending)
        settled, self._pending = self._pending[:end], self._pending[end:]
        yield from self._show(delta.index, scan(settled).fill({}))

    def _finished(self, delta: PartFinished) -> Iterable[Delta]:
        text = cast(Text, delta.part).text
        self.texts[delta.index] = text
        if self.stopped_at is not None:
            self._held.append(delta)
            return
        rest, self._pending = self._pending, ""
        yield from self._show(delta.index, rest)
        plain = self._script.parse_output(text).fill({})
        yield delta if plain == text else PartFinished(delta.index, msgspec.structs.replace(delta.part, text=plain))

    def _show(self, index: int, text: str) -> Iterable[Delta]:
        if text:
            self._said.append(text)
            yield PartDelta(index, text)

    def release(self) -> Iterable[Delta]:
        """Yield what was held back, unchanged: the reply continues with calls of the model's own."""
        yield from self._held
