"""What is in a loopback Discord: users, guilds, channels, messages and commands, as the payloads that Discord sends.

Knows no network: `server.py` serves it. Ids look real, because libraries parse times and mentions from them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

EPOCH_MS = 1_420_070_400_000
EPHEMERAL, LOADING, COMPONENTS_V2 = 1 << 6, 1 << 7, 1 << 15  # flags of a message
TEXT, DM, VOICE, CATEGORY, PUBLIC_THREAD, FORUM = 0, 1, 2, 4, 11, 15  # types of a channel
MENTION = re.compile(r"<@!?(\d{15,20})>")

PERMISSIONS = {
    "kick_members": 1 << 1,
    "ban_members": 1 << 2,
    "administrator": 1 << 3,
    "manage_channels": 1 << 4,
    "manage_guild": 1 << 5,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "manage_messages": 1 << 13,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "mention_everyone": 1 << 17,
    "create_public_threads": 1 << 35,
    "send_messages_in_threads": 1 << 38,
    "use_application_commands": 1 << 31,
}
EVERYBODY = sum(
    PERMISSIONS[name]
    for name in (
        "view_channel",
        "send_messages",
        "embed_links",
        "attach_files",
        "read_message_history",
        "create_public_threads",
        "send_messages_in_threads",
        "use_application_commands",
    )
)
ALL = (1 << 50) - 1


def permission_bits(*names: str) -> int:
    return sum(PERMISSIONS[name] for name in names)


def now_text() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(eq=False)
class User:
    id: int
    name: str
    display: str
    bot: bool = False
    takes_dms: bool = True

    @property
    def payload(self) -> Json:
        return {
            "id": str(self.id),
            "username": self.name,
            "global_name": self.display,
            "discriminator": "0",
            "avatar": None,
            "bot": self.bot,
            "flags": 0,
            "public_flags": 0,
        }


@dataclass(eq=False)
class Role:
    id: int
    name: str
    permissions: int = 0

    @property
    def payload(self) -> Json:
        return {
            "id": str(self.id),
            "name": self.name,
            "permissions": str(self.permissions),
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "position": 0 if self.name == "@everyone" else 1,
            "managed": False,
            "mentionable": True,
            "flags": 0,
            "icon": None,
            "unicode_emoji": None,
        }


@dataclass(eq=False)
class Member:
    user: User
    roles: list[Role] = field(default_factory=list[Role])
    nick: str | None = None
    joined_at: str = field(default_factory=now_text)

    @property
    def payload(self) -> Json:
        return {"user": self.user.payload, **self.without_user}

    @property
    def without_user(self) -> Json:
        return {
            "roles": [str(role.id) for role in self.roles],
            "nick": self.nick,
            "avatar": None,
            "joined_at": self.joined_at,
            "premium_since": None,
            "deaf": False,
            "mute": False,
            "pending": False,
            "flags": 0,
            "communication_disabled_until": None,
        }


@dataclass(eq=False)
class Channel:
    """A channel, a thread or a direct message. `denied` are permissions that only admins have in it."""

    id: int
    type: int
    name: str
    guild: Guild | None = None
    parent: Channel | None = None
    recipients: tuple[User, ...] = ()
    owner: int = 0
    denied: int = 0
    nsfw: bool = False
    last: int | None = None

    @property
    def is_thread(self) -> bool:
        return self.type == PUBLIC_THREAD

    @property
    def payload(self) -> Json:
        last = str(self.last) if self.last else None
        shown: Json = {"id": str(self.id), "type": self.type, "flags": 0, "last_message_id": last}
        if self.guild is None:
            return {**shown, "recipients": [user.payload for user in self.recipients]}
        overwrite = {"id": str(self.guild.id), "type": 0, "allow": "0", "deny": str(self.denied)}
        shown |= {
            "name": self.name,
            "guild_id": str(self.guild.id),
            "parent_id": str(self.parent.id) if self.parent else None,
            "position": 0,
            "nsfw": self.nsfw,
            "topic": None,
            "rate_limit_per_user": 0,
            "permission_overwrites": [overwrite] if self.denied else [],
        }
        if self.type == VOICE:
            shown |= {"bitrate": 64000, "user_limit": 0, "rtc_region": None}
        if self.type == FORUM:
            shown |= {"available_tags": [], "default_reaction_emoji": None, "default_sort_order": None}
        if self.is_thread:
            metadata = {"archived": False, "auto_archive_duration": 1440, "locked": False}
            metadata["archive_timestamp"] = metadata["create_timestamp"] = now_text()  # type: ignore[assignment]
            shown |= {"owner_id": str(self.owner), "thread_metadata": metadata, "message_count": 0, "member_count": 1}
        return shown


@dataclass(eq=False)
class Guild:
    """A server. Of a large one, a bot learns members only if it asks for them."""

    id: int
    name: str
    owner: User
    roles: list[Role] = field(default_factory=list[Role])
    members: dict[int, Member] = field(default_factory=dict[int, Member])
    channels: list[Channel] = field(default_factory=list[Channel])
    has_bot: bool = True
    is_large: bool = False

    @property
    def everyone(self) -> Role:
        return self.roles[0]

    def permissions(self, user: User, channel: Channel | None = None) -> int:
        member = self.members.get(user.id)
        if member is None:
            return 0
        bits = self.everyone.permissions
        for role in member.roles:
            bits |= role.permissions
        if user is self.owner or bits & PERMISSIONS["administrator"]:
            return ALL
        where = channel.parent if channel is not None and channel.is_thread and channel.parent else channel
        return bits & ~where.denied if where is not None else bits

    @property
    def payload(self) -> Json:
        return {
            "id": str(self.id),
            "name": self.name,
            "owner_id": str(self.owner.id),
            "roles": [role.payload for role in self.roles],
            "members": [member.payload for member in self.members.values() if member.user.bot or not self.is_large],
            "member_count": len(self.members),
            "channels": [channel.payload for channel in self.channels if not channel.is_thread],
            "threads": [channel.payload for channel in self.channels if channel.is_thread],
            "joined_at": now_text(),
            "large": self.is_large,
            "unavailable": False,
            "emojis": [],
            "stickers": [],
            "features": [],
            "presences": [],
            "voice_states": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "preferred_locale": "en-US",
            "afk_timeout": 60,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "system_channel_flags": 0,
            "premium_progress_bar_enabled": False,
            **dict.fromkeys(
                (
                    "icon",
                    "splash",
                    "discovery_splash",
                    "afk_channel_id",
                    "application_id",
                    "system_channel_id",
                    "rules_channel_id",
                    "vanity_url_code",
                    "description",
                    "banner",
                    "public_updates_channel_id",
                    "safety_alerts_channel_id",
                    "max_presences",
                )
            ),
        }


class World:
    """Everything that there is. `pings` are the users that each message notified."""

    def __init__(self) -> None:
        self._last_id = 0
        self.bot = User(self.new_id(), "rondel", "Rondel", bot=True)
        self.users: dict[int, User] = {self.bot.id: self.bot}
        self.guilds: dict[int, Guild] = {}
        self.channels: dict[int, Channel] = {}
        self.messages: dict[int, Json] = {}
        self._in_channel: dict[int, dict[int, Json]] = {}
        self.pings: dict[int, set[int]] = {}
        self.nonces: dict[tuple[int, str], int] = {}
        self.commands: dict[int, list[Json]] = {}  # by guild; 0 for those of all guilds
        self.files: dict[str, tuple[bytes, str]] = {}  # by address: bytes and MIME type

    def new_id(self) -> int:
        """Return a snowflake: its upper bits are the time, and later ones are larger."""
        self._last_id = max((int(time.time() * 1000) - EPOCH_MS) << 22, self._last_id + 1)
        return self._last_id

    def user(self, name: str, display: str = "", *, bot: bool = False) -> User:
        user = User(self.new_id(), name.lower().replace(" ", "_"), display or name, bot)
        self.users[user.id] = user
        return user

    def guild(self, name: str, owner: User) -> Guild:
        guild = Guild(self.new_id(), name, owner)
        guild.roles.append(Role(guild.id, "@everyone", EVERYBODY))
        guild.members |= {owner.id: Member(owner), self.bot.id: Member(self.bot)}
        self.guilds[guild.id] = guild
        return guild

    def channel(self, guild: Guild | None, name: str, type: int = TEXT, **fields: Any) -> Channel:
        channel = Channel(self.new_id(), type, name, guild, **fields)
        self.channels[channel.id] = channel
        if guild is not None:
            guild.channels.append(channel)
        return channel

    def dm(self, user: User) -> Channel:
        """Return the channel of direct messages between the bot and a user."""
        for channel in self.channels.values():
            if channel.type == DM and channel.recipients == (user,):
                return channel
        return self.channel(None, "", DM, recipients=(user,))

    def messages_in(self, channel: Channel) -> list[Json]:
        """Return the messages of a channel, oldest first."""
        found = self._in_channel.get(channel.id, {})
        for id in [id for id in found if id not in self.messages]:
            del found[id]
        return list(found.values())

    def message(self, channel: Channel, author: User, body: Json, *, id: int = 0) -> Json:
        """Add a message. `body` has what its author sends: content, embeds, components, flags, a reference."""
        id = id or self.new_id()
        content = body.get("content") or ""
        named = (int(found) for found in dict.fromkeys(MENTION.findall(content)))
        mentioned = [self.users[id] for id in named if id in self.users]
        reference: Json | None = body.get("message_reference")
        replied = self.messages.get(int(reference["message_id"])) if reference else None
        message: Json = {
            "id": str(id),
            "channel_id": str(channel.id),
            "author": author.payload,
            "content": content,
            "timestamp": now_text(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [self._mentioned(user, channel) for user in mentioned],
            "mention_roles": re.findall(r"<@&(\d{15,20})>", content),
            "attachments": body.get("attachments") or [],
            "embeds": body.get("embeds") or [],
            "components": body.get("components") or [],
            "pinned": False,
            "type": 19 if reference else 0,
            "flags": body.get("flags") or 0,
        }
        if reference:
            known = {"message_id": str(reference["message_id"]), "channel_id": str(channel.id), "type": 0}
            message["message_reference"] = known | ({"guild_id": str(channel.guild.id)} if channel.guild else {})
            message["referenced_message"] = replied
        self.messages[id] = message
        self._in_channel.setdefault(channel.id, {})[id] = message
        self.pings[id] = self._pinged(message, body.get("allowed_mentions"), replied, bot=author.bot)
        channel.last = id
        return message

    def _mentioned(self, user: User, channel: Channel) -> Json:
        member = channel.guild.members.get(user.id) if channel.guild else None
        return {**user.payload, **({"member": member.without_user} if member else {})}

    def _pinged(self, message: Json, allowed: Json | None, replied: Json | None, *, bot: bool) -> set[int]:
        named = {int(user["id"]) for user in message["mentions"]}
        if "@everyone" in message["content"] and (allowed is None or "everyone" in allowed.get("parse", ())):
            named |= {0}
        if allowed is not None:
            named = {user for user in named if "users" in allowed.get("parse", ()) or user in allowed.get("users", ())}
        if replied is not None and (not bot if allowed is None else allowed.get("replied_user", False)):
            named.add(int(replied["author"]["id"]))
        return named

    def as_event(self, message: Json) -> Json:
        """Return a message as the gateway sends it: with the author as a member."""
        guild = self.channels[int(message["channel_id"])].guild
        if guild is None:
            return message
        member = guild.members.get(int(message["author"]["id"]))
        return {**message, "guild_id": str(guild.id), **({"member": member.without_user} if member else {})}
