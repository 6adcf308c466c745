"""A request that is a turn of the loop: what the turn says is retold to the caller in its own dialect, as it comes.

Nothing is said before there is a token: until then a failure is an answer with a status of its own, and whoever asked
for the turn tells it. Knows no keys, no paths, and nothing of answers that are passed on as bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, ClassVar, cast

import msgspec

from ..app import App
from ..dialect import ReplyWriter, headers_key
from ..engine import Engine
from ..engines.fallback import Fallback
from ..engines.http.headers import for_servers
from ..errors import EngineError, EngineOverloaded, LimitReached, RondelError, TokenLimitError
from ..events import Event, LimitHit, Outcome, UsageRecorded, Warned
from ..loop import run_turn
from ..prompt import Prompt
from ..turn import Turn
from ..values import (
    Delta,
    ModelFacts,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
)
from .inside import BEFORE_LENT, Joins, Lending, Opening
from .outgoing import Outgoing
from .pacing import Paced
from .record import Record, tokens_of
from .request import Request
from .responses import DIALECT as RESPONSES
from .responses import PREVIOUS, Responses
from .splice import Splice

_JSON = [(b"content-type", b"application/json")]
_ID_PREFIXES = {"anthropic": "msg_", "openai-chat": "chatcmpl-", RESPONSES: "resp_"}


class Parts:
    """What every exchange shares."""

    def __init__(self, app: App, lending: Lending, *, traced: bool = False) -> None:
        self.app, self.lending, self.traced = app, lending, traced
        self.joins = Joins(app.store, app.clock)
        self.responses = Responses(app.store, app.clock)


class Retelling:
    """Answers one request with a turn; `record` is filled in on the way. `began` is when the request came, by the
    loop's time."""

    def __init__(self, parts: Parts, request: Request, outgoing: Outgoing, record: Record, began: float) -> None:
        self._parts, self.request, self.outgoing, self.record = parts, request, outgoing, record
        self._began = began
        self.writer: ReplyWriter | None = None
        """Writes the caller's stream; made when the first delta is there, and with it the model's name."""
        self._decided: list[str] = []
        self._rounds = 0
        self._asking: Turn | None = None

    async def answer(self, engines: list[Engine], opening: Opening, *, looked_at: bool) -> None:
        """Ask the engines in order until one answers. `looked_at` says that some plugin may want to see the request."""
        request, parts = self.request, self._parts
        asked = request.prompt
        if request.dialect.name == RESPONSES:
            required = any(getattr(engine, "dialect", "") != RESPONSES for engine in engines)
            asked = await parts.responses.continued(request.key, asked, required=required)
        asked = await parts.joins.restore(request.key, asked)
        noted = [_Noted(engine, self) for engine in engines]
        self._decided = [engine.name for engine in noted]
        engine: Engine = noted[0] if len(noted) == 1 else Fallback(*noted)
        # What was kept here of earlier requests may be for plugins, even if nothing in this one is.
        plain = not looked_at and asked is request.prompt
        if any(getattr(engine, "dialect", "") == request.dialect.name for engine in engines):
            asked = _with_headers(asked, request)
        turn = self._asking = await parts.lending.open(
            request, asked, engine, opening, dress=self._dress, plain=plain, kept=parts.traced
        )
        listener = _Listener(self, Splice(turn.tools))
        given = len(turn.transcript.messages)
        turn.state[BEFORE_LENT] = self.outgoing.flush
        turn.journal.hear(listener)
        outcome, self._asking = await run_turn(turn), None
        record, splice = self.record, listener.splice
        record.rounds, record.usage = splice.rounds, splice.usage
        record.agents = tuple([plugin.name for plugin in turn.plugins.plugins[2:]])
        if outcome is Outcome.FAILED or isinstance(turn.error, TokenLimitError):
            raise listener.failure(turn)
        if outcome is Outcome.WAITING:
            await parts.joins.remember(request.key, turn, given)
            listener.ask(turn)
        await self._finish(listener.end(), listener.builder)

    async def _finish(self, final: ReplyFinished, builder: ReplyBuilder | None) -> None:
        request, out, record = self.request, self.outgoing, self.record
        reply = builder and builder.reply()
        if reply and request.dialect.name == RESPONSES and request.field("store") is not False:
            await self._keep(reply)
        if self.writer is not None:
            out.say(self.writer.feed(final))
            await out.end()
        elif reply:
            body = request.dialect.write_reply(
                reply, model=self._model, id=self._reply_id, prompt=request.prompt, created_s=int(record.at)
            )
            await out.whole(200, msgspec.json.encode(body), _JSON)
        record.status, record.outcome = out.status, "done"

    async def _keep(self, reply: Reply) -> None:
        """Let the caller go on from this response by its id."""
        request, previous = self.request, self.request.field(PREVIOUS)
        previous = previous if isinstance(previous, str) else ""
        await self._parts.responses.keep(request.key, self._reply_id, request.prompt, reply.message, previous)

    @property
    def _model(self) -> str:
        """The model's name as the caller reads it."""
        return self.record.model or self.record.engine.partition(":")[2] or self.request.model

    @property
    def _reply_id(self) -> str:
        return _ID_PREFIXES[self.request.dialect.name] + self.request.id

    # --- what the turn tells ------------------------------------------------------------------------------------------

    def begin(self) -> ReplyWriter | None:
        """The first token is there. What writes the stream, for a caller who wants one."""
        request, record = self.request, self.record
        record.first_token_s = self.outgoing.time() - self._began
        if request.streams:
            self.writer = request.dialect.reply_writer(
                model=self._model, id=self._reply_id, prompt=request.prompt, created_s=int(record.at)
            )
        return self.writer

    def _dress(self, engine: Engine) -> Engine:
        return _Asked(engine, self)

    def asks(self, engine: Engine) -> None:
        """The turn's own engine is asked: another one than was decided where a plugin handed the request over."""
        if self._asking is not None and self._asking.engine is engine:
            self._rounds += 1
            if engine.name not in self._decided:  # those are noted when it is their turn
                self.note_engine(engine)

    def note_engine(self, engine: Engine) -> None:
        self.record.engine = engine.name
        if self._rounds < 2:  # later rounds are no attempts
            self.record.attempts += 1


class _Heard:
    """An engine around another one, of which the retelling hears when it is asked."""

    def __init__(self, engine: Engine, retelling: Retelling) -> None:
        self._engine, self._retelling = engine, retelling
        self.name = engine.name

    @property
    def facts(self) -> ModelFacts:
        return self._engine.facts


class _Asked(_Heard):
    """An engine that a turn asks. Whether it is the turn's own is known when it is asked."""

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._retelling.asks(self)
        request = self._retelling.request
        # With the caller's model in it the prompt is known for a foreign one, of which engines keep less.
        deltas = self._engine.stream(prompt.replace(model=request.model, once=request.prompt.once))
        if not request.streams:
            return deltas
        return Paced(cast("AsyncGenerator[Delta]", deltas), self._retelling.outgoing)


class _Noted(_Heard):
    """An engine whose asking is noted: the one that was asked last is the one that answered."""

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._retelling.note_engine(self)
        return self._engine.stream(prompt)


class _Listener:
    """Hears a turn's events and says the caller's part of them."""

    __slots__ = ("_begun", "_cut", "_feed", "_record", "_retelling", "_say", "_speed", "builder", "splice")

    def __init__(self, retelling: Retelling, splice: Splice) -> None:
        request = retelling.request
        self._retelling, self.splice, self._record = retelling, splice, retelling.record
        self._say = retelling.outgoing.say if request.streams else None
        self._speed = retelling.record.speed
        self._feed: Callable[[Delta], bytes] | None = None
        self._begun = ReplyStarted("")
        self._cut = False
        is_wanted_whole = not request.streams or request.dialect.name == RESPONSES
        self.builder = ReplyBuilder() if is_wanted_whole else None

    def put(self, event: Event, seq: int) -> None:
        if (hear := self._ears.get(type(event))) is not None:
            hear(self, event)

    def _delta(self, event: Delta) -> None:
        if (delta := self.splice.feed(event)) is not None:
            self._pass(delta)

    def _limit(self, event: LimitHit) -> None:
        self._cut = True

    def _charged(self, event: UsageRecorded) -> None:
        note_charge(self._record, event)

    def _warned(self, event: Warned) -> None:
        self._record.warnings += (event.message,)

    def _pass(self, delta: Delta) -> None:
        if self.builder is not None:
            self.builder.add(delta)
        feed = self._feed
        if feed is None:
            if isinstance(delta, ReplyStarted):
                # Held back until there is a token: until then a failure is an answer with a status of its own.
                self._begun, self._record.model = delta, delta.model
                return
            feed = self._begin()
        if self._say is not None:
            self._say(feed(delta))
            if self._speed is not None and type(delta) is PartDelta:
                self._speed.add(tokens_of(len(delta.text)), self._retelling.outgoing.time())

    def _begin(self) -> Callable[[Delta], bytes]:
        writer = self._retelling.begin()
        feed = self._feed = _nothing if writer is None else writer.feed
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
        final = self.splice.finish(cut=self._cut)
        if self.builder is not None:
            self.builder.add(final)
        return final

    def failure(self, turn: Turn) -> EngineError:
        """Why the turn failed, as an error that a dialect can write."""
        error = turn.error
        if isinstance(error, EngineError):
            return error
        said = turn.failure.message if turn.failure else "the turn failed"
        if isinstance(error, LimitReached):
            return EngineOverloaded(said, code="429")
        return EngineError(said) if isinstance(error, RondelError) else EngineError("the gateway failed; see its log")

    _ears: ClassVar[dict[type, Callable[[_Listener, Any], None]]] = {
        ReplyStarted: _delta,
        PartStarted: _delta,
        PartDelta: _delta,
        PartFinished: _delta,
        ReplyFinished: _delta,
        LimitHit: _limit,
        UsageRecorded: _charged,
        Warned: _warned,
    }


def note_charge(record: Record, event: Event) -> None:
    """What the ledger charged."""
    if isinstance(event, UsageRecorded) and (cost := event.charge.cost_nanousd) is not None:
        record.cost_nanousd = (record.cost_nanousd or 0) + cost


def _with_headers(prompt: Prompt, request: Request) -> Prompt:
    """The prompt, with what its caller's headers say to a server of its dialect: it may not take the body without."""
    if not (sent := for_servers(request.headers)):
        return prompt
    return msgspec.structs.replace(prompt, opaque={**prompt.opaque, headers_key(request.dialect.name): sent})


def _nothing(_: Delta) -> bytes:
    return b""
