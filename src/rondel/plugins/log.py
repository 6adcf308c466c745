"""A structured log: one JSON line for each finished round, and one for whatever failed. Secrets are hidden.

The lines go to the logger `rondel.log` at INFO; where nobody listens, nothing is made. Knows no file and no format but
JSON.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec

from ..events import (
    CallFinished,
    Event,
    Failure,
    LimitHit,
    PluginFailed,
    RoundFinished,
    RoundStarted,
    TurnFinished,
)
from ..plugin import Key, Plugin
from ..turn import Turn
from ..values import Notice, PartDelta

log = logging.getLogger("rondel.log")

HIDDEN = "***"

_PREFIXED = r"\b(?:sk|pk|rk|gsk|hf|xai|r8|ghp|gho|ghs|ghu|github_pat|glpat|xox[abeprs])[-_][\w-]{6,}"
_NAMED = r"(?:api[_-]?key|key|token|secret|passwd|password|pwd|authorization)"
_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {HIDDEN}"),
    (re.compile(r"(://[^\s/:@]*+:)[^\s/@]++@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"{_PREFIXED}|\b(?:AKIA|ASIA|AIza)[\w-]{{12,}}|\beyJ[\w-]{{8,}}\.[\w.-]{{8,}}"), HIDDEN),
    (
        re.compile(rf"""(?i)((?:\b|[_-]){_NAMED}["']?\s*[=:]\s*["']?)(?!bearer |basic )[^\s"',;&}}\])]+"""),
        rf"\1{HIDDEN}",
    ),
)
"""Keys by their prefix, what follows `Bearer`, a URL's password, and whatever a telling name is set to."""


def mask(text: str) -> str:
    """The text without its secrets."""
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text


class _Round:
    """What a round said of itself while it ran."""

    __slots__ = ("notices", "number")

    def __init__(self) -> None:
        self.number = 0
        self.notices: list[str] = []


_ROUND = Key("log.round", _Round)


class Log(Plugin):
    name = "log"

    def applies(self, turn: Turn) -> bool:
        return log.isEnabledFor(logging.INFO)

    def on_event(self, turn: Turn, event: Event) -> None:
        kind = type(event)
        if kind is PartDelta:  # nearly all of them
            return
        if isinstance(event, RoundStarted):
            turn.state[_ROUND] = started = _Round()
            started.number = event.round
        elif isinstance(event, Notice):
            turn.state[_ROUND].notices.append(event.text)
        elif isinstance(event, RoundFinished):
            _write(turn, "round", **_round_fields(event, turn.state[_ROUND]))
        elif isinstance(event, CallFinished) and event.result.is_error:
            _write(turn, "call_failed", call=event.result.call_id, tool=event.result.name, message=event.result.text)
        elif isinstance(event, PluginFailed):
            _write(turn, "plugin_failed", plugin=event.plugin, hook=event.hook, message=event.message)
        elif isinstance(event, LimitHit):
            _write(turn, "limit_hit", limit=event.name, message=event.message)
        elif isinstance(event, TurnFinished) and event.failure is not None:
            _write(turn, "turn_failed", engine=turn.engine.name, **_failure_fields(event.failure))


def _round_fields(event: RoundFinished, known: _Round) -> dict[str, Any]:
    usage = event.usage
    return {
        "engine": event.engine,
        "model": event.model,
        "round": known.number,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "tokens_cached": usage.tokens_cached,
        "tokens_reasoning": usage.tokens_reasoning,
        "estimated": usage.estimated,
        "seconds": round(event.seconds, 4),
        "first_token_s": None if event.first_token_s is None else round(event.first_token_s, 4),
        "stop": event.stop,
        "calls": [call.name for call in event.message.calls],
        "notices": known.notices,
    }


def _failure_fields(failure: Failure) -> dict[str, Any]:
    return {"error": failure.name, "message": failure.message, "code": failure.code, "provider": failure.provider}


def _write(turn: Turn, event: str, **fields: Any) -> None:
    line = {"event": event, "conversation": turn.conversation, "turn": turn.id, "agent": turn.agent.name, **fields}
    log.info("%s", msgspec.json.encode({name: _masked(value) for name, value in line.items()}).decode())


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    return [mask(text) for text in value] if isinstance(value, list) else value  # type: ignore[arg-type]
