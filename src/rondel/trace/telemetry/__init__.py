"""Sends turns as OpenTelemetry spans, by OTLP over HTTP. Only `sender` uses OpenTelemetry's library."""

from .sender import Sender
from .spans import Span, spans_of

__all__ = ["Sender", "Span", "spans_of"]
