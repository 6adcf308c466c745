"""Answers one request: asks its engines in order, relays bytes or runs a turn, and records the result.

If caller and engine speak the same dialect and no plugin applies, bytes are relayed; everything else is a turn. After a
failure before the first token the next engine is asked; a later one ends the stream with an error in the caller's
dialect. Knows no keys and no paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import msgspec

from ...contracts.dialect import passthrough
from ...engine import dialect_of
from ...errors import EngineDenied, EngineError
from ...events import Event, UsageRecorded
from ...ledger.charging import ChargedAnswer, ChargedEngine
from ...values import NO_USAGE
from ..bridge.responses import PREVIOUS
from ..bridge.services import Opening, scope_of
from ..bridge.turn_bridge import SharedState, TurnBridge, note_charge
from ..relay.record import Record
from ..relay.request import GatewayRequest
from ..relay.response import Headers, Outgoing
from ..routing.outages import Candidate

_JSON = [(b"content-type", b"application/json")]
_PASSED_ON = frozenset(
    ("request-id", "x-request-id", "retry-after", "retry-after-ms", "openai-processing-ms", "openai-version")
)
_PASSED_ON_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-", "anthropic-organization")


class Exchange:
    """Answers one request, and fills in its `record`."""

    def __init__(self, parts: SharedState, request: GatewayRequest, outgoing: Outgoing, record: Record) -> None:
        self._parts, self.request, self.outgoing, self.record = parts, request, outgoing, record
        self._began = outgoing.time()
        self._bridge: TurnBridge | None = None
        self._relayed: ChargedAnswer | None = None
        self._wanted = ""
        self._own_words: EngineError | None = None  # the first failure of an engine that speaks the caller's dialect
        # The record and not the exchange: a reference cycle would be left to the garbage collector.
        outgoing.head = partial(_head, record, outgoing.head)

    async def answer(self, candidates: list[Candidate], opening: Opening) -> None:
        """Ask the candidates in order until one answers; those that are known to be down come last."""
        request, self._wanted = self.request, candidates[0].account
        candidates, skipped = self._parts.outages.order(candidates)
        if skipped:
            self.record.warnings += skipped
        rest = candidates
        looked_at = bool(opening.agent) or self._parts.turns.may_apply(request)
        if not looked_at and not self._parts.traced and not await self._continues_here():
            relayed, rest = await self._relay(candidates)
            if relayed is not None:
                await self._pass_on(relayed)
                return
        bridge = self._bridge = TurnBridge(self._parts, request, self.outgoing, self.record, self._began)
        try:
            await bridge.answer(rest, opening, looked_at=looked_at, wanted=self._wanted)
        except EngineError:
            is_wanted = any(candidate.account == self._wanted for candidate in rest)
            if self._own_words is not None and self.record.first_token_s is None and not is_wanted:
                raise self._own_words from None  # of all failures, it is that of the engine that was wanted
            raise

    def fail(self, error: EngineError) -> tuple[int, bytes, Headers]:
        """Return an error as a whole answer: the provider's own body if it speaks the caller's dialect, except for
        errors about the key, which is ours and not the caller's."""
        if error is self._own_words and error.body.startswith(b"{") and not isinstance(error, EngineDenied):
            status, data = error.status, error.body
        else:
            status, body = self.request.dialect.reply_writer().write_error(error)
            data = msgspec.json.encode(body)
        headers = list(_JSON)
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(0, -(-error.retry_after_s // 1))))
        return status, data, headers

    async def report(self, error: EngineError) -> None:
        """Send the error to the caller: as the answer, or in the stream if that has begun."""
        error, record = self._parts.redactor.error(error), self.record
        record.outcome, record.error = "failed", str(error)
        out = self.outgoing
        if not out.started:
            status, body, headers = self.fail(error)
            record.status = status
            await out.whole(status, body, headers)
        elif not out.ended:
            record.status = out.status
            out.say(self._failure(error))
            await out.end()

    def _failure(self, error: EngineError) -> bytes:
        """Return the event that ends the stream with an error, in the format of the stream so far."""
        if self._relayed is not None:
            return self._relayed.fail(error)
        if self._bridge is not None and self._bridge.writer is not None:
            return self._bridge.writer.fail(error)
        return self.request.dialect.reply_writer(model=self.request.model, id=self.request.id).fail(error)

    # --- as bytes -----------------------------------------------------------------------------------------------------

    async def _continues_here(self) -> bool:
        """Whether the request continues a response or injected calls that only this gateway knows."""
        if await self._parts.hidden_rounds.may_apply(self.request):
            return True
        if PREVIOUS not in self.request.fields:
            return False
        previous = self.request.field(PREVIOUS)
        return isinstance(previous, str) and await self._parts.responses.knows(self.request.key, previous)

    async def _relay(self, candidates: list[Candidate]) -> tuple[ChargedAnswer | None, list[Candidate]]:
        """Relay the request to the engines that speak the caller's dialect, in order. Returns the answer, which has
        begun, or the engines that are left when the next one speaks another dialect or would reject earlier messages.
        """
        request = self.request
        relay = passthrough(request.dialect)
        if relay is None or request.has_unsigned:
            return None, candidates
        path = f"{request.dialect.path}?{request.query}" if request.query else ""
        for index, (engine, account) in enumerate(candidates):
            if dialect_of(engine) != request.dialect.name or not relay.takes(request.fields, engine.facts):
                return None, candidates[index:]
            self.record.engine = account
            self.record.attempts += 1
            scope, bound = scope_of(request, engine.name), self._parts.turns.reply_bound
            charged = cast(ChargedEngine, self._parts.app.ledger.charge(engine, scope, self.tell, bound))
            try:
                relayed = await charged.relay(request.fields, request.headers, path=path)
            except EngineError as error:
                if self._own_words is None or account == self._wanted:
                    self._own_words = error
                self._parts.outages.failed(account, error)
                continue
            self._parts.outages.answered(account)
            return relayed, []
        assert self._own_words is not None, "there is at least one engine"
        raise self._own_words

    async def _pass_on(self, relayed: ChargedAnswer) -> None:
        out, record = self.outgoing, self.record
        record.relayed, self._relayed = True, relayed
        record.first_token_s = out.time() - self._began
        out.upstream = _passed_on(relayed.headers.items())
        try:
            if self.request.streams:
                speed, before = record.speed, 0
                while data := await relayed.read():
                    if relayed.finished:  # send the end with it, without waiting for the upstream to close
                        out.say(data)
                        await out.end()
                    else:
                        await out.write(data)
                    if speed is not None:
                        speed.add(relayed.tokens - before, out.last_write)
                        before = relayed.tokens
                await out.end()
            else:
                await out.whole(relayed.status, await relayed.read(), _JSON)
            self._done(relayed.failure)
        except EngineError as error:
            out.say(relayed.fail(error))
            await out.end()
            self._done(error)
        finally:
            relayed.close()  # what is charged is told by now; prices that are still loaded tell it later
            record.model, record.rounds = relayed.model, 1
            if record.usage == NO_USAGE:
                record.usage = relayed.usage

    # --- the record ---------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Record what the ledger charged, which may be more than the upstream reported."""
        note_charge(self.record, event)
        if isinstance(event, UsageRecorded):
            self.record.usage = event.charge.usage

    def _done(self, error: EngineError | None = None) -> None:
        record = self.record
        record.status, record.outcome = self.outgoing.status, "failed" if error else "done"
        if error is not None:
            record.error = str(error)


def _head(record: Record, given: Callable[[], Headers]) -> Headers:
    """Return the headers that say which engine answered, and why."""
    head = [
        (b"x-rondel-request", record.id.encode()),
        (b"x-rondel-model", _header_value(record.engine)),
        (b"x-rondel-rule", _header_value(record.rule)),
        (b"x-rondel-attempts", b"%d" % record.attempts),
    ]
    if record.warnings:
        head += [(b"x-rondel-warning", _header_value(text)) for text in record.warnings]
    if record.dropped:
        head.append((b"x-rondel-dropped", ", ".join(record.dropped).encode()))
    return [*given(), *head]


def _header_value(text: str) -> bytes:
    """Return a text as the value of a header: on one line, and cut if it is long."""
    if len(text) > 500 or not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text[:500])
    return text.encode("latin-1", "replace")


def _passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    ]
