"""Remembers what callers send again and again: a conversation comes whole with each request, and all but its end came
before. What was decoded and read of a message or a tool is kept for a while, by its very bytes and by who sent it.

Knows no dialect: those keep what they read with the object that they read it from (`dialect.Again`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..dialect import Again, Reading

BYTES_MAX = 12_000_000
"""About so many bytes of bodies are remembered, those of objects that came most recently."""
OBJECT_BYTES_MAX = 64_000
"""Longer ones are mostly images, and not worth it."""
OBJECT_BYTES = 1_000
"""What an object costs beside its bytes."""
REMEMBERED = frozenset({"messages", "input", "tools"})

_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Readings:
    """There are new ones and old ones: who comes again is new again, and when the new ones take half of the space, they
    become the old ones, and those are forgotten. So to remember costs nothing but the look."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._half = bytes_max // 2
        self._new: dict[tuple[str, bytes], Reading] = {}
        self._old: dict[tuple[str, bytes], Reading] = {}
        self._bytes = 0

    def decode(self, raw: msgspec.Raw, whose: str) -> Any:
        """What a field of a body holds. Of a list, what came before is not decoded again."""
        if bytes(memoryview(raw)[:1]) != b"[":
            return msgspec.json.decode(raw)
        readings: list[Reading] = []
        for item in _LIST.decode(raw):
            place = whose, bytes(item)
            readings.append(self._new.get(place) or self._learn(place))
        return Again(readings)

    def _learn(self, place: tuple[str, bytes]) -> Reading:
        reading = self._old.get(place) or Reading(msgspec.json.decode(place[1]))
        size = len(place[1])
        if size <= OBJECT_BYTES_MAX and type(reading.raw) is dict:
            self._new[place] = reading
            self._bytes += size + OBJECT_BYTES
            if self._bytes > self._half:
                self._old, self._new, self._bytes = self._new, {}, 0
        return reading
