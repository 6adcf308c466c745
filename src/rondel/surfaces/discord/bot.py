"""The Discord surface: hears messages, sends those that are for the bot to conversations, and delivers the answers.

It runs no tool and has no policy of its own: `gate.py` decides who is answered, the app does the rest. Voice is not
part of it; a voice surface would be given the same client and app, and the conversation of a channel
(`conversation_id`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from typing import Any

import discord
import msgspec
from discord.ext import commands

from ...app.app import App
from ...charge import Scope
from ...contracts.command import Models
from ...errors import RondelError
from ...events import Digest
from ...machine.conversation import Conversation
from ...project.settings import DiscordSettings
from ...prompt import Node, Prompt
from ...values import Media, Message, Options, Text, user
from .active import Active
from .bridge import CommandBridge
from .context import KEY, Gatherer, MessageContext, edited, message_id
from .delivery import FAILED, Delivery
from .gate import Chosen, Gate, Place, Speaker
from .handover import as_heard, hear_again, remove_private
from .hooks import Hooks
from .mapping import open_thread, person_of, place_of, scope_of, speaker_of
from .mentions import Names, tidy_name
from .modes import Modes
from .outlet import NOBODY, ChannelOutlet, CommandOutlet, Denied, Gone, Outlet, Rights
from .pace import Pace, Typing
from .pending import Pending, Records
from .questions import Questions
from .summary import summarize
from .talk import Talk
from .tasks import Tasks
from .usage import on_click

log = logging.getLogger("rondel.discord")

SEEN_MAX = 10_000
LOOK_S = 0.02
LATER = "I am being restarted. I will answer you after that."
CHANNEL_MESSAGES = (discord.MessageType.default, discord.MessageType.reply)
MENTIONED = re.compile(r"(?<![\w.+\-@/<])@([\w.]{2,32})")
MENTIONED_MAX = 100  # names in one answer that are looked up


class DiscordBot:
    """A bot on a client of discord.py. `attach` makes one; `running` is its life."""

    records: Records  # since it runs: they are those of the user as which the client has logged in
    typing: Typing

    def __init__(self, client: discord.Client, app: App, settings: DiscordSettings | None = None) -> None:
        self.client, self.app = client, app
        self.id = 0
        self.settings = settings or DiscordSettings()
        self.gate = Gate(self.settings)
        self.hooks = Hooks()
        self.hide: Callable[[str], str] = str
        """Removes known secrets from what is sent as a file."""
        self.models = Models()
        self.pace = Pace(self.settings.edit_s, client.http)
        self.questions = Questions(self)
        self.bridge: CommandBridge | None = None
        self._talk = Talk(self)
        self.chat, self.chat_sync = self._talk.chat, self._talk.chat_sync
        self.modes = Modes(app, self.settings)
        self.deliveries: dict[int, Delivery] = {}
        self._active = Active(self.deliveries)
        self.active_tasks, self.task_lines = self._active.tasks, self._active.lines
        self._shown_last: dict[str, asyncio.Event] = {}
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._last: OrderedDict[tuple[int, str], str] = OrderedDict()  # the newest conversation of each channel
        self._locks: dict[int, asyncio.Lock] = {}
        self._beginning: dict[int, discord.Message] = {}  # heard, not begun; the newest version of each
        self._recorded: set[int] = set()  # those of them that have the record of an answer
        self._handed_over: set[int] = set()  # messages whose record says only what was heard
        self.reposted: set[int] = set()  # what answers to slash commands have posted or found again after a crash
        self._rights = Rights()
        self._denied: set[int] = set()
        self._is_stopping = False
        self._is_recovering = self.has_recovered = False
        self._tasks: Tasks | None = None
        self.engine_answered = False
        self.connected = asyncio.Event()

    # --- its life -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hear and answer, in an app that has started. On exit, running answers are waited for and nothing new begins:
        the next start answers what is said from then on until the connection is closed."""
        async with asyncio.TaskGroup() as group:
            tasks = self._tasks = Tasks(group)
            self.id, self.typing = me.id if (me := self.client.user) else 0, Typing(self.app.clock, tasks)
            self.records = Records(self.app.store, self.app.clock, self.id)
            if self.settings.keep_lists and (lists := await self.records.lists()) is not None:
                self.gate.replace_lists(*lists)
            await self.modes.load()
            try:
                yield
            finally:
                self._is_stopping = True
                try:
                    for id in self._beginning.keys() - self._recorded:
                        self._hand_over(self._beginning.pop(id))
                    await self._drain()
                finally:
                    tasks.stop()

    async def _drain(self) -> None:
        """Wait for running answers. Those that take longer are finished after the next start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                await self.settled()

    async def settled(self) -> None:
        """Wait until nothing is being said. Questions may be open, and jobs may run in the background."""
        while self._beginning or self._recorded or any(delivery.is_under_way for delivery in self.deliveries.values()):
            await asyncio.wait(self.tasks.running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)

    @property
    def tasks(self) -> Tasks:
        """The bot's tasks. Raises RondelError before it has started."""
        if self._tasks is None:
            raise RondelError("the bot has not started")
        return self._tasks

    @property
    def name(self) -> str:
        return me.display_name if (me := self.client.user) else ""

    @property
    def is_ready(self) -> bool:
        """Whether Discord is connected and an engine has answered."""
        return self._tasks is not None and self.client.is_ready() and self.engine_answered

    async def check_engine(self, agent: str = "") -> None:
        """Ask the agent's engine for one word. Raises EngineError if it does not answer."""
        resolved = self.app.registry.resolve(agent or self.settings.agent or self.app.registry.agent().name)
        prompt = Prompt((Node("check", text="Say: ok", role="user"),), (), Options(tokens_max=16))
        async for _ in self.app.charge(resolved.engine, Scope("check")).stream(prompt):
            pass
        self.engine_answered = True

    # --- what happens in Discord --------------------------------------------------------------------------------------

    async def on_ready(self) -> None:
        """Continue what a crash or a stop has cut off. Discord says 'ready' again after every reconnect."""
        self.connected.set()
        if self._is_recovering or self._tasks is None:
            return
        self._is_recovering = True
        async for pending in self.records.all_pending():
            if self._is_stopping:
                return
            if pending.message not in self.deliveries and pending.message not in self._recorded:
                try:
                    await self._recover(pending)
                except Exception:  # of any kind: the others must be answered
                    log.exception("message %s cannot be answered now; the next start tries again", pending.message)
        self.has_recovered = True

    async def on_message(self, message: discord.Message) -> None:
        self.hear(message)

    def hear(self, message: discord.Message, *, again: bool = False) -> None:
        """Begin to answer a message if it is for the bot. `again` says that an earlier start has found that it is."""
        if self._tasks is None or message.author.id == self.id or message.type not in CHANNEL_MESSAGES:
            return
        place, speaker = place_of(message), speaker_of(message.author)
        self.gate.heard(place, speaker)
        if message.id in self._seen:
            return
        if not self.gate.admits(place, speaker, to_bot=again or self._is_to_bot(message)):
            return
        self._seen[message.id] = None  # a resumed connection may show it again
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        if self._is_stopping:
            self._hand_over(message)
        else:
            self._beginning[message.id] = message
            self._tasks.spawn(f"message {message.id}", self._answer, message, place, speaker)

    async def _answer(self, message: discord.Message, place: Place, speaker: Speaker) -> None:
        """Answer a message. The answers in a channel begin one after the other."""
        lock = self._locks.setdefault(message.channel.id, asyncio.Lock())
        begun: Delivery | None = None
        try:
            async with lock:
                if not await self._is_prefix_command(message):
                    begun = await self._handle(message, place, speaker)
        except discord.HTTPException as error:
            log.error("message %s cannot be answered: %s", message.id, error)
        except RondelError as error:
            log.error("message %s cannot be answered: %s", message.id, error, exc_info=error.__cause__)
            with contextlib.suppress(Gone, Denied, discord.HTTPException):
                nonce = f"{message.id:x}.failed"
                await self.outlet(message.channel).post(FAILED, nonce=nonce, reply_to=message.id)
        finally:
            self._beginning.pop(message.id, None)
            self._recorded.discard(message.id)
            if message.id in self._handed_over and not self._is_stopping:
                self._take_back(message.id)  # it is not to be answered
            if not lock.locked() and not getattr(lock, "_waiters", None):
                self._locks.pop(message.channel.id, None)
        if begun is not None:
            await self._deliver(begun)

    def _hand_over(self, message: discord.Message) -> None:
        """Let the next start answer a message."""
        self._handed_over.add(message.id)
        self.records.keep_soon(Pending(message.id, message.channel.id, heard=as_heard(message)))

    def _take_back(self, message: int) -> None:
        self._handed_over.discard(message)
        self.records.done(message)

    def _is_to_bot(self, message: discord.Message) -> bool:
        if self.client.user in message.mentions:
            return True
        replied = message.reference.resolved if message.reference else None
        return isinstance(replied, discord.Message) and replied.author.id == self.id

    async def _is_prefix_command(self, message: discord.Message) -> bool:
        """Whether the client itself answers it, as a command of its author (`!ping`)."""
        client = self.client
        if not isinstance(client, (commands.Bot, commands.AutoShardedBot)) or not client.all_commands:
            return False
        return (await client.get_context(message)).valid

    async def on_message_edit(self, message: discord.Message) -> None:
        """A message that is still being answered was edited: the answer takes it into account."""
        if message.id in self._beginning:
            self._beginning[message.id] = message
        elif message.id in self._handed_over:
            self._hand_over(message)
        if (delivery := self.deliveries.get(message.id)) is None:
            return
        gatherer = Gatherer(message, bot=self.id, sees_images=lambda: False, known=())
        try:
            gathered = await self._with_hooks(await gatherer.gather(reply_depth=0, around=0))
        except RondelError as error:
            log.error("the edited message %s cannot be sent: %s", message.id, error, exc_info=error.__cause__)
            return
        if (text := gathered.content.text) == delivery.text:
            return
        delivery.text, person = text, delivery.pending.person
        note = user(f"(I have edited my message. It now says:)\n{text}", author=str(message.author.id))
        if delivery.fold.turn:
            await delivery.conversation.steer(note, person=person)
        elif delivery.fold.turn_state == "waiting":
            await delivery.conversation.revise(note, delivery.fold.open_questions, person=person)
        elif delivery.fold.turn_state == "queued" and await delivery.stop():
            self.deliveries.pop(message.id, None)  # its end must not remove the record of the new answer
            if self._is_stopping:
                return self._hand_over(message)
            content = edited(delivery.pending.content, text)
            content = msgspec.structs.replace(content, id=f"{content.id}-edited-{len(text)}-{hash(text) & 0xFFFF:x}")
            pending = msgspec.structs.replace(delivery.pending, content=content)
            self._follow(await self._begin(Delivery(self, delivery.conversation, pending, delivery.channel)))

    async def on_message_delete(self, message: int) -> None:
        """Stop the answer to a message that was deleted."""
        self._beginning.pop(message, None)
        if message in self._handed_over:
            self._take_back(message)
        if (delivery := self.deliveries.get(message)) is not None:
            await delivery.stop()

    async def on_guild_remove(self, guild: int) -> None:
        for delivery in [one for one in self.deliveries.values() if one.pending.guild == guild]:
            await delivery.stop()
            self.records.done(delivery.pending.message)

    async def on_channel_delete(self, channel: int) -> None:
        for delivery in [one for one in self.deliveries.values() if one.channel.id == channel]:
            await delivery.stop()

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        kinds = (discord.InteractionType.component, discord.InteractionType.modal_submit)
        if self._tasks is not None and interaction.type in kinds:
            try:
                if not await self.questions.on_interaction(interaction):
                    await on_click(self, interaction)
            except (RondelError, discord.HTTPException) as error:
                log.error("an interaction in channel %s failed: %s", interaction.channel_id, error)

    # --- answering ----------------------------------------------------------------------------------------------------

    async def _handle(self, message: discord.Message, place: Place, speaker: Speaker) -> Delivery | None:
        may_write, _ = self._rights.of(message.channel)
        if not may_write:
            await self._tell_denied(message.channel, message.author, "it may not write there")
            return None
        self.typing.start(message.channel, message.channel.id)
        try:
            delivery = read = None
            while (latest := self._beginning.get(message.id)) is not read and latest is not None:
                # Again, if it was edited meanwhile: the model must not see what its author has taken back.
                delivery, read = await self._prepare(latest, place, speaker), latest
            if latest is None or delivery is None:  # it was deleted, or handed over
                return None
            self._recorded.add(message.id)
            self._handed_over.discard(message.id)
            await self._begin(delivery)
            if (newest := self._beginning.get(message.id)) is None:
                await delivery.stop()
            elif newest is not latest:
                await self.on_message_edit(newest)
            return delivery
        finally:
            self.typing.stop(message.channel.id)

    async def _prepare(self, message: discord.Message, place: Place, speaker: Speaker) -> Delivery:
        """Prepare the answer to a message."""
        chosen = await self.chosen(place, speaker)
        channel: Any = message.channel
        id = await self._conversation_of(message, place, chosen)
        if chosen.conversation == "thread" and not (place.is_thread or place.is_dm):
            channel = message.thread or await open_thread(message)
        agent = self.modes.agent_of(chosen)
        conversation = self.app.conversation(id, agent=agent)
        journals = self.app.journals
        # What another process has written meanwhile is read by the turn: asking the store here costs a thread.
        journal = await journals.open(id)
        if journal.transcript.engine != chosen.model:
            await conversation.use_engine(chosen.model)
            journal = await journals.open(id)
        gatherer = Gatherer(
            message,
            bot=self.id,
            sees_images=lambda: conversation.engine.facts.images,
            known=journal.transcript.messages,
        )
        around = 0 if self.gate.is_open(place) or place.is_thread else self.settings.context_messages
        context = await gatherer.gather(reply_depth=self.settings.reply_depth, around=around)
        context = await self._with_hooks(self._with_tasks(context, channel.id, message.author.id))
        pending = Pending(
            message.id,
            channel.id,
            id,
            context.content,
            context.before,
            person_of(message.author, speaker, place),
            scope_of(place),
            place.guild,
            agent,
            chosen.model,
            journal.seq,
            context.names,
        )
        return Delivery(self, conversation, pending, channel)

    def _with_tasks(self, context: MessageContext, channel: int, person: int) -> MessageContext:
        """Add what else is being worked on in the channel, without what is private to others."""
        lines = self.task_lines(channel, person)
        if not lines:
            return context
        text = "\n".join((*lines, "Use this information if users ask about ongoing or recent work."))
        note = Message("system", (user(text).parts[0],), id=f"{context.content.id}-tasks", duration=1)
        return msgspec.structs.replace(context, before=(note, *context.before))

    async def _with_hooks(self, context: MessageContext) -> MessageContext:
        if not self.hooks.has_chat:
            return context
        messages = await self.hooks.chat((*context.before, context.content))
        if not messages:
            raise RondelError("a chat hook left no message to send")
        last, original = messages[-1], context.content
        # A hook may have made a new message. Commands that the model calls need to know where and by whom it was said.
        opaque = {**last.opaque, KEY: original.opaque[KEY]}
        content = msgspec.structs.replace(last, id=original.id, author=last.author or original.author, opaque=opaque)
        return msgspec.structs.replace(context, content=content, before=messages[:-1])

    async def _begin(self, delivery: Delivery) -> Delivery:
        """Begin an answer, which must then be delivered."""
        pending = delivery.pending
        self._last[pending.channel, pending.person.id if pending.is_private else ""] = pending.conversation
        if len(self._last) > SEEN_MAX:
            self._last.popitem(last=False)
        # Both are written with the turn's job: from then on, a crash loses no answer.
        self.records.keep_soon(pending)
        self.records.took_part(pending.person.id, pending.conversation)
        await delivery.begin()
        self._enter(delivery)
        return delivery

    def _enter(self, delivery: Delivery) -> None:
        self.deliveries[delivery.pending.message] = delivery
        delivery.before = self._shown_last.get(delivery.pending.conversation)
        self._shown_last[delivery.pending.conversation] = delivery.is_shown
        delivery.attend()  # at once: the typing indicator continues that of the preparation

    def _follow(self, delivery: Delivery) -> None:
        self.tasks.spawn(f"the answer to message {delivery.pending.message}", self._deliver, delivery)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await delivery.run()
        except RondelError as error:
            log.error("the answer to message %s cannot be delivered: %s", delivery.pending.message, error)
        finally:
            if self.deliveries.get(delivery.pending.message) is delivery:
                del self.deliveries[delivery.pending.message]
            if self._shown_last.get(delivery.pending.conversation) is delivery.is_shown:
                del self._shown_last[delivery.pending.conversation]

    async def _recover(self, pending: Pending) -> None:
        try:
            channel: Any = self.client.get_channel(pending.channel) or await self.client.fetch_channel(pending.channel)
        except (discord.NotFound, discord.Forbidden):  # after another error, the next start finds the record
            channel = None
        if pending.is_command and pending.is_private:  # nobody else may read the answer
            person = self.client.get_user(int(pending.person.id)) or await self._person(int(pending.person.id))
            channel = await self._dm(person) if person is not None else None
        if channel is None:
            log.info("channel %s is gone; the answer to message %s is dropped", pending.channel, pending.message)
            self.records.done(pending.message)
            return
        if pending.heard:
            return await self._hear_again(pending, channel)
        if pending.token:
            pending = await self._move_to_dm(pending)
        # First: without its agent, the turn would fail.
        pending = msgspec.structs.replace(pending, agent=self.modes.agent_again(pending.agent))
        await self.app.runtime.recover(pending.conversation)  # what the process that died has left
        await self.app.background.take_up(pending.conversation)
        if self._is_stopping:
            return
        conversation = self.app.conversation(pending.conversation, agent=pending.agent)
        delivery = Delivery(self, conversation, pending, channel)
        await delivery.begin(recovers=True)
        self._enter(delivery)
        self._follow(delivery)

    async def _move_to_dm(self, pending: Pending) -> Pending:
        """Begin a private answer again as a direct message: what only its reader sees cannot be searched."""
        await remove_private(self.client, pending.token, [id for ids in pending.posted.values() for id in ids])
        pending = msgspec.structs.replace(pending, token="", posted={})
        await self.records.keep(pending)
        return pending

    async def _hear_again(self, pending: Pending, channel: Any) -> None:
        """Answer a message that was handed over, like any other."""
        self._handed_over.add(pending.message)
        message = await hear_again(self.client, channel, pending.heard)
        if message is not None and pending.message in self._handed_over:  # else it was deleted, perhaps just now
            self.hear(message, again=True)
        if pending.message in self._handed_over and pending.message not in self._beginning and not self._is_stopping:
            self._take_back(pending.message)  # it is not to be answered any more

    async def answer_command(self, interaction: discord.Interaction[Any], text: str, *, is_private: bool) -> None:
        """Answer a slash command with a turn. The interaction was deferred."""
        place, person = place_of(interaction), interaction.user
        speaker = speaker_of(person)
        chosen = await self.chosen(place, speaker)
        private = f"discord-{self.id}-u{place.guild}-{person.id}-private"
        id = private if is_private else await self.conversation_id(place, chosen, person.id)
        agent = self.modes.agent_of(chosen)
        conversation = self.app.conversation(id, agent=agent)
        await self.use_engine(conversation, chosen.model)
        words = text if place.is_dm or is_private else f"{tidy_name(person.display_name).replace(':', ' ')}: {text}"
        where = {"discord": {"channel": place.channel, "message": interaction.id}}
        content = user(words, id=f"discord-{interaction.id}", author=str(person.id), opaque=where)
        names = ((person.id, person.display_name, person.name),)
        context = await self._with_hooks(MessageContext(content, (), names))
        pending = Pending(
            interaction.id,
            place.channel,
            id,
            context.content,
            context.before,
            person_of(person, speaker, place),
            scope_of(place),
            place.guild,
            agent,
            chosen.model,
            (await self.app.journals.current(id)).seq,
            names,
            is_private=is_private,
            is_command=True,
            token=interaction.token if is_private else "",
        )

        async def late() -> Outlet:
            return self.outlet(await self._dm(person) if is_private else interaction.channel)

        outlet = CommandOutlet(interaction, is_private=is_private, late=late)
        if self._is_stopping:
            self.records.took_part(pending.person.id, id)
            await self.records.keep(pending)
            await outlet.post(LATER, nonce="", reply_to=0)
        else:
            self._follow(await self._begin(Delivery(self, conversation, pending, interaction.channel, outlet)))

    # --- settings that change at run time -----------------------------------------------------------------------------

    async def change_lists(self, change: Callable[[Gate], object]) -> None:
        """Change the whitelist or the restriction, and keep them if `keep_lists` is set."""
        change(self.gate)
        if self.settings.keep_lists:
            await self.records.keep_lists(self.gate.whitelist, self.gate.restrict_guilds)

    # --- conversations ------------------------------------------------------------------------------------------------

    async def chosen(self, place: Place, speaker: Speaker) -> Chosen:
        selected = await self.records.selected(place.parent or place.channel)
        return self.gate.choose(place, speaker, selected.chosen)

    async def conversation_id(self, place: Place, chosen: Chosen, person: int = 0) -> str:
        """Return the bot's conversation in a channel, or with a person if `conversation` says so."""
        if chosen.conversation == "user" and person:
            base, whose = f"discord-{self.id}-u{place.guild}-{person}", person
        else:
            base, whose = f"discord-{self.id}-c{place.channel}", place.channel
        resets = (await self.records.selected(whose)).resets
        return f"{base}.{resets}" if resets else base

    async def reset(self, place: Place, person: discord.User | discord.Member) -> bool:
        """Start a new conversation in a channel, or with this person if `conversation` says so. Returns whether it is
        the person's own."""
        is_own = (await self.chosen(place, speaker_of(person))).conversation == "user"
        whose = person.id if is_own else place.channel
        selected = await self.records.selected(whose)
        await self.records.select(whose, msgspec.structs.replace(selected, resets=selected.resets + 1))
        return is_own

    async def _conversation_of(self, message: discord.Message, place: Place, chosen: Chosen) -> str:
        scoping = chosen.conversation
        if scoping == "thread" and not (place.is_thread or place.is_dm):
            return f"discord-{self.id}-c{message.id}"  # the thread of a message has the message's id
        if place.is_thread or place.is_dm or scoping in ("channel", "user"):
            return await self.conversation_id(place, chosen, message.author.id)
        if scoping == "auto" and self.gate.is_open(place):
            return await self.conversation_id(place, chosen)
        above = message.reference.message_id if message.reference else None
        if above and (known := await self.records.conversation_of(above)):
            return known
        new = self._new(message.id)
        if new not in self.app.journals:
            self.app.journals.create(new)  # Discord has just made the id: there is nothing to read
        return new

    def _new(self, message: int | str) -> str:
        """Return the conversation that a message starts; with an empty text, how such ids begin."""
        return f"discord-{self.id}-m{message}"

    async def last_conversation(self, place: Place, person: discord.User | discord.Member) -> str:
        """Return the conversation in which something was said last in a channel, or the person's own."""
        chosen = await self.chosen(place, speaker_of(person))
        known = "" if chosen.conversation == "user" else self._last.get((place.channel, ""))
        return known or await self.conversation_id(place, chosen, person.id)

    async def forget(self, person: int) -> tuple[int, int]:
        """Delete the conversations in which only this person spoke. Returns how many, and how many were kept."""
        deleted = shared = 0
        for id in await self.records.conversations_of(str(person)):
            authors = {m.author for m in (await self.app.conversation(id).transcript()).messages if m.role == "user"}
            if all(author in ("", str(person)) or ":" in author for author in authors):
                await self.app.conversation(id).stop()
                deleted += await self.app.store.delete(id)
                await self.records.left(str(person), id)
            else:
                shared += 1
        return deleted, shared

    def remember(self, message: int, conversation: str) -> None:
        """A reply to this message of the bot continues the conversation."""
        if conversation.startswith(self._new("")):
            self.records.answered(message, conversation)

    async def use_engine(self, conversation: Conversation, model: str) -> None:
        if (await conversation.transcript()).engine != model:
            await conversation.use_engine(model)

    # --- what deliveries need -----------------------------------------------------------------------------------------

    def outlet(self, channel: Any) -> ChannelOutlet:
        return ChannelOutlet(channel, self.client.http, self._rights)

    async def channel(self, id: int) -> Any:
        try:
            return self.client.get_channel(id) or await self.client.fetch_channel(id)
        except discord.HTTPException:
            return None

    def restore(self, names: Names, text: str, channel: Any) -> str:
        """Turn names into mentions, also those of members whom the conversation has not met."""
        text = names.restore(text)
        guild = getattr(channel, "guild", None)
        if guild is None or "@" not in text:
            return text
        wanted = set(itertools.islice(dict.fromkeys(MENTIONED.findall(text)), MENTIONED_MAX))
        # One look at each member: a server has thousands, and a model may write thousands of names.
        members = [
            (one.id, one.display_name, one.name)
            for one in (guild.members if wanted else ())
            if one.name in wanted or one.display_name in wanted or one.global_name in wanted
        ]
        return Names(members).restore(text) if members else text

    async def report(self, delivery: Delivery, digest: Digest) -> str:
        """Return the report of a finished job for people."""
        pending, person = delivery.pending, delivery.pending.person
        scope = msgspec.structs.replace(
            pending.scope, person=person.id, roles=person.roles, conversation=pending.conversation, agent=pending.agent
        )
        summary = await summarize(self.app, self.settings.summary_engine, digest, scope)
        return f"**{digest.name}** {'is done' if digest.success else 'has failed'}: {summary}"

    async def tell_denied(self, pending: Pending, why: str) -> None:
        channel, person = await self.channel(pending.channel), await self._person(int(pending.person.id))
        if channel is not None and person is not None:
            await self._tell_denied(channel, person, why)

    async def _tell_denied(self, channel: Any, person: discord.User | discord.Member, why: str) -> None:
        """Say once for each channel that the bot lacks permissions there, to the person who spoke to it."""
        if channel.id in self._denied:
            return
        if len(self._denied) >= SEEN_MAX:
            self._denied.clear()
        self._denied.add(channel.id)
        log.warning("the bot cannot answer in channel %s: %s", channel.id, why)
        text = f"I cannot answer in #{getattr(channel, 'name', '?')}: I lack a permission there. Please ask an admin."
        with contextlib.suppress(discord.HTTPException):
            await (await self._dm(person)).send(text, allowed_mentions=NOBODY)

    async def _person(self, id: int) -> discord.User | None:
        try:
            return self.client.get_user(id) or await self.client.fetch_user(id)
        except discord.HTTPException:
            return None

    async def _dm(self, person: discord.User | discord.Member) -> discord.DMChannel:
        return person.dm_channel or await person.create_dm()

    # --- pictures -----------------------------------------------------------------------------------------------------

    async def keep_picture(
        self, interaction: discord.Interaction[Any], prompt: str, picture: Media, *, posted: int
    ) -> None:
        """Add a picture that a slash command asked for to the channel's conversation, in a turn that asks no model: its
        last message is the reply. A reply to the `posted` message continues the conversation."""
        place, author = place_of(interaction), interaction.user
        speaker = speaker_of(author)
        chosen, person = await self.chosen(place, speaker), person_of(author, speaker, place)
        id, agent = await self.conversation_id(place, chosen, author.id), self.modes.agent_of(chosen)
        conversation = self.app.conversation(id, agent=agent)
        words = f"Make a picture: {prompt}"
        if not place.is_dm:
            words = f"{tidy_name(author.display_name).replace(':', ' ')}: {words}"
        where = {KEY: {"channel": place.channel, "message": interaction.id}}
        seen = (picture,) if conversation.engine.facts.images else ()  # a model without eyes would refuse all of it
        request = user(words, *seen, id=message_id(interaction.id), author=person.id, opaque=where)
        made = Text(f"I made the picture {picture.name}{': it is above' if seen else ''}.")
        reply = Message("assistant", (made,), id=message_id(posted), author=agent)
        self.records.took_part(person.id, id)
        self.records.answered(posted, id)
        (await conversation.send(reply, person=person, scope=scope_of(place), before=(request,))).close()
