"""Delivers the answer to one message: folds the conversation's events, and makes Discord show what the fold says.

Every message has a nonce that the journal determines, so the same answer is never posted twice, whenever the bot dies:
after a restart the same fold gives the same messages, and Discord returns those that it has.
"""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import discord
import msgspec

from ...contracts.images import image_name
from ...errors import RondelError
from ...events import Event, Outcome, RoundFinished, TurnFinished
from ...machine.conversation import Conversation, TurnView
from ...machine.journal import Watcher
from .cards import text_of
from .chunks import LIMIT, chunks
from .fold import AnswerFold, ImagePiece, JobPiece, QuestionPiece, TextPiece
from .hooks import ChatReply
from .mentions import Names
from .outlet import Denied, Extras, Gone, Outlet
from .pending import Pending

if TYPE_CHECKING:
    from .bot import DiscordBot

log = logging.getLogger("rondel.discord")

FIRST_S = 0.05  # how long the first text waits for more: most of a quick answer comes at once
FOUND_MAX = 100  # messages of a channel that are searched for an answer that a crash cut off
FOUND_CHARS = 20  # how much of their text must agree: a message may have been cut off while it streamed
FILE_BYTES_MAX = 10_000_000  # what bots may attach everywhere
NOTICE = "notice"
REQUEST = "your request"
FAILED = "Sorry, I could not answer that. Please try again in a while."
STARTED_IN_FILE = "\n\n*The whole answer is attached.*"


class Found(NamedTuple):
    """A message of an answer that was posted and not recorded."""

    channel: int
    id: int
    above: int  # what it replies to
    text: str


class Delivery:
    _watcher: Watcher  # since it has begun

    def __init__(
        self, bot: DiscordBot, conversation: Conversation, pending: Pending, channel: Any, outlet: Outlet | None = None
    ) -> None:
        self.bot, self.conversation, self.pending, self.channel = bot, conversation, pending, channel
        self.started_at = bot.app.clock.now()
        self.text = pending.content.text  # of the message, as the model got it last
        self.fold = AnswerFold(pending.content.id, report_jobs=bot.settings.report_jobs)
        self.view: TurnView | None = None
        self.before: asyncio.Event | None = None
        """Set when the answer before this one in the conversation is shown: answers keep the order of their turns."""
        self.is_shown = asyncio.Event()
        self._outlet = outlet or bot.outlet(channel)
        self._shown: dict[int, str] = {}  # what each message shows
        self._texts: dict[str, str] = {}  # the text that each piece shows
        self._found: list[Found] = []
        self._has_searched = False
        self._is_typing = self._was_noticed = self._is_showing = self._follows = False
        self._due_at = 0.0
        self._notice: asyncio.Task[None] | None = None
        self._extras: Extras | None = None  # of a reply hook

    # --- the answer's life --------------------------------------------------------------------------------------------

    async def begin(self, *, recovers: bool = False) -> None:
        """Send the message, or find it sent. Watch from the position that was known before.

        A turn that begins here runs here, so other processes are only watched after a crash and while a question waits:
        looking at them costs writes to the store. Of a turn that runs here, the text so far is read when it is to be
        shown: an answer is edited once a second, and its pieces come a hundred times as often.
        """
        pending = self.pending
        if recovers:
            self._watcher = await self.conversation.watch(pending.seq)
        else:
            journal = await self.bot.app.journals.open(pending.conversation)
            self._watcher = journal.watch(pending.seq, pieces=False)
        self._follows = recovers
        try:
            self.view = await self.conversation.send(
                pending.content,
                person=pending.person,
                scope=pending.scope,
                before=pending.before,
                watcher=self._watcher,
            )
        except BaseException:
            self._watcher.close()
            raise
        self.fold.expect(self.view.id)

    async def run(self) -> None:
        try:
            if self._follows:
                await self._find_posted()
            while self.fold.state != "over":
                events = await self._next()
                self.fold.feed(events)
                if not self.bot.engine_answered:
                    self.bot.engine_answered = any(isinstance(event, RoundFinished) for event in events)
                self.attend()
                if self.fold.turn_state in ("waiting", "over") or self._is_due():
                    await self._show(final=self.fold.turn_state != "working")
                if self.fold.turn_state == "waiting" and not self._follows:
                    self._follows, before = True, self._watcher
                    self._watcher = await self.conversation.watch(before.seq)
                    before.close()
        except Gone as error:
            log.info("channel %s of an answer is gone: %s", self.pending.channel, error)
            await self.stop()
        except Denied as error:
            await self.stop()
            await self.bot.tell_denied(self.pending, str(error))
        except discord.HTTPException as error:
            log.error("Discord refuses an answer in channel %s: %s", self.pending.channel, error)
        finally:
            self._rest()
        if self.bot.deliveries.get(self.pending.message) is self:  # else an edit has begun it again
            self.bot.records.done(self.pending.message)

    async def stop(self) -> bool:
        """Stop the turn, whether it is queued, runs or waits for an answer, and the background jobs, which then report
        nothing. Returns False if there was nothing to stop."""
        jobs = tuple(self.fold.jobs)
        self.fold.reports_jobs = False
        stopped = await self._stop_turn()
        for job in jobs:
            stopped |= await self.bot.app.background.cancel(self.pending.conversation, job)
        return stopped

    async def _stop_turn(self) -> bool:
        running = self.fold.turn
        if running and (self.view is None or running != self.view.id):
            return await self.conversation.stop(running)
        return self.view is not None and await self.view.stop()

    async def _next(self) -> list[Event]:
        if not self._awaits_text():
            return await self._watcher.events()
        try:
            async with asyncio.timeout_at(self._due_at):
                return await self._watcher.events()
        except TimeoutError:
            self._read_so_far()
            return []

    def _awaits_text(self) -> bool:
        """Return whether text is to be shown while it streams, and set when it will be."""
        if not self.bot.settings.stream or self.bot.hooks.has_reply or self.pending.replaced is not None:
            return False
        if self._found:
            return False  # all of the text is needed to see which messages show it
        if not self._has_news() and (self._follows or not self.fold.is_streaming):
            return False
        if not self._due_at:
            self._due_at = asyncio.get_running_loop().time() + FIRST_S
        return True

    def _read_so_far(self) -> None:
        if not self._follows:
            self.fold.feed(self.conversation.reply_so_far())
        if not self._has_news():
            wait_s = self.bot.pace.wait_s(self.channel.id) if self._texts else FIRST_S
            self._due_at = asyncio.get_running_loop().time() + wait_s

    def _has_news(self) -> bool:
        """Whether text has come that is not shown yet."""
        return any(
            isinstance(piece, TextPiece) and piece.text.strip() and self._text(piece) != self._texts.get(str(index))
            for index, piece in enumerate(self.fold.pieces)
        )

    def _is_due(self) -> bool:
        return self._awaits_text() and self._has_news() and asyncio.get_running_loop().time() >= self._due_at

    # --- typing and the notice ----------------------------------------------------------------------------------------

    def attend(self) -> None:
        works = self.fold.state in ("queued", "working")
        if works != self._is_typing and not self.pending.is_command:
            self._is_typing = works
            if works:
                self.bot.typing.start(self.channel, self.channel.id)
            else:
                self.bot.typing.stop(self.channel.id)
        if self.fold.running and self._notice is None and (notice_s := self.bot.settings.notice_s):
            about = f"the notice for message {self.pending.message}"
            self._notice = self.bot.tasks.spawn(about, self._tell_late, notice_s)

    def _rest(self) -> None:
        self._watcher.close()
        self.is_shown.set()
        if self._is_typing:
            self._is_typing = False
            self.bot.typing.stop(self.channel.id)
        if self._notice is not None:
            self._notice.cancel()

    async def _tell_late(self, notice_s: float) -> None:
        """Say once that a call is taking long."""
        clock = self.bot.app.clock
        await clock.sleep_until(clock.now() + notice_s)
        if self._was_noticed or not self.fold.running:
            self._notice = None  # the next slow call may be noticed
            return
        self._was_noticed = True
        if NOTICE not in self.pending.posted:
            try:
                await self._post(
                    NOTICE, f"Hang tight, I'm working on {self.subject}. I'll report back once it's ready."
                )
            except (Gone, Denied, discord.HTTPException) as error:
                log.info("no notice in channel %s: %s", self.pending.channel, error)

    @property
    def subject(self) -> str:
        """What is being worked on, in words that everyone may read: of a private request, only whose it is."""
        if self.pending.is_private:
            return f"a private request for {self.pending.person.name or 'somebody'}"
        names = list(self.fold.running.values()) or [job.name for job in self.fold.jobs.values()]
        return f"the {names[0]} command" if names else REQUEST

    # --- showing ------------------------------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Whether an answer is being written, or is about to be."""
        return self._is_showing or self.fold.turn_state in ("queued", "working")

    async def _show(self, *, final: bool) -> None:
        self._is_showing = True
        try:
            if self.before is not None:
                await self.before.wait()
                self.before = None
            for index, piece in enumerate(list(self.fold.pieces)):
                key = str(index)
                match piece:
                    case TextPiece():
                        await self._show_text(key, piece, final=final)
                    case QuestionPiece():
                        await self.bot.questions.show(self, key, piece)
                    case JobPiece():
                        if key not in self.pending.posted:
                            await self._show_parts(key, chunks(await self.bot.report(self, piece.digest)))
                    case ImagePiece():
                        if key not in self.pending.posted:
                            await self._show_picture(key, piece)
        finally:
            self._is_showing = False
        if final:
            self.is_shown.set()
            self._due_at = 0.0
        else:
            self._due_at = asyncio.get_running_loop().time() + self.bot.pace.wait_s(self.channel.id)

    async def _show_text(self, key: str, piece: TextPiece, *, final: bool) -> None:
        if not final and self.bot.hooks.has_reply:
            return
        text = await self._final_text(piece) if final else self._text(piece)
        if self._texts.get(key) == text and self.pending.posted.get(key):
            return
        parts = chunks(self._with_mentions(text, final=final))
        if self._found:
            self._count_found(key, parts)
        settings = self.bot.settings
        if len(parts) <= settings.messages_max or settings.long_answers == "messages":
            await self._show_parts(key, parts, self._extras)
        elif not final:
            await self._show_parts(key, parts[: settings.messages_max])
        elif settings.long_answers == "file":
            await self._show_file(key, text, parts[0])
        else:
            await self._show_thread(key, parts)
        self._texts[key] = text

    @property
    def _reply_to(self) -> int:
        """The message to which each piece replies; 0 for none."""
        return 0 if self.pending.is_command else self.pending.message

    def _with_mentions(self, text: str, *, final: bool) -> str:
        if "@" not in text:
            return text
        names = Names(self.pending.names)
        return self.bot.restore(names, text, self.channel) if final else names.restore(text)

    async def _show_picture(self, key: str, piece: ImagePiece) -> None:
        """Attach a picture. Its name is the message's text, by which it is found again after a crash."""
        picture = piece.picture
        name = image_name(picture.name.rpartition(".")[0], picture.mime)
        if len(picture.data) > FILE_BYTES_MAX:
            await self._post(key, f"*{name} is too large for Discord.*")
        else:
            file = discord.File(io.BytesIO(picture.data), name)
            await self._post(key, f"*{name}*", Extras(files=(file,)))

    def _text(self, piece: TextPiece) -> str:
        return piece.text.removeprefix(f"{self.bot.name}: ")

    async def _final_text(self, piece: TextPiece) -> str:
        if piece.end is None:
            return self._text(piece)
        if self.pending.replaced is not None:
            return self.pending.replaced
        text = with_end(self._text(piece), piece.end)
        if self.bot.hooks.has_reply and (changed := await self._changed_by_hooks(text)) is not None:
            text, self._extras = changed.text, changed.extras and changed.extras.in_memory()
            await self._keep(replaced=text)
        return text

    async def _changed_by_hooks(self, text: str) -> ChatReply | None:
        """Return what the reply hooks say instead. If one fails, the answer that it would have changed is not shown."""
        try:
            return await self.bot.hooks.reply(self, text)
        except RondelError as error:
            log.error("message %s: %s", self.pending.message, error, exc_info=error.__cause__)
            return ChatReply(FAILED)

    async def _show_parts(
        self, key: str, parts: list[str], extras: Extras | None = None, *, outlet: Outlet | None = None
    ) -> None:
        """Make the messages of a piece show these parts: post, edit or delete them, or leave them as they are."""
        posted, outlet = self.pending.posted.get(key, ()), outlet or self._outlet
        for index, part in enumerate(parts):
            if index >= len(posted):
                await self._post(key, part, extras, outlet=outlet)
            elif self._shown.get(posted[index]) != part or extras is not None:
                await outlet.edit(posted[index], part, extras)
                self._shown[posted[index]] = part
            extras = None  # the first message has them
        if len(posted) > len(parts):
            for id in posted[len(parts) :]:
                await outlet.delete(id)
            await self._keep(posted={**self.pending.posted, key: posted[: len(parts)]})

    async def _post(self, key: str, text: str, extras: Extras | None = None, *, outlet: Outlet | None = None) -> None:
        """Post the next message of a piece."""
        posted, outlet = self.pending.posted.get(key, ()), outlet or self._outlet
        is_here = outlet is self._outlet
        reply_to = posted[-1] if posted else self._reply_to if is_here else 0
        nonce = f"{self.pending.message:x}.{key[:4]}.{len(posted)}"
        found = self._take_found(self.channel.id if is_here else self.pending.thread, reply_to, text)
        id, there = found or await outlet.post(text, nonce=nonce, reply_to=reply_to, extras=extras)
        if there != text and there.strip() != text.strip():
            await outlet.edit(id, text, extras)  # it was posted before a crash, with less text
        self._count_posted(key, id, text)
        # If nothing more will be said, the record is removed in a moment. If a crash loses it, the message is found.
        if self.fold.state != "over":
            self.bot.records.keep_soon(self.pending)

    def _count_posted(self, key: str, id: int, shown: str) -> None:
        posted = (*self.pending.posted.get(key, ()), id)
        self.pending = msgspec.structs.replace(self.pending, posted={**self.pending.posted, key: posted})
        self._shown[id] = shown
        if self._has_searched and self.pending.is_command:
            self.bot.reposted.add(id)
        self.bot.remember(id, self.pending.conversation)

    async def show_card(self, key: str, text: str, shown: Extras) -> None:
        """Show a card that says this text, in the place of the one that a piece has."""
        if key not in self.pending.posted:
            await self._post(key, text, shown)
        elif self._shown.get(id := self.pending.posted[key][0]) != text:
            await self._outlet.edit(id, text, shown)
            self._shown[id] = text

    # --- long answers -------------------------------------------------------------------------------------------------

    async def _show_file(self, key: str, text: str, first: str) -> None:
        data = discord.File(io.BytesIO(text.encode()), "answer.md")
        head = chunks(first, LIMIT - len(STARTED_IN_FILE))[0]
        await self._show_parts(key, [head + STARTED_IN_FILE], Extras(files=(data,)))

    async def _show_thread(self, key: str, parts: list[str]) -> None:
        await self._show_parts(key, parts[:1])
        thread = await self._thread(self.pending.posted[key][0], parts[0])
        outlet = self._outlet if thread.id == self.channel.id else self.bot.outlet(thread)
        await self._show_parts(f"{key}t", parts[1:], outlet=outlet)

    async def _thread(self, message: int, text: str) -> Any:
        if self.pending.thread and (known := await self.bot.channel(self.pending.thread)) is not None:
            return known
        if isinstance(self.channel, discord.Thread) or self.pending.is_command:
            return self.channel
        title = " ".join(text.split())[:60].strip("#*` ") or "Answer"
        try:
            thread = await self.channel.get_partial_message(message).create_thread(name=title)
        except discord.HTTPException:  # it may not open one, or has opened it before a crash
            thread = await self.bot.channel(message) or self.channel
        await self._keep(thread=thread.id)
        return thread

    # --- after a crash ------------------------------------------------------------------------------------------------

    async def _find_posted(self) -> None:
        """Find messages of this answer that were posted and not recorded: Discord forgets nonces after some minutes,
        and the answer of a slash command has none."""
        self._has_searched = True
        thread = self.pending.thread
        elsewhere = await self.bot.channel(thread) if thread not in (0, self.channel.id) else None
        for channel in filter(None, (self.channel, elsewhere)):
            try:
                await self._find_in(channel)
            except discord.HTTPException as error:
                log.info("channel %s cannot be searched for earlier answers: %s", channel.id, error)

    async def _find_in(self, channel: Any) -> None:
        pending = self.pending
        known = {id for ids in pending.posted.values() for id in ids}
        ours = {pending.message, *known}
        if pending.is_command or channel is not self.channel:
            ours.add(0)  # the first message there is no reply
        after = discord.Object(pending.message)
        async for message in channel.history(after=after, limit=FOUND_MAX, oldest_first=True):
            above = message.reference.message_id or 0 if message.reference else 0
            command = message.interaction_metadata
            is_ours = above in ours if command is None else command.id == pending.message
            if message.author.id != self.bot.id or message.id in known or not is_ours:
                continue
            if message.flags.loading:  # "thinking…", which cannot be used any more
                await self._outlet.delete(message.id)
                continue
            ours.add(message.id)
            self._found.append(Found(channel.id, message.id, above, text_of(message)))

    def _count_found(self, key: str, parts: list[str]) -> None:
        """Count what was found of a piece: messages that its end does not need are deleted."""
        posted = self.pending.posted.get(key, ())
        above = posted[-1] if posted else self._reply_to
        for part in parts[len(posted) :]:
            if (found := self._take_found(self.channel.id, above, part)) is None:
                return
            above, text = found
            self._count_posted(key, above, text)

    def _take_found(self, channel: int, reply_to: int, text: str) -> tuple[int, str] | None:
        """Return a message that was found and shows this text, or the beginning of it."""
        for found in self._found:
            if self._fits(found, channel, reply_to, text):
                self._found.remove(found)
                return found.id, found.text
        return None

    def _fits(self, found: Found, channel: int, reply_to: int, text: str) -> bool:
        chars = FOUND_CHARS
        if self.pending.is_command:
            # It may reply to nothing, so it must not be a message of another answer.
            if found.id in self.bot.reposted:
                return False
            reply_to, chars = found.above, max(chars, len(found.text) - chars)
        # A slash command that the model ran may have replied, too, with an embed and no text.
        is_there = found.channel == channel and found.above == reply_to
        return is_there and bool(found.text) and text.startswith(found.text[:chars])

    async def _keep(self, **changes: Any) -> None:
        self.pending = msgspec.structs.replace(self.pending, **changes)
        await self.bot.records.keep(self.pending)


def with_end(text: str, end: TurnFinished) -> str:
    """Return the text for people, with the reason if the turn did not finish."""
    match end.outcome:
        case Outcome.LIMITED:
            return "\n\n".join(part for part in (text, end.reason) if part.strip())
        case Outcome.FAILED:
            failure = end.failure
            log.error("a turn failed: %s", failure.message if failure else end.reason)
            return "\n\n".join(part for part in (text, FAILED) if part.strip())
        case _:
            return text
