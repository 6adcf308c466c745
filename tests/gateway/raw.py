"""Callers without an SDK: they post a body and read the bytes that come back, as any program may."""

from __future__ import annotations

import json
import socket
from json import dumps as encode_json
from typing import Any, NamedTuple

from tests.dialects.helpers import sse_events

from .callers import question
from .speech import PATHS


class Line:
    """One connection, on which a caller can fall silent or leave whenever it wants to."""

    def __init__(self, port: int, *, buffer_bytes: int = 0) -> None:
        self._socket = socket.socket()
        if buffer_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._socket.settimeout(20.0)
        self._socket.connect(("127.0.0.1", port))
        self._port = port

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def post(self, url: str, json: Any, headers: dict[str, str] | None = None) -> None:
        body = encode_json(json).encode()
        named = {"host": f"127.0.0.1:{self._port}", "content-length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._socket.sendall(f"POST {url} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_until(self, text: bytes) -> bytes:
        """What comes, up to and with this text."""
        seen = b""
        while text not in seen:
            piece = self._socket.recv(65536)
            assert piece, f"the connection ended with {seen!r}"
            seen += piece
        return seen

    def leave(self) -> None:
        self._socket.close()


class Read(NamedTuple):
    """What is in a stream."""

    text: str
    ends: tuple[str, ...]  # Its terminal events, in order: a stream has exactly one.
    error: str  # What its error event says; empty where there is none.
    kind: str  # The error's type or code
    pings: int


def post_of(dialect: str, model: str, *, streams: bool = True, text: str = "Hi", **kinds: Any) -> dict[str, Any]:
    """Path and body of a request, for a plain HTTP client."""
    body = {"model": model, **question(dialect, text, **kinds), "stream": streams}
    return {"url": PATHS[dialect], "json": body}


def read_stream(dialect: str, raw: bytes) -> Read:
    pings = raw.count(b": ping") + raw.count(b"event: ping")
    return {"anthropic": _messages, "openai-chat": _chat, "openai-responses": _responses}[dialect](raw, pings)


def error_of(dialect: str, body: Any) -> tuple[str, str]:
    """Kind and message of an error's envelope, which must be the dialect's own."""
    error = body["error"]
    if dialect == "anthropic":
        assert body["type"] == "error"
        return error["type"], error["message"]
    assert set(error) >= {"message", "type", "param", "code"}
    return error["type"], error["message"]


def _messages(raw: bytes, pings: int) -> Read:
    texts, ends, said, kind = list[str](), list[str](), "", ""
    for event in sse_events(raw):
        data = json.loads(event.data)
        assert data["type"] == event.event
        if data["type"] == "content_block_delta":
            texts.append(data["delta"].get("text", ""))
        elif data["type"] == "error":
            ends.append("error")
            kind, said = data["error"]["type"], data["error"]["message"]
        elif data["type"] == "message_stop":
            ends.append("end")
    return Read("".join(texts), tuple(ends), said, kind, pings)


def _chat(raw: bytes, pings: int) -> Read:
    texts, ends, said, kind = list[str](), list[str](), "", ""
    for event in sse_events(raw):
        if event.data == "[DONE]":
            ends.append("end")
            continue
        data = json.loads(event.data)
        if "error" in data:
            ends.append("error")
            kind, said = data["error"]["type"], data["error"]["message"]
        texts += [choice["delta"].get("content") or "" for choice in data.get("choices", ())]
    return Read("".join(texts), tuple(ends), said, kind, pings)


def _responses(raw: bytes, pings: int) -> Read:
    texts, ends, said, kind = list[str](), list[str](), "", ""
    for event in sse_events(raw):
        data = json.loads(event.data)
        if data["type"] == "response.output_text.delta":
            texts.append(data["delta"])
        elif data["type"] == "error":
            ends.append("error")
            kind, said = data["code"] or "", data["message"]
        elif data["type"] == "response.failed":
            ends.append("error")
            kind, said = data["response"]["error"]["code"], data["response"]["error"]["message"]
        elif data["type"] in ("response.completed", "response.incomplete"):
            ends.append("end")
    return Read("".join(texts), tuple(ends), said, kind, pings)
