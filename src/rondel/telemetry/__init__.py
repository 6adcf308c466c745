"""Traces for other people's dashboards: a turn's tree as OpenTelemetry spans, sent by OTLP over HTTP.

`names` has every name of the conventions for generative AI that is used; `spans` makes spans of a trace and is pure;
`sender` is the only file that knows OpenTelemetry's own library, and imports it with the first turn that is sent.
"""

from .sender import Sender
from .spans import Span, spans_of

__all__ = ["Sender", "Span", "spans_of"]
