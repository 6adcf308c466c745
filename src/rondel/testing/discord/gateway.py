"""The gateway of a loopback Discord: sessions with zlib, heartbeats, resume with replay, shards and intents.

Voice is not part of it: a voice state (opcode 4) is kept in `voice_states`, for a future voice server.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from typing import Any, cast

from aiohttp import WSMsgType, web

from .world import Guild, Json, World

REPLAY_MAX = 1_000  # events that a session keeps for a resume
HEARTBEAT_MS = 41_250
MEMBERS, PRESENCES, MESSAGE_CONTENT = 1 << 1, 1 << 8, 1 << 15  # privileged intents
PRIVILEGED = MEMBERS | PRESENCES | MESSAGE_CONTENT


class Session:
    """One shard of a bot, over all of its connections."""

    def __init__(self, id: str, shard: tuple[int, int], intents: int) -> None:
        self.id, self.shard, self.intents = id, shard, intents
        self.seq = 0
        self.socket: _Socket | None = None
        self._sent: deque[tuple[int, Json]] = deque(maxlen=REPLAY_MAX)

    def serves(self, guild: Guild | None) -> bool:
        index, count = self.shard
        return index == (0 if guild is None else (guild.id >> 22) % count)

    async def dispatch(self, kind: str, data: Json) -> None:
        self.seq += 1
        event: Json = {"op": 0, "t": kind, "s": self.seq, "d": data}
        self._sent.append((self.seq, event))
        if self.socket is not None:
            await self.socket.send(event)

    async def replay(self, after: int) -> None:
        for seq, event in list(self._sent):
            if seq > after and self.socket is not None:
                await self.socket.send(event)


class _Socket:
    def __init__(self, socket: web.WebSocketResponse, *, compressed: bool) -> None:
        self._socket = socket
        self._zlib = zlib.compressobj() if compressed else None

    async def send(self, event: Json) -> None:
        if self._socket.closed:
            return
        text = json.dumps(event)
        try:
            if self._zlib is None:
                await self._socket.send_str(text)
            else:
                await self._socket.send_bytes(self._zlib.compress(text.encode()) + self._zlib.flush(zlib.Z_SYNC_FLUSH))
        except (ConnectionError, RuntimeError):
            pass  # it has just been closed; a resume replays this event

    async def close(self, code: int) -> None:
        await self._socket.close(code=code)


class Gateway:
    def __init__(self, world: World, token: str) -> None:
        self._world, self._token = world, token
        self.sessions: dict[str, Session] = {}
        self.sockets: set[_Socket] = set()
        self.privileged = PRIVILEGED  # what is switched on in the developer portal
        self.identified = self.resumed = 0
        self.compressed = False
        self.presences: list[Json] = []
        self.voice_states: list[Json] = []

    async def dispatch(self, kind: str, data: Json, guild: Guild | None = None) -> None:
        """Send an event to the shard of its guild."""
        for session in list(self.sessions.values()):
            if session.serves(guild):
                await session.dispatch(kind, self._visible(session, kind, data))

    def _visible(self, session: Session, kind: str, data: Json) -> Json:
        """Hide the text of messages from a bot without the intent, unless they are to it."""
        if kind not in ("MESSAGE_CREATE", "MESSAGE_UPDATE") or session.intents & MESSAGE_CONTENT:
            return data
        bot = str(self._world.bot.id)
        named = any(user["id"] == bot for user in data.get("mentions", ()))
        if "guild_id" not in data or named or data["author"]["id"] == bot:
            return data
        return {**data, "content": "", "embeds": [], "attachments": [], "components": []}

    async def drop(self, code: int = 4000) -> None:
        """Close every connection; a bot resumes its session."""
        for session in list(self.sessions.values()):
            if session.socket is not None:
                socket, session.socket = session.socket, None
                await socket.close(code)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=1 << 20)
        await ws.prepare(request)
        self.compressed = request.query.get("compress") == "zlib-stream"
        socket = _Socket(ws, compressed=self.compressed)
        await socket.send({"op": 10, "d": {"heartbeat_interval": HEARTBEAT_MS, "_trace": []}})
        session: Session | None = None
        self.sockets.add(socket)
        try:
            async for message in ws:
                if message.type is not WSMsgType.TEXT:
                    continue
                received = cast("Json", json.loads(message.data))
                session = await self._receive(received["op"], received.get("d"), socket, session)
        finally:
            self.sockets.discard(socket)
        if session is not None and session.socket is socket:
            session.socket = None
        return ws

    async def _receive(self, op: int, data: Any, socket: _Socket, session: Session | None) -> Session | None:
        match op:
            case 1:
                await socket.send({"op": 11})
            case 2:
                return await self._identify(data, socket)
            case 3:
                self.presences.append(data)
            case 4:
                self.voice_states.append(data)
            case 6:
                return await self._resume(data, socket)
            case 8 if session is not None:
                await self._members(data, session)
            case _:
                pass
        return session

    async def _identify(self, data: Json, socket: _Socket) -> Session | None:
        self.identified += 1
        if data["token"].removeprefix("Bot ") != self._token:
            await socket.close(4004)
            return None
        if data["intents"] & PRIVILEGED & ~self.privileged:
            await socket.close(4014)
            return None
        world, shard = self._world, tuple(data.get("shard") or (0, 1))
        for old in [session for session in self.sessions.values() if session.shard == shard]:
            del self.sessions[old.id]
        session = Session(f"session-{world.new_id():x}", (shard[0], shard[1]), data["intents"])
        session.socket = socket
        self.sessions[session.id] = session
        guilds = [guild for guild in world.guilds.values() if session.serves(guild) and guild.has_bot]
        ready: Json = {
            "v": 10,
            "user": world.bot.payload | {"verified": True, "mfa_enabled": False, "email": None},
            "guilds": [{"id": str(guild.id), "unavailable": True} for guild in guilds],
            "session_id": session.id,
            "resume_gateway_url": "wss://gateway.discord.gg",
            "shard": list(session.shard),
            "application": {"id": str(world.bot.id), "flags": 0},
            "private_channels": [],
        }
        await session.dispatch("READY", ready)
        for guild in guilds:
            await session.dispatch("GUILD_CREATE", guild.payload)
        return session

    async def _resume(self, data: Json, socket: _Socket) -> Session | None:
        session = self.sessions.get(data["session_id"])
        if session is None:
            await socket.send({"op": 9, "d": False})
            return None
        self.resumed += 1
        session.socket = socket
        await session.replay(data["seq"])
        await session.dispatch("RESUMED", {"_trace": []})
        return session

    async def _members(self, data: Json, session: Session) -> None:
        guild = self._world.guilds[int(data["guild_id"])]
        query, wanted = (data.get("query") or "").casefold(), {int(id) for id in data.get("user_ids") or ()}
        found = [
            member.payload
            for member in guild.members.values()
            if (member.user.id in wanted if wanted else _starts(member.user.name, member.nick, query))
        ]
        limit = data.get("limit") or len(found)
        chunk: Json = {"guild_id": str(guild.id), "members": found[:limit], "chunk_index": 0, "chunk_count": 1}
        await session.dispatch("GUILD_MEMBERS_CHUNK", chunk | {"not_found": [], "nonce": data.get("nonce")})


def _starts(name: str, nick: str | None, query: str) -> bool:
    return name.casefold().startswith(query) or (nick or "").casefold().startswith(query)
