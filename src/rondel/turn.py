"""A turn: from one input to rest. The only mutable object of the machine, passed by hand.

It answers what the loop asks of the transcript, and turns whatever ends a turn into an outcome that is kept. Knows no
engine's protocol, no store's format and no surface.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .agent import Agent
from .charge import Scope
from .crew import Budget, Crew, Host, Words
from .deadline import Deadline
from .engine import Engine, EngineFace, Known
from .errors import AgentFailed, EngineError, LimitReached, RondelError, StoreError, ToolError, nearest
from .events import (
    CallFinished,
    CallProgressed,
    Event,
    Failure,
    HandedOff,
    InboxTaken,
    Kept,
    LimitHit,
    MessageAdded,
    Outcome,
    QuestionAnswered,
    RoundFinished,
    SpendingWarned,
    Spent,
    TurnFinished,
    TurnStarted,
    Warned,
)
from .journal import Journal
from .limits import Limits
from .plugin import Chain, State
from .prompt import HISTORY, Prompt
from .question import Answer, Question
from .template import is_directive
from .tool import CallContext, Tool, error_of
from .transcript import Transcript
from .values import (
    AgentResult,
    Message,
    Reply,
    ReplyBuilder,
    Text,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from .background import Background
    from .timetable import Timetable

log = logging.getLogger("rondel.turn")

SHOWN_CHARS_MAX = 120
"""Of a call's arguments, in an error that tells how it came about."""


class Turn:
    def __init__(
        self,
        host: Host,
        journal: Journal,
        *,
        id: str,
        agent: str,
        path: tuple[str, ...] = (),
        inputs: dict[str, Any] | None = None,
        messages: tuple[Message, ...] = (),
        crew: Crew | None = None,
        parent: Turn | None = None,
        call: ToolCall | None = None,
        scope: Scope | None = None,
    ) -> None:
        self.id = id
        self.messages = messages
        """What came in with this turn; it is in the transcript once the turn is open."""
        self.path = path
        """The agents above this one, outermost first. Each stands for one level of tools, too."""
        self.state = State()
        self.outcome: Outcome | None = None
        self.reason = ""
        self.failure: Failure | None = None
        self.error: BaseException | None = None
        """What the failure, or the limit that was reached, was made of."""
        self.builder: ReplyBuilder | None = None
        self.round_began = 0.0
        self.stopping = False
        self.previewing = False
        """Somebody only looks at how the prompt comes about: nobody asks a model."""
        self.inputs = inputs or {}
        self.parent = parent
        """The turn that this one works for, and the call in it that this one answers."""
        self.call = call
        self._given_scope = scope
        self._host = host
        self.now = host.clock.now
        self._journal = journal
        self._first_agent = agent
        self._own_crew = crew
        self.transcript: Transcript = journal.transcript
        self.top: Transcript = journal.transcript
        """The transcript of the conversation that people see, once the turn is open."""
        self._bind(self.transcript.agent if self.transcript.turn == id else agent)
        self._task: asyncio.Task[Any] | None = None
        self._resting = False
        self._warned: set[tuple[str, str]] = set()
        self._started_at = self.now()
        self.below: dict[str, tuple[Spent, tuple[str, ...]]] = {}
        """What the agents used and suggest that worked for calls which are not yet answered."""
        self.budget = parent.budget if parent else Budget(self.limits, self._started_at)
        if self.transcript.turn == id:  # it goes on: what it used before counts
            self.budget.spent += self.transcript.turn_spent
            self.budget.began_at -= 0 if parent else self.transcript.turn_seconds

    # --- who and where ------------------------------------------------------------------------------------------------

    @property
    def conversation(self) -> str:
        return self._journal.conversation

    @property
    def journal(self) -> Journal:
        return self._journal

    def _bind(self, agent: str) -> None:
        """Let this agent owe the next reply, with all that it has."""
        own = self._own_crew
        crew = self.crew = own if own is not None and own.agent.name == agent else self._host.crew(agent)
        self._scopes: dict[str, Scope] = {}  # the same in every round, until another agent or another person speaks
        self.agent: Agent = crew.agent
        self.words: Words | None = None if crew.bind is None else crew.bind(self)
        self.engine: Engine = self.words or self._metered(crew.engine)
        self.tools: dict[str, Tool] = crew.tools
        self._offered: dict[str, Tool] = {}
        self._take_offers()
        self.limits: Limits = crew.agent.limits
        self.plugins: Chain = crew.chain.for_turn(self)
        """The plugins that take part in this turn, in order."""
        self.emit: Callable[[Event], None] = self._emit_watched if self.plugins.watches else self._journal.emit
        """Tell whoever watches. Never waits."""

    def _take_offers(self) -> None:
        """Let the model call the agents that answers of this turn suggested."""
        if len(self._offered) == len(self.transcript.offered):
            return
        offered = [self._host.tool_of(name) for name in self.transcript.offered if self._host.knows_agent(name)]
        self._offered = {tool.name: tool for tool in offered}
        self.tools = {**self._offered, **self.crew.tools}

    @property
    def level(self) -> int:
        """How many agents stand above this one."""
        return len(self.path)

    @property
    def calls_above(self) -> str:
        """The calls that led here, outermost first, a line each."""
        lines: list[str] = []
        turn = self
        while turn.parent is not None and turn.call is not None:
            arguments = msgspec.json.encode(turn.call.arguments).decode()
            shown = arguments if len(arguments) <= SHOWN_CHARS_MAX else f"{arguments[:SHOWN_CHARS_MAX]}…"
            lines.append(f"Depth {turn.level}: called tool {turn.call.name} with args {shown}")
            turn = turn.parent
        return "\n".join(reversed(lines))

    @property
    def asks_nobody(self) -> bool:
        """The reply that is owed needs no model: the agent's own words, or the rest of a sentence."""
        return self.words is not None and self.words.asks_nobody

    def new_id(self, prefix: str) -> str:
        return self._host.new_id(prefix)

    async def root(self) -> Journal:
        """The journal of the conversation that people see: this turn's own, or that of the turn on top of it."""
        top = self.conversation.partition("/")[0]
        return self._journal if top == self.conversation else await self._host.journal(top)

    @property
    def background(self) -> Background:
        """The jobs of the app that runs this turn."""
        return self._host.background

    @property
    def timetable(self) -> Timetable:
        """The schedules of the app that runs this turn."""
        return self._host.timetable

    def engine_named(self, name: str, *, kind: str = "") -> Engine:
        """Another engine than the agent's own, by its name in the app; the agent's own for an empty name.

        `kind` is what it is asked for, where that is not the conversation itself: `question`, `summary`, `image`.
        """
        return self._metered(self._host.engine(name) if name else self.crew.engine, kind)

    def _metered(self, engine: EngineFace, kind: str = "") -> Engine:
        return self._host.meter(engine, lambda: self.scope(kind), self._hear)

    def _hear(self, event: Event) -> None:
        """What the ledger says, to whoever watches; a warning once in a turn."""
        if isinstance(event, SpendingWarned):
            if ("ledger", event.message) in self._warned:
                return
            self._warned.add(("ledger", event.message))
        self.emit(event)

    def scope(self, kind: str = "") -> Scope:
        """What a call of this turn is charged to. A turn that works for another one spends what that one may."""
        scope = self._scopes.get(kind)
        if scope is None:
            scope = self._scopes[kind] = self._scope(kind)
        return scope

    def _scope(self, kind: str) -> Scope:
        given = self.given_scope
        kind = kind or given.kind or ("agent" if self.path or "/" in self.conversation else "chat")
        if self.parent is not None:
            given = given.over(self.parent.scope(kind))
        else:
            top = self.conversation.partition("/")[0]
            person = given.person or _newest_author(self.transcript.messages)
            given = given.over(Scope(conversation=top, person=person))
        return msgspec.structs.replace(given, kind=kind, agent=self.agent.name)

    @property
    def given_scope(self) -> Scope:
        """What the surface that this turn came from knows: the channel, the roles, the key."""
        if self._given_scope is not None:
            return self._given_scope
        return self.transcript.scope if self.transcript.turn == self.id else Scope()

    # --- what the loop asks -------------------------------------------------------------------------------------------

    def unanswered_calls(self) -> list[ToolCall]:
        return self.transcript.unanswered if self.transcript.calls else []

    @property
    def held(self) -> list[Question]:
        return self.transcript.questions if self.transcript.calls else []

    def answer_to(self, call_id: str, question_id: str = "") -> Answer | None:
        """What the person said when this call was held: to this question, or last."""
        call = self.transcript.calls.get(call_id)
        if call is None or not call.answers:
            return None
        return call.answers.get(question_id) if question_id else next(reversed(call.answers.values()))

    def is_in_doubt(self, call_id: str) -> bool:
        """The call was started and never finished: whether its side effect happened, nobody knows."""
        call = self.transcript.calls.get(call_id)
        return call is not None and call.started

    def batches(self, calls: list[ToolCall]) -> Iterator[list[ToolCall]]:
        """Calls in order, neighbours that may run beside each other together."""
        batch: list[ToolCall] = []
        for call in calls:
            tool = self.tools.get(call.name)
            if call.parallel and (tool is None or tool.parallel):
                batch.append(call)
                continue
            if batch:
                yield batch
            yield [call]
            batch = []
        if batch:
            yield batch

    def check(self, call: ToolCall) -> dict[str, Any] | ToolResult:
        """The arguments that a call's tool takes, or the error result that says why it cannot run."""
        tool, name = self.tools.get(call.name), call.name
        hidden = self.crew.unoffered.difference(self._offered)
        if tool is None or (name in hidden and not is_directive(call)):
            known = [known for known in self.tools if known not in hidden]
            return error_of(call, f"no tool is named {name!r}{nearest(name, known)}")
        if call.broken:
            return error_of(call, f"the arguments of {name!r} are not a JSON object: {call.broken[:200]!r}")
        if self.is_in_doubt(call.id) and not tool.idempotent:
            return error_of(call, f"interrupted: the program ended while {name!r} ran; it may have had its effect")
        if is_directive(call) and "agent" in tool.tags:
            return call.arguments  # who works for a sentence takes what there is
        try:
            return tool.validate(call.arguments)
        except ToolError as error:
            return error_of(call, str(error))

    def limit_of(self, tool: Tool, batch: float) -> Deadline:
        """When a call is given up, by the loop's time: after the tool's own time, and no later than its batch."""
        if tool.timeout_s == 0:
            return self._host.deadlines.until(None)
        timeout_s = self.limits.call_s if tool.timeout_s is None else tool.timeout_s
        return self._host.deadlines.until(min(batch, asyncio.get_running_loop().time() + timeout_s))

    async def take_inbox(self) -> bool:
        if not self.transcript.inbox or not (self.transcript.is_spoken_to or self.transcript.owed):
            return False
        if self.transcript.owed and self.asks_nobody:
            return False  # a sentence is finished before the next one is thought of
        await self.append(InboxTaken(tuple(self.transcript.inbox)))
        self._scopes.clear()
        return True

    def awaits_reply(self) -> bool:
        return self.transcript.owed

    # --- what the loop does -------------------------------------------------------------------------------------------

    async def append(self, *events: Kept, wait: bool = True) -> None:
        """Keep events. They survive a crash when this returns; with `wait=False`, some milliseconds later.

        Nothing is gained by waiting, unless something outside happens next: a side effect, or somebody is told that
        the turn is over.
        """
        if self.plugins.watches:
            for event in events:
                self.plugins.watch(self, event)
        await self._journal.append(*events, wait=wait)

    def _emit_watched(self, event: Event) -> None:
        self.plugins.watch(self, event)
        self._journal.emit(event)

    def progress(self, call_id: str, text: str, progress: float | None = None) -> None:
        self.emit(CallProgressed(call_id, text, progress))

    async def warn(self, plugin: str, message: str) -> None:
        """Say once in a turn that something is not as its author meant it."""
        if (plugin, message) not in self._warned:
            self._warned.add((plugin, message))
            await self.append(Warned(plugin, message), wait=False)

    def prompt(self) -> Prompt:
        """What the agent's author wrote, with the conversation in its place, before the plugins edit it."""
        crew = self.crew
        self._take_offers()
        new = tuple(
            tool.spec for name, tool in self._offered.items() if name not in crew.tools or name in crew.unoffered
        )
        history = self.transcript.history()
        written = crew.nodes if self.words is None else self.words.fill(crew.nodes)
        nodes = [
            msgspec.structs.replace(node, children=node.children + history if node.children else history)
            if node.id == HISTORY
            else node
            for node in written or ()
        ]
        return Prompt(tuple(nodes), crew.specs + new, crew.options, opaque=crew.opaque)

    async def keep(self, reply: Reply, *, ran: bool, seconds: float, first_token_s: float | None) -> None:
        """Append a reply and what it says of where control goes, all or nothing."""
        message = self._with_ids(reply.message)
        calls = message.calls
        target = "human" if calls else reply.next
        events: list[Kept] = []
        if target.startswith("agent:"):
            agent = target.removeprefix("agent:")
            if self._host.knows_agent(agent):
                events.append(HandedOff(agent, by=self.agent.name))
            else:
                target = "human"
                text = f"control cannot go to the agent {agent!r}: there is none of that name"
                events.append(MessageAdded(Message("error", (Text(text),), id=self.new_id("msg"), duration=1)))
        elif target == "self" and reply.next_message is not None:
            added = reply.next_message
            author = added.author if added.author.startswith("plugin:") else f"plugin:{added.author}"
            events.append(
                MessageAdded(msgspec.structs.replace(added, id=added.id or self.new_id("msg"), author=author))
            )
            target = "message"
        self.builder = None
        free, usage = self.asks_nobody, reply.usage
        self.budget.spent += Spent(int(not free), len(calls), usage.tokens_in + usage.tokens_out)
        await self.append(
            RoundFinished(
                message,
                stop=reply.stop,
                usage=reply.usage,
                engine=self.engine.name,
                model=reply.model,
                agent=self.agent.name,
                next=target,
                ran=ran,
                seconds=seconds,
                first_token_s=first_token_s,
                free=free,
            ),
            *events,
            wait=False,
        )
        if target.startswith("agent:"):
            self._bind(target.removeprefix("agent:"))

    def own_message(self, text: str) -> Message:
        """Something that the agent says by itself, without an engine."""
        return Message("assistant", (Text(text),), id=self.new_id("msg"), author=self.agent.name)

    def _with_ids(self, message: Message) -> Message:
        """Every message and every call has an id of its own; models forget them, and repeat them."""
        parts = message.parts
        ids = [part.id for part in parts if isinstance(part, ToolCall)]
        if ids and (len(set(ids)) != len(ids) or not all(ids) or not self.transcript.called.isdisjoint(ids)):
            seen = set(self.transcript.called)
            fresh: list[Any] = []
            for part in parts:
                if isinstance(part, ToolCall):
                    if not part.id or part.id in seen:
                        part = msgspec.structs.replace(part, id=self.new_id("call"))
                    seen.add(part.id)
                fresh.append(part)
            parts = tuple(fresh)
        author = message.author or self.agent.name
        # A directive and what it gave are no part of what a model is told: they stand in the words that it gets.
        directs = self.words is not None and any(isinstance(part, ToolCall) and is_directive(part) for part in parts)
        duration = 0 if directs else message.duration
        id = message.id or self.new_id("msg")
        return msgspec.structs.replace(message, parts=parts, id=id, author=author, duration=duration)

    def finished(self, result: ToolResult, seconds: float = 0.0) -> CallFinished:
        """The end of a call, with what is known of the agent that worked for it."""
        below = self.below.pop(result.call_id, None)
        return CallFinished(result, seconds) if below is None else CallFinished(result, seconds, *below)

    async def recruit(self, agent: Agent, arguments: dict[str, Any], context: CallContext) -> Any:
        """Let another agent work for one of this turn's calls."""
        return await self._host.recruit(self, agent, arguments, context)

    def result(self) -> AgentResult:
        """How the turn ended, as the one who asked sees it."""
        transcript = self.transcript
        agent = self.failure.agent if self.failure and self.failure.agent else self._first_agent
        error = self.failure.message if self.failure else ""
        output = transcript.output if self.outcome is Outcome.DONE else ""
        return AgentResult(output, error, transcript.ran, agent, _data(output) if self.agent.output else None)

    # --- from start to rest -------------------------------------------------------------------------------------------

    def open(self) -> Turn:
        return self

    async def __aenter__(self) -> Turn:
        self._task = asyncio.current_task()
        try:
            await self._begin()
        except BaseException as error:
            if not await self.__aexit__(type(error), error, None):
                raise
        return self

    async def _begin(self) -> None:
        if self.words is not None:
            self.top = (await self.root()).transcript
        events: list[Kept] = []
        if self.transcript.turn != self.id or self.transcript.outcome is not None:
            crew = self.crew
            events.append(
                TurnStarted(self.id, crew.agent.name, crew.instructions, self.inputs, self.path, scope=self.given_scope)
            )
        events += [MessageAdded(message) for message in self.messages if message.id not in self.transcript.ids]
        if events:
            await self.append(*events, wait=False)  # the job that brought them is kept already
        await self.plugins.start(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._resting:
            return True
        self._resting = True
        if isinstance(error, asyncio.CancelledError):
            if not self.stopping:
                return False  # the app goes down, or the turn above was stopped: the transcript says how to go on
            if self._task is not None:
                self._task.uncancel()
        try:
            await self._come_to_rest(error)
        except RondelError as broken:  # the disk, or a required plugin at the very end
            self._fail(broken)
            self.emit(TurnFinished(self.id, Outcome.FAILED, failure=self.failure))
        # It asks nobody any more. What its engine knows of it refers back to it, and would be left for the collector.
        self.engine, self.words = cast(Engine, Known(self.engine)), None
        return True

    async def _come_to_rest(self, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self._settle_stopped()
        elif isinstance(error, LimitReached):
            self.outcome, self.reason, self.error = Outcome.DONE, str(error), error
            await self._settle_calls(f"not run: {error}")
            await self.append(LimitHit(error.name, str(error)))
        elif isinstance(error, StoreError):
            raise error
        elif error is not None:
            self._fail(error)
            await self._settle_calls(f"not run: {self.failure.message}" if self.failure else "not run")
            text = Text(f"The turn failed: {self.failure.message}" if self.failure else "The turn failed.")
            await self.append(MessageAdded(Message("error", (text,), id=self.new_id("msg"), duration=1)))
        outcome = self.outcome or Outcome.FAILED
        await self.plugins.end(self, outcome)
        if self.agent.job and outcome is Outcome.DONE and not self.reason:
            await self._host.background.start_chain(self)  # before the end is kept: a crash in between starts it again
        usage, seconds = self.transcript.turn_usage, self.now() - self._started_at
        await self.append(TurnFinished(self.id, outcome, self.reason, self.failure, usage, seconds))

    def _fail(self, error: BaseException) -> None:
        self.outcome, self.error = Outcome.FAILED, error
        self.failure = Failure(
            name=type(error).__name__,
            message=str(error) or type(error).__name__,
            code=error.code if isinstance(error, EngineError) else "",
            provider=error.provider if isinstance(error, EngineError) else "",
            agent=error.agent if isinstance(error, AgentFailed) else self.agent.name,
        )
        if not isinstance(error, RondelError):
            log.error("turn %s of conversation %s failed", self.id, self.conversation, exc_info=error)

    async def _settle_stopped(self) -> None:
        """Keep what was said so far, and leave no call open: the next round must be able to go on from here."""
        self.outcome = Outcome.STOPPED
        if self.builder is not None and not self.plugins.holds_stream:
            reply = self.builder.reply()
            parts = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
            if parts:
                reply = msgspec.structs.replace(
                    reply, message=msgspec.structs.replace(reply.message, parts=parts), stop="interrupted"
                )
                await self.keep(reply, ran=True, seconds=self.now() - self.round_began, first_token_s=None)
        said = self.transcript.interrupted
        await self._settle_calls("not finished: the turn was stopped", stopped=True)
        if said:
            await self.append(MessageAdded(self.own_message(said)))

    async def _settle_calls(self, why: str, *, stopped: bool = False) -> None:
        events: list[Kept] = []
        for open_call in self.transcript.calls.values():
            if open_call.question is not None and stopped:
                events.append(QuestionAnswered(Answer(open_call.question.id, open_call.question.default, by="stop")))
            if open_call.result is None:
                events.append(self.finished(error_of(open_call.call, why)))
        if events:
            await self.append(*events)

    async def settle(self) -> None:
        """A person stops a turn that only waits: its questions are closed, its calls get an answer."""
        self.stopping = self._resting = True
        await self._come_to_rest(asyncio.CancelledError())

    def stop(self) -> None:
        """A person stops the turn: what runs is cancelled, the upstream request is closed, what was said is kept."""
        if self._resting:
            return  # too late: it ends anyway
        self.stopping = True
        if self._task is not None:
            self._task.cancel()


def _newest_author(messages: list[Message]) -> str:
    """The person who spoke last; plugins and agents that speak in a person's place are none."""
    for message in reversed(messages):
        if message.role == "user" and not message.author.startswith(("plugin:", "agent:")):
            return message.author
    return ""


def _data(output: str) -> Any:
    try:
        return msgspec.json.decode(output)
    except msgspec.DecodeError:
        return None
