"""What survives a crash: the messages that are being answered, which conversation each answer belongs to, and what
people selected for a channel. All of it is in the store of the app."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ...charge import Scope
from ...contracts.clock import Clock
from ...contracts.store import KEYS_MAX, KeyValueStore
from ...values import Message, Person, Value
from .gate import Chosen

PEOPLE_MAX = 20_000  # pairs of a person and a conversation that are known to be stored
CHANNELS_MAX = 10_000  # channels and threads whose selections are cached
ANSWERS_MAX = 10_000
ANSWERS_S = 90 * 86_400.0  # how long a reply to an answer continues its conversation


class Pending(Value, frozen=True):
    """A message that is being answered. `posted` are the messages of each piece of the answer; `seq` is the position in
    the journal before it. Of one that was not prepared before a stop, there is only what was `heard`."""

    message: int
    channel: int
    conversation: str = ""
    content: Message = Message("user")
    before: tuple[Message, ...] = ()
    person: Person = Person("")
    scope: Scope = Scope()
    guild: int = 0
    agent: str = ""
    model: str = ""
    seq: int = 0
    names: tuple[tuple[int, str, str], ...] = ()
    posted: dict[str, tuple[int, ...]] = {}
    thread: int = 0  # the thread in which the rest of a long answer is
    is_private: bool = False
    is_command: bool = False  # it came as a slash command: there is no message to reply to
    token: str = ""  # of a slash command that only one person sees the answer of
    replaced: str | None = None  # what a reply hook said instead
    heard: dict[str, Any] = {}


class OpenQuestion(Value, frozen=True):
    """A question with buttons: where it was asked, and whom."""

    conversation: str
    question: str
    channel: int
    message: int = 0
    person: int = 0
    pending: int = 0


class Selected(Value, frozen=True):
    """What people selected for a channel, and how often its conversation was reset."""

    agent: str = ""
    model: str = ""
    mode: str = ""
    resets: int = 0

    @property
    def chosen(self) -> Chosen | None:
        """What applies instead of the settings; None if nothing was selected."""
        if not (self.agent or self.model or self.mode):
            return None
        return Chosen(agent=self.agent, model=self.model, mode=self.mode)


class Records:
    """The records of one bot: several bots may share a store, and be in the same channels."""

    def __init__(self, store: KeyValueStore, clock: Clock, bot: int) -> None:
        self._store, self._clock = store, clock
        kinds = ("pending", "answers", "questions", "channels", "people")
        self._pending, self._answered, self._questions, self._channels, self._people = (
            f"discord.{bot}.{kind}" for kind in kinds
        )
        self._selected: dict[int, Selected] = {}
        self._took_part: set[tuple[str, str]] = set()
        self._answers: OrderedDict[int, str] = OrderedDict()  # the newest: the store may not have them yet

    async def keep(self, pending: Pending) -> None:
        await self._store.put(self._pending, str(pending.message), msgspec.json.encode(pending))

    def keep_soon(self, pending: Pending) -> None:
        """Keep it before or together with the next write: a commit of its own would cost more than the message."""
        self._store.put_soon(self._pending, str(pending.message), msgspec.json.encode(pending))

    def done(self, message: int) -> None:
        """Forget a message that was answered. If a crash loses this, the answer is found posted."""
        self._store.put_soon(self._pending, str(message), None)

    async def pending(self, message: int) -> Pending | None:
        found = await self._store.get(self._pending, str(message))
        return msgspec.json.decode(found, type=Pending) if found is not None else None

    async def all_pending(self) -> AsyncIterator[Pending]:
        after = ""
        while keys := await self._store.keys(self._pending, after=after):
            for key in keys:
                if (pending := await self.pending(int(key))) is not None:
                    yield pending
            after = keys[-1]
            if len(keys) < KEYS_MAX:
                return

    # --- which conversation a message of the bot belongs to -----------------------------------------------------------

    def answered(self, message: int, conversation: str) -> None:
        self._answers[message] = conversation
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        self._store.put_soon(self._answered, str(message), conversation.encode(), until=self._clock.now() + ANSWERS_S)

    async def conversation_of(self, message: int) -> str:
        return self._answers.get(message) or (await self._store.get(self._answered, str(message)) or b"").decode()

    # --- questions ----------------------------------------------------------------------------------------------------

    async def ask(self, key: str, question: OpenQuestion) -> None:
        await self._store.put(self._questions, key, msgspec.json.encode(question), until=self._clock.now() + ANSWERS_S)

    async def question(self, key: str) -> OpenQuestion | None:
        found = await self._store.get(self._questions, key)
        return msgspec.json.decode(found, type=OpenQuestion) if found is not None else None

    async def close_question(self, key: str) -> None:
        await self._store.remove(self._questions, key)

    # --- people -------------------------------------------------------------------------------------------------------

    def took_part(self, person: str, conversation: str) -> None:
        """Note that somebody spoke in a conversation, for `/ai forget me`."""
        if (person, conversation) not in self._took_part:
            if len(self._took_part) >= PEOPLE_MAX:
                self._took_part.clear()
            self._took_part.add((person, conversation))
            self._store.put_soon(self._people, f"{person}/{conversation}", b"")

    async def conversations_of(self, person: str) -> list[str]:
        found: list[str] = []
        after = ""
        while keys := await self._store.keys(self._people, f"{person}/", after=after):
            found += [key.partition("/")[2] for key in keys]
            after = keys[-1]
        return found

    async def left(self, person: str, conversation: str) -> None:
        self._took_part.discard((person, conversation))
        await self._store.remove(self._people, f"{person}/{conversation}")

    # --- channels -----------------------------------------------------------------------------------------------------

    async def selected(self, channel: int) -> Selected:
        if channel not in self._selected:
            if len(self._selected) >= CHANNELS_MAX:
                self._selected.clear()
            found = await self._store.get(self._channels, str(channel))
            self._selected[channel] = msgspec.json.decode(found, type=Selected) if found else Selected()
        return self._selected[channel]

    async def select(self, channel: int, selected: Selected) -> None:
        self._selected[channel] = selected
        await self._store.put(self._channels, str(channel), msgspec.json.encode(selected))

    async def lists(self) -> tuple[list[int], dict[int, int]] | None:
        found = await self._store.get(self._channels, "lists")
        return msgspec.json.decode(found, type=tuple[list[int], dict[int, int]]) if found else None

    async def keep_lists(self, whitelist: list[int], restrict: dict[int, int]) -> None:
        await self._store.put(self._channels, "lists", msgspec.json.encode((whitelist, restrict)))
