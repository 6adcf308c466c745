"""Caches what is computed from a history that only grows: a longer history adds to the value of a shorter one.

A prompt's history differs from that of the previous round only at its end, and messages are frozen. So a value that is
computed from them (bytes, tokens) is extended and not computed again. Knows no wire format.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from ..values import Message, size_of

T = TypeVar("T")

HISTORIES_MAX = 256
MESSAGES_MAX = 100_000
SIZE_MAX = 64_000_000  # of the texts and files in all histories: one may have many pictures


class PrefixCache(Generic[T]):
    """`add(value, messages)` extends the value of a shorter history; `empty` is the value of an empty one.

    Where `whole(before, after)` is true, a history cannot be cut between two messages and is computed again as a whole.
    A history is identified by its first message. The least recently used histories are forgotten.
    """

    def __init__(
        self,
        empty: T,
        add: Callable[[T, tuple[Message, ...]], T],
        *,
        whole: Callable[[Message, Message], bool] = lambda before, after: False,
    ) -> None:
        self._empty, self._add, self._whole = empty, add, whole
        self._known: OrderedDict[int, tuple[tuple[Message, ...], T, int]] = OrderedDict()
        """By the id of the first message: the messages, their value and their size."""
        self._messages = self._size = 0

    def of(self, messages: tuple[Message, ...], transcript_size: int | None = None) -> T:
        """Return the value of these messages. Those of a transcript need not be measured: it knows its size."""
        # The cached tuple keeps its messages alive, so the id of the first one cannot be reused while it is a key.
        key = id(messages[0]) if messages else 0
        known, value, size = self._known.pop(key, ((), self._empty, 0))
        self._messages -= len(known)
        self._size -= size
        if not self._extends(messages, known):
            known, value, size = (), self._empty, 0
        if len(messages) > len(known):
            new = messages[len(known) :]
            value = self._add(value, new)
            if transcript_size is None:
                size += sum([size_of(message.parts) for message in new])
            else:
                size = transcript_size
        self._known[key] = messages, value, size
        self._messages += len(messages)
        self._size += size
        while len(self._known) > HISTORIES_MAX or (self._is_full and len(self._known) > 1):
            _, (forgotten, _, size) = self._known.popitem(last=False)
            self._messages -= len(forgotten)
            self._size -= size
        return value

    @property
    def _is_full(self) -> bool:
        return self._messages > MESSAGES_MAX or self._size > SIZE_MAX

    def _extends(self, messages: tuple[Message, ...], known: tuple[Message, ...]) -> bool:
        """Return whether the messages begin with the known ones and can be cut after them."""
        if messages[: len(known)] != known:  # mostly the same objects, which compare fast
            return False
        return len(messages) == len(known) or not known or not self._whole(known[-1], messages[len(known)])
