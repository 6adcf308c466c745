"""The contracts of a store: the log of each conversation, and small values by key. `Store` adds the job queue
(runtime.py) and the ledger store (ledger.py): one object may implement all four.

Knows no SQL and no file; see stores/.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import StoreConflict, StoreError
from ..events import (
    CallHeld,
    DurableEvent,
    Entry,
    Event,
    HistoryGiven,
    MessageAdded,
    MessageQueued,
    Outcome,
    Renamed,
    RoundFinished,
    TurnFinished,
    TurnStarted,
    TurnsUndone,
)
from ..values import Message, Usage, Value
from .runtime import JobQueue

if TYPE_CHECKING:
    from .ledger import LedgerStore

TITLE_CHARS_MAX = 80
KEYS_MAX = 1_000  # how many keys one call lists


class ConversationInfo(Value, frozen=True):
    """A row in a list of conversations. `state` is the outcome of the last turn; while that turn has none, `working` if
    a living process runs it and `interrupted` otherwise."""

    id: str
    agent: str = ""
    title: str = ""
    state: str = ""
    seq: int = 0
    messages: int = 0
    usage: Usage = Usage()
    created_at: float = 0.0
    updated_at: float = 0.0
    person: str = ""
    """The id of the owner: the person who started the first turn."""

    def after(self, *entries: Entry) -> ConversationInfo:
        """Return this summary, updated with the entries that follow it."""
        agent, title, state, messages, usage = self.agent, self.title, self.state, self.messages, self.usage
        person = self.person
        for entry in entries:
            event = entry.event
            if type(event) is TurnStarted:
                agent, state = event.agent, "working"
                person = person or event.person.id
            elif type(event) is HistoryGiven:
                messages += len(event.messages)
                person = person or event.person.id
                title = title or _title(event.messages)
            elif type(event) is MessageAdded:
                messages += 1
                title = title or _title((event.message,))
            elif type(event) is RoundFinished:
                messages += 1
                usage += event.usage
            elif type(event) is TurnFinished:
                state = event.outcome.value
            elif type(event) is CallHeld:
                state = Outcome.WAITING.value
            elif type(event) is TurnsUndone:
                state = Outcome.DONE.value
            elif type(event) is Renamed:
                title = event.title[:TITLE_CHARS_MAX]
        last = entries[-1]
        created = self.created_at if self.seq else entries[0].at
        return ConversationInfo(self.id, agent, title, state, last.seq, messages, usage, created, last.at, person)


def _title(messages: Sequence[Message]) -> str:
    first = next((message.text for message in messages if message.role == "user"), "")
    return " ".join(first.split())[:TITLE_CHARS_MAX]


class Found(Value, frozen=True):
    """A conversation that a search found, and an excerpt of the message that matches."""

    info: ConversationInfo
    excerpt: str


SEARCHED_CHARS_MAX = 100_000


def searched_text(event: DurableEvent) -> str:
    """Return the part of an event that is searched: the text of a message, or the title that a person gave."""
    match event:
        case MessageAdded(message=message) | MessageQueued(message=message) | RoundFinished(message=message):
            return message.text[:SEARCHED_CHARS_MAX]
        case Renamed(title=title):
            return title
        case _:
            return ""


class Live(Value, frozen=True):
    """Events that are not stored, such as deltas, and that happened after entry `seq` and before the next one."""

    seq: int
    events: tuple[Event, ...]


class Subscription(Protocol):
    """One watcher's position in the log of a conversation."""

    async def read(self, after: int) -> list[Entry | Live]:
        """Return the entries after position `after`, and the live events of other workers since the last read, in the
        order in which they happened."""
        ...

    def close(self) -> None: ...


class Log(Protocol):
    """The append-only log of each conversation, the single source of truth. Nothing here blocks the loop."""

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        """Write events as entries `seq`, `seq + 1`, … of the conversation, all or none.

        Appends are fenced: a worker whose `seq` is not the next one gets StoreConflict and has written nothing. So does
        a worker that appends while another one has a claim on a job of that key. This returns when the entries would
        survive `kill -9`. With `wait=False` it returns at once: the entries are written within milliseconds, before or
        together with the next append, and if that fails, the next append raises the error.
        """

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        """Return the entries after position `after`, in order; an empty list if the conversation does not exist."""
        ...

    def tail(self, conversation: str, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield the entries after position `after`, then each new one, whichever process writes it. Never ends."""
        ...

    def subscribe(self, conversation: str, on_change: Callable[[], None]) -> Subscription:
        """Call `on_change` whenever a read of the subscription may find something new. Close it after use."""
        ...

    @property
    def subscribed(self) -> Container[str]:
        """The conversations to which other workers may subscribe; events of others need not be published."""
        ...

    def publish(self, conversation: str, seq: int, event: Event) -> None:
        """Show an event that is not stored to the subscribers of other workers, if there are any. Does not wait, and is
        bounded: a subscriber that misses events gets `Lagged`. `seq` is the last entry before it."""

    async def last_seq(self, conversation: str) -> int:
        """Return the position of the last entry; 0 if there is none. Cheap while this worker has a claim on a job of
        this key, because no other worker can append then."""
        ...

    async def conversations(
        self, *, limit: int = 50, before: ConversationInfo | None = None, person: str | None = None
    ) -> list[ConversationInfo]:
        """List conversations, newest first, without children (with a `/` in their id). `before` is the last one of the
        previous page; `person` is the owner of the conversations to list; by default, they may be anyone's."""
        ...

    async def info(self, conversation: str) -> ConversationInfo | None:
        """Return the summary of a conversation, or None if it is unknown."""
        ...

    async def search(self, words: str, *, limit: int = 20, person: str | None = None) -> list[Found]:
        """Find conversations in which one message, or the title, has all of these words or words that start like them.
        Newest first. Case and accents are ignored, and so are turns that were undone. `person` is the owner of the
        conversations to search; by default, they may be anyone's."""
        ...

    async def delete(self, conversation: str) -> bool:
        """Delete a conversation, its children, and those of their jobs that are not running. Return False if it does
        not exist."""
        ...

    def keep_open(self, in_use: Callable[[str], bool]) -> None:
        """Register a function that says which conversations an app has open: a bounded store does not drop these."""


def no_events(conversation: str) -> StoreError:
    return StoreError(f"nothing to append to conversation {conversation!r}: give at least one event")


def not_json(what: str, error: Exception) -> StoreError:
    return StoreError(f"{what} cannot be written as JSON ({error}): use only plain values")


def works_elsewhere(conversation: str) -> StoreConflict:
    return StoreConflict(
        f"another process works on conversation {conversation!r}, so nothing can be written to it from here: "
        "wait until its turn has ended"
    )


def not_next(conversation: str, last: int, seq: int) -> StoreConflict:
    return StoreConflict(
        f"conversation {conversation!r} is at entry {last!r}, so entry {seq!r} cannot follow: "
        "another worker appended first; read it again and continue from there"
    )


def is_key(namespace: str, key: str) -> bool:
    """Return whether a value can be stored there: both parts have a name that UTF-8 can encode."""
    try:
        return bool(namespace and key and f"{namespace}{key}".encode())
    except UnicodeEncodeError:
        return False


def check_key(namespace: str, key: str) -> None:
    if not is_key(namespace, key):
        raise StoreError(
            f"nothing can be stored in namespace {namespace!r} under key {key!r}: give both a name, as plain text"
        )


class KeyValueStore(Protocol):
    """Small values by key, in namespaces. The bytes are the caller's own."""

    async def put(self, namespace: str, key: str, value: bytes, *, until: float | None = None) -> None:
        """Store a value, replacing the old one. It expires at `until` (seconds since the epoch).

        This returns when the value would survive `kill -9`.
        """

    def put_soon(self, namespace: str, key: str, value: bytes | None, *, until: float | None = None) -> None:
        """Store a value, or remove it if it is None, without waiting: within 50 ms, before or together with the next
        write of any kind. Until then, a read may not find it. A failure is logged."""

    async def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value; None if there is none or it has expired."""
        ...

    async def remove(self, namespace: str, key: str) -> bool:
        """Remove a value. Return False if there was none."""
        ...

    async def keys(self, namespace: str, prefix: str = "", *, after: str = "", limit: int = KEYS_MAX) -> list[str]:
        """List the keys that start with `prefix`, in order; `after` is the last key of the previous page."""
        ...


class Store(Log, KeyValueStore, JobQueue, Protocol):
    """Everything that an app stores, in one object."""

    @property
    def ledger_store(self) -> LedgerStore:
        """Where the ledger keeps what was spent."""
        ...

    async def aclose(self) -> None:
        """Write what is queued, and close."""
        ...


async def tail(log: Log, conversation: str, after: int) -> AsyncGenerator[Entry, None]:
    """Implement `Log.tail` with `Log.subscribe`."""
    changed = asyncio.Event()
    changed.set()
    subscription = log.subscribe(conversation, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()  # before the read: a change during the read needs another one
            for found in await subscription.read(after):
                if isinstance(found, Entry):
                    after = found.seq
                    yield found
    finally:
        subscription.close()
