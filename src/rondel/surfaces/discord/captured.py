"""The answers of a slash command that a model runs: posted in the channel as they are, and described in text.

discord.py sends the answers of an interaction through an adapter in a context variable. This one posts them as ordinary
messages; a private one goes to the person's direct messages. Buttons in them work, because the messages are real.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import aiohttp
import discord
from discord.http import Route
from discord.webhook.async_ import AsyncWebhookAdapter

from .outlet import NO_PINGS

PRIVATE, V2 = 1 << 6, 1 << 15
TEXT_CHARS_MAX = 8_000
MESSAGE, FORM = 4, 9
COMPONENTS = {2: "Button", 3: "Menu", 5: "User menu", 6: "Role menu", 7: "Mentionable menu", 8: "Channel menu"}

PRIVATELY = "(The command answered privately: the person can read it in their direct messages. Do not guess it.)"

Payload = dict[str, Any]


class CapturedAnswer(NamedTuple):
    """A message that a command sent: what it says, whether it is private, and the channel that it was posted in."""

    payload: Payload
    is_private: bool
    channel: int


class CapturedAnswers(AsyncWebhookAdapter):
    """Read `text` when the command has finished."""

    def __init__(self, client: discord.Client, channel: int, person: int, *, reply_to: int, is_dm: bool) -> None:
        super().__init__()
        self._client, self._channel, self._person, self._reply_to = client, channel, person, reply_to
        self._is_dm = is_dm
        self._answers: dict[int, CapturedAnswer] = {}  # by message
        self._original = 0
        self._is_private = False
        self.opened_form = self.was_deleted = False
        self.private_failed = False

    @property
    def has_answer(self) -> bool:
        return bool(self._answers)

    @property
    def text(self) -> str:
        """Return the answers as the model reads them, without private ones where other people can read along."""
        texts = [
            PRIVATELY if answer.is_private and not self._is_dm else describe(answer.payload)
            for answer in self._answers.values()
        ]
        if self.private_failed:
            texts.append("(A private answer could not be delivered: the person takes no direct messages.)")
        return "\n\n".join(filter(None, texts))[:TEXT_CHARS_MAX]

    async def request(
        self,
        route: Route,
        session: aiohttp.ClientSession,
        *,
        payload: Payload | None = None,
        multipart: list[Payload] | None = None,
        files: Any = None,
        **_: Any,
    ) -> Any:
        body = payload if payload is not None else _in_multipart(multipart)
        if route.path.endswith("/callback"):
            return await self._respond(body, multipart, files)
        message = self._message_in(route)
        if route.method == "POST":
            return await self._post(body, multipart, files)
        if route.method == "PATCH":
            if message not in self._answers:
                self._original = 0
                posted = await self._post(body, multipart, files, is_original=True)
                return posted
            return await self._edit(message, body, multipart, files)
        if route.method == "DELETE":
            self.was_deleted = True
            if message not in self._answers:
                return None  # it was only deferred, which nobody sees here
            return await self._send(self._route("DELETE", message, self._answers.pop(message)))
        return await self._send(self._route("GET", message, self._answers.get(message)))

    def _message_in(self, route: Route) -> int:
        last = route.url.partition("?")[0].rpartition("/")[2]
        return int(last) if last.isdigit() else self._original

    async def _respond(self, body: Payload, multipart: list[Payload] | None, files: Any) -> Payload:
        kind, data = body["type"], cast(Payload, body.get("data") or {})
        message: Payload | None = None
        self._is_private = bool((data.get("flags") or 0) & PRIVATE)
        if kind == MESSAGE:
            message = await self._post(data, multipart, files, is_original=True)
        self.opened_form = kind == FORM
        shown = {"id": "1", "type": 2, "response_message_id": message and message["id"]}
        return {"interaction": shown, "resource": {"type": kind, **({"message": message} if message else {})}}

    async def _post(
        self, data: Payload, multipart: list[Payload] | None, files: Any, *, is_original: bool = False
    ) -> Payload:
        flags = data.get("flags") or 0
        is_private = bool(flags & PRIVATE) or (self._is_private and not self._answers)
        channel = self._channel
        if is_private and not self._is_dm:
            channel = int((await self._client.http.start_private_message(self._person))["id"])
        sent = {**data, "flags": flags & ~PRIVATE, "allowed_mentions": NO_PINGS}
        if channel == self._channel and self._reply_to:
            sent["message_reference"] = {"message_id": self._reply_to, "fail_if_not_exists": False}
        try:
            message = await self._send(
                Route("POST", "/channels/{channel_id}/messages", channel_id=channel), sent, multipart, files
            )
        except discord.Forbidden:
            if channel == self._channel:
                raise
            self.private_failed = True
            return _nothing(channel)
        id = int(message["id"])
        self._answers[id] = CapturedAnswer(_with_names(data, files), is_private, channel)
        if is_original or not self._original:
            self._original = id
        return message

    async def _edit(self, message: int, data: Payload, multipart: list[Payload] | None, files: Any) -> Payload:
        answer = self._answers[message]
        self._answers[message] = answer._replace(payload={**answer.payload, **_with_names(data, files)})
        route = self._route("PATCH", message, answer)
        return await self._send(route, {**data, "allowed_mentions": NO_PINGS}, multipart, files)

    def _route(self, method: str, message: int, answer: CapturedAnswer | None) -> Route:
        channel = answer.channel if answer is not None else self._channel
        return Route(method, "/channels/{channel_id}/messages/{message_id}", channel_id=channel, message_id=message)

    async def _send(
        self, route: Route, body: Payload | None = None, multipart: list[Payload] | None = None, files: Any = None
    ) -> Any:
        http = self._client.http
        if multipart and files:
            form = [
                {**part, "value": json.dumps(body)} if part["name"] == "payload_json" else part for part in multipart
            ]
            return await http.request(route, form=form, files=files)
        return await (http.request(route, json=body) if body is not None else http.request(route))


def _in_multipart(multipart: list[Payload] | None) -> Payload:
    for part in multipart or ():
        if part["name"] == "payload_json":
            return json.loads(part["value"])
    return {}


def _with_names(data: Payload, files: Any) -> Payload:
    return {**data, "_files": [file.filename for file in files]} if files else data


def _nothing(channel: int) -> Payload:
    """Return a message that was not sent, for the command that wants to see it."""
    author = {"id": "1", "username": "nobody", "discriminator": "0", "avatar": None}
    message: Payload = {"id": "1", "channel_id": str(channel), "author": author, "content": "", "type": 0, "flags": 0}
    message |= {"timestamp": "2020-01-01T00:00:00+00:00", "edited_timestamp": None, "tts": False, "pinned": False}
    lists = ("mentions", "mention_roles", "attachments", "embeds", "components")
    return message | {"mention_everyone": False} | {name: [] for name in lists}


# --- an answer as text ------------------------------------------------------------------------------------------------


def describe(payload: Payload) -> str:
    """Return a message as text: its content, embeds, buttons and files."""
    parts = [str(payload.get("content") or "")]
    embeds: list[Payload] = payload.get("embeds") or []
    if embeds:
        parts.append("Embed Content:\n" + "\n".join(_embed(number, one) for number, one in enumerate(embeds, 1)))
    rows: list[Payload] = payload.get("components") or []
    if rows:
        shown = _texts_in(rows) if (payload.get("flags") or 0) & V2 else []
        parts += ["\n".join(shown)] if shown else []
        named = [line for number, row in enumerate(rows, 1) if (line := _row(number, row))]
        parts += ["Interactive Components:\n" + "\n".join(named)] if named else []
    files: list[str] = payload.get("_files") or []
    if files:
        parts.append(f"Files (shown to the person, do not repeat them): {', '.join(files)}")
    return "\n\n".join(filter(None, parts))


def _embed(number: int, embed: Payload) -> str:
    title = f' · title "{embed["title"]}"' if embed.get("title") else ""
    lines = [f"Embed {number}{title}"]
    lines += [f"Description: {embed['description']}"] if embed.get("description") else []
    fields: list[Payload] = embed.get("fields") or []
    lines += [f"Field — {field.get('name')}: {field.get('value')}" for field in fields]
    for key, inner in (("author", "name"), ("footer", "text"), ("image", "url"), ("thumbnail", "url")):
        part: Payload = embed.get(key) or {}
        lines += [f"{key.capitalize()}: {part[inner]}"] if part.get(inner) else []
    lines += [f"{key.capitalize()}: {embed[key]}" for key in ("timestamp", "url") if embed.get(key)]
    return "\n".join(lines)


def _row(number: int, row: Payload) -> str:
    found = [part for part in _walk(row) if part.get("type") in COMPONENTS]
    return f"Row {number}: {', '.join(map(_component, found))}" if found else ""


def _component(part: Payload) -> str:
    named = f'{COMPONENTS[part["type"]]} label="{part.get("label") or part.get("placeholder") or ""}"'
    options: list[Payload] = part.get("options") or []
    if options:
        named += f" options={', '.join(str(option.get('label')) for option in options)}"
    return named + (f" url={part['url']}" if part.get("url") else "")


def _walk(part: Payload) -> list[Payload]:
    nested: list[Payload] = [
        *(part.get("components") or []),
        *(part[key] for key in ("accessory", "component") if part.get(key)),
    ]
    return [part, *(found for inner in nested for found in _walk(inner))]


def _texts_in(rows: list[Payload]) -> list[str]:
    return [str(part["content"]) for row in rows for part in _walk(row) if part.get("type") == 10]
