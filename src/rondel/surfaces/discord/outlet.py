"""Where an answer is written: a channel, or the answer of a slash command. Mentions never notify anybody.

Every way of writing goes through here, so that no path can forget `AllowedMentions`.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, ParamSpec, Protocol, TypeVar

import aiohttp
import discord
import msgspec
from discord.http import HTTPClient, Route

from .cards import text_of
from .pending import CHANNELS_MAX

log = logging.getLogger("rondel.discord")

NOBODY = discord.AllowedMentions.none()
NO_PINGS = NOBODY.to_dict()  # as Discord gets it
UNKNOWN_WEBHOOK, INVALID_TOKEN = 10015, 50027  # of a slash command that came long ago
RETRY_S_MAX = 60.0
GRANTED_S = 5.0
T = TypeVar("T")
P = ParamSpec("P")


class Gone(Exception):
    """The channel does not exist any more, or the bot was removed from it."""


class Denied(Exception):
    """The bot may not do that there."""


class Expired(Exception):
    """The 15 minutes in which Discord takes answers to a slash command have passed."""


class Extras(msgspec.Struct, frozen=True):
    """What a message has besides its text."""

    embeds: tuple[discord.Embed, ...] = ()
    files: tuple[discord.File, ...] = ()
    view: discord.ui.View | discord.ui.LayoutView | None = None

    def fields(self, text: str) -> dict[str, Any]:
        """Return what discord.py is given, for one attempt: files are read to their end. A card has its text in
        itself."""
        given: dict[str, Any] = {} if isinstance(self.view, discord.ui.LayoutView) else {"content": text}
        if self.embeds:
            given["embeds"] = list(self.embeds)
        if self.files:
            for file in self.files:
                file.reset()
            given["files"] = list(self.files)
        if self.view is not None:
            given["view"] = self.view
        return given

    def in_memory(self) -> Extras:
        """Return this with files that can be sent again: discord.py closes those that it has opened."""
        return msgspec.structs.replace(self, files=tuple(map(_in_memory, self.files)))


def _in_memory(file: discord.File) -> discord.File:
    data = io.BytesIO(file.fp.read())
    file.close()
    return discord.File(data, file.filename, spoiler=file.spoiler, description=file.description)


class Outlet(Protocol):
    async def post(self, text: str, *, nonce: str, reply_to: int, extras: Extras | None = None) -> tuple[int, str]:
        """Post a message once, however often it is called with the same nonce. Returns its id and its text."""
        ...

    async def edit(self, message: int, text: str, extras: Extras | None = None) -> None: ...

    async def delete(self, message: int) -> None: ...


class Rights:
    """What the bot may do in each channel. Computing it costs as much as a small commit, so what it may do counts for
    some seconds: if that was taken away meanwhile, Discord refuses the message."""

    def __init__(self) -> None:
        self._granted: dict[int, float] = {}  # the channels where it may do both, and until when that counts

    def of(self, channel: Any) -> tuple[bool, bool]:
        """Return whether the bot may write in a channel, and reply there."""
        now, guild = monotonic(), getattr(channel, "guild", None)
        if guild is None or self._granted.get(channel.id, 0.0) > now or guild.me is None:
            return True, True
        held: discord.Permissions = channel.permissions_for(guild.me)
        is_thread, may_reply = isinstance(channel, discord.Thread), held.read_message_history
        may_write = held.send_messages_in_threads if is_thread else held.send_messages
        if may_write and may_reply:
            if len(self._granted) >= CHANNELS_MAX:
                self._granted.clear()
            self._granted[channel.id] = now + GRANTED_S
        return may_write, may_reply

    def forget(self, channel: Any) -> None:
        self._granted.pop(channel.id, None)


class ChannelOutlet:
    def __init__(self, channel: Any, http: HTTPClient, rights: Rights) -> None:
        self.channel, self._http, self._rights = channel, http, rights

    async def post(self, text: str, *, nonce: str, reply_to: int, extras: Extras | None = None) -> tuple[int, str]:
        if reply_to and not self._rights.of(self.channel)[1]:
            reply_to = 0
        try:
            return await self._post(text, nonce, reply_to, extras)
        except Denied:
            self._rights.forget(self.channel)
            may_write, may_reply = self._rights.of(self.channel)
            if not reply_to or may_reply or not may_write:
                raise
            return await self._post(text, nonce, 0, extras)

    async def _post(self, text: str, nonce: str, reply_to: int, extras: Extras | None) -> tuple[int, str]:
        if extras is not None:
            return await self._post_extras(text, extras, nonce, reply_to)
        # Only text, as nearly all are: `channel.send` would make a `discord.Message` of it, and another one of what it
        # replies to: a tenth of what the request costs.
        channel = self.channel.id
        body: dict[str, Any] = {"content": text, "nonce": nonce, "enforce_nonce": True, "allowed_mentions": NO_PINGS}
        if reply_to:
            body["message_reference"] = {"message_id": reply_to, "channel_id": channel, "fail_if_not_exists": False}
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel)
        sent = await _tried(self._http.request, route, json=body)
        return int(sent["id"]), sent["content"]

    async def _post_extras(self, text: str, extras: Extras, nonce: str, reply_to: int) -> tuple[int, str]:
        # discord.py sends the nonce with `enforce_nonce`: a second message with it is the first one.
        given: dict[str, Any] = {"nonce": nonce, "allowed_mentions": NOBODY}
        if reply_to:
            given["reference"] = discord.MessageReference(
                message_id=reply_to, channel_id=self.channel.id, fail_if_not_exists=False
            )
        sent = await _tried(lambda: self.channel.send(**extras.fields(text), **given))
        return sent.id, text_of(sent)

    async def edit(self, message: int, text: str, extras: Extras | None = None) -> None:
        found = self.channel.get_partial_message(message)
        await _edited(lambda: found.edit(allowed_mentions=NOBODY, **_edit_fields(text, extras)))

    async def delete(self, message: int) -> None:
        await _edited(self.channel.get_partial_message(message).delete)


class CommandOutlet:
    """The answer of a slash command: its first message replaces the 'thinking' one.

    A turn may wait for a person longer than Discord lets the command be answered. What comes after that is written to
    the outlet that `late` returns.
    """

    def __init__(
        self, interaction: discord.Interaction[Any], *, is_private: bool, late: Callable[[], Awaitable[Outlet]]
    ) -> None:
        self._interaction, self._is_private, self._late = interaction, is_private, late
        self._first = 0
        self._outlet: Outlet | None = None  # once the command has expired
        self._moved: dict[int, int] = {}  # private messages that can be changed no more, and those instead of them

    async def post(self, text: str, *, nonce: str, reply_to: int, extras: Extras | None = None) -> tuple[int, str]:
        if self._outlet is None:
            try:
                return await self._post(text, extras)
            except Expired:
                self._outlet = await self._late()
        return await self._outlet.post(text, nonce=nonce, reply_to=0, extras=extras)

    async def _post(self, text: str, extras: Extras | None) -> tuple[int, str]:
        answer: Any = self._interaction
        given: dict[str, Any] = {"allowed_mentions": NOBODY}
        if not self._first:
            sent = await _tried(lambda: answer.edit_original_response(**_edit_fields(text, extras), **given))
            self._first = sent.id
            return sent.id, text
        given |= {"ephemeral": self._is_private, "wait": True}
        sent = await _tried(lambda: answer.followup.send(**_fields(text, extras), **given))
        return sent.id, text

    async def edit(self, message: int, text: str, extras: Extras | None = None) -> None:
        if self._outlet is None:
            try:
                return await self._edit(message, text, extras)
            except Expired:
                self._outlet = await self._late()
        if not self._is_private or message in self._moved:
            await self._outlet.edit(self._moved.get(message, message), text, extras)
        else:
            posted = await self._outlet.post(text, nonce=f"{message:x}", reply_to=0, extras=extras)
            self._moved[message] = posted[0]

    async def _edit(self, message: int, text: str, extras: Extras | None) -> None:
        answer: Any = self._interaction
        if message == self._first:
            await _edited(lambda: answer.edit_original_response(allowed_mentions=NOBODY, **_edit_fields(text, extras)))
        else:
            await _edited(
                lambda: answer.followup.edit_message(message, allowed_mentions=NOBODY, **_edit_fields(text, extras))
            )

    async def delete(self, message: int) -> None:
        if self._outlet is None:
            try:
                return await _edited(self._interaction.followup.delete_message, message)
            except Expired:
                self._outlet = await self._late()
        if not self._is_private or message in self._moved:
            await self._outlet.delete(self._moved.get(message, message))


def _fields(text: str, extras: Extras | None) -> dict[str, Any]:
    return extras.fields(text) if extras is not None else {"content": text}


def _edit_fields(text: str, extras: Extras | None) -> dict[str, Any]:
    given = _fields(text, extras)
    if "files" in given:
        given["attachments"] = given.pop("files")
    return given


async def _tried(call: Callable[P, Awaitable[T]], *given: P.args, **named: P.kwargs) -> T:
    """Call until it succeeds: Discord may be down for a while, and an answer must not be lost for that."""
    wait_s = 1.0
    while True:
        try:
            return await call(*given, **named)
        except discord.NotFound as error:
            raise (Expired if error.code == UNKNOWN_WEBHOOK else Gone)(str(error)) from error
        except discord.Forbidden as error:
            raise (Gone if error.code == 10003 else Denied)(str(error)) from error
        except (discord.DiscordServerError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("Discord cannot be reached (%s); the next attempt is in %g s", error, wait_s)
        except discord.HTTPException as error:
            if error.code != INVALID_TOKEN:
                raise
            raise Expired(str(error)) from error
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_S_MAX)


async def _edited(call: Callable[P, Awaitable[object]], *given: P.args, **named: P.kwargs) -> None:
    """Edit or delete a message. One that somebody has deleted stays deleted."""
    try:
        await _tried(call, *given, **named)
    except Gone as error:
        cause = error.__cause__
        if not (isinstance(cause, discord.NotFound) and cause.code == 10008):
            raise
