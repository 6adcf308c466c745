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
STAGES_MAX = 3


class Growing(Generic[T]):
    """`add(made, messages)` makes the value of a longer history from that of a shorter one; `nothing` is the empty one.
    Where a history may not be cut, `whole` says so of the message behind the cut, and all of it is worked on anew.
    The last `loose` messages may come otherwise the next time: what was made of those before them is kept as well.

    Which history it is, its first message tells. The least recently used are forgotten.
    """

    def __init__(
        self,
        nothing: T,
        add: Callable[[T, tuple[Message, ...]], T],
        *,
        whole: Callable[[Message], bool] = lambda message: False,
        loose: int = 0,
        histories_max: int = HISTORIES_MAX,
    ) -> None:
        self._nothing, self._add, self._whole = nothing, add, whole
        self._loose, self._histories_max = loose, histories_max
        self._known: OrderedDict[int, tuple[tuple[Message, ...], list[tuple[int, T]]]] = OrderedDict()
        """Histories, each with its stages: of so many of its messages this was made."""
        self._messages = 0

    def of(self, messages: tuple[Message, ...]) -> T:
        # The known tuple keeps its messages alive, so an id stands for the same message as long as it is a key here.
        key = id(messages[0]) if messages else 0
        known, stages = self._known.pop(key, ((), []))
        self._messages -= len(known)
        while stages and not self._goes_on(messages, known[: stages[-1][0]]):
            stages.pop()
        done, made = stages[-1] if stages else (0, self._nothing)
        for end in (self._firm(messages, done), len(messages)):
            if end > done:
                made = self._add(made, messages[done:end])
                stages.append((end, made))
                done = end
        self._known[key] = messages, stages[-STAGES_MAX if self._loose else -1 :]
        self._messages += len(messages)
        while len(self._known) > self._histories_max or (self._messages > MESSAGES_MAX and len(self._known) > 1):
            _, (forgotten, _) = self._known.popitem(last=False)
            self._messages -= len(forgotten)
        return made

    def _goes_on(self, messages: tuple[Message, ...], known: tuple[Message, ...]) -> bool:
        """Whether a history goes on where a shorter one ended."""
        if not begins_with(messages, known):
            return False
        return len(messages) == len(known) or not self._whole(messages[len(known)])

    def _firm(self, messages: tuple[Message, ...], done: int) -> int:
        """Where the loose end of a history begins, if there is one behind what is done."""
        end = len(messages) - self._loose if self._loose else done
        while end > done and self._whole(messages[end]):
            end -= 1
        return end

    def forget(self, messages: tuple[Message, ...]) -> None:
        if messages:
            known, _ = self._known.pop(id(messages[0]), ((), []))
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
