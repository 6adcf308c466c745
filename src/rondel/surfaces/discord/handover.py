"""What a stopping bot hands over: messages that it has heard and not answered. The next start asks Discord for each,
because its author may have changed or deleted it meanwhile, and answers it like any other message.

A private answer that had begun is removed, because it begins again as a direct message.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from typing import Any, cast

import aiohttp
import discord

from .bridge import user_data

log = logging.getLogger("rondel.discord")


def as_heard(message: discord.Message) -> dict[str, Any]:
    """Return what is needed of a message to make it again, as Discord sends it."""
    author, reference = message.author, message.reference
    heard: dict[str, Any] = {
        "id": str(message.id),
        "channel_id": str(message.channel.id),
        "type": message.type.value,
        "author": user_data(author),
        "content": message.content,
        "mentions": [user_data(person) for person in message.mentions],
        "attachments": [attachment.to_dict() for attachment in message.attachments],
        "embeds": [embed.to_dict() for embed in message.embeds],
    }
    if isinstance(author, discord.Member):
        roles = [str(role.id) for role in author.roles if not role.is_default()]
        heard["member"] = {"roles": roles, "nick": author.nick, "flags": 0}
    if reference is not None:
        heard["message_reference"] = reference.to_dict()
    return heard


async def hear_again(client: discord.Client, channel: Any, heard: dict[str, Any]) -> discord.Message | None:
    """Return the message as it is now, or as it was heard if Discord does not give it; None if it was deleted."""
    data = dict(heard)
    try:
        data |= await client.http.get_message(channel.id, int(heard["id"]))
    except discord.NotFound:
        return None
    except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
        log.info("message %s cannot be read again in channel %s: %s", heard["id"], channel.id, error)
    guild = getattr(channel, "guild", None)
    if guild is not None and guild.get_member(int(heard["author"]["id"])) is not None:
        data.pop("member", None)  # what is known of a member is newer than what was heard
    state = client._connection  # pyright: ignore[reportPrivateUsage]
    return discord.Message(state=state, channel=channel, data=cast(Any, data))


async def remove_private(client: discord.Client, token: str, messages: Iterable[int]) -> None:
    """Remove the answer of a slash command that only one person sees. Discord allows that for 15 minutes."""
    state: Any = client._connection  # pyright: ignore[reportPrivateUsage]
    data: Any = {"id": client.application_id, "type": 3, "token": token}
    webhook: Any = discord.Webhook.from_state(data=data, state=state)
    for message in ("@original", *messages):
        with contextlib.suppress(discord.HTTPException, aiohttp.ClientError, OSError):
            await webhook.delete_message(message)
