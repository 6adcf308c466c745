"""A structured log: one JSON line for each finished round and for each failure. Secrets are masked.

The lines go to the logger `rondel.log` at INFO; if that level is off, no line is made.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from ..events import CallFinished, Event, LimitHit, PluginFailed, RoundFinished, RoundStarted, TurnFinished
from ..machine.turn import Turn
from ..plugin import Key, Plugin
from ..text.masking import mask
from ..values import PartDelta

log = logging.getLogger("rondel.log")

_ROUND = Key("log.round", int)


class Log(Plugin):
    """Writes one JSON line for each round and each failure, to the logger `rondel.log`."""

    name = "log"

    def applies(self, turn: Turn) -> bool:
        return log.isEnabledFor(logging.INFO)

    def on_event(self, turn: Turn, event: Event) -> None:
        if type(event) is PartDelta:  # nearly all of them
            return
        if isinstance(event, RoundStarted):
            turn.state[_ROUND] = event.round
        elif isinstance(event, RoundFinished):
            _write(turn, "round", **_round_fields(event, turn.state[_ROUND]))
        elif isinstance(event, CallFinished) and event.result.is_error:
            _write(turn, "call_failed", call=event.result.call_id, tool=event.result.name, message=event.result.text)
        elif isinstance(event, PluginFailed):
            _write(turn, "plugin_failed", plugin=event.plugin, hook=event.hook, message=event.message)
        elif isinstance(event, LimitHit):
            _write(turn, "limit_hit", limit=event.name, message=event.message)
        elif isinstance(event, TurnFinished) and event.failure is not None:
            failure = event.failure
            said = {"message": failure.message, "code": failure.code, "provider": failure.provider}
            _write(turn, "turn_failed", engine=turn.engine.name, error=failure.name, **said)


def _round_fields(event: RoundFinished, number: int) -> dict[str, Any]:
    usage = event.usage
    return {
        "engine": event.engine,
        "model": event.model,
        "round": number,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "tokens_cached": usage.tokens_cached,
        "tokens_reasoning": usage.tokens_reasoning,
        "estimated": usage.estimated,
        "seconds": round(event.seconds, 4),
        "first_token_s": None if event.first_token_s is None else round(event.first_token_s, 4),
        "stop": event.stop,
        "calls": [call.name for call in event.message.calls],
        "notices": list(event.notices),
    }


def _write(turn: Turn, event: str, **fields: Any) -> None:
    line = {"event": event, "conversation": turn.conversation, "turn": turn.id, "agent": turn.agent.name, **fields}
    log.info("%s", msgspec.json.encode({name: _masked(value) for name, value in line.items()}).decode())


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    return [mask(text) for text in value] if isinstance(value, list) else value  # type: ignore[arg-type]
