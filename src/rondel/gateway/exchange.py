"""One request, from its arrival to its end: which engine, passed on as bytes or through the loop, and what came of it.

The same dialect in and out, with no plugin that wants to see it, is relayed; everything else is a turn. A failure
before the first token moves on to the next engine; later it is said in the stream, in the caller's own dialect. Knows
no keys and no paths.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import cast

import msgspec

from ..app import App
from ..dialect import Json, ReplyWriter
from ..engine import Engine, Relayed, RelayEngine
from ..engines.fallback import Fallback
from ..errors import EngineDenied, EngineError, EngineOverloaded, LimitReached, RondelError, TokenLimitError
from ..events import Event, LimitHit, Outcome, UsageRecorded, Warned
from ..loop import run_turn
from ..prompt import Prompt
from ..turn import Turn
from ..values import (
    Delta,
    ModelFacts,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
)
from .inside import Joins, Lending, Opening, scope_of
from .outgoing import Flushing, Headers, Outgoing
from .record import Record, tokens_in, tokens_of
from .request import Request
from .responses import DIALECT as RESPONSES
from .responses import PREVIOUS, Responses
from .splice import Splice

DELTAS = (ReplyStarted, PartStarted, PartDelta, PartFinished, ReplyFinished, Notice)
_JSON = [(b"content-type", b"application/json")]
_PASSED_ON = frozenset(
    ("request-id", "x-request-id", "retry-after", "retry-after-ms", "openai-processing-ms", "openai-version")
)
_PASSED_ON_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-", "anthropic-organization")


class Parts:
    """What every exchange shares."""

    def __init__(self, app: App, lending: Lending, *, traced: bool = False) -> None:
        self.app, self.lending, self.traced = app, lending, traced
        self.joins = Joins(app.store, app.clock)
        self.responses = Responses(app.store, app.clock)


class Exchange:
    """Answers one request. `engines` are asked in order; `record` is filled in on the way."""

    def __init__(self, parts: Parts, request: Request, outgoing: Outgoing, record: Record) -> None:
        self._parts, self.request, self.outgoing, self.record = parts, request, outgoing, record
        self._began = outgoing.time()
        self._writer: ReplyWriter | None = None
        self._upstream: Headers = []
        self._own_words: EngineError | None = None
        """The first failure, in the caller's own dialect."""
        self._decided: set[str] = set()
        self._rounds = 0
        self._asking: Turn | None = None
        self._given_head, outgoing.head = outgoing.head, self._head

    async def answer(self, engines: list[Engine], opening: Opening) -> None:
        """Ask the engines in order until one answers."""
        request = self.request
        rest = engines
        looked_at = bool(opening.agent) or self._parts.lending.may_apply(request)
        if not looked_at and not await self._goes_on_here():
            rest = await self._relay(engines)
            if not rest:
                return
        try:
            await self._turn(rest, opening, looked_at=looked_at)
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
            record.status, writer = out.status, self._writer
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
        another dialect is next; none when it was answered."""
        request = self.request
        path = f"{request.dialect.path}?{request.query}" if request.query else ""
        for place, engine in enumerate(engines):
            if getattr(engine, "dialect", "") != request.dialect.name:
                return engines[place:]
            self.note_engine(engine)
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
        self.note_first_token()
        self._upstream = _passed_on(relayed.headers.items())
        try:
            if self.request.streams:
                speed = record.speed
                async for data in relayed:
                    if relayed.finished:  # the end goes with it, and need not wait for the upstream's
                        out.say(data)
                        await out.end()
                    else:
                        await out.write(data)
                    if speed is not None:
                        speed.add(tokens_in(data), out.last_write)
                await out.end()
            else:
                body = b"".join([data async for data in relayed])
                await out.whole(relayed.status, body, _JSON)
            self._done(relayed.failure)
        except EngineError as error:
            out.say(relayed.fail(error))
            await out.end()
            self._done(error)
        finally:
            await relayed.aclose()
            record.model, record.usage, record.rounds = relayed.model, relayed.usage, 1

    # --- through the loop ---------------------------------------------------------------------------------------------

    async def _turn(self, engines: list[Engine], opening: Opening, *, looked_at: bool) -> None:
        request, parts = self.request, self._parts
        asked = request.prompt
        if request.dialect.name == RESPONSES:
            required = any(getattr(engine, "dialect", "") != RESPONSES for engine in engines)
            asked = await parts.responses.continued(request.key, asked, required=required)
        asked = await parts.joins.restore(request.key, asked)
        self._decided = {engine.name for engine in engines}
        noted = [_Noted(engine, self) for engine in engines]
        engine: Engine = noted[0] if len(noted) == 1 else Fallback(*noted)
        # What was kept here of earlier requests may be for plugins, even if nothing in this one is.
        plain = not looked_at and asked is request.prompt
        opening = msgspec.structs.replace(opening, kept=parts.traced, dress=self._dress, plain=plain)
        turn = self._asking = await parts.lending.open(request, asked, engine, opening)
        listener = _Listener(self, Splice(turn.tools), turn)
        given = len(turn.transcript.messages)
        with turn.journal.listen(listener):
            outcome = await run_turn(turn)
        self.record.rounds = listener.splice.rounds
        self.record.usage = listener.splice.usage
        self.record.agents = tuple(plugin.name for plugin in turn.plugins.plugins[2:])
        if outcome is Outcome.FAILED or isinstance(turn.error, TokenLimitError):
            raise listener.failure(turn)
        if outcome is Outcome.WAITING:
            await parts.joins.remember(request.key, turn, given)
            listener.ask(turn)
        final = listener.end()
        await self._finish(listener, final)

    async def _finish(self, listener: _Listener, final: ReplyFinished) -> None:
        request, out = self.request, self.outgoing
        listener.builder.add(final)
        reply = listener.builder.reply()
        if request.dialect.name == RESPONSES and request.field("store") is not False:
            previous = request.field(PREVIOUS)
            await self._parts.responses.keep(
                request.key,
                self._reply_id,
                request.prompt,
                reply.message,
                previous if isinstance(previous, str) else "",
            )
        if request.streams:
            out.say(self.writer.feed(final))
            await out.end()
        else:
            body = self._whole(reply)
            await out.whole(200, msgspec.json.encode(body), _JSON)
        self._done()

    def _whole(self, reply: Reply) -> Json:
        request = self.request
        return request.dialect.write_reply(
            reply, model=self.model_said, id=self._reply_id, prompt=request.prompt, created_s=int(self.record.at)
        )

    @property
    def writer(self) -> ReplyWriter:
        """Writes the caller's stream; made when the first delta is there, and with it the model's name."""
        if self._writer is None:
            request = self.request
            self._writer = request.dialect.reply_writer(
                model=self.model_said, id=self._reply_id, prompt=request.prompt, created_s=int(self.record.at)
            )
        return self._writer

    @property
    def model_said(self) -> str:
        """The model's name as the caller reads it."""
        return self.record.model or self.record.engine.partition(":")[2] or self.request.model

    @property
    def _reply_id(self) -> str:
        prefix = {"anthropic": "msg_", "openai-chat": "chatcmpl-", RESPONSES: "resp_"}[self.request.dialect.name]
        return prefix + self.request.id

    # --- what is known of it ------------------------------------------------------------------------------------------

    def _dress(self, engine: Engine) -> Engine:
        return _Asked(Flushing(engine, self.outgoing) if self.request.streams else engine, self)

    def asks(self, engine: Engine) -> None:
        """The turn's own engine is asked: another one than was decided where a plugin handed the request over."""
        if self._asking is not None and self._asking.engine is engine:
            self._rounds += 1
            if engine.name not in self._decided:  # those are noted when it is their turn
                self.note_engine(engine)

    def tell(self, event: Event) -> None:
        """What the ledger charged."""
        if isinstance(event, UsageRecorded) and (cost := event.charge.cost_nanousd) is not None:
            self.record.cost_nanousd = (self.record.cost_nanousd or 0) + cost

    def note_engine(self, engine: Engine) -> None:
        self.record.engine = engine.name
        if self._rounds < 2:  # later rounds are no attempts
            self.record.attempts += 1

    def note_first_token(self) -> None:
        self.record.first_token_s = self.outgoing.time() - self._began

    def _head(self) -> Headers:
        """Who made the answer, and why."""
        record = self.record
        return [
            *self._given_head(),
            (b"x-rondel-request", record.id.encode()),
            (b"x-rondel-model", record.engine.encode("latin-1", "replace")),
            (b"x-rondel-rule", record.rule.encode("latin-1", "replace")),
            (b"x-rondel-attempts", b"%d" % record.attempts),
            *((b"x-rondel-warning", _in_a_line(text)) for text in record.warnings),
            *self._upstream,
        ]

    def _done(self, error: EngineError | None = None) -> None:
        record = self.record
        record.status, record.outcome = self.outgoing.status, "failed" if error else "done"
        if error is not None:
            record.error = str(error)


class _Asked:
    """An engine that a turn asks. Whether it is the turn's own is known when it is asked."""

    def __init__(self, engine: Engine, exchange: Exchange) -> None:
        self._engine, self._exchange = engine, exchange

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._exchange.asks(self)
        # With the caller's model in it the prompt is known for a foreign one, of which no engine keeps anything.
        return self._engine.stream(prompt.replace(model=self._exchange.request.model))


class _Noted:
    """An engine whose asking is noted: the one that was asked last is the one that answered."""

    def __init__(self, engine: Engine, exchange: Exchange) -> None:
        self._engine, self._exchange = engine, exchange

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._exchange.note_engine(self._engine)
        return self._engine.stream(prompt)


class _Listener:
    """Hears a turn's events and says the caller's part of them."""

    def __init__(self, exchange: Exchange, splice: Splice, turn: Turn) -> None:
        self._exchange, self.splice, self._turn = exchange, splice, turn
        self._say = exchange.outgoing.say if exchange.request.streams else None
        self._speed = exchange.record.speed
        self._feed: Callable[[Delta], bytes] | None = None
        self._begun = ReplyStarted("")
        self._cut = False
        self.builder = ReplyBuilder()

    def put(self, event: Event, seq: int) -> None:
        if isinstance(event, DELTAS):
            if (delta := self.splice.feed(event)) is not None:
                self._pass(delta)
        elif isinstance(event, LimitHit):
            self._cut = True
        elif isinstance(event, UsageRecorded):
            self._exchange.tell(event)
        elif isinstance(event, Warned):
            self._exchange.record.warnings += (event.message,)

    def _pass(self, delta: Delta) -> None:
        self.builder.add(delta)
        feed = self._feed
        if feed is None:
            if isinstance(delta, ReplyStarted):
                # Held back until there is a token: until then a failure is an answer with a status of its own.
                self._begun, self._exchange.record.model = delta, delta.model
                return
            feed = self._begin()
        if self._say is not None:
            self._say(feed(delta))
            if self._speed is not None and isinstance(delta, PartDelta):
                self._speed.add(tokens_of(len(delta.text)), self._exchange.outgoing.time())

    def _begin(self) -> Callable[[Delta], bytes]:
        self._exchange.note_first_token()
        feed = self._feed = self._exchange.writer.feed if self._say else _nothing
        if self._say is not None:
            self._say(feed(self._begun))
        return feed

    def ask(self, turn: Turn) -> None:
        """Our own agent asks the person something: the question is the answer, and the next request goes on from it."""
        for question in turn.held:
            if not question.id.startswith("caller-"):
                options = "".join(f"\n- {option}" for option in question.options)
                place = self.splice.next_place()
                for delta in (PartStarted(place, Text("")), PartDelta(place, question.text + options)):
                    self._pass(delta)
                self._pass(PartFinished(place, Text(question.text + options)))

    def end(self) -> ReplyFinished:
        if self._feed is None:
            self._begin()
        return self.splice.finish(cut=self._cut)

    def failure(self, turn: Turn) -> EngineError:
        """Why the turn failed, as an error that a dialect can write."""
        error = turn.error
        if isinstance(error, EngineError):
            return error
        said = turn.failure.message if turn.failure else "the turn failed"
        if isinstance(error, LimitReached):
            return EngineOverloaded(said, code="429")
        return EngineError(said) if isinstance(error, RondelError) else EngineError("the gateway failed; see its log")


def _in_a_line(text: str) -> bytes:
    """A text that can stand in a header."""
    return " ".join(text.split())[:500].encode("latin-1", "replace")


def _nothing(_: Delta) -> bytes:
    return b""


def _passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    """The upstream's headers that mean something to its clients."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    ]
