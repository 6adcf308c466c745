"""Finds where to send traces: the table `[telemetry]`, or OpenTelemetry's environment variable."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ...text.document import Checker, collecting
from ..settings import Source, TelemetrySettings, shown_url

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
KEY = "telemetry.endpoint"


def telemetry_of(checker: Checker, given: TelemetrySettings, env: Mapping[str, str]) -> TelemetrySettings:
    """Return the effective settings. The file overrides the variable, which is for all programs on a machine."""
    if not given.endpoint:
        return msgspec.structs.replace(given, endpoint=env.get(VARIABLE, "") if _is_on(env) else "")
    parts = urlsplit(given.endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = shown_url(given.endpoint)
        with collecting(checker.mistakes):
            raise checker.document.error(
                ("telemetry", "endpoint"),
                f"{shown!r} is not a web address; write the collector's, such as http://host:port",
            )
    return given


def telemetry_source(given: TelemetrySettings, effective: TelemetrySettings) -> dict[str, Source]:
    """Return where the endpoint came from, if not from the file."""
    return {KEY: Source(variables=(VARIABLE,))} if effective.endpoint and not given.endpoint else {}


def _is_on(env: Mapping[str, str]) -> bool:
    # OpenTelemetry has two variables to switch it off.
    return env.get("OTEL_SDK_DISABLED", "").lower() != "true" and env.get("OTEL_TRACES_EXPORTER", "").lower() != "none"
