"""A loopback Discord over TLS on 127.0.0.1: a real, unpatched library connects to it, and to nothing else.

    async with LoopbackDiscord() as discord:
        ann = discord.person("Ann")
        guild = discord.guild("Community", ann)
        general = discord.channel(guild, "general")
        client = discord.Client(..., connector=discord.connector())

`discord.connector()` answers the names of Discord's hosts with this server's port and refuses all others.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import aiohttp.abc
import trustme
from aiohttp import web

from .gateway import Gateway
from .rest import Refused, Rest
from .world import DM, EPHEMERAL, FORUM, PUBLIC_THREAD, TEXT, Channel, Guild, Json, Member, Role, User, World

HOSTS = ("discord.com", "gateway.discord.gg", "cdn.discordapp.com", "media.discordapp.net")
TOKEN = "MTIzNDU2Nzg5.loopback.token"  # as Discord makes them: the first part is a number in base64
BODY_BYTES_MAX = 30 << 20
REQUESTS_MAX = 100_000
CDN = "https://cdn.discordapp.com"
WAIT_S = 20.0
LIMITED_S = 0.05  # how long a request waits that `fail` refuses with 429


@dataclass(frozen=True)
class BotRequest:
    """A request that the bot made."""

    method: str
    path: str
    body: Any


@dataclass
class Interaction:
    """What a person did with a command or a component, and how the bot answered. `kind` is Discord's type of the
    answer: 4 a message, 5 deferred, 6 nothing visible, 7 an edit, 9 a form; 0 while there is none."""

    discord: LoopbackDiscord
    channel: Channel
    person: User
    source: Json | None = None
    kind: int = 0
    original: int = 0
    modal: Json | None = None
    messages: list[int] = field(default_factory=list[int])
    id: int = 0

    @property
    def answers(self) -> list[Json]:
        """The messages that answer it, with those that only this person sees."""
        found = [*self.messages, *([self.original] if self.original and self.original not in self.messages else [])]
        return [self.discord.world.messages[id] for id in found if id in self.discord.world.messages]

    @property
    def text(self) -> str:
        return "\n".join(text_of(message) for message in self.answers)

    @property
    def is_private(self) -> bool:
        return any(message["flags"] & EPHEMERAL for message in self.answers)


class Bucket:
    """The rate limit of one route and channel: so many requests in so many seconds."""

    def __init__(self) -> None:
        self.until = 0.0
        self.left = 0

    def take(self, most: int, per_s: float) -> tuple[bool, Json]:
        now = time.monotonic()
        if now >= self.until:
            self.until, self.left = now + per_s, most
        allowed, self.left = self.left > 0, max(0, self.left - 1)
        after = max(self.until - now, 0.001)
        headers = {"X-RateLimit-Limit": most, "X-RateLimit-Remaining": self.left, "X-RateLimit-Reset-After": after}
        return allowed, {**headers, "X-RateLimit-Reset": time.time() + after}


class LoopbackDiscord:
    """Discord on this machine. People say, edit, click and run commands; `until` waits for what the bot does."""

    def __init__(self, *, token: str = TOKEN, shards: int = 1) -> None:
        self.token, self.shards = token, shards
        self.world = World()
        self.gateway = Gateway(self.world, token)
        self.requests: list[BotRequest] = []
        self.edits: list[tuple[int, str]] = []
        self.typed: list[int] = []  # the channels of typing indicators, in order
        self.rate_limit = (10_000, 1.0)  # requests per route and channel, and in how many seconds
        self.on_step: Callable[[str], object] | None = None
        """Called before a message is posted (`post`) and after (`posted`), also as the answer of a command, to crash
        a bot at a certain moment."""
        self.on_request: Callable[[str, str, bool], object] | None = None
        """Called with each request's method and path, before it is done (False) and before it is answered (True)."""
        self.limited = 0  # requests that were answered with 429
        self._failures: list[tuple[str, str, Refused]] = []
        self._rest = Rest(self)
        self._interactions: dict[str, Interaction] = {}
        self._buckets: dict[str, Bucket] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0
        self._authority = trustme.CA()

    # --- its lifetime -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> LoopbackDiscord:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{tail:.*}", self._serve)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(*HOSTS).configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        await web.SockSite(self._runner, listening, ssl_context=context).start()
        self.port = listening.getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self.gateway.drop(1001)
        await self._runner.cleanup()

    def connector(self) -> aiohttp.TCPConnector:
        """Return a connector for a client: Discord's names lead here, all other names nowhere."""
        return connector_to(self.port, self.authority_pem)

    @property
    def authority_pem(self) -> bytes:
        """The certificate that a client in another process must trust."""
        return self._authority.cert_pem.bytes()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self.gateway.serve(request)
        if request.path.startswith("/attachments/"):
            data, mime = self.world.files[request.path]
            return web.Response(body=data, headers={"Content-Type": mime})
        path = request.path.split("/api/v10", 1)[-1]
        body = await _body(request)
        self.requests.append(BotRequest(request.method, path, _without_files(body)))
        del self.requests[:-REQUESTS_MAX]
        key = f"{request.method}:{_bucket(path)}"
        allowed, headers = self._buckets.setdefault(key, Bucket()).take(*self.rate_limit)
        headers |= {"X-RateLimit-Bucket": f"{hash(key) & 0xFFFFFFFF:08x}"}
        try:
            if not allowed:
                raise Refused(429, 0, "You are being rate limited.")
            if self.on_request is not None:
                self.on_request(request.method, path, False)
            answer = await self._answer(request, path, body)
            if self.on_request is not None:
                self.on_request(request.method, path, True)
            if answer is None:
                return web.Response(status=204, headers=_texts(headers))
            return _json(answer, 200, headers)
        except Refused as refused:
            if not refused.status and request.transport is not None:
                request.transport.abort()
            if refused.status != 429:
                return _json(refused.body, refused.status or 500, headers)
            self.limited += 1
            wait_s = headers["X-RateLimit-Reset-After"] if not allowed else LIMITED_S
            body = refused.body | {"retry_after": wait_s, "global": False}
            return _json(body, 429, headers | {"Retry-After": wait_s, "Via": "1.1 loopback"})
        finally:
            self.changed()

    async def _answer(self, request: web.Request, path: str, body: Any) -> Any:
        for index, (method, part, refused) in enumerate(self._failures):
            if method in ("", request.method) and part in path:
                del self._failures[index]
                raise refused
        is_webhook = path.startswith(("/interactions/", "/webhooks/"))
        if not is_webhook and request.headers.get("Authorization") != f"Bot {self.token}":
            raise Refused(401, 0, "401: Unauthorized")
        handler, given = self._rest.find(request.method, path)
        return await handler(body, dict(request.query), **given)

    def fail(self, method: str, path: str, status: int, code: int = 0, message: str = "", *, times: int = 1) -> None:
        """Refuse the next requests whose path contains `path`. With 429, they may be sent again in a moment; with 0,
        the connection is dropped."""
        self._failures += [(method, path, Refused(status, code, message or "Failed"))] * times

    async def step(self, name: str) -> None:
        if self.on_step is not None:
            self.on_step(name)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], Any], *, within_s: float = WAIT_S) -> Any:
        """Wait until a condition holds, and return its value. It is looked at after every request of the bot."""
        async with asyncio.timeout(within_s):
            while not (value := holds()):
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)
            return value

    async def said(self, channel: Channel, count: int = 1, *, within_s: float = WAIT_S) -> list[Json]:
        """Wait until the bot has so many messages in a channel, and return them, oldest first."""

        def holds() -> list[Json]:
            found = self.bot_messages(channel)
            return found if len(found) >= count else []

        return await self.until(holds, within_s=within_s)

    def bot_messages(self, channel: Channel) -> list[Json]:
        bot = str(self.world.bot.id)
        return [
            message
            for message in self.world.messages_in(channel)
            if message["author"]["id"] == bot and not message["flags"] & EPHEMERAL
        ]

    def sent(self, method: str, path: str) -> list[BotRequest]:
        return [request for request in self.requests if request.method == method and path in request.path]

    # --- making things ------------------------------------------------------------------------------------------------

    def person(self, name: str, display: str = "", *, bot: bool = False) -> User:
        return self.world.user(name, display, bot=bot)

    def guild(self, name: str, owner: User, *members: User, large: bool = False) -> Guild:
        guild = self.world.guild(name, owner)
        guild.is_large = large
        guild.members |= {member.id: Member(member) for member in members}
        return guild

    def channel(self, guild: Guild, name: str, *, forum: bool = False, nsfw: bool = False) -> Channel:
        return self.world.channel(guild, name, FORUM if forum else TEXT, nsfw=nsfw)

    def role(self, guild: Guild, name: str, *members: User, permissions: int = 0, id: int = 0) -> Role:
        role = Role(id or self.world.new_id(), name, permissions)
        guild.roles.append(role)
        for member in members:
            guild.members[member.id].roles.append(role)
        return role

    def dm(self, person: User) -> Channel:
        return self.world.dm(person)

    async def join(self, guild: Guild, *members: User) -> None:
        for user in members:
            member = guild.members[user.id] = Member(user)
            await self.gateway.dispatch("GUILD_MEMBER_ADD", {**member.payload, "guild_id": str(guild.id)}, guild)

    # --- what people do -----------------------------------------------------------------------------------------------

    async def say(
        self,
        person: User,
        channel: Channel,
        text: str,
        *,
        reply_to: Json | None = None,
        pings: bool = True,
        files: dict[str, tuple[bytes, str]] | None = None,
    ) -> Json:
        """Post a message as a person. `files` are bytes and MIME types by name. `@bot` mentions the bot. With `pings`,
        a reply mentions the person whom it replies to, as it does unless people switch it off."""
        body: Json = {"content": text.replace("@bot", f"<@{self.world.bot.id}>")}
        if reply_to is not None:
            body["message_reference"] = {"message_id": reply_to["id"]}
        body["attachments"] = [self.store_file(channel, name, *file) for name, file in (files or {}).items()]
        message = self.world.message(channel, person, body)
        mentioned = {user["id"] for user in message["mentions"]}
        if reply_to is not None and pings and reply_to["author"]["id"] not in mentioned:
            message["mentions"].append(reply_to["author"])
        await self.gateway.dispatch("MESSAGE_CREATE", self.world.as_event(message), channel.guild)
        return message

    async def edit(self, message: Json, text: str) -> None:
        channel = self.world.channels[int(message["channel_id"])]
        author = self.world.users[int(message["author"]["id"])]
        renewed = self.world.message(channel, author, {"content": text.replace("@bot", f"<@{self.world.bot.id}>")})
        del self.world.messages[int(renewed["id"])]
        message |= {key: renewed[key] for key in ("content", "mentions")} | {"edited_timestamp": renewed["timestamp"]}
        await self.gateway.dispatch("MESSAGE_UPDATE", self.world.as_event(message), channel.guild)

    async def delete(self, message: Json) -> None:
        await self.delete_message(int(message["id"]), self.world.channels[int(message["channel_id"])])

    async def delete_message(self, id: int, channel: Channel) -> None:
        self.world.messages.pop(id, None)
        event = {"id": str(id), "channel_id": str(channel.id)}
        event |= {"guild_id": str(channel.guild.id)} if channel.guild else {}
        await self.gateway.dispatch("MESSAGE_DELETE", event, channel.guild)

    async def purge(self, channel: Channel, *messages: Json) -> None:
        """Delete several messages at once, as moderators do."""
        for message in messages:
            self.world.messages.pop(int(message["id"]), None)
        event = {"ids": [message["id"] for message in messages], "channel_id": str(channel.id)}
        event |= {"guild_id": str(channel.guild.id)} if channel.guild else {}
        await self.gateway.dispatch("MESSAGE_DELETE_BULK", event, channel.guild)

    async def delete_channel(self, channel: Channel) -> None:
        del self.world.channels[channel.id]
        if channel.guild is not None:
            channel.guild.channels.remove(channel)
            kind = "THREAD_DELETE" if channel.is_thread else "CHANNEL_DELETE"
            await self.gateway.dispatch(kind, channel.payload, channel.guild)

    async def deny(self, channel: Channel, *permissions: str) -> None:
        """Take permissions from everybody in a channel."""
        from .world import permission_bits

        channel.denied = permission_bits(*permissions)
        await self.gateway.dispatch("CHANNEL_UPDATE", channel.payload, channel.guild)

    async def remove_bot(self, guild: Guild) -> None:
        guild.has_bot = False
        await self.gateway.dispatch("GUILD_DELETE", {"id": str(guild.id)}, guild)

    async def start_thread(self, parent: Channel, name: str, owner: User, *, id: int = 0) -> Channel:
        thread = self.world.channel(parent.guild, name, PUBLIC_THREAD, parent=parent, owner=owner.id)
        if id:  # the thread of a message has the message's id
            del self.world.channels[thread.id]
            thread.id = id
            self.world.channels[id] = thread
        await self.gateway.dispatch("THREAD_CREATE", {**thread.payload, "newly_created": True}, parent.guild)
        return thread

    async def forum_post(self, person: User, forum: Channel, title: str, text: str) -> tuple[Channel, Json]:
        thread = await self.start_thread(forum, title, person)
        return thread, await self.say(person, thread, text)

    # --- commands and components --------------------------------------------------------------------------------------

    async def command(self, person: User, channel: Channel, name: str, /, **options: Any) -> Interaction:
        """Run a slash command as a person; `"ai chat"` is a subcommand. Options may be users, channels and roles."""
        words = name.split()
        scopes = (channel.guild.id if channel.guild else 0, 0)
        found = [one for scope in scopes for one in self.world.commands.get(scope, ()) if one["name"] == words[0]]
        if not found:
            raise LookupError(f"the bot has no command {words[0]!r}")
        self._check_allowed(found[0], person, channel)
        level, resolved = found[0], cast("Json", {})
        for word in words[1:]:
            below = [option for option in level.get("options", ()) if option["name"] == word]
            if not below:
                raise LookupError(f"the bot has no command {name!r}")
            level = below[0]
        known: dict[str, Json] = {option["name"]: option for option in level.get("options", ())}
        _check_options(name, known, options)
        given = [
            {"name": key, "type": known[key]["type"], "value": self._value(value, channel, resolved)}
            for key, value in options.items()
        ]
        for word in reversed(words[1:]):
            is_group = any(option["type"] == 1 for option in given if "options" in option)
            given = [{"name": word, "type": 2 if is_group else 1, "options": given}]
        data: Json = {"id": found[0]["id"], "name": words[0], "type": 1, "options": given, "resolved": resolved}
        return await self._interact(person, channel, 2, data)

    def _check_allowed(self, command: Json, person: User, channel: Channel) -> None:
        needed = int(command.get("default_member_permissions") or 0)
        held = channel.guild.permissions(person, channel) if channel.guild else needed
        if needed & ~held:
            raise PermissionError(f"{person.display} may not use /{command['name']}")

    def _value(self, value: Any, channel: Channel, resolved: Json) -> Any:
        if isinstance(value, User):
            resolved.setdefault("users", {})[str(value.id)] = value.payload
            if channel.guild and (member := channel.guild.members.get(value.id)):
                held = {"permissions": str(channel.guild.permissions(value, channel))}
                resolved.setdefault("members", {})[str(value.id)] = member.without_user | held
            return str(value.id)
        if isinstance(value, (Channel, Role)):
            kind = "channels" if isinstance(value, Channel) else "roles"
            resolved.setdefault(kind, {})[str(value.id)] = value.payload | {"permissions": "0"}
            return str(value.id)
        return value

    async def click(self, person: User, message: Json, label: str) -> Interaction:
        """Click the button with this label, or choose an option of a menu."""
        button = _find(message["components"], label)
        if button.get("disabled"):
            raise LookupError(f"the button {label!r} is disabled")
        data: Json = {"custom_id": button["custom_id"], "component_type": button["type"]}
        if button["type"] == 3:
            data["values"] = [next(option["value"] for option in button["options"] if option["label"] == label)]
        channel = self.world.channels[int(message["channel_id"])]
        return await self._interact(person, channel, 3, data, source=message)

    async def submit(self, interaction: Interaction, *texts: str) -> Interaction:
        """Fill in the form that an interaction opened, and send it."""
        modal = await self.until(lambda: interaction.modal)
        fields = [part for part in _walk(modal["components"]) if part["type"] == 4]
        rows = [
            {"type": 1, "components": [{"type": 4, "custom_id": one["custom_id"], "value": text}]}
            for one, text in zip(fields, texts, strict=True)
        ]
        data: Json = {"custom_id": modal["custom_id"], "components": rows}
        return await self._interact(interaction.person, interaction.channel, 5, data, source=interaction.source)

    async def _interact(
        self, person: User, channel: Channel, type: int, data: Json, *, source: Json | None = None
    ) -> Interaction:
        token = f"interaction-{self.world.new_id():x}"
        id = self.world.new_id()
        interaction = self._interactions[token] = Interaction(self, channel, person, source, id=id)
        guild, bot = channel.guild, self.world.bot
        event: Json = {
            "id": str(id),
            "application_id": str(bot.id),
            "type": type,
            "token": token,
            "version": 1,
            "channel_id": str(channel.id),
            "channel": channel.payload | {"permissions": "0"},
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {"0": str(guild.id if guild else 0)},
            "context": 1 if channel.type == DM else 0,
            "attachment_size_limit": 10 << 20,
            "app_permissions": str(guild.permissions(bot, channel) if guild else 0),
            "data": data,
        }
        if source is not None:
            event["message"] = source
        if guild is None:
            event["user"] = person.payload
        else:
            held = str(guild.permissions(person, channel))
            event |= {"guild_id": str(guild.id), "member": guild.members[person.id].payload | {"permissions": held}}
            event |= {"guild": {"id": str(guild.id), "locale": "en-US", "features": []}, "guild_locale": "en-US"}
        await self.gateway.dispatch("INTERACTION_CREATE", event, guild)
        return interaction

    def interaction(self, token: str) -> Interaction:
        if token not in self._interactions:
            raise Refused(404, 10062, "Unknown interaction")
        return self._interactions[token]

    async def answered(self, interaction: Interaction, *, within_s: float = WAIT_S) -> Interaction:
        """Wait until an interaction has its first answer that is not just 'thinking'."""
        done = lambda: interaction.kind and not any(message["flags"] & (1 << 7) for message in interaction.answers)  # noqa: E731
        await self.until(done, within_s=within_s)
        return interaction

    def store_file(self, channel: Channel, name: str, data: bytes, mime: str) -> Json:
        id = self.world.new_id()
        path = f"/attachments/{channel.id}/{id}/{name}"
        self.world.files[path] = (data, mime)
        url = f"{CDN}{path}"
        shown: Json = {"id": str(id), "filename": name, "size": len(data), "url": url, "proxy_url": url}
        return shown | {"content_type": mime}

    def data_of(self, file: Json) -> bytes:
        """Return the bytes of an attachment."""
        return self.world.files[file["url"].removeprefix(CDN)][0]


def connector_to(port: int, authority_pem: bytes, *, limit: int = 0) -> aiohttp.TCPConnector:
    """Return a connector to the loopback Discord on a port, also from another process. `limit` is the most connections
    that it opens; discord.py's own has none."""
    context = ssl.create_default_context(cadata=authority_pem.decode())
    return aiohttp.TCPConnector(limit=limit, ssl=context, resolver=LoopbackResolver(port), use_dns_cache=False)


class LoopbackResolver(aiohttp.abc.AbstractResolver):
    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        if host not in HOSTS:
            raise OSError(f"{host!r} is not Discord: this client can reach nothing else")
        here: aiohttp.abc.ResolveResult = {
            "hostname": host,
            "host": "127.0.0.1",
            "port": self._port,
            "family": socket.AF_INET,
            "proto": 0,
            "flags": 0,
        }
        return [here]

    async def close(self) -> None:
        pass


async def _body(request: web.Request) -> Any:
    if request.content_type == "application/json" and request.can_read_body:
        return await request.json()
    if request.content_type != "multipart/form-data":
        return {}
    body: Json = {}
    async for part in await request.multipart():
        assert isinstance(part, aiohttp.BodyPartReader)
        data = bytes(await part.read())
        if part.name == "payload_json":
            body |= json.loads(data)
        else:
            mime = part.headers.get("Content-Type", "application/octet-stream")
            body.setdefault("_files", {})[part.name] = (part.filename or "file", data, mime)
    return body


def _without_files(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: value for key, value in cast("Json", body).items() if key != "_files"}


def _bucket(path: str) -> str:
    """Return a path without the ids below its channel, guild or webhook: these have limits of their own."""
    parts = path.strip("/").split("/")
    return "/".join((*parts[:2], *("*" if part.isdigit() else part for part in parts[2:])))


def _json(value: Any, status: int, headers: Json) -> web.Response:
    # Libraries compare the type exactly, without a charset.
    shown = {**_texts(headers), "Content-Type": "application/json"}
    return web.Response(body=json.dumps(value).encode(), status=status, headers=shown)


def _texts(headers: Json) -> dict[str, str]:
    return {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in headers.items()}


def _check_options(command: str, known: dict[str, Json], given: Json) -> None:
    """Refuse what people cannot send with Discord's own clients."""
    if any(option["type"] in (1, 2) for option in known.values()):
        raise LookupError(f"/{command} is a group: {', '.join(f'/{command} {name}' for name in known)}")
    for name, value in given.items():
        if name not in known:
            raise LookupError(f"/{command} has no option {name!r}; it has {', '.join(known) or 'none'}")
        kind, choices = known[name]["type"], [choice["value"] for choice in known[name].get("choices") or ()]
        if choices and value not in choices:
            raise LookupError(f"option {name!r} of /{command} is one of: {', '.join(map(str, choices))}")
        wanted = {3: str, 4: int, 5: bool, 10: (int, float)}.get(kind)
        if wanted is not None and (not isinstance(value, wanted) or isinstance(value, bool) is not (kind == 5)):
            raise LookupError(f"option {name!r} of /{command} must be {_OPTIONS[kind]}, not {value!r}")
    missing = [name for name, option in known.items() if option.get("required") and name not in given]
    if missing:
        raise LookupError(f"/{command} needs {', '.join(f'{name}=…' for name in missing)}")


_OPTIONS = {3: "a text", 4: "a whole number", 5: "true or false", 10: "a number"}


def _walk(components: list[Json]) -> list[Json]:
    found: list[Json] = []
    for part in components:
        nested = [part[key] for key in ("component", "accessory") if key in part]
        found += [part, *_walk(nested), *_walk(part.get("components") or [])]
    return found


def text_of(message: Json) -> str:
    """Return what people read in a message: its content, or the texts of its components."""
    texts = [part["content"] for part in _walk(message["components"]) if part["type"] == 10]
    return "\n".join(filter(None, (message["content"], *texts)))


def _find(components: list[Json], label: str) -> Json:
    parts = _walk(components)
    for part in parts:
        if part.get("label") == label and "custom_id" in part:
            return part
        if part["type"] == 3 and any(option["label"] == label for option in part["options"]):
            return part
    labels = [part["label"] for part in parts if part.get("label")]
    raise LookupError(f"there is no button {label!r}; there are {labels}")
