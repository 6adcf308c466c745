"""One request, from its arrival to its end: which engine, passed on as bytes or through the loop, and what came of it.

The same dialect in and out, with no plugin that wants to see it, is relayed; everything else is a turn. A failure
before the first token moves on to the next engine; later it is said in the stream, in the caller's own dialect. Knows
no keys and no paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import msgspec

from ..dialect import UNSIGNED
from ..engine import Engine, Relayed, RelayEngine
from ..errors import EngineDenied, EngineError
from ..events import Event
from .inside import Opening, scope_of
from .outgoing import Headers, Outgoing
from .record import Record, tokens_in
from .request import Request
from .responses import PREVIOUS
from .retelling import Parts, Retelling, note_charge

_JSON = [(b"content-type", b"application/json")]
_UNSIGNED = UNSIGNED.encode()
_PASSED_ON = frozenset(
    ("request-id", "x-request-id", "retry-after", "retry-after-ms", "openai-processing-ms", "openai-version")
)
_PASSED_ON_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-", "anthropic-organization")


class Exchange:
    """Answers one request. `engines` are asked in order; `record` is filled in on the way."""

    def __init__(self, parts: Parts, request: Request, outgoing: Outgoing, record: Record) -> None:
        self._parts, self.request, self.outgoing, self.record = parts, request, outgoing, record
        self._began = outgoing.time()
        self._retelling: Retelling | None = None
        self._own_words: EngineError | None = None
        """The first failure, in the caller's own dialect."""
        # It holds the record and not the exchange: what refers to itself is left for the garbage collector.
        outgoing.head = partial(_head, record, outgoing.head)

    async def answer(self, engines: list[Engine], opening: Opening) -> None:
        """Ask the engines in order until one answers."""
        request = self.request
        rest = engines
        looked_at = bool(opening.agent) or self._parts.lending.may_apply(request)
        if not looked_at and not await self._goes_on_here():
            rest = await self._relay(engines)
            if not rest:
                return
        retelling = self._retelling = Retelling(self._parts, request, self.outgoing, self.record, self._began)
        try:
            await retelling.answer(rest, opening, looked_at=looked_at)
        except EngineError:
            if self._own_words is not None and self.record.first_token_s is None:
                raise self._own_words from None  # of all that failed, it is the one that was wanted
            raise

    def fail(self, error: EngineError) -> tuple[int, bytes, Headers]:
        """An error as a whole answer: the provider's own words where it speaks the caller's dialect, unless they are
        about the key, which is ours and not the caller's."""
        if error is self._own_words and error.body.startswith(b"{") and not isinstance(error, EngineDenied):
            status, data = error.status, error.body
        else:
            status, body = self.request.dialect.write_error(error)
            data = msgspec.json.encode(body)
        headers = list(_JSON)
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(0, -(-error.retry_after_s // 1))))
        return status, data, headers

    async def report(self, error: EngineError) -> None:
        """Tell the caller that it failed: as the answer, or in the stream that has begun."""
        record = self.record
        record.outcome, record.error = "failed", str(error)
        out = self.outgoing
        if not out.started:
            status, body, headers = self.fail(error)
            record.status = status
            await out.whole(status, body, headers)
        elif not out.ended:
            record.status, writer = out.status, self._retelling and self._retelling.writer
            out.say(self.request.dialect.write_failure(error) if writer is None else writer.fail(error))
            await out.end()

    # --- as bytes -----------------------------------------------------------------------------------------------------

    async def _goes_on_here(self) -> bool:
        """Whether the request goes on from what was made here, a response or what lent tools gave: an upstream does not
        know of it."""
        if await self._parts.joins.concern(self.request):
            return True
        if PREVIOUS not in self.request.fields:
            return False
        previous = self.request.field(PREVIOUS)
        return isinstance(previous, str) and await self._parts.responses.knows(self.request.key, previous)

    async def _relay(self, engines: list[Engine]) -> list[Engine]:
        """Pass the request on to the engines that speak the caller's dialect, in order. Those that are left when one of
        another dialect is next, or when a server would not take what was said before; none when it was answered."""
        request = self.request
        path = f"{request.dialect.path}?{request.query}" if request.query else ""
        for place, engine in enumerate(engines):
            if getattr(engine, "dialect", "") != request.dialect.name or _UNSIGNED in request.said:
                return engines[place:]
            self.record.engine = engine.name
            self.record.attempts += 1
            metered = self._parts.app.meter(engine, scope_of(request, engine.name), self.tell)
            try:
                relayed = await cast(RelayEngine, metered).relay(request.fields, request.headers, path=path)
            except EngineError as error:
                self._own_words = self._own_words or error
                continue
            await self._pass_on(relayed)
            return []
        assert self._own_words is not None, "there is at least one engine"
        raise self._own_words

    async def _pass_on(self, relayed: Relayed) -> None:
        out, record = self.outgoing, self.record
        record.relayed = True
        record.first_token_s = out.time() - self._began
        out.upstream = _passed_on(relayed.headers.items())
        try:
            if self.request.streams:
                speed = record.speed
                while data := await relayed.read():
                    if relayed.finished:  # the end goes with it, and need not wait for the upstream's
                        out.say(data)
                        await out.end()
                    else:
                        await out.write(data)
                    if speed is not None:
                        speed.add(tokens_in(data), out.last_write)
                await out.end()
            else:
                await out.whole(relayed.status, await relayed.read(), _JSON)
            self._done(relayed.failure)
        except EngineError as error:
            out.say(relayed.fail(error))
            await out.end()
            self._done(error)
        finally:
            relayed.close()
            record.model, record.usage, record.rounds = relayed.model, relayed.usage, 1

    # --- what is known of it ------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """What the ledger charged."""
        note_charge(self.record, event)

    def _done(self, error: EngineError | None = None) -> None:
        record = self.record
        record.status, record.outcome = self.outgoing.status, "failed" if error else "done"
        if error is not None:
            record.error = str(error)


def _head(record: Record, given: Callable[[], Headers]) -> Headers:
    """Who made the answer, and why."""
    head = [
        (b"x-rondel-request", record.id.encode()),
        (b"x-rondel-model", record.engine.encode("latin-1", "replace")),
        (b"x-rondel-rule", record.rule.encode("latin-1", "replace")),
        (b"x-rondel-attempts", b"%d" % record.attempts),
    ]
    if record.warnings:
        head += [(b"x-rondel-warning", _in_a_line(text)) for text in record.warnings]
    return [*given(), *head]


def _in_a_line(text: str) -> bytes:
    """A text that can stand in a header."""
    return " ".join(text.split())[:500].encode("latin-1", "replace")


def _passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    """The upstream's headers that mean something to its clients."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    ]
