"""The charged engine: a reservation before each call, a charge after it, however the call ends.

Retries and fallbacks inside the engine are part of the same call. A reply is measured while it streams, and cut off
when it passes its bound or what the ledger has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from ..charge import Scope, Tell, model_of
from ..engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ..errors import EngineError, ReplyTooLong
from ..limits import Limits, ReplyBound
from ..machine.prefix_cache import PrefixCache
from ..machine.tokens import ReplySize, event_tokens, json_tokens, message_tokens, tools_tokens
from ..prompt import Prompt
from ..values import NO_USAGE, Delta, Message, Notice, PartDelta, ReplyFinished, ReplyStarted, Usage

if TYPE_CHECKING:
    from .admission import Reservation
    from .ledger import Ledger

OUT_TOKENS = 1_024  # tokens reserved for an answer if the prompt sets no limit, and again each time it becomes longer
OUT_TOKENS_MAX = 4_096  # tokens reserved for an answer at most: few answers use all that the prompt allows
SLACK = 4  # how many times `tokens_max` a reply may have by our estimate, which differs from the model's own count
SLACK_TOKENS = 4_096  # tokens that a reply may have beyond that, because thinking may not count towards `tokens_max`
MEASURED_BYTES = 16_384
"""Bytes of a relayed answer that are kept to be measured together. A shorter one needs no measuring, unless it may
reach a limit or its usage is not reported."""
EVENT_BYTES = 1_024  # bytes of a relayed event beside its text: an upper bound of the average
_OUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_IN_FIELDS = ("messages", "input", "system", "instructions", "tools")
COUNT = "count"  # the kind of a call that only counts tokens: it spends none, so none are estimated

_BOUND = Limits().reply_bound
_history = PrefixCache(0, lambda total, messages: total + sum(map(message_tokens, messages)))


class _Call:
    """A call in progress: how long its reply may become, and what is charged for it at its end."""

    def __init__(
        self,
        ledger: Ledger,
        engine: str,
        reservation: Reservation,
        bound: ReplyBound,
        tokens_max: int | None,
        expected: Callable[[], tuple[int, int]] | None,
    ) -> None:
        """`expected` estimates the tokens in and out; None for a call that spends nothing."""
        self._ledger, self._engine, self._reservation, self._expected = ledger, engine, reservation, expected
        self._setting, self._most = bound.name, bound.tokens
        if tokens_max is not None and (most := SLACK * tokens_max + SLACK_TOKENS) < self._most:
            self._setting, self._most = "options.tokens_max", most

    @property
    def check_at(self) -> int:
        reserved = self._reservation.tokens_out
        return self._most if reserved is None else min(self._most, reserved)

    @property
    def count_max(self) -> int:
        """The most deltas or events that the reply may have: nearly every one of an honest model has some text."""
        return 2 * self._most + SLACK_TOKENS

    async def check(self, tokens: int, count: int, size: int, bytes_max: int) -> int:
        """Reserve more if the reply needs it, and return `check_at`. Raises ReplyTooLong if the reply has exceeded its
        bound, and TokenLimitError if the ledger has nothing left for it."""
        if tokens > self._most or count > self.count_max or size > bytes_max:
            name, what = self._setting, f"about {tokens:,} tokens in {count:,} pieces"
            if size > bytes_max:
                name, what = "limits.reply_bytes", f"{size:,} bytes"
            cut_off = f"the reply did not end and was cut off after {what}"
            raise ReplyTooLong(name, f"{cut_off}; raise {name} to allow longer replies")
        reserved = self._reservation.tokens_out
        if reserved is not None and tokens > reserved:
            await self._ledger.extend(self._reservation, max(OUT_TOKENS, tokens - reserved))
        return self.check_at

    def settle(
        self,
        usage: Usage,
        answered: ReplyStarted | Relayed,
        tokens_out: Callable[[], int],
        lost: tuple[str, ...],
        *,
        whole: bool = True,
    ) -> None:
        """Charge a call that ended, or broke off during its answer, to the engine and model that answered. `tokens_out`
        estimates the received part. `lost` is charged to the engines that lost it."""
        expected = self._expected
        estimate = None if expected is None else lambda: Usage(expected()[0], tokens_out())
        self._ledger.settle(
            self._reservation,
            usage,
            engine=answered.engine,
            model=answered.model,
            whole=whole,
            estimate=estimate,
            lost=self._lost(lost) if lost else None,
        )

    def _lost(self, engines: tuple[str, ...]) -> dict[str, Usage]:
        """Return what each engine may have spent on failed attempts, which is their input. The engine that was asked
        has no name here."""
        if self._expected is None:
            return {}
        tokens_in = self._expected()[0]
        counts = Counter("" if name == self._engine else name for name in engines)
        return {name: Usage(tokens_in * count, estimated=True) for name, count in counts.items()}

    def lose(self, error: BaseException | None, lost: tuple[str, ...]) -> None:
        """Charge a call that ended without an answer. The provider may still charge for its input, unless it was never
        sent or was refused. If the caller left, the whole reservation is charged, because the model may still be
        working."""
        if self._expected is None:
            return self._ledger.void(self._reservation)
        usage = NO_USAGE
        if error is not None and not isinstance(error, Exception):  # cancelled, or the stream was closed
            tokens_in, tokens_out = self._expected()
            usage = Usage(tokens_in, tokens_out, estimated=True)
        elif isinstance(error, EngineError):
            lost += error.attempts_of(self._engine)
        else:
            lost += (self._engine,)
        self._ledger.settle(self._reservation, usage, lost=self._lost(lost))


class ChargedEngine(Wrapper):
    """An engine whose calls are reserved and charged, and whose replies are bounded. It relays if the engine does."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        scope: Scope | Callable[[], Scope],
        tell: Tell | None = None,
        bound: Callable[[], ReplyBound] | None = None,
    ) -> None:
        super().__init__(engine)
        self._ledger, self._scope, self._tell = ledger, scope, tell
        self._bound = bound or (lambda: _BOUND)

    def __repr__(self) -> str:
        return f"ChargedEngine({self._engine!r})"

    @property
    def dialect(self) -> str:
        return dialect_of(self._engine)

    def _scope_now(self) -> Scope:
        """Return what the call is charged to, with the engine's name and model."""
        scope = self._scope if isinstance(self._scope, Scope) else self._scope()
        if scope.engine and scope.model:
            return scope
        return msgspec.structs.replace(
            scope, engine=scope.engine or self.name, model=scope.model or model_of(self.name)
        )

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        def expected() -> tuple[int, int]:
            return _tokens_in(prompt), min(prompt.options.tokens_max or OUT_TOKENS, OUT_TOKENS_MAX)

        bound = self._bound()
        reservation = await self._ledger.reserve(self._scope_now(), tokens=expected, tell=self._tell)
        call = _Call(self._ledger, self.name, reservation, bound, prompt.options.tokens_max, expected)
        size = ReplySize(call.check_at, bound.bytes, call.count_max)
        started, lost, ending = ReplyStarted(), tuple[str, ...](), None
        deltas = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                past = size.past(delta)
                if type(delta) is not PartDelta:
                    if type(delta) is ReplyFinished:
                        # Charged before the end is passed on, because the reader may stop there.
                        call.settle(delta.usage, started, lambda: size.tokens, lost)
                    elif type(delta) is ReplyStarted:
                        started = delta
                    elif type(delta) is Notice:
                        lost += delta.lost
                yield delta
                if past:  # after the delta was passed on, so that it is shown and counts
                    size.tokens_max = await call.check(size.tokens, size.deltas, size.bytes, bound.bytes)
        except BaseException as error:
            ending = error
            raise
        finally:
            if not reservation.over:
                known = started.usage or NO_USAGE
                if size.tokens or known.tokens_in or known.tokens_out:
                    call.settle(known, started, lambda: size.tokens, lost, whole=False)
                else:
                    call.lose(ending, lost)
            ending = None  # it refers to this frame: the cycle would keep the whole request until garbage collection
            await close(deltas)

    async def relay(
        self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = ""
    ) -> ChargedAnswer:
        engine, bound = cast(Relays, self._engine), self._bound()
        scope, tokens_max = self._scope_now(), _tokens_max(fields)
        window = self.facts.window_tokens or 1_000_000

        def expected() -> tuple[int, int]:
            sent = sum(json_tokens(bytes(fields[name])) for name in _IN_FIELDS if name in fields)
            wanted = OUT_TOKENS if tokens_max is None else min(tokens_max, OUT_TOKENS_MAX)
            return min(sent, window), wanted

        spends = scope.kind != COUNT
        tokens = expected if spends else lambda: (0, 0)
        reservation = await self._ledger.reserve(scope, tokens=tokens, tell=self._tell)
        call = _Call(self._ledger, self.name, reservation, bound, tokens_max, expected if spends else None)
        try:
            relayed = await engine.relay(fields, headers, path=path)
        except BaseException as error:
            call.lose(error, ())
            raise
        return ChargedAnswer(relayed, call, bound)


class ChargedAnswer:
    """A relayed answer, which is charged when it ends or is closed."""

    def __init__(self, relayed: Relayed, call: _Call, bound: ReplyBound) -> None:
        self._relayed, self._call = relayed, call
        self.status, self.headers, self.lost = relayed.status, relayed.headers, relayed.lost
        self.finished = False
        self._tokens = self._events = self._bytes = 0
        self._unmeasured: list[bytes] = []
        self._unmeasured_bytes = 0
        self._check_at, self._events_max = call.check_at, call.count_max
        self._bytes_max = bound.bytes + EVENT_BYTES * bound.tokens
        self._measure_at = self._next_measure()

    @property
    def engine(self) -> str:
        return self._relayed.engine

    @property
    def model(self) -> str:
        return self._relayed.model

    @property
    def usage(self) -> Usage:
        return self._relayed.usage

    @property
    def failure(self) -> EngineError | None:
        return self._relayed.failure

    @property
    def tokens(self) -> int:
        """The tokens passed on so far: an estimate, until the upstream reports them at the end."""
        reported = self._relayed.usage.tokens_out if self.finished and self.failure is None else 0
        if not reported:
            self._measure()
        return max(self._tokens, reported)

    def fail(self, error: EngineError) -> bytes:
        return self._relayed.fail(error)

    async def read(self) -> bytes:
        if self._unmeasured_bytes > self._measure_at:
            await self._check()
        data = await self._relayed.read()
        self.finished = self._relayed.finished
        if data:
            self._unmeasured.append(data)
            self._unmeasured_bytes += len(data)
        else:
            self._settle()
        return data

    async def _check(self) -> None:
        if self.finished:  # its length no longer matters
            return
        self._measure()
        if self._tokens > self._check_at or self._events > self._events_max or self._bytes > self._bytes_max:
            self._check_at = await self._call.check(self._tokens, self._events, self._bytes, self._bytes_max)
        self._measure_at = self._next_measure()

    def _measure(self) -> None:
        if data := b"".join(self._unmeasured):
            self._unmeasured.clear()
            self._unmeasured_bytes = 0
            self._events += data.count(b"\n\n") or 1
            self._bytes += len(data)
            self._tokens += json_tokens(data) if data[:1] == b"{" else event_tokens(data)

    def _next_measure(self) -> int:
        """Return how many more bytes cannot exceed a limit, since a token has at least four. To measure each event
        would cost more than to pass it on."""
        return min(MEASURED_BYTES, 4 * (self._check_at - self._tokens))

    def close(self) -> None:
        self._relayed.close()
        self._settle()

    def _settle(self) -> None:
        relayed = self._relayed
        whole = self.finished and relayed.failure is None
        self._call.settle(relayed.usage, relayed, lambda: self.tokens, self.lost, whole=whole)


def _tokens_in(prompt: Prompt) -> int:
    instructions: tuple[Message, ...] = prompt.instructions
    return _history.of(prompt.history) + sum(map(message_tokens, instructions)) + tools_tokens(prompt.tools)


def _tokens_max(fields: Mapping[str, msgspec.Raw]) -> int | None:
    for name in _OUT_FIELDS:
        if name in fields:
            try:
                return max(msgspec.json.decode(fields[name], type=int), 0)
            except msgspec.DecodeError:
                continue
    return None
