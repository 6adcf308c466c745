"""What is known of each request that was served: who asked for what, which rule chose which model, what it cost.

No content: neither prompts nor answers. The newest are kept in memory for whoever watches. Knows no network.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

from ..values import Usage

log = logging.getLogger("rondel.gateway")

RECORDS_MAX = 1_000
SESSIONS_MAX = 100
WINDOW_S = 1.0
"""The speed of a stream that is under way is that of its last second."""
MOMENT_S = 0.05
"""What comes within so long of each other is one moment, so that a fast stream is as cheap to follow as a slow one."""
BYTES_PER_TOKEN = 4

_PIECE = re.compile(
    rb'"(?:text|content|reasoning_content|reasoning|thinking|partial_json|arguments|delta)": ?"((?:[^"\\]|\\.)*)"'
)
"""A piece of an answer in an event, in any dialect."""
_AGAIN = b'.done"', b'.completed"'
"""Of events that say again what came in pieces."""


def tokens_in(events: bytes) -> int:
    """How many tokens these events of a stream bring, by estimate: pieces are measured, not decoded."""
    if _AGAIN[0] in events or _AGAIN[1] in events:
        return 0
    pieces = _PIECE.findall(events)
    return max(len(pieces), len(b"".join(pieces)) // BYTES_PER_TOKEN)


def tokens_of(size: int) -> int:
    """How many tokens a piece of so many characters is taken for: a piece that is not empty has at least one."""
    return max(1, size // BYTES_PER_TOKEN) if size else 0


class Speed(msgspec.Struct):
    """How fast the answers of one session come."""

    tokens_out: int = 0
    seconds: float = 0.0
    first_token_s: float | None = None
    """Of the newest answer."""
    recent: int = 0
    moments: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque[tuple[float, int]]())
    """When how many tokens came, within the last second."""

    @property
    def average(self) -> float | None:
        """Tokens a second, over all answers that have ended, from their first tokens on."""
        return self.tokens_out / self.seconds if self.seconds >= MOMENT_S and self.tokens_out else None

    def add(self, tokens: int, now: float) -> None:
        """So many tokens came just now."""
        if not tokens:  # an event that only says that the stream lives
            return
        moments = self.moments
        self.recent += tokens
        if moments and now - moments[-1][0] < MOMENT_S:
            moments[-1] = (moments[-1][0], moments[-1][1] + tokens)
        else:
            moments.append((now, tokens))
            self._forget(now)

    def live(self, now: float) -> float | None:
        """Tokens a second now; None when nothing came for a second."""
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
    """`done`, `failed`, `left` when the caller did not wait for the end, or `refused` when it did not come in."""
    error: str = ""
    warnings: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_nanousd: int | None = None
    """Billionths of a dollar; None where no price is known."""
    first_token_s: float | None = None
    seconds: float = 0.0
    speed: Speed | None = None
    """That of its session, while it streams; none where the caller names no session."""

    @property
    def answer_s(self) -> float:
        """How long the answer took: from its first token on where it streamed, else all of the time."""
        return self.seconds - (self.first_token_s or 0.0) if self.streams else self.seconds

    @property
    def tokens_per_s(self) -> float | None:
        """The speed of the answer; None where it came in one moment, which is no speed."""
        spent_s = self.answer_s
        return self.usage.tokens_out / spent_s if spent_s >= MOMENT_S and self.usage.tokens_out else None


class Records:
    """The newest records, how fast each session's answers come, and whoever watches."""

    def __init__(self) -> None:
        self.newest: deque[Record] = deque(maxlen=RECORDS_MAX)
        self.speeds: OrderedDict[str, Speed] = OrderedDict()
        self._watchers: tuple[Callable[[Record], None], ...] = ()

    def watch(self, watcher: Callable[[Record], None]) -> Callable[[], None]:
        """Call this with each record when it begins and when it ends. Gives what ends the watching."""
        self._watchers += (watcher,)

        def unwatch() -> None:
            self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return unwatch

    def add(self, record: Record) -> None:
        """A request that has ended before it began: it was refused."""
        self.newest.append(record)
        self._tell(record)

    def begin(self, record: Record) -> None:
        self.newest.append(record)
        if record.session:
            record.speed = self.speed_of(record.session)
        self._tell(record)

    def end(self, record: Record) -> None:
        if (speed := record.speed) is not None and record.first_token_s is not None:
            speed.first_token_s = record.first_token_s
            speed.tokens_out += record.usage.tokens_out
            speed.seconds += max(0.0, record.answer_s)
        self._tell(record)

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
        for watcher in self._watchers:
            try:
                watcher(record)
            except Exception:  # whoever watches has no part in the request
                log.exception("a watcher of requests failed")
