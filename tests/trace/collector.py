"""A real OTLP receiver on loopback: it takes what an exporter sends over HTTP and decodes the protobuf."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received:
    def __init__(self) -> None:
        self.port = 0
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.status = 200

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> dict[str, Any]:
        """The spans by their names; the first one of several."""
        return {span.name: span for span in reversed(list(self.every_span()))}

    def every_span(self) -> Iterator[Any]:
        for request in self.requests:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans

    @property
    def resource(self) -> dict[str, Any]:
        return attributes_of(self.requests[0].resource_spans[0].resource)


def attributes_of(thing: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return [plain(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)

    return {attribute.key: plain(attribute.value) for attribute in thing.attributes}


@contextlib.contextmanager
def collector(status: int = 200) -> Generator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.append(self.path)
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            received.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
