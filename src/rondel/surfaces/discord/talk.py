"""Talk to the bot from code: `chat` calls a function with each reply, `chat_sync` returns the first one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from ...calling.callbacks import is_awaitable
from ...engine import UnavailableEngine, uncharged
from ...errors import RondelError
from ...events import Outcome
from ...machine.conversation import Conversation
from ...values import Message, Person, user
from .delivery import with_end
from .fold import AnswerFold, TextPiece
from .hooks import ChatReply, ReplyContext, degraded_servers

if TYPE_CHECKING:
    from .bot import DiscordBot

log = logging.getLogger("rondel.discord")

NO_ENGINE = "AI engine is not configured"


class Talk:
    def __init__(self, bot: DiscordBot) -> None:
        self._bot = bot
        self._has_warned = False

    async def chat(
        self,
        messages: str | Message | Sequence[Message],
        on_reply: Callable[[ChatReply], Any],
        *,
        conversation: str = "",
        person: Person | None = None,
        agent: str = "",
    ) -> None:
        """Call `on_reply` with every reply: the answer, and those of jobs that it started. Without an engine, warn once
        and return."""
        if problem := self._problem(agent):
            if not self._has_warned:
                log.warning("%s: %s", NO_ENGINE, problem)
            self._has_warned = True
            return
        async with aclosing(self._replies(messages, conversation, person, agent)) as replies:
            async for reply in replies:
                if is_awaitable(called := on_reply(reply)):
                    await called

    async def chat_sync(
        self,
        messages: str | Message | Sequence[Message],
        *,
        conversation: str = "",
        person: Person | None = None,
        agent: str = "",
    ) -> ChatReply:
        """Return the first reply. Raises RondelError if none comes, or if no engine is configured."""
        if problem := self._problem(agent):
            raise RondelError(f"{NO_ENGINE}: {problem}")
        async with aclosing(self._replies(messages, conversation, person, agent)) as replies:
            async for reply in replies:
                return reply
        raise RondelError("the agent ended without a reply")

    def _problem(self, agent: str) -> str:
        try:
            name = agent or self._bot.settings.agent or self._bot.app.registry.agent().name
            engine = uncharged(self._bot.app.registry.resolve(name).engine)
        except RondelError as error:
            return str(error)
        return engine.reason if isinstance(engine, UnavailableEngine) else ""

    async def _replies(
        self, messages: str | Message | Sequence[Message], conversation: str, person: Person | None, agent: str
    ) -> AsyncGenerator[ChatReply]:
        given = [user(messages)] if isinstance(messages, str) else list(_listed(messages))
        changed = await self._bot.hooks.chat(given)
        if not changed:
            raise RondelError("there is no message to send")
        app = self._bot.app
        talk = app.conversation(conversation, agent=agent or self._bot.settings.agent)
        last = msgspec.structs.replace(changed[-1], id=changed[-1].id or app.new_id("msg"))
        with await talk.watch() as watcher:
            view = await talk.send(last, person=person, before=changed[:-1], watcher=watcher)
            fold, told = AnswerFold(last.id, report_jobs=False), 0
            fold.expect(view.id)
            while fold.state not in ("over", "waiting"):
                fold.feed(await watcher.events())
                ended = [piece for piece in fold.pieces if isinstance(piece, TextPiece) and piece.end is not None]
                for piece in ended[told:]:
                    told += 1
                    if (reply := await self._reply(talk, fold, piece, person)) is not None:
                        yield reply

    async def _reply(
        self, talk: Conversation, fold: AnswerFold, piece: TextPiece, person: Person | None
    ) -> ChatReply | None:
        assert piece.end is not None
        if piece.end.outcome is Outcome.FAILED and piece.end.failure is not None:
            raise RondelError(piece.end.failure.message)
        text = with_end(piece.text, piece.end)
        replaced = None
        if self._bot.hooks.has_reply:
            calls, degraded = tuple(fold.calls), degraded_servers(talk)
            replaced = await self._bot.hooks.replace(
                ReplyContext(text, person or Person(""), None, talk.id, calls, degraded)
            )
        return replaced if replaced is not None else ChatReply(text) if text else None


def _listed(messages: Message | Sequence[Message]) -> Sequence[Message]:
    return (messages,) if isinstance(messages, Message) else messages
