"""MCP servers in files: `[mcp.NAME]`, and the `mcpServers` block that other programs use. Pure.

Our own table is strict: an unknown key is an error. A `mcpServers` block is read as other programs read it: keys that
only they know are ignored with a warning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from ..errors import RondelError, nearest
from ..text.redaction import is_web_address
from ..values import Value

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
SERVERS_MAX = 100
NATIVE = "mcp"  # the `type` of a server in a provider's own form
STDIO_TYPES = ("stdio", "local")
HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http")

ApprovalMode: TypeAlias = Literal["confirm", "auto"]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class ServerSettings(msgspec.Struct, frozen=True):
    """One `[mcp.NAME]` table. Its repr shows neither variables nor headers: both may be secret."""

    type: str = ""  # stdio, http, or mcp for a server in a provider's own form; by default, the other keys decide
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    server_label: str = ""
    server_url: str = ""
    allowed_tools: tuple[str, ...] | None = None  # None offers all
    require_approval: str | dict[str, Any] | None = None
    approval: ApprovalMode | None = None
    allow: tuple[str, ...] = ()  # patterns of tools that run without asking
    required: bool = False
    disabled: bool = False
    sampling: bool = True
    timeout_s: Seconds | None = None
    connect_s: Seconds = 30.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 1

    def __repr__(self) -> str:
        return f"ServerSettings({self.command or self.url or self.server_url!r})"


class ServerSpec(Value, frozen=True):
    """A checked server that can be connected. Equal specs share one connection."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    allowed_tools: tuple[str, ...] | None = None
    approval: ApprovalMode = "confirm"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()  # patterns of tools that always ask
    required: bool = False
    sampling: bool = True
    timeout_s: float | None = None
    connect_s: float = 30.0
    retries: int = 1
    native: dict[str, Any] | None = None
    """The provider's own form, for an engine that connects to the server itself."""

    def __repr__(self) -> str:
        return f"ServerSpec({self.name!r}, {self.address!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("address", self.address)]

    @property
    def is_remote(self) -> bool:
        """Whether an engine may connect to it, which requires that no person has to approve its calls."""
        asks = self.approval == "confirm" or self.ask
        return self.native is not None and self.native.get("require_approval") == "never" and not asks

    @property
    def address(self) -> str:
        """The command, or the address without a password and a query: what people may see."""
        if self.command:
            return self.command
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def login_path(folder: Path, spec: ServerSpec) -> Path:
    """Return the file of the login to a server. It belongs to the server's address."""
    return folder / f"{hashlib.sha256(f'{spec.name} {spec.url}'.encode()).hexdigest()[:40]}.json"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise RondelError(
            f"{name!r} cannot be the name of an MCP server: use up to 32 letters, digits, '_', '.' or '-', and begin "
            "with a letter or a digit"
        )
    return name


def spec_of(name: str, settings: ServerSettings) -> ServerSpec:
    """Return the server of a `[mcp.NAME]` table. Raises RondelError with a sentence."""
    check_name(name)
    if settings.type == NATIVE or settings.server_url or settings.server_label:
        return _native(name, settings)
    kind = _kind(name, settings)
    if kind == "http":
        _check_url(name, settings.url)
    return ServerSpec(
        name,
        command=settings.command,
        args=settings.args,
        env=settings.env,
        cwd=settings.cwd,
        url=settings.url,
        headers=settings.headers,
        **_shared(name, settings),
    )


def _kind(name: str, settings: ServerSettings) -> str:
    if settings.command and settings.url:
        raise RondelError(f"the MCP server {name!r} has both a command and a url; keep one of them")
    if not settings.command and not settings.url:
        raise RondelError(f"the MCP server {name!r} has neither a command nor a url; set one of them")
    kind, wanted = settings.type, "stdio" if settings.command else "http"
    if kind == "sse":
        raise RondelError(
            f"the MCP server {name!r} has the type 'sse', which the protocol has dropped; use its streamable HTTP "
            "address with type 'http'"
        )
    if kind and kind not in (*STDIO_TYPES, *HTTP_TYPES):
        raise RondelError(
            f"the MCP server {name!r} has the unknown type {kind!r}{nearest(kind, ('stdio', 'http', NATIVE))}"
        )
    if kind and (kind in STDIO_TYPES) != (wanted == "stdio"):
        has = "a command" if settings.command else "a url"
        raise RondelError(f"the MCP server {name!r} has the type {kind!r}, but {has}; change one of them")
    return wanted


def _native(name: str, settings: ServerSettings) -> ServerSpec:
    """Return a server in the provider's own form: `type`, `server_label` and `server_url` are required."""
    for key in ("type", "server_label", "server_url"):
        if not getattr(settings, key):
            raise RondelError(f"the MCP server {name!r} is in a provider's form and has no {key!r}; it is required")
    if settings.type != NATIVE:
        raise RondelError(f"the MCP server {name!r} has a server_url, so its type must be 'mcp', not {settings.type!r}")
    if settings.command or settings.url:
        raise RondelError(f"the MCP server {name!r} has a server_url; remove its command and its url")
    _check_url(name, settings.server_url)
    native: dict[str, Any] = {
        "type": NATIVE,
        "server_label": settings.server_label,
        "server_url": settings.server_url,
        "headers": settings.headers or None,
        "allowed_tools": None if settings.allowed_tools is None else list(settings.allowed_tools),
        "require_approval": settings.require_approval,
    }
    kept = {key: value for key, value in native.items() if value is not None}
    return ServerSpec(name, url=settings.server_url, headers=settings.headers, native=kept, **_shared(name, settings))


def _shared(name: str, settings: ServerSettings) -> dict[str, Any]:
    approval, allow, ask = _approval(name, settings)
    return {
        "allowed_tools": settings.allowed_tools,
        "approval": approval,
        "allow": allow,
        "ask": ask,
        "required": settings.required,
        "sampling": settings.sampling,
        "timeout_s": settings.timeout_s,
        "connect_s": settings.connect_s,
        "retries": settings.retries,
    }


def _approval(name: str, settings: ServerSettings) -> tuple[ApprovalMode, tuple[str, ...], tuple[str, ...]]:
    """Return the mode, the tools that never ask, and those that always do. Our own keys override `require_approval`."""
    given = settings.require_approval
    mode: ApprovalMode = "confirm"
    never: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    if isinstance(given, str):
        if given not in ("always", "never"):
            raise RondelError(f"'require_approval' of the MCP server {name!r} is {given!r}; use 'always' or 'never'")
        mode = "auto" if given == "never" else "confirm"
    elif given is not None:
        never, always = _tool_names(name, given, "never"), _tool_names(name, given, "always")
        mode = "auto" if always and not never else "confirm"
    return settings.approval or mode, (*settings.allow, *never), always


def _tool_names(name: str, given: dict[str, Any], key: str) -> tuple[str, ...]:
    found = given.get(key, {})
    names = cast("dict[str, Any]", found).get("tool_names", []) if isinstance(found, dict) else None
    if set(given) - {"always", "never"} or not isinstance(names, list):
        raise RondelError(
            f"'require_approval' of the MCP server {name!r} is not understood; use 'always', 'never', or "
            '{"never": {"tool_names": [...]}}'
        )
    return tuple(str(item) for item in cast("list[Any]", names))


def _check_url(name: str, url: str) -> None:
    if not is_web_address(url):
        raise RondelError(f"the address of the MCP server {name!r} is not a web address: write https://host/path")


# --- the block that other programs use --------------------------------------------------------------------------------

_FOREIGN = {
    "command": str,
    "args": tuple[str, ...],
    "env": dict[str, str],
    "cwd": str,
    "type": str,
    "url": str,
    "headers": dict[str, str],
    "disabled": bool,
    "server_label": str,
    "server_url": str,
    "allowed_tools": tuple[str, ...],
    "require_approval": str | dict[str, Any],
}
_NEEDED = ("command", "type", "url", "server_label", "server_url")
_ALIASES = {"httpUrl": "url", "serverUrl": "url"}  # other programs' names of the same thing


def read_block(block: object) -> tuple[list[ServerSpec], list[str]]:
    """Return the servers of a `mcpServers` block, and warnings about it. A list is in the provider's own form. Raises
    RondelError for an unusable entry. Wrong optional fields, unknown keys and duplicate labels are warnings.
    """
    entries: list[tuple[str, object]]
    if isinstance(block, Mapping):
        entries = list(cast("Mapping[str, object]", block).items())
    elif isinstance(block, (list, tuple)):
        entries = [(_label(item), item) for item in cast("list[object]", block)]
    else:
        raise RondelError("'mcpServers' must be a table of servers by name, or a list in a provider's own form")
    if len(entries) > SERVERS_MAX:
        raise RondelError(f"'mcpServers' has {len(entries):,} servers; at most {SERVERS_MAX} are possible")
    specs: dict[str, ServerSpec] = {}
    warnings: list[str] = []
    for name, item in entries:
        if name in specs:
            warnings.append(f"there are two MCP servers named {name!r}; the second one is skipped")
            continue
        settings, noted = _read_entry(name, item)
        warnings += noted
        if not settings.disabled:
            specs[name] = spec_of(name, settings)
    return list(specs.values()), warnings


def _label(item: object) -> str:
    found = cast("dict[str, Any]", item).get("server_label") if isinstance(item, Mapping) else None
    if not isinstance(found, str) or not found:
        raise RondelError("an entry of the list 'mcpServers' has no 'server_label'; it is required")
    return found


def _read_entry(name: str, item: object) -> tuple[ServerSettings, list[str]]:
    if not isinstance(item, Mapping):
        raise RondelError(f"the MCP server {name!r} is not a table; write its command or its url in one")
    given: dict[str, Any] = {}
    warnings: list[str] = []
    for key, value in cast("Mapping[str, Any]", item).items():
        key = _ALIASES.get(key, key)
        if key not in _FOREIGN:
            warnings.append(f"{key!r} of the MCP server {name!r} is not known here and is ignored")
            continue
        try:
            given[key] = msgspec.convert(value, _FOREIGN[key])
        except msgspec.ValidationError as error:
            said = str(error)
            if key in _NEEDED:
                raise RondelError(f"{key!r} of the MCP server {name!r}: {said[0].lower()}{said[1:]}") from None
            warnings.append(f"{key!r} of the MCP server {name!r} is ignored: {said[0].lower()}{said[1:]}")
    settings = ServerSettings(**given)
    try:
        _approval(name, settings)
    except RondelError as error:
        warnings.append(f"{error}; it is ignored, so every call asks")
        settings = msgspec.structs.replace(settings, require_approval=None)
    return settings, warnings
