"""A request of another program. Only the top level of the body is decoded at once.

Most requests are relayed without being understood: messages stay bytes until a rule or a plugin needs them. Knows no
network and no routing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, cast

import msgspec

from ...contracts.dialect import UNSIGNED, Dialect
from ...errors import PromptRejected
from ...prompt import Prompt

_SESSION = re.compile(r'(?:_session_|"session_id"\s*:\s*")([\w-]+)')
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TRUE = msgspec.Raw(b"true")
_UNSIGNED = UNSIGNED.encode()
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BREAKS = re.compile("[\r\n\0]")
MODEL_CHARS_MAX = 512  # longer names of models are refused: a name is written to headers, logs and caches
NAME_CHARS_MAX = 200
"""Longer names of sessions and projects are replaced by a hash, since they are stored in many places."""
TOOLS_KEPT = 8
TOOLS_BYTES_MAX = 256 * 1024  # longer ones are decoded again with each request
_SESSION_HEADERS = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id", "x-opencode-session")


class GatewayRequest:
    """One request in its caller's dialect. `fields` are the body's, undecoded."""

    def __init__(
        self,
        id: str,
        dialect: Dialect,
        body: bytes,
        headers: Mapping[str, str],
        *,
        key: str = "",
        at: float = 0.0,
        query: str = "",
    ) -> None:
        self.id, self.dialect, self.headers, self.at = id, dialect, headers, at
        self.query = query  # the query of the URL, which is for the model's server
        self.key = key  # the name of the caller's key; empty where no key is needed
        self.taken: list[str] = []
        """The names of the engines that are reserved for it; they are released when it has ended."""
        self.size_bytes = len(body)
        self._body = body
        self._held: dict[tuple[bytes, ...], bool] = {}
        try:
            self.fields: dict[str, msgspec.Raw] = _FIELDS.decode(body)
        except _NOT_JSON as error:
            raise PromptRejected(f"the body is not a JSON object: {error}", code="bad_body") from None
        # Servers in Go match field names in any letter case, and would use another model than the routing decided.
        if other := next((name for name in self.fields if len(name) == 5 and name.lower() == "model" != name), ""):
            raise PromptRejected(f"the body has the field {other!r}; write it as 'model'", code="bad_body")
        model = self.field("model")
        if not isinstance(model, str) or not model:
            raise PromptRejected("the body has no model; set `model` to a string", code="bad_body")
        if not is_name(model):
            raise PromptRejected(
                f"`model` is not a valid name: more than {MODEL_CHARS_MAX} characters, or a line break or NUL in it",
                code="bad_body",
            )
        self.model = model
        self.streams = self.fields.get("stream") == _TRUE
        self.without_tools = self._join_without_tools() if "tools" in self.fields else body
        """The body without its tools, which may be most of it: where to search for what was said."""
        self.session = stored_name(self._session())  # the caller's name for its conversation; empty if it gives none

    def field(self, name: str) -> Any:
        """Return a field of the body, decoded; None if it is missing."""
        raw = self.fields.get(name)
        return None if raw is None else _decoded(name, raw)

    def set_field(self, name: str, value: Any) -> None:
        """Replace a field of the body. The prompt is read again when it is needed next."""
        self.fields[name] = msgspec.Raw(msgspec.json.encode(value))
        self.__dict__.pop("prompt", None)

    def holds(self, *texts: bytes) -> bool:
        """Whether the body has one of these texts outside its tools. The answer is cached for each set of texts."""
        held = self._held.get(texts)
        if held is None:
            said = self.without_tools
            held = self._held[texts] = any([said.find(text) >= 0 for text in texts])
        return held

    def tools_hold(self, text: bytes) -> bool:
        return "tools" in self.fields and bytes(self.fields["tools"]).find(text) >= 0

    @cached_property
    def has_unsigned(self) -> bool:
        """Whether the conversation has thinking that no provider signed."""
        return self.without_tools.find(_UNSIGNED) >= 0

    def _join_without_tools(self) -> bytes:
        pieces: list[bytes | msgspec.Raw] = []
        for name, raw in self.fields.items():
            if name != "tools":
                pieces += (b',"', name.encode(), b'":', raw)
        return b"".join(pieces)

    def find(self, pattern: re.Pattern[bytes]) -> list[bytes]:
        return pattern.findall(self._body)

    @cached_property
    def prompt(self) -> Prompt:
        """The request as a prompt; read when it is first needed."""
        return self.dialect.read_prompt({name: _decoded(name, raw) for name, raw in self.fields.items()})

    def _session(self) -> str:
        headers, fields = self.headers, self.fields
        for name in _SESSION_HEADERS:
            if name in headers and (named := headers[name]):
                return named
        if "metadata" in fields:
            metadata = self.field("metadata")
            user_id = str(cast("dict[str, Any]", metadata).get("user_id", "")) if isinstance(metadata, dict) else ""
            if found := _SESSION.search(user_id):
                return found[1]
        cache_key = self.field("prompt_cache_key") if "prompt_cache_key" in fields else ""
        return cache_key if isinstance(cache_key, str) else ""

    @property
    def project(self) -> str:
        return stored_name(self.headers.get("x-rondel-project", ""))


def is_name(text: str) -> bool:
    return len(text) <= MODEL_CHARS_MAX and _BREAKS.search(text) is None


def stored_name(text: str) -> str:
    """Return a caller's name as it is stored: itself, or a hash if it is long or has control characters."""
    if len(text) <= NAME_CHARS_MAX and text.isprintable():
        return text
    return f"sha256-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


class _DecodedTools:
    """The tools of the last few bodies. Programs send the same ones with each request, and with coding agents they are
    most of it."""

    def __init__(self) -> None:
        self._kept: list[tuple[msgspec.Raw, Any]] = []

    def decode(self, raw: msgspec.Raw) -> Any:
        for known, tools in self._kept:
            if known == raw:
                return tools
        tools = msgspec.json.decode(raw)
        if len(raw) <= TOOLS_BYTES_MAX:
            # A copy, because the text is a part of a body, which would be kept with it.
            self._kept = [(raw.copy(), tools), *self._kept[: TOOLS_KEPT - 1]]
        return tools


_tools = _DecodedTools()


def _decoded(name: str, raw: msgspec.Raw) -> Any:
    """Decode a field."""
    try:
        return _tools.decode(raw) if name == "tools" else msgspec.json.decode(raw)
    except _NOT_JSON as error:
        raise PromptRejected(f"{name!r} of the body is not JSON: {error}", code="bad_body") from None
