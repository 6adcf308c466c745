"""Where traces are sent: the table `[telemetry]`, or the variable that every program with OpenTelemetry knows."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ..document import Checker, going_on
from ..settings import Source, TelemetrySettings, shown_url

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
KEY = "telemetry.endpoint"


def telemetry_of(checker: Checker, given: TelemetrySettings, env: Mapping[str, str]) -> TelemetrySettings:
    """What is in force. The file wins: the variable is for all programs of a machine."""
    if not given.endpoint:
        return msgspec.structs.replace(given, endpoint=env.get(VARIABLE, "") if _is_on(env) else "")
    parts = urlsplit(given.endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = shown_url(given.endpoint)
        with going_on(checker.mistakes):
            raise checker.document.error(
                ("telemetry", "endpoint"), f"{shown!r} is no web address; write http://host:port, such as a collector's"
            )
    return given


def telemetry_source(given: TelemetrySettings, in_force: TelemetrySettings) -> dict[str, Source]:
    """Where the endpoint came from, when it is not from the file."""
    return {KEY: Source(variables=(VARIABLE,))} if in_force.endpoint and not given.endpoint else {}


def _is_on(env: Mapping[str, str]) -> bool:
    """OpenTelemetry's own two ways to switch it off."""
    return env.get("OTEL_SDK_DISABLED", "").lower() != "true" and env.get("OTEL_TRACES_EXPORTER", "").lower() != "none"
