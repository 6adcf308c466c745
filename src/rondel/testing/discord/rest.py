"""The REST API of a loopback Discord: checks what Discord checks, and refuses with its codes and sentences."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from .world import (
    COMPONENTS_V2,
    DM,
    EPHEMERAL,
    FORUM,
    LOADING,
    PERMISSIONS,
    Channel,
    Json,
    now_text,
)

if TYPE_CHECKING:
    from .server import LoopbackDiscord

CONTENT_MAX, NONCE_MAX, CUSTOM_ID_MAX, LABEL_MAX = 2_000, 25, 100, 80
EMBED_CHARS_MAX, V2_CHARS_MAX = 6_000, 4_000
ROW, MENU = 1, 3  # types of components
MENU_OPTIONS_MAX, ROW_BUTTONS_MAX, V2_PARTS_MAX = 25, 5, 40
FILE_BYTES_MAX = 10 << 20


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str, errors: Json | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"code": code, "message": message, **({"errors": errors} if errors else {})}


def _unknown(what: str, code: int) -> Refused:
    return Refused(404, code, f"Unknown {what}")


def _invalid(field: str, message: str) -> Refused:
    return Refused(400, 50035, "Invalid Form Body", {field: {"_errors": [{"code": "INVALID", "message": message}]}})


Handler = Callable[..., Awaitable[Any]]
ROUTES: list[tuple[str, re.Pattern[str], str]] = []


def _route(method: str, path: str) -> Callable[[Handler], Handler]:
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + r"\Z")

    def add(handler: Handler) -> Handler:
        ROUTES.append((method, pattern, handler.__name__))
        return handler

    return add


class Rest:
    """One method per route. Returns the JSON of the answer; None is 204."""

    def __init__(self, discord: LoopbackDiscord) -> None:
        self._discord, self._world, self._gateway = discord, discord.world, discord.gateway

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        for wanted, pattern, name in ROUTES:
            if wanted == method and (found := pattern.match(path)):
                return getattr(self, name), found.groupdict()
        raise Refused(404, 0, f"404: Not Found: {method} {path}")

    # --- who and where ----------------------------------------------------------------------------------------------

    @_route("GET", "/users/@me")
    async def me(self, body: Json, query: Json) -> Json:
        return self._world.bot.payload | {"verified": True, "mfa_enabled": False, "email": None, "locale": "en-US"}

    @_route("GET", "/users/{user}")
    async def user(self, body: Json, query: Json, user: str) -> Json:
        if int(user) not in self._world.users:
            raise _unknown("User", 10013)
        return self._world.users[int(user)].payload

    @_route("GET", "/(?:oauth2/)?applications/@me")
    async def application(self, body: Json, query: Json) -> Json:
        from .gateway import MEMBERS, MESSAGE_CONTENT

        flags = (1 << 15 if self._gateway.privileged & MEMBERS else 0) | (
            1 << 19 if self._gateway.privileged & MESSAGE_CONTENT else 0
        )
        bot = self._world.bot
        shown: Json = {"id": str(bot.id), "name": bot.display, "icon": None, "description": "", "flags": flags}
        shown |= {"bot_public": True, "bot_require_code_grant": False, "verify_key": "0" * 64, "owner": bot.payload}
        return shown | {"team": None, "summary": "", "rpc_origins": [], "tags": [], "redirect_uris": []}

    @_route("GET", "/gateway/bot")
    async def gateway_bot(self, body: Json, query: Json) -> Json:
        start = {"total": 1000, "remaining": 999, "reset_after": 14_400_000, "max_concurrency": 16}
        return {"url": "wss://gateway.discord.gg", "shards": self._discord.shards, "session_start_limit": start}

    @_route("GET", "/users/@me/guilds")
    async def guilds(self, body: Json, query: Json) -> list[Json]:
        bot = self._world.bot
        return [
            {
                "id": str(guild.id),
                "name": guild.name,
                "icon": None,
                "owner": False,
                "permissions": str(guild.permissions(bot)),
                "features": [],
            }
            for guild in self._world.guilds.values()
            if guild.has_bot
        ]

    @_route("GET", "/guilds/{guild}/members/{user}")
    async def member(self, body: Json, query: Json, guild: str, user: str) -> Json:
        found = self._world.guilds[int(guild)].members.get(int(user))
        if found is None:
            raise _unknown("Member", 10007)
        return found.payload

    @_route("POST", "/users/@me/channels")
    async def open_dm(self, body: Json, query: Json) -> Json:
        return self._world.dm(self._world.users[int(body["recipient_id"])]).payload

    @_route("GET", "/channels/{channel}")
    async def channel(self, body: Json, query: Json, channel: str) -> Json:
        return self._channel(channel).payload

    @_route("DELETE", "/users/@me/guilds/{guild}")
    async def leave(self, body: Json, query: Json, guild: str) -> None:
        await self._discord.remove_bot(self._world.guilds[int(guild)])

    def _channel(self, id: str | int, *needed: str) -> Channel:
        channel = self._world.channels.get(int(id))
        if channel is None:
            raise _unknown("Channel", 10003)
        if channel.guild is not None:
            held = channel.guild.permissions(self._world.bot, channel) if channel.guild.has_bot else 0
            if not held & PERMISSIONS["view_channel"]:
                raise Refused(403, 50001, "Missing Access")
            for name in needed:
                if channel.is_thread and name == "send_messages":
                    name = "send_messages_in_threads"
                if not held & PERMISSIONS[name]:
                    raise Refused(403, 50013, "Missing Permissions")
        return channel

    # --- messages -----------------------------------------------------------------------------------------------------

    @_route("GET", "/channels/{channel}/messages")
    async def history(self, body: Json, query: Json, channel: str) -> list[Json]:
        found = self._world.messages_in(self._channel(channel, "read_message_history"))[::-1]
        found = [message for message in found if not message["flags"] & EPHEMERAL]
        if "before" in query:
            found = [message for message in found if int(message["id"]) < int(query["before"])]
        limit = int(query.get("limit", 50))
        if "after" in query:
            later = [message for message in found if int(message["id"]) > int(query["after"])]
            return later[-limit:]
        return found[:limit]

    @_route("GET", "/channels/{channel}/messages/{message}")
    async def message(self, body: Json, query: Json, channel: str, message: str) -> Json:
        self._channel(channel, "read_message_history")
        return self._message(channel, message)

    def _message(self, channel: str, message: str) -> Json:
        found = self._world.messages.get(int(message))
        if found is None or found["channel_id"] != str(int(channel)) or found["flags"] & EPHEMERAL:
            raise _unknown("Message", 10008)
        return found

    @_route("POST", "/channels/{channel}/messages")
    async def create_message(self, body: Json, query: Json, channel: str) -> Json:
        where = self._channel(channel, "send_messages")
        if where.type == DM and not where.recipients[0].takes_dms:
            raise Refused(403, 50007, "Cannot send messages to this user")
        if where.type == FORUM:
            raise Refused(400, 50008, "Cannot send messages in a non-text channel")
        self._check_parts(body, where)
        nonce = body.get("nonce")
        if nonce is not None and len(str(nonce)) > NONCE_MAX:
            raise _invalid("nonce", f"Must be {NONCE_MAX} or fewer in length.")
        if reference := body.get("message_reference"):
            if int(reference["message_id"]) not in self._world.messages:
                if reference.get("fail_if_not_exists", True):
                    raise _invalid("message_reference", "Unknown message")
                del body["message_reference"]
            elif where.guild is not None:
                self._channel(channel, "read_message_history")
        known = self._world.nonces.get((where.id, str(nonce))) if body.get("enforce_nonce") else None
        if known is not None:
            return self._world.messages[known]
        await self._discord.step("post")
        return await self._post(where, body, nonce)

    async def _post(self, where: Channel, body: Json, nonce: Any = None) -> Json:
        message = self._world.message(where, self._world.bot, self._with_files(body, where))
        if nonce is not None:
            self._world.nonces[where.id, str(nonce)] = int(message["id"])
        event = self._world.as_event(message) | ({"nonce": nonce} if nonce is not None else {})
        await self._gateway.dispatch("MESSAGE_CREATE", event, where.guild)
        await self._discord.step("posted")
        return message

    @_route("PATCH", "/channels/{channel}/messages/{message}")
    async def edit_message(self, body: Json, query: Json, channel: str, message: str) -> Json:
        where = self._channel(channel)
        return await self._edit(self._message(channel, message), body, where)

    async def _edit(self, message: Json, body: Json, where: Channel) -> Json:
        self._check_parts({**message, **body}, where)
        is_answer = bool(message["flags"] & LOADING)
        if is_answer:
            await self._discord.step("post")
        self._world.pings.setdefault(int(message["id"]), set())
        changed = self._with_files(body, where, kept=message["attachments"])
        if changed.get("flags") is not None:  # an edit makes a message a card, and no private one public
            changed["flags"] |= message["flags"] & (EPHEMERAL | LOADING)
        message.update({key: value for key, value in changed.items() if key in _EDITABLE})
        message["content"] = message["content"] or ""
        message["edited_timestamp"] = now_text()
        message["flags"] &= ~LOADING
        self._discord.edits.append((int(message["id"]), message["content"]))
        await self._gateway.dispatch("MESSAGE_UPDATE", self._world.as_event(message), where.guild)
        if is_answer:
            await self._discord.step("posted")
        return message

    @_route("DELETE", "/channels/{channel}/messages/{message}")
    async def delete_message(self, body: Json, query: Json, channel: str, message: str) -> None:
        where = self._channel(channel)
        found = self._message(channel, message)
        if found["author"]["id"] != str(self._world.bot.id):
            self._channel(channel, "manage_messages")
        await self._discord.delete_message(int(found["id"]), where)

    @_route("POST", "/channels/{channel}/typing")
    async def typing(self, body: Json, query: Json, channel: str) -> None:
        self._discord.typed.append(self._channel(channel, "send_messages").id)

    def _check_parts(self, body: Json, channel: Channel) -> None:
        content = body.get("content") or ""
        if len(content.encode("utf-16-le")) // 2 > CONTENT_MAX:
            raise _invalid("content", f"Must be {CONTENT_MAX} or fewer in length.")
        components: list[Json] = body.get("components") or []
        if (body.get("flags") or 0) & COMPONENTS_V2:
            if content or body.get("embeds"):
                raise _invalid("content", "The 'content' and 'embeds' fields cannot be used with IS_COMPONENTS_V2.")
            if sum(len(part.get("content") or "") for part in _parts_in(components)) > V2_CHARS_MAX:
                raise _invalid("components", f"Must be {V2_CHARS_MAX} or fewer in length.")
            if len(_parts_in(components)) > V2_PARTS_MAX:
                raise _invalid("components", f"Must be {V2_PARTS_MAX} or fewer in length.")
        elif len(components) > 5:
            raise _invalid("components", "Must be 5 or fewer in length.")
        if not (content or body.get("embeds") or components or body.get("_files") or body.get("attachments")):
            raise Refused(400, 50006, "Cannot send an empty message")
        embeds: list[Json] = body.get("embeds") or []
        if len(embeds) > 10 or sum(map(_embed_chars, embeds)) > EMBED_CHARS_MAX:
            raise _invalid("embeds", "Embed size exceeds maximum size of 6000")
        if embeds and channel.guild is not None:
            self._channel(channel.id, "embed_links")
        if body.get("_files") and channel.guild is not None:
            self._channel(channel.id, "attach_files")
        _check_components(components)

    def _with_files(self, body: Json, channel: Channel, kept: list[Json] | None = None) -> Json:
        files: dict[str, tuple[str, bytes, str]] | None = body.pop("_files", None)
        listed: list[Json] | None = body.get("attachments")
        if files is None:
            if listed is not None:
                body["attachments"] = [one for one in kept or [] if one["id"] in {str(given["id"]) for given in listed}]
            return body
        wanted = {str(given.get("id")) for given in listed or ()}
        shown = [one for one in kept or [] if one["id"] in wanted]
        for name, data, mime in files.values():
            if len(data) > FILE_BYTES_MAX:
                raise Refused(413, 40005, "Request entity too large")
            shown.append(self._discord.store_file(channel, name, data, mime))
        return {**body, "attachments": shown}

    # --- threads ------------------------------------------------------------------------------------------------------

    @_route("POST", "/channels/{channel}/messages/{message}/threads")
    async def thread_of_message(self, body: Json, query: Json, channel: str, message: str) -> Json:
        where = self._channel(channel, "create_public_threads")
        self._message(channel, message)
        if int(message) in self._world.channels:
            raise Refused(400, 160004, "A thread has already been created for this message")
        return (await self._discord.start_thread(where, body["name"], self._world.bot, id=int(message))).payload

    @_route("POST", "/channels/{channel}/threads")
    async def thread(self, body: Json, query: Json, channel: str) -> Json:
        where = self._channel(channel, "create_public_threads")
        thread = await self._discord.start_thread(where, body["name"], self._world.bot)
        if body.get("message"):
            await self._post(thread, body["message"])
        return thread.payload

    @_route("PUT", "/channels/{channel}/thread-members/@me")
    async def join_thread(self, body: Json, query: Json, channel: str) -> None:
        self._channel(channel)

    # --- commands and interactions ------------------------------------------------------------------------------------

    @_route("PUT", "/applications/{application}(?:/guilds/{guild})?/commands")
    async def overwrite_commands(
        self, body: Any, query: Json, application: str, guild: str | None = None
    ) -> list[Json]:
        defaults: Json = {"options": [], "description": "", "default_member_permissions": None, "nsfw": False}
        defaults |= {"type": 1, "dm_permission": True, "contexts": None, "integration_types": [0], "version": "1"}
        stored: list[Json] = []
        for given in cast("list[Json]", body):
            stored.append(defaults | given | {"id": str(self._world.new_id()), "application_id": application})
            if guild:
                stored[-1]["guild_id"] = guild
        self._world.commands[int(guild or 0)] = stored
        self._discord.changed()
        return stored

    @_route("GET", "/applications/{application}(?:/guilds/{guild})?/commands")
    async def list_commands(self, body: Json, query: Json, application: str, guild: str | None = None) -> list[Json]:
        return self._world.commands.get(int(guild or 0), [])

    @_route("POST", "/interactions/{id}/{token}/callback")
    async def respond(self, body: Json, query: Json, id: str, token: str) -> Json | None:
        interaction = self._discord.interaction(token)
        if interaction.kind:
            raise Refused(400, 40060, "Interaction has already been acknowledged.")
        kind: int = body["type"]
        data: Json = body.get("data") or {}
        if "_files" in body:
            data["_files"] = body["_files"]
        message: Json | None = None
        if kind in (4, 5):
            if kind == 5:
                data["flags"] = (data.get("flags") or 0) | LOADING
            else:
                self._check_parts(data, interaction.channel)
            message = self._answer(interaction, data)
            interaction.original = int(message["id"])
        elif kind == 6:
            interaction.original = int(interaction.source["id"]) if interaction.source else 0
        elif kind == 7:
            assert interaction.source is not None
            interaction.original = int(interaction.source["id"])
            message = await self._edit(interaction.source, data, interaction.channel)
        elif kind == 9:
            interaction.modal = data
        interaction.kind = kind
        if message is not None and not message["flags"] & EPHEMERAL:
            await self._gateway.dispatch("MESSAGE_CREATE", self._world.as_event(message), interaction.channel.guild)
        if query.get("with_response") not in ("1", "true", "True"):
            return None
        shown = {"id": id, "type": 2, "response_message_id": message and message["id"]}
        is_private = bool(message and message["flags"] & EPHEMERAL)
        shown |= {"response_message_loading": kind == 5, "response_message_ephemeral": is_private}
        return {"interaction": shown, "resource": {"type": kind, **({"message": message} if message else {})}}

    def _answer(self, interaction: Any, data: Json) -> Json:
        message = self._world.message(interaction.channel, self._world.bot, self._with_files(data, interaction.channel))
        about: Json = {
            "id": str(interaction.id),
            "type": 3 if interaction.source else 2,
            "user": interaction.person.payload,
        }
        message["interaction_metadata"] = about | {"authorizing_integration_owners": {}}
        if interaction.messages:
            message["interaction_metadata"]["original_response_message_id"] = str(interaction.original)
        interaction.messages.append(int(message["id"]))
        return message

    def _original(self, token: str, message: str) -> tuple[Any, Json]:
        interaction = self._discord.interaction(token)
        id = interaction.original if message == "@original" else int(message)
        found = self._world.messages.get(id)
        if found is None:
            raise _unknown("Message", 10008)
        return interaction, found

    @_route("POST", "/webhooks/{application}/{token}")
    async def follow_up(self, body: Json, query: Json, application: str, token: str) -> Json:
        interaction = self._discord.interaction(token)
        if not interaction.kind:
            raise _unknown("Webhook", 10015)
        self._check_parts(body, interaction.channel)
        original = self._world.messages.get(interaction.original)
        if original is not None and original["flags"] & LOADING:  # the first follow-up fills a deferred answer
            return await self._edit(original, body, interaction.channel)
        await self._discord.step("post")
        message = self._answer(interaction, body)
        if not message["flags"] & EPHEMERAL:
            await self._gateway.dispatch("MESSAGE_CREATE", self._world.as_event(message), interaction.channel.guild)
        await self._discord.step("posted")
        return message

    @_route("GET", "/webhooks/{application}/{token}/messages/{message}")
    async def original(self, body: Json, query: Json, application: str, token: str, message: str) -> Json:
        return self._original(token, message)[1]

    @_route("PATCH", "/webhooks/{application}/{token}/messages/{message}")
    async def edit_original(self, body: Json, query: Json, application: str, token: str, message: str) -> Json:
        interaction, found = self._original(token, message)
        return await self._edit(found, body, interaction.channel)

    @_route("DELETE", "/webhooks/{application}/{token}/messages/{message}")
    async def delete_original(self, body: Json, query: Json, application: str, token: str, message: str) -> None:
        interaction, found = self._original(token, message)
        await self._discord.delete_message(int(found["id"]), interaction.channel)


_EDITABLE = ("content", "embeds", "components", "attachments", "flags")


def _parts_in(components: list[Json]) -> list[Json]:
    found: list[Json] = []
    pending = list(components)
    while pending:
        part = pending.pop(0)
        found.append(part)
        pending[:0] = part.get("components") or []
        pending[:0] = [nested for key in ("component", "accessory") if (nested := part.get(key))]
    return found


def _check_components(components: list[Json]) -> None:
    ids: list[str] = []
    for part in _parts_in(components):
        if custom := part.get("custom_id"):
            ids.append(custom)
            if len(custom) > CUSTOM_ID_MAX:
                raise _invalid("custom_id", f"Must be between 1 and {CUSTOM_ID_MAX} in length.")
        if len(part.get("label") or "") > LABEL_MAX:
            raise _invalid("label", f"Must be {LABEL_MAX} or fewer in length.")
        if part["type"] == MENU and not 1 <= len(part.get("options") or ()) <= MENU_OPTIONS_MAX:
            raise _invalid("options", f"Must be between 1 and {MENU_OPTIONS_MAX} in length.")
        if part["type"] == ROW and len(part.get("components") or ()) > ROW_BUTTONS_MAX:
            raise _invalid("components", f"Must be between 1 and {ROW_BUTTONS_MAX} in length.")
    if len(set(ids)) < len(ids):
        raise _invalid("components", "Component custom id cannot be duplicated")


def _embed_chars(embed: Json) -> int:
    fields: list[Json] = embed.get("fields") or []
    footer, author = cast("Json", embed.get("footer") or {}), cast("Json", embed.get("author") or {})
    texts: list[str | None] = [embed.get("title"), embed.get("description"), footer.get("text"), author.get("name")]
    texts += [one[key] for one in fields for key in ("name", "value")]
    return sum(len(text or "") for text in texts)
