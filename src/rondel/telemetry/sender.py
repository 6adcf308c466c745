"""Sends turns to an OpenTelemetry collector: OTLP over HTTP, in batches, in the background.

A turn only hands its entries over. One thread makes spans of them, the library's own thread sends them; a collector
that is slow, wrong or gone costs spans and nothing else, and is told of once, in `problem`. The library is imported
with the first turn. Knows no plugin and no configuration.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..events import Entry
from ..trace import build
from . import names
from .spans import Span, spans_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("rondel.telemetry")

SEND_S = 5.0
"""How long one batch is tried."""
TURNS_MAX = 200
"""Turns that may wait to be sent; of more, the newest are left out: a slow collector may not fill the memory."""
SPANS_AT_ONCE = 1_000
"""The library keeps about twice as many, and throws away what it has no room for."""
PATH = "v1/traces"
INSTALL = "telemetry is configured, but OpenTelemetry is not installed: run `pip install 'rondel[otel]'`"
_LOUD = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
    "urllib3.connectionpool",
)
"""The loggers that report each failed attempt; in our threads they are silent, because we say it once."""


class Sender:
    """`problem` is what a person should know, once there is something; empty while all is well."""

    def __init__(self, endpoint: str = "", *, headers: Mapping[str, str] | None = None, content: bool = False) -> None:
        """Without an endpoint, OpenTelemetry's own variables say where to."""
        self.problem = ""
        self._endpoint, self._headers, self._content = endpoint, dict(headers or {}), content
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rondel-telemetry")
        self._room = threading.Semaphore(TURNS_MAX)
        self._batches: _Batches | None = None
        self._closed = False

    def submit(self, conversation: str, entries: Sequence[Entry], children: Mapping[str, Sequence[Entry]]) -> None:
        """Send what a turn did. Returns at once, and never fails."""
        if not self._closed and self.problem != INSTALL and self._room.acquire(blocking=False):
            self._pool.submit(self._send, conversation, entries, children)

    def flush(self) -> None:
        """Send all that was handed over, now. Blocks while it is tried."""
        self._pool.submit(self._flush).result()

    def close(self, wait_s: float) -> None:
        """Send what is left, for so long at most. Blocks: call it in a thread."""
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
            self._tell(INSTALL)
        except Exception as error:
            self._tell(f"a turn's trace could not be sent: {type(error).__name__}")
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
        self._tell(
            f"traces cannot be sent to {where}: see that a collector takes OTLP over HTTP there; the work goes on"
        )

    def _tell(self, problem: str) -> None:
        self.problem = self.problem or problem


class _Batches:
    """The library's batch processor, fed with finished spans."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], failed: Any) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from .. import __version__

        address = _address(endpoint)
        self._exporter = OTLPSpanExporter(address or None, headers=headers or None, timeout=SEND_S)
        shown = _shown(address or str(getattr(self._exporter, "_endpoint", "")))
        self._processor = BatchSpanProcessor(_honest(self._exporter, lambda: failed(shown)))
        self._resource = Resource.create({"service.name": _service(), "service.version": __version__})
        self._scope = InstrumentationScope("rondel", __version__, names.CONVENTIONS)

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
        """The processor would wait for half a minute for a collector that is gone."""
        closing = threading.Thread(target=self._processor.shutdown, name="rondel-telemetry-close", daemon=True)
        closing.start()
        closing.join(wait_s)
        if closing.is_alive():
            self._exporter.shutdown()  # ends the wait for the next attempt
            closing.join(wait_s)


def _honest(exporter: SpanExporter, failed: Any) -> SpanExporter:
    """The exporter, silent while it sends, and with somebody who is told when it could not."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Honest(SpanExporter):
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

    return Honest()


# --- words and addresses ----------------------------------------------------------------------------------------------


def _address(endpoint: str) -> str:
    """Where spans go: what is configured is a collector's address, without the path for traces."""
    if not endpoint or urlsplit(endpoint).path.endswith(f"/{PATH}"):
        return endpoint
    return f"{endpoint.rstrip('/')}/{PATH}"


def _shown(address: str) -> str:
    """An address without what may be a secret: user, password, path and query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _service() -> str:
    import os

    return os.environ.get("OTEL_SERVICE_NAME") or "rondel"


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)


# --- silence ----------------------------------------------------------------------------------------------------------


class _Silent(threading.local):
    depth = 0


_silent = _Silent()


def _is_wanted(record: logging.LogRecord) -> bool:
    return _silent.depth == 0


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """Nothing that these loggers say in this thread is shown; in every other one they go on as they were."""
    for name in _LOUD:
        logging.getLogger(name).addFilter(_is_wanted)  # the same filter twice is once
    _silent.depth += 1
    try:
        yield
    finally:
        _silent.depth -= 1
