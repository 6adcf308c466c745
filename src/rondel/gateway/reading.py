"""Remembers what callers send again and again: a conversation comes whole with each request, and all but its end came
before. What was decoded and read of a message or a tool is kept for a while, by its very bytes and by who sent it.

Knows no dialect: those keep what they read with the object that they read it from (`dialect.Again`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from ..dialect import Again, Reading

BYTES_MAX = 12_000_000
"""So many bytes of bodies are remembered, those of objects that came again most recently."""
OBJECT_BYTES_MAX = 64_000
"""Longer ones are mostly images, and not worth it."""
OBJECT_BYTES = 1_000
"""What an object costs beside its bytes."""
REMEMBERED = frozenset({"messages", "input", "tools"})

_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Readings:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: OrderedDict[tuple[str, bytes], Reading] = OrderedDict()
        self._bytes = 0

    def decode(self, raw: msgspec.Raw, whose: str) -> Any:
        """What a field of a body holds. Of a list, what came before is not decoded again."""
        if bytes(memoryview(raw)[:1]) != b"[":
            return msgspec.json.decode(raw)
        known = self._known
        readings: list[Reading] = []
        for item in _LIST.decode(raw):
            place = whose, bytes(item)
            reading = known.get(place)
            if reading is None:
                reading = self._learn(place)
            else:
                known.move_to_end(place)
            readings.append(reading)
        return Again(readings)

    def _learn(self, place: tuple[str, bytes]) -> Reading:
        reading = Reading(msgspec.json.decode(place[1]))
        size = len(place[1])
        if size <= OBJECT_BYTES_MAX and type(reading.raw) is dict:
            self._known[place] = reading
            self._bytes += size + OBJECT_BYTES
            while self._bytes > self._bytes_max:
                (_, forgotten), _ = self._known.popitem(last=False)
                self._bytes -= len(forgotten) + OBJECT_BYTES
        return reading
