"""What is known of each request that was served: who asked for what, which rule chose which model, what it cost.

No content: neither prompts nor answers. The newest are kept in memory for whoever watches. Knows no network.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..values import Usage

RECORDS_MAX = 1_000
SESSIONS_MAX = 100
WINDOW_S = 1.0
"""The speed of a stream that is under way is that of its last second."""


class Record(msgspec.Struct):
    """One request, from its arrival to its end. It is filled in as things become known."""

    id: str
    at: float
    dialect: str = ""
    asked: str = ""
    """The model that the caller named."""
    key: str = ""
    session: str = ""
    project: str = ""
    streams: bool = False
    rule: str = ""
    why: str = ""
    engine: str = ""
    """The engine that answered, or was asked last."""
    model: str = ""
    attempts: int = 0
    relayed: bool = False
    agents: tuple[str, ...] = ()
    """The plugins that took part."""
    rounds: int = 0
    status: int = 0
    outcome: str = "open"
    """`done`, `failed`, or `left` when the caller did not wait for the end."""
    error: str = ""
    warnings: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_nanousd: int | None = None
    """Billionths of a dollar; None where no price is known."""
    first_token_s: float | None = None
    seconds: float = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """The speed of the answer, from its first token to its end."""
        spent_s = self.seconds - (self.first_token_s or 0.0)
        return self.usage.tokens_out / spent_s if spent_s > 0 and self.usage.tokens_out else None


class Speed(msgspec.Struct):
    """How fast the answers of one session come."""

    tokens_out: int = 0
    seconds: float = 0.0
    first_token_s: float | None = None
    live: float | None = None
    """Tokens a second now; None when nothing streams."""
    moments: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque[tuple[float, int]]())

    @property
    def average(self) -> float | None:
        return self.tokens_out / self.seconds if self.seconds > 0 and self.tokens_out else None


class Records:
    """The newest records, how fast each session's answers come, and whoever watches."""

    def __init__(self) -> None:
        self.newest: deque[Record] = deque(maxlen=RECORDS_MAX)
        self.speeds: OrderedDict[str, Speed] = OrderedDict()
        self._watchers: list[Callable[[Record], None]] = []

    def watch(self, watcher: Callable[[Record], None]) -> Callable[[], None]:
        """Call this with each record when it begins and when it ends. Gives what ends the watching."""
        self._watchers.append(watcher)

        def unwatch() -> None:
            with suppress(ValueError):
                self._watchers.remove(watcher)

        return unwatch

    def begin(self, record: Record) -> None:
        self.newest.append(record)
        self._tell(record)

    def end(self, record: Record) -> None:
        if record.session:
            speed = self.speed_of(record.session)
            speed.live = None
            speed.moments.clear()
            if record.first_token_s is not None:
                speed.first_token_s = record.first_token_s
                speed.tokens_out += record.usage.tokens_out
                speed.seconds += max(0.0, record.seconds - record.first_token_s)
        self._tell(record)

    def streamed(self, session: str, tokens: int, now: float) -> None:
        """So many tokens of a session's answer came just now."""
        speed = self.speed_of(session)
        moments = speed.moments
        moments.append((now, tokens))
        while moments and moments[0][0] < now - WINDOW_S:
            moments.popleft()
        spent_s = max(now - moments[0][0], WINDOW_S / 10)
        speed.live = sum(count for _, count in moments) / spent_s

    def speed_of(self, session: str) -> Speed:
        speed = self.speeds.get(session)
        if speed is None:
            speed = self.speeds[session] = Speed()
            if len(self.speeds) > SESSIONS_MAX:
                self.speeds.popitem(last=False)
        else:
            self.speeds.move_to_end(session)
        return speed

    def _tell(self, record: Record) -> None:
        for watcher in list(self._watchers):
            watcher(record)
