"""What a server offers, as checked plain values, because its names, descriptions and schemas are untrusted; and how a
connection to it fails. Imports nothing of the SDK."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..errors import RondelError
from ..text.printable import visible_line
from ..values import Value, is_nested_deeper

NAME_CHARS_MAX = 128
DESCRIPTION_CHARS_MAX = 4_000
SCHEMA_BYTES_MAX = 50_000
SCHEMA_LEVELS_MAX = 40
TOOLS_MAX, PROMPTS_MAX, RESOURCES_MAX = 1_000, 200, 1_000

State: TypeAlias = Literal["connecting", "ready", "down", "login"]


class RemoteTool(Value, frozen=True):
    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False  # a hint of the server: shown to people, never trusted

    @property
    def digest(self) -> str:
        """A digest of what a model is told about the tool."""
        about = (self.name, self.description, self.schema)
        return hashlib.sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()


class RemotePrompt(Value, frozen=True):
    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()  # the name of each, and whether it is required


class RemoteResource(Value, frozen=True):
    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""


class Offer(Value, frozen=True):
    """Everything that a server offers at one time, and notes about what was left out."""

    tools: tuple[RemoteTool, ...] = ()
    prompts: tuple[RemotePrompt, ...] = ()
    resources: tuple[RemoteResource, ...] = ()
    instructions: str = ""
    problems: tuple[str, ...] = ()


class ConnectionLost(RondelError):
    """The connection broke. `was_sent` says whether the call may have had its effect."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class LoginNeeded(RondelError):
    """The server wants a login that only a person can make."""

    def __init__(self, server: str) -> None:
        super().__init__(f"it needs a login; run `rondel mcp login {server}`, which gives you a link")


class Status(Value, frozen=True):
    """The status of a server, for people and for the note that a model gets."""

    state: State = "connecting"
    reason: str = ""
    protocol: str = ""
    server: str = ""  # the name that it gives itself


def checked_tool(name: str, description: str, schema: object, *, read_only: bool = False) -> RemoteTool | str:
    """Return the tool, or a sentence that says why it cannot be offered."""
    shown = visible_line(name[:60])
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        return f"a tool is left out: its name {shown!r} is empty, too long or not printable"
    if not isinstance(schema, dict):
        return f"the tool {shown!r} is left out: its schema is not an object"
    if is_nested_deeper(schema, SCHEMA_LEVELS_MAX):
        return f"the tool {shown!r} is left out: its schema is nested more than {SCHEMA_LEVELS_MAX} levels deep"
    if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
        return f"the tool {shown!r} is left out: its schema is larger than {SCHEMA_BYTES_MAX:,} bytes"
    given = cast("dict[str, Any]", schema)
    if given.get("type", "object") != "object" or not isinstance(given.get("properties", {}), dict):
        return f"the tool {shown!r} is left out: its schema does not describe an object"
    kept: dict[str, Any] = {"type": "object", "properties": {}, **given}
    return RemoteTool(name, cut(description, DESCRIPTION_CHARS_MAX), kept, read_only)


def cut(text: str, chars_max: int) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= chars_max else f"{text[:chars_max]} [...]"
