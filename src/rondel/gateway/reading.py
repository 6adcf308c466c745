"""Remembers what callers send again and again: a conversation comes whole with each request, and all but its end came
before. What was read of a list of messages or tools is kept for a while, by its very bytes and by who sent it. A list
that begins with the same bytes begins with the same objects: only what follows is decoded and read. A conversation
grows, so a long list that comes out of nowhere is kept when it comes again: most that come once never do, and to let go
of an old one costs as much as to read it.

Knows no dialect: those put what they make of the objects into the list that they are given (`dialect.Again`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from ..dialect import Again

BYTES_MAX = 12_000_000
"""About so many bytes of bodies are remembered, those of lists that came most recently."""
LIST_BYTES_MIN, LIST_BYTES_MAX = 2_000, 3_000_000
"""Shorter lists are read as quickly as they are found; longer ones are mostly images, and not worth it."""
OBJECT_BYTES = 1_000
"""What an object costs beside its bytes."""
BEGINNING_BYTES = 1_024
ALIKE_MAX = 4
"""So many lists that begin alike are told apart."""
LOOSE_MAX = 4
"""Some callers mark the newest messages for the provider's cache, and only those: a list that differs from another one
in no more than its last objects goes on from it."""
LONG_BYTES, SEEN_BYTES, SEEN_MAX = 32_000, 8_000, 10_000
"""A list of so many bytes must have been seen before: so many of its first bytes tell. So many lists are known."""
REMEMBERED = frozenset({"messages", "input", "tools"})

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_NO_OBJECTS = frozenset(map(type, ("", 0, 0.0, True, None, [])))
_BRACKET = ord("[")
_Place: TypeAlias = tuple[str | bytes, ...]
Decode: TypeAlias = Callable[[bytes], list[Any]]


class _Reading:
    """A list as it came, and what was made of its objects."""

    def __init__(self, data: bytes, made: list[Any], count: int, ends: list[int]) -> None:
        self.data, self.made, self.count = data, made, count
        self.ends_known = ends
        """Where the first objects end; where all do is found out when it is needed."""
        self.beginning = memoryview(data)[:-1]
        """All but the last bracket. What compares with it copies nothing."""
        self.size = len(data) + OBJECT_BYTES * count

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read: of a list with a mistake only what stands before that."""
        return len(self.made) == self.count

    def shared_with(self, data: bytes) -> tuple[int, int]:
        """How many objects a list has in common with this one, from the first on; and how many bytes these are."""
        if data.startswith(self.beginning):
            return self.count, len(self.beginning)
        if not data.startswith(self.beginning[: min(len(data), len(self.data)) // 2]):
            return 0, 0  # another conversation that begins alike: little to gain
        ends = self._ends()
        count = bisect_left(ends, True, key=lambda end: not data.startswith(self.beginning[:end]))
        return count, ends[count - 1] if count else 0

    def _ends(self) -> list[int]:
        """Where each object ends: between two there is nothing but a comma and white space."""
        ends = self.ends_known
        if len(ends) < self.count:
            end = ends[-1] if ends else 0
            for item in _LIST.decode(_behind(self.data, end)):
                end = self.data.index(b"{", end) + len(memoryview(item))
                ends.append(end)
        return ends


_NOTHING = _Reading(b"[]", [], 0, [])


class Readings:
    """Of whatever was remembered, the least recently used is forgotten first."""

    def __init__(self, bytes_max: int = BYTES_MAX, *, list_bytes_min: int = LIST_BYTES_MIN) -> None:
        self._bytes_max, self._list_bytes_min = bytes_max, list_bytes_min
        self._known: OrderedDict[_Place, list[_Reading]] = OrderedDict()
        self._bytes = 0
        self._seen: dict[int, None] = {}

    def decode(self, raw: msgspec.Raw, whose: tuple[str, ...], decode: Decode = msgspec.json.decode) -> Any:
        """What a field of a body holds. Of a list, what came before is neither decoded nor read again. `whose` says in
        which field, in which dialect and from whom it came; `decode` is that dialect's way to decode such a list."""
        view = memoryview(raw)
        if not self._list_bytes_min <= len(view) <= LIST_BYTES_MAX or view[0] != _BRACKET:
            return msgspec.json.decode(raw)
        place = *whose, _beginning(view)
        alike = [reading for reading in self._known.get(place, ()) if reading.is_whole]
        for reading in alike:
            if len(view) == len(reading.data) and reading.data.startswith(view):
                self._known.move_to_end(place)
                return Again([], reading.made)
        data = bytes(view)
        before, count, end = _nearest(alike, data)
        new = decode(_behind(data, end))
        if _NO_OBJECTS.intersection(map(type, new)):
            return msgspec.json.decode(raw)
        if not count and len(data) > LONG_BYTES and not self._has_seen((*whose, data[:SEEN_BYTES])):
            return Again(new, [], kept=False)
        reading = _Reading(data, before.made[:count], count + len(new), before.ends_known[:count])
        if new:
            self._remember(place, reading, None if count < before.count - LOOSE_MAX else before)
        return Again(new, reading.made)

    def _has_seen(self, beginning: _Place) -> bool:
        """Whether a list that begins so came before; it has from now on."""
        key = hash(beginning)
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return False

    def _remember(self, place: _Place, reading: _Reading, instead_of: _Reading | None) -> None:
        """The newest of those that are alike."""
        alike = self._known.get(place, [])
        kept = [other for other in alike if other is not instead_of][: ALIKE_MAX - 1]
        self._bytes += reading.size + sum(other.size for other in kept) - sum(other.size for other in alike)
        self._known[place] = [reading, *kept]
        self._known.move_to_end(place)
        while self._bytes > self._bytes_max:
            _, forgotten = self._known.popitem(last=False)
            self._bytes -= sum(other.size for other in forgotten)


def _beginning(view: memoryview) -> bytes:
    """What is the same of a list however it goes on: about its first object."""
    head = bytes(view[:BEGINNING_BYTES])
    end = head.find(b"},")
    return head[: end + 1] if end >= 0 else bytes(view[:-1][:BEGINNING_BYTES])


def _nearest(alike: list[_Reading], data: bytes) -> tuple[_Reading, int, int]:
    """The reading that has most in common with a list: how many objects, and where these end."""
    best = _NOTHING, 0, 0
    for reading in alike:
        count, end = reading.shared_with(data)
        if end > best[2]:
            best = reading, count, end
            if count == reading.count:
                break
    return best


def _behind(data: bytes, end: int) -> bytes:
    """What is left of a list behind the objects that end here."""
    if not end:
        return data
    rest = data[end:].lstrip()
    return b"[" + rest[1:] if rest.startswith(b",") else b"[]"
