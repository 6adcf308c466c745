"""Records of the requests that were served: who asked for what, which rule chose which model, what it cost.

Records have no content of prompts or answers. The newest are kept in memory for watchers. Knows no network.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

from ...values import Usage

log = logging.getLogger("rondel.gateway")

RECORDS_MAX = 1_000
SESSIONS_MAX = 100
TEXT_MAX, WARNINGS_MAX = 1_000, 20
WINDOW_S = 1.0  # the current speed of a stream is measured over this time
MOMENT_S = 0.05  # tokens within this time are counted together, so that a fast stream costs no more than a slow one
BYTES_PER_TOKEN = 4


def tokens_of(size: int) -> int:
    """Estimate the tokens of a piece with this many characters: at least one if it is not empty."""
    return max(1, size // BYTES_PER_TOKEN) if size else 0


class Speed(msgspec.Struct):
    """The speed of the answers of one session."""

    tokens_out: int = 0
    seconds: float = 0.0
    first_token_s: float | None = None  # of the newest answer
    recent: int = 0
    moments: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque[tuple[float, int]]())
    """Times and numbers of tokens within the last second."""

    @property
    def average(self) -> float | None:
        """Tokens per second over all finished answers, counted from the first token of each."""
        return self.tokens_out / self.seconds if self.seconds >= MOMENT_S and self.tokens_out else None

    def add(self, tokens: int, now: float) -> None:
        """Count tokens that have just arrived."""
        if not tokens:  # a ping
            return
        moments = self.moments
        self.recent += tokens
        if moments and now - moments[-1][0] < MOMENT_S:
            moments[-1] = (moments[-1][0], moments[-1][1] + tokens)
        else:
            moments.append((now, tokens))
            self._forget(now)

    def live(self, now: float) -> float | None:
        """Return the current tokens per second; None if nothing has arrived for a second."""
        self._forget(now)
        if not self.moments:
            return None
        return self.recent / max(now - self.moments[0][0], WINDOW_S / 10)

    def _forget(self, now: float) -> None:
        moments = self.moments
        while moments and moments[0][0] < now - WINDOW_S:
            self.recent -= moments.popleft()[1]


class Record(msgspec.Struct):
    """One request, from its arrival to its end. It is filled in as things become known."""

    id: str
    at: float
    dialect: str = ""
    asked: str = ""  # the model that the caller named
    key: str = ""
    client: str = ""  # the program that asks, as it names itself
    session: str = ""
    project: str = ""
    streams: bool = False
    rule: str = ""
    why: str = ""
    engine: str = ""  # the engine that answered, or was asked last
    model: str = ""
    attempts: int = 0
    relayed: bool = False
    agents: tuple[str, ...] = ()  # the plugins that took part
    rounds: int = 0
    trace: str = ""  # the conversation with its content, if requests are traced
    status: int = 0
    outcome: str = "open"
    """`done`, `failed`, `left` if the caller disconnected before the end, or `refused` if it was not let in."""
    error: str = ""
    warnings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()  # the names of options that could not be sent to the model
    usage: Usage = Usage()
    cost_nanousd: int | None = None  # billionths of a dollar; None if no price is known
    first_token_s: float | None = None
    seconds: float = 0.0
    speed: Speed | None = None  # the speed of its session while it streams; None if the caller names no session

    def shorten(self) -> None:
        """Shorten texts from outside, so that a thousand records can be kept."""
        self.why, self.error, self.model = self.why[:TEXT_MAX], self.error[:TEXT_MAX], self.model[:TEXT_MAX]
        if self.warnings:
            self.warnings = tuple([text[:TEXT_MAX] for text in self.warnings[:WARNINGS_MAX]])

    @property
    def answer_s(self) -> float:
        """How long the answer took: from its first token on if it streamed, else the whole time."""
        return self.seconds - (self.first_token_s or 0.0) if self.streams else self.seconds

    @property
    def tokens_per_s(self) -> float | None:
        spent_s = self.answer_s
        return self.usage.tokens_out / spent_s if spent_s >= MOMENT_S and self.usage.tokens_out else None


class Records:
    """The newest records, the speed of each session, and the watchers."""

    def __init__(self) -> None:
        self.newest: deque[Record] = deque(maxlen=RECORDS_MAX)
        self.speeds: OrderedDict[str, Speed] = OrderedDict()
        self._watchers: tuple[Callable[[Record], None], ...] = ()

    def watch(self, watcher: Callable[[Record], None]) -> Callable[[], None]:
        """Call this with each record when it begins and when it ends. Returns a function that ends the watching."""
        self._watchers += (watcher,)

        def unwatch() -> None:
            self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return unwatch

    def add(self, record: Record) -> None:
        record.shorten()
        self.newest.append(record)
        self._notify(record)

    def begin(self, record: Record) -> None:
        self.newest.append(record)
        if record.session:
            record.speed = self.speed_of(record.session)
        self._notify(record)

    def end(self, record: Record) -> None:
        record.shorten()
        if (speed := record.speed) is not None and record.first_token_s is not None:
            speed.first_token_s = record.first_token_s
            speed.tokens_out += record.usage.tokens_out
            speed.seconds += max(0.0, record.answer_s)
        self._notify(record)

    def speed_of(self, session: str) -> Speed:
        speed = self.speeds.get(session)
        if speed is None:
            speed = self.speeds[session] = Speed()
            if len(self.speeds) > SESSIONS_MAX:
                self.speeds.popitem(last=False)
        else:
            self.speeds.move_to_end(session)
        return speed

    def _notify(self, record: Record) -> None:
        for watcher in self._watchers:
            try:
                watcher(record)
            except Exception:  # a watcher must not fail the request
                log.exception("a watcher of requests failed")
