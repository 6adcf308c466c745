"""Remembers which engines failed, so that requests need not wait for them before a fallback answers.

An engine that failed is skipped for a pause, which doubles with each failure. After the pause one request tries it;
the others skip it until that one succeeds, which ends the outage. An engine without an alternative is always asked. The
time is passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ...engine import Engine
from ...errors import EngineError, EngineGarbled, EngineOverloaded, EngineTimeout, EngineUnreachable

BASE_S = 5.0
MAX_S = 300.0  # the default of the first pause, and the longest pause
ENTRIES_MAX = 500
_WHY: dict[type[EngineError], str] = {
    EngineUnreachable: "unreachable",
    EngineTimeout: "too slow",
    EngineOverloaded: "overloaded",
    EngineGarbled: "answering nonsense",
}
"""Callers read only the kind of a failure, because a server's own message may contain anything."""


class Candidate(NamedTuple):
    """An engine that may answer a request."""

    engine: Engine
    account: str
    """The engine's name in the configuration, and its model: `work:gpt-5`. `engine.name` has the provider's name, which
    two accounts at one provider share."""


def named(name: str, engine: Engine) -> Candidate:
    """Return the candidate for an engine that the configuration calls `work` or `work:gpt-5`."""
    head, _, model = name.partition(":")
    model = engine.name.partition(":")[2] or model
    return Candidate(engine, f"{head}:{model}" if model else head)


class Outage(msgspec.Struct):
    engine: str  # an account with its model
    failures: int = 0
    until: float = 0.0
    why: str = ""


class Outages:
    """`now` returns the time in seconds; `base_s` is the first pause. With 0, nothing is remembered."""

    def __init__(self, now: Callable[[], float], base_s: float = BASE_S) -> None:
        self._now, self.base_s = now, base_s
        self._known: OrderedDict[str, Outage] = OrderedDict()

    def order(self, candidates: list[Candidate]) -> tuple[list[Candidate], tuple[str, ...]]:
        """Return the candidates, those that are down last, and a warning for each of those."""
        down = self.down_among([candidate.account for candidate in candidates])
        if not down:
            return candidates, ()
        return sorted(candidates, key=lambda candidate: candidate.account in down), tuple(down.values())

    def down_among(self, accounts: Sequence[str]) -> dict[str, str]:
        """Return those that are down, each with a warning; none if all are down, because one must be asked. An engine
        whose pause has ended is asked; until it answers, it stays down for other requests."""
        if not self._known or len(accounts) < 2:
            return {}
        now = self._now()
        down = {
            account: f"{account!r} was not asked: it was {outage.why} ({outage.failures} in a row) and is tried again "
            f"in {outage.until - now:.0f} s"
            for account in accounts
            if (outage := self._down(account, now))
        }
        return {} if down.keys() >= set(accounts) else down

    def failed(self, account: str, error: EngineError) -> None:
        """Record a failure before the first token. Failures caused by the prompt or the key are ignored."""
        why = next((why for kind, why in _WHY.items() if isinstance(error, kind)), "")
        if not why or not error.retryable or not self.base_s:
            return
        outage = self._known.setdefault(account, Outage(account))
        self._known.move_to_end(account)
        if len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)
        outage.failures, outage.why = outage.failures + 1, why
        costs_time = isinstance(error, EngineUnreachable | EngineTimeout)
        if costs_time or error.retry_after_s or outage.failures > 1:
            pause_s = max(self._pause_s(outage), error.retry_after_s or 0.0)
            outage.until = self._now() + min(pause_s, MAX_S)

    def answered(self, account: str) -> None:
        if self._known:
            self._known.pop(account, None)

    def all(self) -> Sequence[Outage]:
        return [outage for outage in self._known.values() if outage.until]

    def _down(self, account: str, now: float) -> Outage | None:
        outage = self._known.get(account)
        if outage is None or not outage.until or not self.base_s:
            return None
        if outage.until > now:
            return outage
        # This request tries the engine. If it never gets an answer, another request does after the same pause.
        outage.until = now + self._pause_s(outage)
        return None

    def _pause_s(self, outage: Outage) -> float:
        return min(self.base_s * 2.0 ** min(outage.failures - 1, 30), MAX_S)
