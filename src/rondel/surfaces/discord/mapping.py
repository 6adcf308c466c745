"""Values of discord.py as ours: places, speakers, people, scopes."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, cast

import discord

from ...charge import Scope
from ...values import Person
from .gate import Place, Speaker
from .mentions import tidy_name

log = logging.getLogger("rondel.discord")

HAS_THREAD = 160004  # Discord's code: a message has one thread at most


def place_of(said: discord.Message | discord.Interaction[Any]) -> Place:
    guild, channel = said.guild, cast(Any, said.channel)
    is_thread = isinstance(channel, discord.Thread)
    return Place(guild.id if guild else 0, channel.id, channel.parent_id if is_thread else 0, is_thread)


def speaker_of(person: discord.User | discord.Member) -> Speaker:
    return Speaker(person.id, tuple(role.id for role in getattr(person, "roles", ())), person.bot)


def person_of(person: discord.User | discord.Member, speaker: Speaker, place: Place) -> Person:
    # The role that all members have has the id of the server.
    roles = tuple(str(role) for role in speaker.roles if role != place.guild)
    return Person(str(person.id), tidy_name(person.display_name), roles, "discord")


def scope_of(place: Place) -> Scope:
    return Scope(channel=str(place.parent or place.channel), guild=str(place.guild) if place.guild else "")


async def open_thread(message: discord.Message) -> Any:
    """Return a thread for the answer, or the channel if the bot may not open one."""
    title = " ".join(message.clean_content.split())[:60].strip("#*` ") or "Conversation"
    try:
        return await message.create_thread(name=title)
    except discord.HTTPException as error:
        if error.code == HAS_THREAD:  # it was opened before a stop, or before an edit that does not know it
            with contextlib.suppress(discord.HTTPException):
                return await message.fetch_thread()
        log.info("no thread can be opened in channel %s: %s", message.channel.id, error)
        return message.channel
