"""A foreign program's request: what is read of it at once, and what only when somebody asks.

Most requests are passed on without being understood, so the body is taken apart at its top level only; messages stay
bytes until a rule or a plugin wants to see them. Knows no network and no routing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import msgspec

from ..dialect import Again, Dialect
from ..errors import PromptRejected
from ..prompt import Prompt
from .reading import REMEMBERED, Readings
from .searching import searching

_SESSION = re.compile(r'(?:_session_|"session_id"\s*:\s*")([\w-]+)')
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TRUE = msgspec.Raw(b"true")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SESSION_HEADERS = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id", "x-opencode-session")


class Request:
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
        readings: Readings | None = None,
    ) -> None:
        self.id, self.dialect, self.headers, self.at = id, dialect, headers, at
        self.query = query
        """What stands behind the question mark of the address; it is for the model's server."""
        self.key = key
        """The name of the caller's key; empty where no key is needed."""
        self.taken: list[str] = []
        """The engines that may answer it, by name: they are given back when it has ended."""
        self._readings = readings
        self.size_bytes = len(body)
        self._body = body
        self._held: dict[tuple[bytes, ...], bool] = {}
        try:
            self.fields: dict[str, msgspec.Raw] = _FIELDS.decode(body)
        except _NOT_JSON as error:
            raise PromptRejected(f"the body is not a JSON object: {error}", code="bad_body") from None
        model = self.field("model")
        if not isinstance(model, str) or not model:
            raise PromptRejected("the body names no model; set `model` to a text", code="bad_body")
        self.model = model
        self.streams = self.fields.get("stream") == _TRUE
        self.said = self._without_tools() if "tools" in self.fields else body
        """The body without its tools, which may be most of it: where to look for what somebody said."""
        self.session = self._session()
        """The caller's own name for its conversation; empty where it gives none."""

    def field(self, name: str) -> Any:
        """A field of the body, decoded; None when it is not there."""
        raw = self.fields.get(name)
        return None if raw is None else _decoded(name, raw)

    def set_field(self, name: str, value: Any) -> None:
        """Put another value into the body; what was read of it before is read anew."""
        self.fields[name] = msgspec.Raw(msgspec.json.encode(value))
        self.__dict__.pop("prompt", None)

    def holds(self, *texts: bytes) -> bool:
        """Whether the body has one of these texts anywhere. It is searched once for the same texts, whoever asks."""
        held = self._held.get(texts)
        if held is None:
            held = self._held[texts] = searching(texts).finds(self.said) or self.tools_hold(*texts)
        return held

    def tools_hold(self, *texts: bytes) -> bool:
        """Whether the tools of the body have one of these texts."""
        return "tools" in self.fields and searching(texts).finds_again(self.fields["tools"])

    def _without_tools(self) -> bytes:
        pieces: list[bytes | msgspec.Raw] = []
        for name, raw in self.fields.items():
            if name != "tools":
                pieces += (b',"', name.encode(), b'":', raw)
        return b"".join(pieces)

    def find(self, pattern: re.Pattern[bytes]) -> list[bytes]:
        """What of the body fits a pattern."""
        return pattern.findall(self._body)

    @cached_property
    def prompt(self) -> Prompt:
        """The request as a prompt; decoded when first asked for."""
        body = {name: self._recalled(name, raw) for name, raw in self.fields.items()}
        prompt = self.dialect.read_prompt(body)
        messages = body.get(self.dialect.messages_field)
        return prompt.replace(once=True) if type(messages) is Again and not messages.kept else prompt

    def _recalled(self, name: str, raw: msgspec.Raw) -> Any:
        if self._readings is None or name not in REMEMBERED:
            return _decoded(name, raw)
        try:
            dialect = self.dialect
            decode = dialect.decode_messages if name == dialect.messages_field else msgspec.json.decode
            return self._readings.decode(raw, (dialect.name, name, self.key), decode)
        except _NOT_JSON as error:
            raise _no_json(name, error) from None

    def _session(self) -> str:
        headers, fields = self.headers, self.fields
        for name in _SESSION_HEADERS:
            if name in headers and (named := headers[name]):
                return named
        if "metadata" in fields:
            metadata = self.field("metadata")
            told = str(cast("dict[str, Any]", metadata).get("user_id", "")) if isinstance(metadata, dict) else ""
            if found := _SESSION.search(told):
                return found[1]
        cache_key = self.field("prompt_cache_key") if "prompt_cache_key" in fields else ""
        return cache_key if isinstance(cache_key, str) else ""

    @property
    def project(self) -> str:
        """The project that the caller works on, where it says so."""
        return self.headers.get("x-rondel-project", "")


def _decoded(name: str, raw: msgspec.Raw) -> Any:
    """A field's value. Its bytes were only skipped so far, and may be no text at all."""
    try:
        return msgspec.json.decode(raw)
    except _NOT_JSON as error:
        raise _no_json(name, error) from None


def _no_json(name: str, error: Exception) -> PromptRejected:
    return PromptRejected(f"{name!r} of the body is not JSON: {error}", code="bad_body")
