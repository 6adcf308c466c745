"""What was made of a history that only grows: the new end is added to what was made before.

A prompt's history is the same from round to round but for its end, and its messages are frozen, so whatever is computed
from them (bytes, tokens) need not be computed anew for a conversation of a thousand turns. Pure; knows no wire format.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from .values import Message

T = TypeVar("T")

HISTORIES_MAX = 256
MESSAGES_MAX = 100_000


class Growing(Generic[T]):
    """`add(made, messages)` makes the value of a longer history from that of a shorter one; `nothing` is the empty one.
    Where a history may not be cut, `whole` says so of the message behind the cut, and all of it is worked on anew.

    Which history it is, its first message tells. The least recently used are forgotten.
    """

    def __init__(
        self,
        nothing: T,
        add: Callable[[T, tuple[Message, ...]], T],
        *,
        whole: Callable[[Message], bool] = lambda message: False,
        histories_max: int = HISTORIES_MAX,
    ) -> None:
        self._nothing, self._add, self._whole, self._histories_max = nothing, add, whole, histories_max
        self._known: OrderedDict[int, tuple[tuple[Message, ...], T]] = OrderedDict()
        self._messages = 0

    def of(self, messages: tuple[Message, ...]) -> T:
        # The known tuple keeps its messages alive, so an id stands for the same message as long as it is a key here.
        key = id(messages[0]) if messages else 0
        known, made = self._known.pop(key, ((), self._nothing))
        self._messages -= len(known)
        if not begins_with(messages, known) or (len(messages) > len(known) and self._whole(messages[len(known)])):
            known, made = (), self._nothing
        if rest := messages[len(known) :]:
            made = self._add(made, rest)
        self._known[key] = messages, made
        self._messages += len(messages)
        while len(self._known) > self._histories_max or (self._messages > MESSAGES_MAX and len(self._known) > 1):
            _, (forgotten, _) = self._known.popitem(last=False)
            self._messages -= len(forgotten)
        return made

    def forget(self, messages: tuple[Message, ...]) -> None:
        if messages:
            known, _ = self._known.pop(id(messages[0]), ((), self._nothing))
            self._messages -= len(known)


def begins_with(messages: tuple[Message, ...], known: tuple[Message, ...]) -> bool:
    """Whether one tuple is the beginning of the other.

    In the order of tuples a beginning comes first. Asking for that order looks at no message that is the same object in
    both and copies nothing, as a slice would; two messages that differ have no order, and Python says so.
    """
    try:
        return known <= messages  # pyright: ignore[reportOperatorIssue]
    except TypeError:
        return False
