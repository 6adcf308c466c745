"""The contract of the store: the append-only journal of every conversation, the jobs that are pending, and a shelf for
small values by their key.

Knows no SQL and no file; see stores/.
"""

from __future__ import annotations

from typing import Protocol

from .charge import Books
from .errors import StoreError
from .events import CallHeld, Entry, Kept, MessageAdded, Outcome, RoundFinished, TurnFinished, TurnStarted
from .job import JobStore
from .values import Usage, Value

TITLE_CHARS_MAX = 80
KEYS_MAX = 1_000
"""Keys of a shelf that are listed at once."""


class ConversationInfo(Value, frozen=True):
    """What a list of conversations shows. `state` is `working`, or the outcome of the last turn."""

    id: str
    agent: str = ""
    title: str = ""
    state: str = ""
    seq: int = 0
    messages: int = 0
    usage: Usage = Usage()
    created_at: float = 0.0
    updated_at: float = 0.0

    def after(self, *entries: Entry) -> ConversationInfo:
        """This summary, brought forward by the entries that follow it."""
        agent, title, state, messages, usage = self.agent, self.title, self.state, self.messages, self.usage
        for entry in entries:
            event = entry.event
            if isinstance(event, TurnStarted):
                agent, state = event.agent, "working"
            elif isinstance(event, MessageAdded):
                messages += 1
                if not title and event.message.role == "user":
                    title = " ".join(event.message.text.split())[:TITLE_CHARS_MAX]
            elif isinstance(event, RoundFinished):
                messages += 1
                usage += event.usage
            elif isinstance(event, TurnFinished):
                state = event.outcome.value
            elif isinstance(event, CallHeld):
                state = Outcome.WAITING.value
        last = entries[-1]
        created = self.created_at if self.seq else entries[0].at
        return ConversationInfo(self.id, agent, title, state, last.seq, messages, usage, created, last.at)


def is_place(shelf: str, key: str) -> bool:
    """Whether something could stand there: both have a name, and it can be written as UTF-8."""
    try:
        return bool(shelf and key and f"{shelf}{key}".encode())
    except UnicodeEncodeError:
        return False


def check_place(shelf: str, key: str) -> None:
    if not is_place(shelf, key):
        raise StoreError(
            f"nothing can be put on shelf {shelf!r} under the key {key!r}: give both a name, as plain text"
        )


class Shelf(Protocol):
    """Small values by their key, on shelves with a name. Whoever uses a shelf knows what its bytes mean."""

    async def put(self, shelf: str, key: str, value: bytes, *, until: float | None = None) -> None:
        """Keep a value in place of what was there. At `until` (seconds since the epoch) it is gone.

        It returns when the value would survive `kill -9`.
        """
        ...

    async def get(self, shelf: str, key: str) -> bytes | None:
        """None when nothing is there, or no longer."""
        ...

    async def remove(self, shelf: str, key: str) -> bool:
        """False when nothing was there."""
        ...

    async def keys(self, shelf: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        """The keys that begin with `prefix`, in order; `after` is the last one of the last page."""
        ...


class Store(JobStore, Shelf, Protocol):
    """The only truth about what happened. Nothing here blocks the event loop."""

    @property
    def books(self) -> Books:
        """Where it is kept what was spent."""
        ...

    async def append(
        self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float, wait: bool = True
    ) -> None:
        """Write events as entries `seq`, `seq + 1`, … of the conversation, all or none.

        It is fenced: a worker whose `seq` is not the next one gets StoreConflict and has written nothing. It returns
        when the entries would survive `kill -9`. With `wait=False` it returns at once: the entries are written within
        milliseconds, before or together with whatever is appended next, and if that fails, the next append says so.
        """
        ...

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        """The entries behind `after`, in order; none when there is no such conversation."""
        ...

    async def conversations(self, *, limit: int = 50, before: ConversationInfo | None = None) -> list[ConversationInfo]:
        """Newest first, without child conversations (with a `/` in their id); `before` is the last of the last page."""
        ...

    async def info(self, conversation: str) -> ConversationInfo | None: ...

    async def delete(self, conversation: str) -> bool:
        """Forget a conversation and its children. False when there is none."""
        ...

    async def aclose(self) -> None: ...
