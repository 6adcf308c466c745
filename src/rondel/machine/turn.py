"""A turn: from one input to its end. The only mutable object of the machine, passed explicitly.

Holds the state of a turn, and what plugins and tools may ask it. The parts of a turn's work are modules beside this
one: loop.py, replies.py, calls.py, spending.py and ending.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..agent import Agent
from ..charge import Scope
from ..engine import Engine
from ..events import DurableEvent, Event, Failure, HandedOff, InboxTaken, Outcome, Spent, Warned
from ..limits import Limits
from ..plugin import Chain, Plugin, State, report
from ..prompt import HISTORY, Prompt
from ..question import Answer, Question
from ..text.citations import with_markers
from ..tool import CallContext, Tool
from ..values import AgentResult, Citation, Message, Person, Played, ReplyBuilder, Text, ToolCall
from .citing import CitingEngine, Sources
from .journal import Journal
from .resolved import BoundEngine, Caller, ResolvedAgent
from .spending import Budget, charged_engine
from .transcript import Transcript

if TYPE_CHECKING:
    from .services import Services

SHOWN_CHARS_MAX = 120  # characters of a call's arguments in an error that shows the calls above it


def caller_conversation(request: str) -> str:
    """Return the conversation of a gateway request's turn. It is not the session's, because several requests of one
    session may run at the same time."""
    return f"gateway-{request}"


class Turn:
    """One turn of a conversation, with what plugins and tools may ask it."""

    # Without slots, an object of more than 30 attributes builds a dict of its own: 10 % of a small turn. Pyright names
    # an attribute that is missing here.
    __slots__ = (
        *("_given_agent", "_given_person", "_given_scope", "_left_out", "_offered", "_starting_agent"),
        *("_warned", "agent", "agents_at_work", "below", "budget", "builder", "call", "caller"),
        *("charged_engine", "emit", "ending", "engine", "error", "failure", "id", "inputs", "journal"),
        *("limits", "messages", "now", "outcome", "parent", "path", "played", "plugins", "previewing", "reason"),
        *("reply_id", "resolved", "round_began", "scopes", "services", "sources", "started_at", "state", "stopping"),
        *("suggested", "task", "tools", "top", "transcript", "watching", "words"),
    )

    def __init__(
        self,
        services: Services,
        journal: Journal,
        *,
        id: str,
        agent: str,
        path: tuple[str, ...] = (),
        inputs: dict[str, Any] | None = None,
        messages: tuple[Message, ...] = (),
        resolved: ResolvedAgent | None = None,
        parent: Turn | None = None,
        call: ToolCall | None = None,
        scope: Scope | None = None,
        person: Person | None = None,
        caller: Caller | None = None,
    ) -> None:
        self.id = id
        self.services = services
        self.journal = journal
        self.now = services.clock.now
        self.messages = messages
        """The messages that started this turn; they are in the transcript once the turn has begun."""
        self.path = path  # the agents above this one, outermost first
        self.parent = parent  # the turn that this one works for, and the call in it that this one answers
        self.call = call
        self.caller = parent.caller if parent is not None else caller
        """The program that sent this turn's request to the gateway; None in every other turn."""
        self.inputs = inputs or {}
        self.state = State()
        self.watching: list[tuple[Plugin, Event, Awaitable[None]]] = []
        """What async `on_event` hooks returned, until something can wait for it."""
        self.previewing = False  # the prompt is only shown: no model is asked

        self.outcome: Outcome | None = None
        self.reason = ""
        self.failure: Failure | None = None
        self.error: BaseException | None = None
        """The exception behind the failure, or behind the limit that was reached."""
        self.task: asyncio.Task[Any] | None = None
        self.stopping = self.ending = False
        self.played: Played | None = None

        self.builder: ReplyBuilder | None = None  # the reply that is being received
        self.round_began = 0.0
        self.reply_id = ""  # the id that the next reply gets, so that watchers know it while it streams
        self.below: dict[str, tuple[Spent, tuple[str, ...]]] = {}
        """What agents that worked for an unanswered call have used, and which agents they suggest, by the call's id."""

        self.agents_at_work: dict[str, Turn] = {}
        """The turns of agents that work for a call now, by the call's id."""

        self._given_scope, self._given_person = scope, person
        self._warned: frozenset[tuple[str, str]] = frozenset()
        self._offered: dict[str, Mapping[str, Tool]] = {}
        self._starting_agent = agent
        self._given_agent = resolved
        self.transcript: Transcript = journal.transcript
        self.sources = parent.sources if parent is not None else Sources(journal.transcript.sources)
        """The sources that this conversation refers to by number; one list for a whole tree of agents."""
        if parent is not None:
            self.sources.learn(journal.transcript.sources)
        self.top: Transcript = journal.transcript
        """The transcript of the conversation that people see, once the turn has begun."""
        resumes = self.transcript.turn == id
        self._bind(self.transcript.agent if resumes else agent)
        self.started_at = self.now()
        self.budget = parent.budget if parent else Budget(self.limits, self.started_at)
        if resumes:  # what it used before counts, too
            self.budget.add(self.transcript.turn_spent)
            self.budget.began_at -= 0 if parent else self.transcript.turn_seconds

    def _bind(self, agent: str) -> None:
        """Make this agent, with its engine, tools and plugins, write the next reply."""
        given = self._given_agent
        resolved = given if given is not None and given.agent.name == agent else self._resolve(agent)
        self.resolved = resolved
        self.scopes: dict[str, Scope] = {}
        """The scopes that calls are charged to, by kind: the same in every round until another agent or person
        speaks."""
        self.agent: Agent = resolved.agent
        self.words: BoundEngine | None = None if resolved.bind is None else resolved.bind(self)
        self.charged_engine = charged_engine(self, resolved.engine) if self.words is None else None
        """The engine that is asked for each round; None if the author's own text answers."""
        self.engine: Engine = self.words or CitingEngine(cast(Engine, self.charged_engine), self)
        self.tools: dict[str, Tool] = resolved.tools
        self.suggested: dict[str, Tool] = {}  # the agents that answers of this turn suggested, as tools
        self._offered.clear()
        self._offer_suggested_agents()
        self.limits: Limits = resolved.agent.limits
        self._left_out: list[tuple[Plugin, Exception]] = []
        self.plugins: Chain = resolved.chain.for_turn(self, self._left_out)
        """The plugins that take part in this turn, in order."""
        self.emit: Callable[[Event], None] = self._emit_watched if self.plugins.watches else self.journal.emit
        """Show an event to the watchers. Never waits."""

    def _resolve(self, agent: str) -> ResolvedAgent:
        """Return the current state of the agent, with the tools and the context of the program that talks to it: unlike
        other settings, these outlast a handoff."""
        settings = self.transcript.settings if self.parent is None else {}
        brought = {key: value for key, value in settings.items() if key.startswith("client.")}
        return self.services.registry.resolve(agent, settings=brought)

    # --- who and where ------------------------------------------------------------------------------------------------

    @property
    def conversation(self) -> str:
        """The id of the conversation."""
        return self.journal.conversation

    @property
    def level(self) -> int:
        """How many agents are above this one."""
        return len(self.path)

    @property
    def calls_above(self) -> str:
        """The calls that led to this turn, one per line, outermost first."""
        lines: list[str] = []
        turn = self
        while turn.parent is not None and turn.call is not None:
            arguments = msgspec.json.encode(turn.call.arguments).decode()
            shown = arguments if len(arguments) <= SHOWN_CHARS_MAX else f"{arguments[:SHOWN_CHARS_MAX]}…"
            lines.append(f"Depth {turn.level}: called tool {turn.call.name} with args {shown}")
            turn = turn.parent
        return "\n".join(reversed(lines))

    async def root(self) -> Journal:
        """Return the journal of the conversation that people see: this turn's own, or that of the topmost turn.

        A gateway caller keeps its conversation itself; what outlasts one request is stored for its session.
        """
        if self.parent is not None:
            return await self.parent.root()
        if self.caller is not None:
            return await self.services.journals.open(self.conversation) if self.caller.session else self.journal
        top = self.conversation.partition("/")[0]
        return self.journal if top == self.conversation else await self.services.journals.open(top)

    @property
    def branch(self) -> str:
        """The conversation under which agents that work for this turn keep theirs."""
        is_callers = self.caller is not None and self.parent is None
        return caller_conversation(self.id) if is_callers else self.conversation

    @property
    def given_scope(self) -> Scope:
        """What the surface that started this turn knows: the channel, the roles, the key."""
        if self._given_scope is not None:
            return self._given_scope
        return self.transcript.scope if self.transcript.turn == self.id else Scope()

    @property
    def person(self) -> Person:
        """Who started it."""
        if self.parent is not None:
            return self.parent.person
        if self._given_person is not None:
            return self._given_person
        return self.transcript.person if self.transcript.turn == self.id else Person("")

    @property
    def environment(self) -> dict[str, str]:
        """The variables for processes that tools start, without secrets."""
        return self.services.environment

    def new_id(self, prefix: str) -> str:
        """Return a unique id."""
        return self.services.new_id(prefix)

    def engine_named(self, name: str, *, kind: str = "") -> Engine:
        """Return the engine of this name, or the agent's own for an empty name. Its calls are charged to this turn.

        `kind` is the purpose of the calls if that is not the conversation itself: `question`, `summary`, `image`.
        """
        return charged_engine(self, name or self.resolved.engine, kind)

    # --- what the loop asks -------------------------------------------------------------------------------------------

    def unanswered_calls(self) -> list[ToolCall]:
        """Return the calls that must be answered now."""
        return self.transcript.unanswered if self.transcript.calls else []

    @property
    def held(self) -> list[Question]:
        """The questions that this turn waits for."""
        return self.transcript.questions if self.transcript.calls else []

    def answer_to(self, call_id: str, question_id: str = "") -> Answer | None:
        """Return the person's answer to a call that was held, or None."""
        call = self.transcript.calls.get(call_id)
        if call is None or not call.answers:
            return None
        return call.answers.get(question_id) if question_id else next(reversed(call.answers.values()))

    @property
    def without_model(self) -> bool:
        """Whether the next reply needs no model: it is the agent's own text, or the rest of a sentence."""
        return self.words is not None and self.words.without_model

    async def take_inbox(self) -> bool:
        """Add the messages of the inbox to the transcript. Returns False if there are none to answer now."""
        if self.transcript.handing_off or self.transcript.agent != self.agent.name:
            await self._follow_hand_off()
        if not self.transcript.inbox or not (self.transcript.is_spoken_to or self.transcript.owed):
            return False
        if self.transcript.owed and self.without_model:
            return False  # the sentence is finished first
        await self.append(InboxTaken(tuple(self.transcript.inbox)))
        self.scopes.clear()
        return True

    async def _follow_hand_off(self) -> None:
        if handoff := self.transcript.handing_off:
            await self.append(HandedOff(handoff.agent, by=self.agent.name, reason=handoff.reason), wait=False)
        if self.transcript.agent != self.agent.name:
            self._bind(self.transcript.agent)
            await self.report_left_out()

    def awaits_reply(self) -> bool:
        """Return whether an engine owes a reply."""
        return self.transcript.owed

    def offer(self, plugin: str, tools: Mapping[str, Tool]) -> None:
        """Let calls of this turn find these tools, too, in place of those that the plugin offered before. The agent's
        own tool of the same name wins. The plugin adds what models are told about them to the prompt."""
        if self._offered.get(plugin) is not tools:
            self._offered[plugin] = tools
            self._collect_tools()

    def _collect_tools(self) -> None:
        offered = {name: tool for tools in self._offered.values() for name, tool in tools.items()}
        self.tools = {**offered, **self.suggested, **self.resolved.tools}

    def prompt(self) -> Prompt:
        """Return the prompt of the next round before the plugins edit it: the author's, with the conversation in it."""
        resolved = self.resolved
        self._offer_suggested_agents()
        specs = resolved.specs
        if self.suggested:
            specs += tuple(
                tool.spec
                for name, tool in self.suggested.items()
                if name not in resolved.tools or name in resolved.unoffered
            )
        history = self.transcript.history()
        written = resolved.nodes if self.words is None else self.words.fill(resolved.nodes)
        nodes = [
            msgspec.structs.replace(node, children=node.children + history if node.children else history)
            if node.id == HISTORY
            else node
            for node in written or ()
        ]
        return Prompt(tuple(nodes), specs, resolved.options, opaque=resolved.opaque)

    def _offer_suggested_agents(self) -> None:
        names, registry = self.transcript.offered, self.services.registry
        if len(self.suggested) != len(names):
            tools = [registry.tool_of(name) for name in names if registry.knows_agent(name)]
            self.suggested = {tool.name: tool for tool in tools}
            self._collect_tools()

    # --- what happens in it -------------------------------------------------------------------------------------------

    def append(self, *events: DurableEvent, wait: bool = True) -> Awaitable[None]:
        """Store events. They survive a crash when this returns; with `wait=False`, some milliseconds later.

        Wait only if something outside happens next: a side effect, or watchers see that the turn has ended.
        """
        if self.plugins.watches:
            return self._append_watched(events, wait)
        return self.journal.append(*events, wait=wait)

    async def _append_watched(self, events: tuple[DurableEvent, ...], wait: bool) -> None:
        for event in events:
            self.plugins.watch(self, event)
        if self.watching:
            await self.plugins.finish_watching(self)
        await self.journal.append(*events, wait=wait)

    def _emit_watched(self, event: Event) -> None:
        self.plugins.watch(self, event)
        self.journal.emit(event)

    async def warn(self, plugin: str, message: str) -> None:
        """Warn of something that the author did not intend, once per turn."""
        if self.is_first_warning(plugin, message):
            await self.append(Warned(plugin, message), wait=False)

    def is_first_warning(self, source: str, message: str) -> bool:
        """Return whether this is the turn's first warning of this."""
        is_first = (source, message) not in self._warned
        self._warned |= {(source, message)}
        return is_first

    async def report_left_out(self) -> None:
        """Report plugins that could not say whether they apply."""
        left_out, self._left_out = self._left_out, []
        for plugin, error in left_out:
            await report(self, plugin, "applies", error)

    async def recruit(self, agent: Agent, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run an agent for a call, and return its answer."""
        return await self.services.turns.recruit(self, agent, arguments, context)

    def stop(self, played: Played | None = None) -> None:
        """Stop the turn: cancel what runs, close the upstream request, and keep the text so far, or only what was
        `played`."""
        if self.ending:
            return
        self.stopping, self.played = True, played
        if self.task is not None:
            self.task.cancel()

    def cited(self) -> tuple[str, tuple[Citation, ...]]:
        """Return the output of this turn with a marker for each citation, and the sources that it cites."""
        output = self.transcript.output
        said = next((m for m in reversed(self.transcript.messages) if m.role == "assistant"), None)
        if said is None or not any([type(p) is Text and p.citations for p in said.parts]) or said.text != output:
            return output, self.sources.cited_in(output)
        return with_markers(said.parts, lambda citation: self.sources.add(citation).number)

    def result(self) -> AgentResult:
        """Return how the turn ended: its output, and why there is no more."""
        if self.outcome is Outcome.WAITING:
            asked = "; ".join(question.text for question in self.held)
            return AgentResult(
                error=f"waiting for an answer: {asked}",
                agent=self.agent.name,
                outcome=Outcome.WAITING,
                usage=self.transcript.turn_usage,
            )
        transcript, failure, why = self.transcript, self.failure, self.reason
        output = "" if self.outcome is Outcome.FAILED else transcript.output
        if self.outcome is Outcome.STOPPED:
            why = why or "the turn was stopped"
        return AgentResult(
            output,
            failure.message if failure else why,
            transcript.ran and (self.outcome is not Outcome.LIMITED or transcript.has_asked),
            failure.agent if failure and failure.agent else self._starting_agent,
            _data(output) if self.agent.output else None,
            transcript.limit,
            self.outcome or Outcome.FAILED,
            transcript.turn_usage,
            self.cited()[1] if output else (),
        )


def _data(output: str) -> Any:
    try:
        return msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError):
        return None
