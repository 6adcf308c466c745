"""A server on loopback that speaks OpenAI's chat protocol, with two models that follow simple rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = ("small", "big")


class ModelServer:
    """The models call the tool that a message names, say what a tool returned, and otherwise repeat the message."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [{"id": model} for model in MODELS]}).encode(), "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not asked.get("stream"):
            said = "".join(delta.get("content", "") for delta, _ in _reply(asked))
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            whole = {"id": "r", "object": "chat.completion", "model": asked["model"], "choices": [choice]}
            self._send(json.dumps(whole).encode(), "application/json")
            return
        chunks = [self._chunk(asked, delta, end) for delta, end in _reply(asked)]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self._send(body.encode(), "text/event-stream")

    def _chunk(self, asked: dict[str, Any], delta: dict[str, Any], end: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        return {"id": "r", "object": "chat.completion.chunk", "model": asked["model"], "choices": [choice]}

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _reply(asked: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    last = asked["messages"][-1]
    content = (
        last["content"] if isinstance(last["content"], str) else "".join(p.get("text", "") for p in last["content"])
    )
    offered = [tool["function"]["name"] for tool in asked.get("tools", ())]
    if last["role"] == "user" and (named := [name for name in offered if name in content]):
        arguments = json.dumps({"command": "echo from the shell"} if named[0] == "run_shell" else {})
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": named[0], "arguments": arguments}}
        yield {"tool_calls": [call]}, None
        yield {}, "tool_calls"
        return
    yield {"role": "assistant", "content": f"{asked['model']} read: "}, None
    yield {"content": content}, None
    yield {}, "stop"
