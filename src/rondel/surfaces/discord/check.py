"""What `rondel doctor` and `rondel discord` check before a bot runs: the token, the intents, the permissions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from typing import Any, Literal

import aiohttp
import discord
import msgspec

from ...errors import ConfigError

PORTAL = "https://discord.com/developers/applications"
NEEDED = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    create_public_threads=True,
    embed_links=True,
    attach_files=True,
    read_message_history=True,
)
"""What the bot needs in a server, and no more."""


class Checked(msgspec.Struct, frozen=True):
    verdict: Literal["ok", "missing", "broken"]
    text: str
    remedy: str = ""


def invite_url(client_id: int) -> str:
    return discord.utils.oauth_url(client_id, permissions=NEEDED, scopes=("bot", "applications.commands"))


def client_id_in(token: str) -> int:
    """Return the bot's id, which is the first part of its token. Raises ConfigError for a text that is not a token."""
    head = token.split(".")[0]
    try:
        id = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        id = ""
    if not (id.isdigit() and token.count(".") == 2):
        raise ConfigError(f"this is not a bot's token; copy it from {PORTAL}: your application, Bot, Reset Token")
    return int(id)


async def examine(token: str, connector: aiohttp.BaseConnector | None = None) -> AsyncIterator[Checked]:
    """Yield what is right and wrong with a bot. Connects to Discord's API."""
    client = discord.Client(intents=discord.Intents.none(), connector=connector)
    try:
        try:
            await client.login(token)
        except discord.LoginFailure:
            yield Checked("broken", "Discord refuses the token", f"make a new one at {PORTAL}: Bot, Reset Token")
            return
        except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
            yield Checked("broken", f"Discord cannot be reached: {error}")
            return
        assert client.user is not None
        yield Checked("ok", f"the token is that of {client.user.name}")
        for checked in _intents((await client.application_info()).flags):
            yield checked
        guilds = [guild async for guild in client.fetch_guilds(limit=200)]
        if not guilds:
            yield Checked("missing", "the bot is in no server", f"invite it: {invite_url(client.user.id)}")
        for guild in guilds:
            yield _permissions(guild)
    finally:
        await client.close()


def _intents(flags: Any) -> list[Checked]:
    found = {
        "Message Content": flags.gateway_message_content or flags.gateway_message_content_limited,
        "Server Members": flags.gateway_guild_members or flags.gateway_guild_members_limited,
    }
    missing = [name for name, is_on in found.items() if not is_on]
    if not missing:
        return [Checked("ok", "the intents Message Content and Server Members are on")]
    remedy = f"switch it on at {PORTAL}: Bot, Privileged Gateway Intents, '{{}} Intent', Save"
    return [Checked("broken", f"the intent {name} is off", remedy.format(name)) for name in missing]


def _permissions(guild: Any) -> Checked:
    name = " ".join(str(guild.name).split())[:60]
    held: discord.Permissions = guild.permissions if hasattr(guild, "permissions") else NEEDED
    lacking = [key for key, wanted in NEEDED if wanted and not getattr(held, key)]
    if held.administrator or not lacking:
        return Checked("ok", f"{name}: the bot has the permissions that it needs")
    named = ", ".join(key.replace("_", " ").title() for key in lacking)
    return Checked(
        "missing", f"{name}: the bot lacks {named}", "give its role these permissions in Server Settings, Roles"
    )
