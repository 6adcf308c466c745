"""Answers a request with a turn of the loop: streams the turn's events to the caller in the caller's dialect.

Nothing is sent before the first token, so that a failure until then can be answered with an HTTP status of its own.
Does not know keys, paths or the byte relay.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, ClassVar, cast

import msgspec

from ...app.app import App
from ...contracts.dialect import ReplyWriter, headers_key
from ...engine import Engine, Wrapper, dialect_of
from ...engines.fallback import Fallback
from ...engines.http.headers import for_servers
from ...errors import EngineError, LimitReached, PromptRejected, RondelError
from ...events import CallFinished, Event, LimitHit, Outcome, QuestionAnswered, UsageRecorded, Warned
from ...machine.loop import run_turn
from ...machine.turn import Turn, caller_conversation
from ...prompt import Prompt
from ...question import Question
from ...text.redaction import Redactor
from ...values import (
    NO_USAGE,
    Delta,
    Media,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
)
from ..relay.record import Record, tokens_of
from ..relay.request import GatewayRequest
from ..relay.response import Outgoing
from ..routing.outages import Candidate, Outages
from .dropped import dropped
from .questions import Questions, Recorder, Waiting, question_text
from .reply_merger import Paragraphs, ReplyMerger
from .responses import DIALECT as RESPONSES
from .responses import PREVIOUS, Responses
from .services import BEFORE_INJECTED, HiddenRounds, Opening, RequestTurns
from .signatures import SIGNING, Signatures, signed_by, stamped

_JSON = [(b"content-type", b"application/json")]
CHAT = "openai-chat"
_ID_PREFIXES = {"anthropic": "msg_", CHAT: "chatcmpl-", RESPONSES: "resp_"}


class SharedState:
    """What all requests share."""

    def __init__(
        self, app: App, turns: RequestTurns, outages: Outages, *, traced: bool = False, redactor: Redactor | None = None
    ) -> None:
        self.app, self.turns, self.outages, self.traced = app, turns, outages, traced
        self.redactor = redactor or Redactor()
        self.hidden_rounds = HiddenRounds(app.store, app.clock)
        self.signatures = Signatures(app.store, app.clock)
        self.responses = Responses(app.store, app.clock)
        self.questions = Questions(app.store, app.clock)


class TurnBridge:
    """Answers one request with a turn and fills in its `record`. `began` is the event loop's time when the request
    came."""

    def __init__(
        self, parts: SharedState, request: GatewayRequest, outgoing: Outgoing, record: Record, began: float
    ) -> None:
        self._parts, self.request, self.outgoing, self.record = parts, request, outgoing, record
        self._began = began
        self.writer: ReplyWriter | None = None
        """Writes the caller's stream. Made at the first delta, which is when the model's name is known."""
        self.has_signatures = False  # the prompt may contain signatures, from the caller or from the store
        self.signer = ""  # the account that answers; its provider signs the thinking
        self._decided: list[str] = []
        self._rounds = 0
        self._asking: Turn | None = None

    async def answer(self, candidates: list[Candidate], opening: Opening, *, looked_at: bool, wanted: str = "") -> None:
        """Ask the candidates in order until one answers. `looked_at` says that a plugin may apply; `wanted` is the
        account whose error the caller gets if all fail."""
        request, parts = self.request, self._parts
        asked = request.prompt
        if request.dialect.name == RESPONSES:
            required = any(dialect_of(engine) != RESPONSES for engine, _ in candidates)
            asked = await parts.responses.continued(request.key, asked, required=required)
        asked = await parts.hidden_rounds.restore(request.key, asked)
        noted = [_CandidateEngine(engine, self, account) for engine, account in candidates]
        self._decided = [engine.name for engine in noted]
        engine: Engine = noted[0] if len(noted) == 1 else self._chain(noted, candidates, wanted)
        # What was restored from earlier requests may concern plugins, even if nothing in this request does.
        plain = not looked_at and asked is request.prompt
        if any(dialect_of(one.engine) in SIGNING for one in candidates):
            asked = await parts.signatures.restore(request.key, request.dialect.name, asked)
        self.has_signatures = request.has_unsigned or asked is not request.prompt
        # The caller's headers are meant for a bare model's server. Agents send headers of their own.
        if not opening.agent and any(dialect_of(one.engine) == request.dialect.name for one in candidates):
            asked = _with_headers(asked, request)
        waited = await parts.questions.find(request.key, opening.agent, asked.history) if opening.agent else None
        resumed, answer = waited or (None, None)
        turn = self._asking = await parts.turns.open(
            request,
            asked,
            engine,
            opening,
            wrap_engine=lambda engine: _TurnEngine(engine, self),
            plain=plain,
            kept=parts.traced,
            resumed=resumed,
        )
        self.record.trace = caller_conversation(request.id) if parts.traced else ""
        listener = _Listener(self, ReplyMerger(turn.tools))
        given = len(turn.transcript.messages)
        turn.state[BEFORE_INJECTED] = self.outgoing.flush
        recorder = Recorder(resumed.events if resumed else ()) if opening.agent else None
        if recorder is not None:
            turn.journal.hear(recorder)
        if answer is not None:
            await turn.journal.append(QuestionAnswered(answer), wait=False)
        turn.journal.hear(listener)
        try:
            outcome = await run_turn(turn)
        finally:
            self._asking = None  # breaks a reference cycle: the turn refers to its engine, and the engine to us
        record, merger = self.record, listener.merger
        record.rounds, record.usage = merger.rounds, merger.usage
        record.agents = tuple([plugin.name for plugin in turn.plugins.plugins[2:]])
        # A limit cuts an answer off like one that is too long. If there is no answer yet, the limit is the error.
        if outcome is Outcome.FAILED or listener.is_silent_at_limit:
            failure = listener.failure(turn)
            if len(candidates) == 1 and record.first_token_s is None and failure is turn.error:
                parts.outages.failed(candidates[0].account, failure)
            raise failure
        if outcome is Outcome.WAITING:
            await parts.hidden_rounds.remember(request.key, turn, given, self.signer)
            if (question := listener.ask(turn)) is not None and recorder is not None:
                began_with = resumed.given if resumed else given
                waiting = Waiting(turn.id, question, question_text(question), began_with, tuple(recorder.events))
                await parts.questions.remember(request.key, opening.agent, asked.history, waiting)
        said = tuple(turn.transcript.messages[given:])
        await parts.signatures.remember(request.key, request.dialect.name, self.signer, said)
        await self._finish(listener.end(), listener.builder)

    def _chain(self, engines: list[_CandidateEngine], candidates: list[Candidate], wanted: str) -> Engine:
        accounts = [account for _, account in candidates]

        def failed(index: int, error: EngineError) -> None:
            self._parts.outages.failed(accounts[index], error)

        return Fallback(*engines, wanted=accounts.index(wanted) if wanted in accounts else 0, on_failure=failed)

    async def _finish(self, final: ReplyFinished, builder: ReplyBuilder | None) -> None:
        request, out, record = self.request, self.outgoing, self.record
        reply = builder and builder.reply()
        if reply and request.dialect.name == RESPONSES and request.field("store") is not False:
            await self._keep(reply)
        if self.writer is not None:
            out.say(self.writer.feed(final))
            await out.end()
        elif reply:
            await out.whole(200, msgspec.json.encode(self._new_writer().write_whole(reply)), _JSON)
        record.status, record.outcome = out.status, "done"

    async def _keep(self, reply: Reply) -> None:
        """Store this response, so that the caller can continue it by its id."""
        request, previous = self.request, self.request.field(PREVIOUS)
        previous = previous if isinstance(previous, str) else ""
        await self._parts.responses.keep(request.key, self._reply_id, request.prompt, reply.message, previous)

    @property
    def _reply_id(self) -> str:
        return _ID_PREFIXES[self.request.dialect.name] + self.request.id

    # --- called while the turn runs -----------------------------------------------------------------------------------

    def begin(self) -> ReplyWriter | None:
        """Note the first token. Return the stream's writer, if the caller wants a stream."""
        request, record = self.request, self.record
        record.first_token_s = self.outgoing.time() - self._began
        self._parts.outages.answered(record.engine)
        if request.streams:
            self.writer = self._new_writer()
        return self.writer

    def _new_writer(self) -> ReplyWriter:
        request, record = self.request, self.record
        model = record.model or record.engine.partition(":")[2] or request.model
        return request.dialect.reply_writer(
            model=model, id=self._reply_id, prompt=request.prompt, created_s=int(record.at)
        )

    def asks(self, engine: Engine) -> None:
        """Count a round of the turn's own engine, which differs from the routed one if a plugin handed over."""
        turn = self._asking
        was_handed_over = turn is not None and turn.engine is engine
        if was_handed_over or (turn is not None and turn.charged_engine is engine):
            self._rounds += 1
            if was_handed_over or engine.name not in self._decided:  # candidates note themselves when they are asked
                self.note_engine(engine.name)

    def note_dropped(self, prompt: Prompt, engine: Engine) -> None:
        """Record what this engine cannot be sent. The response's header lists it, so only the first round counts."""
        model = dialect_of(engine)
        if model and self.record.first_token_s is None:
            caller = self.request.dialect.name
            # Only Chat models take audio and Anthropic callers send none, so the body need not be searched for it.
            has_audio = model != "openai-chat" and caller != "anthropic" and self.request.holds(b'"input_audio"')
            self.record.dropped = dropped(prompt, caller, model, engine.facts, has_audio=has_audio)

    def note_engine(self, account: str) -> None:
        self.record.engine, self.signer = account, _signer(account)
        if self._rounds < 2:  # later rounds do not count as attempts
            self.record.attempts += 1


class _TurnEngine(Wrapper):
    """An engine that a turn asks, its own agent's or another's. It reports each call to the bridge."""

    def __init__(self, engine: Engine, bridge: TurnBridge) -> None:
        super().__init__(engine)
        self._bridge = bridge

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta]:
        self._bridge.asks(self)
        request, outgoing = self._bridge.request, self._bridge.outgoing
        # The caller's model marks a prompt that may never come again: engines do not cache what they write of it.
        stream = cast("AsyncGenerator[Delta]", self._engine.stream(prompt.replace(model=request.model)))
        async with contextlib.aclosing(stream) as deltas:
            async for delta in deltas:
                yield delta
                if request.streams and not _is_edge(delta):
                    await outgoing.flush()  # backpressure: a slow caller slows the model down


class _CandidateEngine(Wrapper):
    """A candidate. The one that was asked last is the one that answered."""

    def __init__(self, engine: Engine, bridge: TurnBridge, account: str) -> None:
        super().__init__(engine)
        self._bridge, self._account = bridge, account

    def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._bridge.note_engine(self._account)
        self._bridge.note_dropped(prompt, self._engine)
        if self._bridge.has_signatures:
            prompt = signed_by(prompt, _signer(self._account))
        return self._engine.stream(prompt)


class _Listener:
    """Listens to a turn's events and sends the caller what is meant for it."""

    def __init__(self, bridge: TurnBridge, merger: ReplyMerger) -> None:
        request = bridge.request
        self._bridge, self.merger, self._record = bridge, merger, bridge.record
        self._say = bridge.outgoing.say if request.streams else None
        self._speed = bridge.record.speed
        self._feed: Callable[[Delta], bytes] | None = None
        self._begun = ReplyStarted("")
        self._cut = False
        self._unfinished = NO_USAGE  # what a round was charged that a limit cut off: it has no end that reports it
        self._pictures: list[Media] = []  # of the turn's calls, which the caller gets at the end
        self._paragraphs = Paragraphs() if request.dialect.name == CHAT else None
        """Not needed in the other dialects, where each text is a block or an item."""
        is_wanted_whole = not request.streams or request.dialect.name == RESPONSES
        self.builder = ReplyBuilder() if is_wanted_whole else None

    def put(self, event: Event, seq: int) -> None:
        if (handle := self._handlers.get(type(event))) is not None:
            handle(self, event)

    def _delta(self, event: Delta) -> None:
        if (delta := self.merger.feed(event)) is not None:
            self._pass(delta)

    def _finished(self, event: PartFinished) -> None:
        part = stamped(event.part, self._bridge.signer)
        self._delta(event if part is event.part else PartFinished(event.index, part))

    def _reply_started(self, event: ReplyStarted) -> None:
        if self._paragraphs is not None:
            self._paragraphs.begin_round()
        self._delta(event)

    def _part_started(self, event: PartStarted) -> None:
        for delta in self.merger.start_part(event):
            self._pass(delta)

    def _reply_finished(self, event: ReplyFinished) -> None:
        self._unfinished = NO_USAGE
        self._delta(event)

    def _charged(self, event: UsageRecorded) -> None:
        note_charge(self._record, event)
        if event.charge.scope.kind not in ("embedding", "image"):
            self._unfinished = event.charge.usage

    def _limit(self, event: LimitHit) -> None:
        self._cut = True
        self.merger.usage += self._unfinished
        self._record.warnings += (event.message,)

    @property
    def is_silent_at_limit(self) -> bool:
        return self._cut and self._feed is None

    def _warned(self, event: Warned) -> None:
        self._record.warnings += (event.message,)

    def _pass(self, delta: Delta) -> None:
        # Deltas of the first round's text, which are most of them, are never changed.
        if (paragraphs := self._paragraphs) is not None and (paragraphs.gaps or type(delta) is not PartDelta):
            delta = paragraphs.feed(delta)
        if self.builder is not None:
            self.builder.add(delta)
        feed = self._feed
        if feed is None:
            if isinstance(delta, ReplyStarted):
                # Held back until the first token: a failure before it gets an HTTP status of its own.
                self._begun, self._record.model = delta, delta.model
                return
            feed = self._begin()
        if self._say is not None:
            self._say(feed(delta))
            if self._speed is not None and type(delta) is PartDelta:
                self._speed.add(tokens_of(len(delta.text)), self._bridge.outgoing.time())

    def _begin(self) -> Callable[[Delta], bytes]:
        writer = self._bridge.begin()
        feed = self._feed = (lambda _: b"") if writer is None else writer.feed
        if self._say is not None:
            self._say(feed(self._begun))
        return feed

    def ask(self, turn: Turn) -> Question | None:
        """Send the agent's first question as the answer, if it asked one. The next request answers it and resumes the
        turn."""
        question = next((held for held in turn.held if not held.id.startswith("caller-")), None)
        if question is not None:
            self._release()
            self._add_text(question_text(question))
        return question

    def _add_text(self, text: str) -> None:
        if self._paragraphs is not None:
            self._paragraphs.begin_round()
        index = self.merger.next_index()
        for delta in (PartStarted(index, Text("")), PartDelta(index, text), PartFinished(index, Text(text))):
            self._pass(delta)

    def _called(self, event: CallFinished) -> None:
        parts = event.result.parts
        self._pictures += (part for part in parts if isinstance(part, Media) and part.kind == "image" and part.data)

    def _add_pictures(self) -> None:
        """Add the pictures that calls made. Only the Responses API can send them; other dialects name them."""
        for picture in self._pictures:
            if self._bridge.request.dialect.name == RESPONSES:
                index = self.merger.next_index()
                self._pass(PartStarted(index, picture))
                self._pass(PartFinished(index, picture))
            else:
                self._add_text(f"[The picture {picture.name or picture.mime} cannot be sent in this protocol.]")

    def _release(self) -> None:
        for delta in self.merger.release():
            self._pass(delta)

    def end(self) -> ReplyFinished:
        self._release()
        self._add_pictures()
        if self._feed is None:
            self._begin()
        final = self.merger.finish(cut=self._cut)
        if self.builder is not None:
            self.builder.add(final)
        return final

    def failure(self, turn: Turn) -> EngineError:
        """Return why the turn failed, as an error that a dialect can write."""
        error = turn.error
        if isinstance(error, EngineError):
            return error
        said = turn.failure.message if turn.failure else "the turn failed"
        if isinstance(error, LimitReached):  # a retry would reach it again, so the status must not invite one
            return PromptRejected(turn.reason, code=error.name)
        return EngineError(said) if isinstance(error, RondelError) else EngineError("the gateway failed; see its log")

    _handlers: ClassVar[dict[type, Callable[[_Listener, Any], None]]] = {
        ReplyStarted: _reply_started,
        PartStarted: _part_started,
        PartDelta: _delta,
        PartFinished: _finished,
        ReplyFinished: _reply_finished,
        CallFinished: _called,
        LimitHit: _limit,
        UsageRecorded: _charged,
        Warned: _warned,
    }


def _is_edge(delta: Delta) -> bool:
    """Return whether this only begins or ends a text, or ends a reply without calls. It is sent together with the next
    delta, which follows at once."""
    if isinstance(delta, (PartStarted, PartFinished)):
        return isinstance(delta.part, Text)
    return isinstance(delta, ReplyFinished) and delta.stop == "end"


def _signer(account: str) -> str:
    # The provider signs, so the model is left out.
    return account.partition(":")[0]


def note_charge(record: Record, event: Event) -> None:
    if isinstance(event, UsageRecorded) and (cost := event.charge.cost_nanousd) is not None:
        record.cost_nanousd = (record.cost_nanousd or 0) + cost


def _with_headers(prompt: Prompt, request: GatewayRequest) -> Prompt:
    """Return the prompt with the caller's headers for a server of its dialect, which may need them to take the body."""
    if not (sent := for_servers(request.headers)):
        return prompt
    return msgspec.structs.replace(prompt, opaque={**prompt.opaque, headers_key(request.dialect.name): sent})
