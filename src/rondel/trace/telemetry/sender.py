"""Sends turns to an OpenTelemetry collector: OTLP over HTTP, in batches, in the background.

One thread makes spans and the library's own thread sends them. If the collector is slow or unavailable, only spans are
lost; `problem` says so once. The library is imported with the first turn.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import install_extra
from ...events import Entry
from .. import build
from .spans import Span, spans_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("rondel.telemetry")

SEND_S = 5.0  # the time limit for sending one batch
TURNS_MAX = 200
"""How many turns may wait to be sent. More are dropped, so that a slow collector cannot fill the memory."""
SPANS_AT_ONCE = 1_000  # the library buffers about twice as many and drops the rest
PATH = "v1/traces"
CONVENTIONS = "https://opentelemetry.io/schemas/1.37.0"
NOT_INSTALLED = "telemetry is configured, but OpenTelemetry is not installed: run "
_LOUD = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
    "urllib3.connectionpool",
)  # The loggers that report each failed attempt. They are muted in our threads, because we report it once.


class Sender:
    """`problem` is a message for people, empty while all is well."""

    def __init__(self, endpoint: str = "", *, headers: Mapping[str, str] | None = None, content: bool = False) -> None:
        """Without an endpoint, OpenTelemetry's environment variables name it."""
        self.problem = ""
        self._endpoint, self._headers, self._content = endpoint, dict(headers or {}), content
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rondel-telemetry")
        self._room = threading.Semaphore(TURNS_MAX)
        self._batches: _Batches | None = None
        self._closed = False

    def submit(self, conversation: str, entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]]) -> None:
        if not self._closed and not self.problem.startswith(NOT_INSTALLED) and self._room.acquire(blocking=False):
            self._pool.submit(self._send, conversation, entries, children)

    def flush(self) -> None:
        self._pool.submit(self._flush).result()

    def close(self, wait_s: float) -> None:
        self._closed = True
        done = self._pool.submit(self._close, wait_s)
        self._pool.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            done.result(wait_s + SEND_S)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _send(self, conversation: str, entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]]) -> None:
        try:
            with _silence():
                if self._batches is None:
                    self._batches = _Batches(self._endpoint, self._headers, self._failed)
                root = build(entries, children, conversation=conversation)
                for count, span in enumerate(spans_of(root, content=self._content), 1):
                    self._batches.add(span)
                    if count % SPANS_AT_ONCE == 0:
                        self._batches.flush()
        except ImportError:
            self._report(NOT_INSTALLED + install_extra("otel"))
        except Exception as error:
            self._report(f"a turn's trace could not be sent: {type(error).__name__}")
            log.debug("a turn's trace could not be sent", exc_info=error)
        finally:
            self._room.release()

    def _flush(self) -> None:
        if self._batches is not None:
            with _silence():
                self._batches.flush()

    def _close(self, wait_s: float) -> None:
        if self._batches is not None:
            with _silence():
                self._batches.close(wait_s)

    def _failed(self, where: str) -> None:
        todo = "check that a collector accepts OTLP over HTTP there; turns still run"
        self._report(f"traces cannot be sent to {where}: {todo}")

    def _report(self, problem: str) -> None:
        self.problem = self.problem or problem


class _Batches:
    """The library's batch processor, fed with finished spans."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], failed: Any) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from ... import __version__

        address = _address(endpoint)
        self._exporter = OTLPSpanExporter(address or None, headers=headers or None, timeout=SEND_S)
        shown = _shown(address or str(getattr(self._exporter, "_endpoint", "")))
        self._processor = BatchSpanProcessor(_reporting(self._exporter, lambda: failed(shown)))
        self._resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "rondel", "service.version": __version__}
        )
        self._scope = InstrumentationScope("rondel", __version__, CONVENTIONS)

    def add(self, span: Span) -> None:
        self._processor.on_end(self._readable(span))

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(id: int) -> SpanContext:
            return SpanContext(span.trace_id, id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return ReadableSpan(
            span.name,
            context=context(span.id),
            parent=None if span.parent_id is None else context(span.parent_id),
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(event.name, event.attributes, _nanoseconds(event.at)) for event in span.events],
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error or None) if span.failed else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self._scope,
        )

    def flush(self) -> None:
        self._processor.force_flush()

    def close(self, wait_s: float) -> None:
        # The processor would wait half a minute for an unavailable collector.
        closing = threading.Thread(target=self._processor.shutdown, name="rondel-telemetry-close", daemon=True)
        closing.start()
        closing.join(wait_s)
        if closing.is_alive():
            self._exporter.shutdown()  # ends the wait for the next attempt
            closing.join(wait_s)


def _reporting(exporter: SpanExporter, failed: Any) -> SpanExporter:
    """Wrap an exporter so that it logs nothing and calls `failed` if it could not send."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class ReportingExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            with _silence():
                result = exporter.export(spans)
            if result is not SpanExportResult.SUCCESS:
                failed()
            return result

        def shutdown(self) -> None:
            with _silence():
                exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return ReportingExporter()


def _address(endpoint: str) -> str:
    """Return the address for spans: the collector's configured address with the path for traces."""
    if not endpoint or urlsplit(endpoint).path.endswith(f"/{PATH}"):
        return endpoint
    return f"{endpoint.rstrip('/')}/{PATH}"


def _shown(address: str) -> str:
    """Return an address without parts that may be secret: user, password, path and query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)


class _Muted(threading.local):
    depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0


_silent = _Muted()


@contextlib.contextmanager
def _silence() -> Generator[None]:
    for name in _LOUD:
        logging.getLogger(name).addFilter(_silent)  # the same filter twice is once
    _silent.depth += 1
    try:
        yield
    finally:
        _silent.depth -= 1
