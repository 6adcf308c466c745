"""A model on loopback that says what a test tells it to, one answer for each request, and waits where it is told to."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rondel import values
from rondel.dialects import DIALECTS
from rondel.testing import call, say

WAIT_S = 20.0


class Held:
    """An answer that says `before`, then waits until it is released or its client goes away."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after
        self._go = threading.Event()

    def release(self) -> None:
        self._go.set()

    def deltas(self) -> Iterator[values.Delta | None]:
        """None stands for a moment in which only the connection is looked at."""
        yield values.ReplyStarted("model")
        yield values.PartStarted(0, values.Text(""))
        yield values.PartDelta(0, self.before)
        while not self._go.wait(0.02):
            yield None
        yield values.PartDelta(0, self.after)
        yield values.PartFinished(0, values.Text(self.before + self.after))
        yield values.ReplyFinished()


class ModelServer:
    def __init__(self) -> None:
        self.model = "model"  # What it says that it is
        self.requests: list[dict[str, Any]] = []
        self.seen: list[str] = []  # The paths that were asked for without a body
        self.broken_off = threading.Event()
        self._answers: queue.SimpleQueue[values.Reply | Held | tuple[int, str]] = queue.SimpleQueue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def says(self, *texts: str) -> None:
        for text in texts:
            self._answers.put(say(text))

    def replies(self, reply: values.Reply) -> None:
        self._answers.put(reply)

    def calls(self, name: str, id: str = "", **arguments: object) -> None:
        self._answers.put(call(name, id, **arguments))

    def holds(self, before: str, after: str = "") -> Held:
        held = Held(before, after)
        self._answers.put(held)
        return held

    def fails(self, status: int, message: str = "no") -> None:
        self._answers.put((status, message))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)

    def texts(self, request: int) -> list[str]:
        """What was said to the model in this request, in order."""
        said: list[str] = []
        for message in self.requests[request]["messages"]:
            content: str | Sequence[dict[str, Any]] = message["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            said += [part["text"] for part in parts if "text" in part]
        return said

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.seen.append(self.path)
                self.send_error(404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append(json.loads(body))
                answer = server._answers.get(timeout=WAIT_S)
                if isinstance(answer, tuple):
                    self._refuse(*answer)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                deltas = answer.deltas() if isinstance(answer, Held) else values.deltas_of(answer)
                try:
                    self._stream(deltas)
                except OSError:
                    server.broken_off.set()

            def _stream(self, deltas: Iterator[values.Delta | None]) -> None:
                writer = DIALECTS["anthropic"]().reply_writer(model=server.model, id="msg_1")
                for delta in deltas:
                    self.wfile.write(writer.ping() if delta is None else writer.feed(delta))
                    self.wfile.flush()

            def _refuse(self, status: int, message: str) -> None:
                body = json.dumps({"type": "error", "error": {"type": "api_error", "message": message}}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
