"""Counts calls that are repeated with the same arguments and the same result while nothing else happens."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..values import Text, ToolCall, ToolResult

NOTE = "repeated_call"  # A key in the `opaque` of a text that is a note about the repetition, not part of the result

_Key: TypeAlias = tuple[Any, ...]


class Repetition(msgspec.Struct, eq=False):
    """The calls of one turn. A call with a new result resets all counts: tests that fail again after each edit are
    progress. Several calls of one round count once."""

    counts: dict[str, int] = {}  # how often each tool was called in vain since the last new result
    _seen: dict[_Key, tuple[int, int, int]] = {}
    """For each call and result: how often, in which round last, and how many results were new until then."""
    _news: int = 0
    _last: tuple[ToolCall, ToolResult, _Key] | None = None
    """The last call of `after`: the same result is usually added next."""

    def after(self, call: ToolCall, result: ToolResult, round: int) -> int:
        key = _key(call, result)
        self._last = call, result, key
        return self._counted(key, round)

    def add(self, call: ToolCall, result: ToolResult, round: int) -> None:
        last, self._last = self._last, None
        key = last[2] if last is not None and last[0] is call and last[1] is result else _key(call, result)
        if key not in self._seen:
            self._news += 1
            self.counts = {}
        count = self._counted(key, round)
        self._seen[key] = count, round, self._news
        self.counts[call.name] = max(count, self.counts.get(call.name, 0))

    def _counted(self, key: _Key, round: int) -> int:
        count, last, news = self._seen.get(key, (0, -1, 0))
        if news != self._news:
            return 1
        return count if last == round else count + 1


def _key(call: ToolCall, result: ToolResult) -> _Key:
    parts = [
        part.text if isinstance(part, Text) else (part.mime, part.data, part.url, part.file_id)
        for part in result.parts
        if NOTE not in part.opaque
    ]
    arguments = call.broken or msgspec.json.encode(call.arguments, order="sorted")
    return call.name, arguments, result.is_error, *parts
