"""Makes a turn of a caller's request: its prompt, the plugins that apply, and the tools that they inject.

There is no second loop. The caller's conversation is the beginning of the transcript. Calls of injected tools are
answered here; a call of the caller's own tool is held, which ends the turn, and sent to the caller. The hidden rounds
before it are stored and put back into the caller's next request. Does not know the wire format.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from urllib.parse import quote

import msgspec

from ...agent import Agent
from ...app.app import App
from ...charge import Scope, Tell, model_of
from ...contracts.clock import Clock
from ...contracts.embedder import Embedder
from ...contracts.runtime import Runtime
from ...contracts.store import Store
from ...engine import Engine, EngineInfo
from ...events import DurableEvent, Entry, HistoryGiven, TurnStarted
from ...limits import Limits, ReplyBound
from ...machine.journal import EphemeralJournal, Journal
from ...machine.resolved import Caller, ResolvedAgent
from ...machine.turn import Turn, caller_conversation
from ...plugin import Chain, Key, Plugin
from ...plugins.limits import LimitsGuard
from ...prompt import HISTORY, Node, Prompt
from ...question import Hold, Question
from ...values import Message, Messages, Options, Person, ToolCall, ToolResult, ToolSpec, Value
from ..relay.request import GatewayRequest
from .questions import Waiting
from .responses import callers_key
from .signatures import all_stamped

GATEWAY = "gateway"  # the name of the agent in the turn of a request that names no agent of the project
_HISTORY = Node(HISTORY)
NAMESPACE = "gateway.hidden_rounds"
STORED_MAX = 10_000
ID_CHARS_MAX = 512  # A call's id comes from a model's server; hidden rounds of a call with a longer one are not stored
STORED_S = 7 * 24 * 3600.0  # how long hidden rounds are stored. A caller who comes back later continues without them.


async def _at_once() -> None: ...


BEFORE_INJECTED: Key[Callable[[], Awaitable[None]]] = Key("before_injected", lambda: _at_once)
"""Runs before an injected call is answered: sends the caller the text so far."""


class CallerTools(Plugin):
    """Holds calls of the caller's own tools: the turn waits until the caller sends their results."""

    name = "caller_tools"
    required = True

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | Hold:
        if call.name in turn.tools:
            await turn.state[BEFORE_INJECTED]()
            return call
        return Hold(Question(f"caller-{call.id}", "ask", f"the caller answers {call.name!r}", call_id=call.id))


class TraceStore:
    """Stores a request's turn for a trace, under a name of its own: the caller keeps the conversation."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        await self._store.append(self._name, seq, events, at=at, wait=wait)

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        return await self._store.read(self._name, after)


class RequestServices:
    """The services of one request's turn: the app's, with the engines that the caller may use."""

    def __init__(
        self,
        app: App,
        engine: Callable[[str], EngineInfo],
        wrap_engine: Callable[[Engine], Engine],
        allows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._app, self._engine, self._wrap_engine = app, engine, wrap_engine
        self.clock, self.deadlines, self.store, self.new_id = app.clock, app.deadlines, app.store, app.new_id
        self.registry, self.journals, self.turns = app.registry, app.journals, app.turns
        self.background, self.timetable = app.background, app.timetable
        self.knowledge, self.web_search, self.charge_embedder = app.knowledge, app.web_search, app.charge_embedder
        self.images = app.images.allowed(allows) if app.images else app.images

    @property
    def embedder(self) -> Embedder | None:
        return self._app.embedder

    @property
    def environment(self) -> dict[str, str]:
        return self._app.environment

    @property
    def runtime(self) -> Runtime:
        return self._app.runtime

    def charge(
        self,
        engine: EngineInfo | str,
        scope: Scope | Callable[[], Scope],
        tell: Tell | None = None,
        bound: Callable[[], ReplyBound] | None = None,
    ) -> Engine:
        asked = self._engine(engine) if isinstance(engine, str) else engine
        return self._wrap_engine(self._app.charge(asked, scope, tell, bound))


class Opening(msgspec.Struct, frozen=True):
    """How to open the turn of a request."""

    agent: str = ""  # the project's agent that answers, instead of a bare model
    image: str = ""  # the vision engine
    engine: Callable[[str], EngineInfo] | None = None
    """Returns the engine that a plugin names; raises if the caller may not use it. None uses the app's engines."""
    allows: Callable[[str], bool] = lambda _: True  # whether the caller may use an image engine


class RequestTurns:
    """Opens turns for requests, with the gateway's plugins or with those of the agent that the request names."""

    def __init__(
        self,
        app: App,
        plugins: Iterable[Plugin] = (),
        *,
        limits: Limits | None = None,
    ) -> None:
        self._app = app
        self._chains = {"": Chain((CallerTools(), LimitsGuard(), *plugins))}
        self._plain = Chain((CallerTools(), LimitsGuard()))
        self._agent = Agent(GATEWAY, limits=limits or Limits())
        self._always_look = any(not plugin.looks_for for plugin in self.plugins)
        self._look_for = tuple(text for plugin in self.plugins for text in plugin.looks_for)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return self._chains[""].plugins[2:]

    def reply_bound(self) -> ReplyBound:
        return self._agent.limits.reply_bound

    def may_apply(self, request: GatewayRequest) -> bool:
        """Return whether a plugin may apply to this request. Cheap: `applies` decides once the prompt is parsed."""
        return self._always_look or request.holds(*self._look_for)

    async def open(
        self,
        request: GatewayRequest,
        prompt: Prompt,
        engine: Engine,
        opening: Opening,
        *,
        wrap_engine: Callable[[Engine], Engine],
        plain: bool = False,
        kept: bool = False,
        resumed: Waiting | None = None,
    ) -> Turn:
        """Return the turn that answers a request. `wrap_engine` wraps each engine that it asks. `plain` says that no
        plugin of the gateway applies. `kept` stores the turn for a trace. `resumed` is a turn that waited for this
        request."""
        at = _instructions(prompt)
        resolved = self._resolve(prompt, at, engine, opening.agent, plain=plain)
        conversation = _conversation(request)
        journal = self._kept(conversation, request.id) if kept else EphemeralJournal(conversation)
        person, dialect = Person(request.key, origin="key"), request.dialect.name
        caller = Caller(person, request.session, request.project, engine.name, dialect, opening.image)
        history = Messages(cast("tuple[Message, ...]", prompt.nodes[at:]))
        id, events = request.id, ()
        if resumed is not None:
            id, events, history = resumed.turn, resumed.events, Messages(history[: resumed.given])
        started = TurnStarted(id, resolved.agent.name, scope=scope_of(request), person=person)
        await journal.append(started, HistoryGiven(history), *events, wait=False)
        services = RequestServices(self._app, opening.engine or self._app.registry.engine, wrap_engine, opening.allows)
        turn = Turn(services, journal, id=id, agent=resolved.agent.name, resolved=resolved, caller=caller)
        _inject(turn, prompt.tools)
        return turn

    def _kept(self, conversation: str, request: str) -> Journal:
        trace_store = TraceStore(self._app.store, caller_conversation(request))
        return Journal(conversation, cast(Store, trace_store), self._app.clock)

    def _resolve(self, prompt: Prompt, at: int, engine: Engine, agent: str, *, plain: bool) -> ResolvedAgent:
        """Return who answers: a bare model or an agent. The messages before `at` are the caller's instructions."""
        instructions = prompt.nodes[:at]
        if not agent:
            nodes = cast("tuple[Node, ...]", instructions)
            return ResolvedAgent(
                self._agent,
                EngineInfo.of(engine),
                chain=self._plain if plain else self._chains[""],
                tools={},
                specs=prompt.tools,
                nodes=(*nodes, _HISTORY),
                options=prompt.options,
                instructions="",
                opaque=prompt.opaque,
            )
        told = tuple(
            Node(f"caller-{n}", text=message.text, role="system")
            for n, message in enumerate(cast("tuple[Message, ...]", instructions))
        )
        ours = self._app.registry.resolve(agent)
        if agent not in self._chains:
            self._chains[agent] = Chain((CallerTools(), *ours.chain.plugins))
        at = next((n for n, node in enumerate(ours.nodes) if node.id == HISTORY), len(ours.nodes))
        return msgspec.structs.replace(
            ours,
            engine=EngineInfo.of(engine),
            chain=self._chains[agent],
            nodes=(*ours.nodes[:at], *told, *ours.nodes[at:]),
            options=_merged(ours.options, prompt.options),
            # Without `opaque`: what the caller tells a server of its dialect, such as who it is, is not the agent's.
        )


def scope_of(request: GatewayRequest, engine: str = "") -> Scope:
    """Return what a request's engine calls are charged to."""
    return Scope(
        "gateway",
        model_of(engine),
        engine,
        key=request.key,
        project=request.project,
        conversation=request.session,
    )


def _conversation(request: GatewayRequest) -> str:
    """Return one name for all requests of a key's session, which no other key or session can produce."""
    if not request.session:
        return caller_conversation(request.id)
    return f"{GATEWAY}.{quote(request.key, safe='')}.{quote(request.session, safe='', errors='replace')}"


def _instructions(prompt: Prompt) -> int:
    """Return how many messages at the beginning are instructions."""
    count = 0
    for node in prompt.nodes:
        if node.role != "system":
            break
        count += 1
    return count


def _merged(ours: Options, callers: Options) -> Options:
    given = {k: v for k, v in msgspec.structs.asdict(callers).items() if v not in (None, (), "") and k != "user"}
    return msgspec.structs.replace(ours, **given)


def _inject(turn: Turn, callers: tuple[ToolSpec, ...]) -> None:
    """Offer the tools of the plugins and of the agent before the caller's. The caller's tool wins if names clash."""
    own = (*turn.resolved.tools.values(), *turn.plugins.tools)
    if not own and turn.resolved.specs is callers:
        return
    taken = {spec.name for spec in callers}
    injected = {tool.name: tool for tool in own if tool.name not in taken}
    turn.tools = injected
    offered = (tool.spec for tool in injected.values() if tool.name not in turn.resolved.unoffered)
    turn.resolved = msgspec.structs.replace(turn.resolved, tools=injected, specs=(*offered, *callers))


# --- what was answered inside, for the caller's next request ----------------------------------------------------------


class HiddenMessages(Value, frozen=True):
    """The messages of a turn with its hidden rounds, and the results of the injected calls in the last round."""

    messages: tuple[Message, ...]
    results: tuple[ToolResult, ...]


class HiddenRounds:
    """Stores the rounds that a caller does not see, under the caller's key and the id of the call that it does see."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: OrderedDict[str, HiddenMessages | None] = OrderedDict()
        self._loaded = False

    async def remember(self, key: str, turn: Turn, given: int, signer: str) -> None:
        """Store the hidden rounds of a turn that ended with calls of the caller's tools. `given` is the number of
        messages it started with, `signer` the provider that signed its thinking."""
        calls = turn.transcript.calls
        callers = [id for id, call in calls.items() if call.result is None and len(id) <= ID_CHARS_MAX]
        messages = all_stamped(turn.transcript.messages[given:], signer)
        if not callers or not any(call.name in turn.tools for message in messages for call in message.calls):
            return
        results = tuple(call.result for call in calls.values() if call.result is not None)
        hidden = HiddenMessages(messages, results)
        for id in callers:
            self._cache(callers_key(key, id), hidden)
            await self._store.put(
                NAMESPACE, callers_key(key, id), msgspec.json.encode(hidden), until=self._clock.now() + STORED_S
            )

    async def may_apply(self, request: GatewayRequest) -> bool:
        """Return whether a request may continue a turn with hidden rounds. Cheap: looks only for the calls' ids."""
        await self._load()
        return bool(self._known) and any(
            callers_key(request.key, id.decode("utf-8", "replace")) in self._known for id in request.find(_ID)
        )

    async def restore(self, key: str, prompt: Prompt) -> Prompt:
        """Return the prompt with the hidden rounds put back where they were."""
        await self._load()
        if not self._known:
            return prompt
        nodes: list[Any] = []
        pending: tuple[ToolResult, ...] = ()
        is_changed = False
        for node in prompt.nodes:
            if isinstance(node, Message) and node.role == "tool" and pending:
                node, pending = msgspec.structs.replace(node, parts=(*pending, *node.parts)), ()
            elif isinstance(node, Message) and node.role == "assistant" and (hidden := await self._find(key, node)):
                nodes.extend(hidden.messages)
                pending, is_changed = hidden.results, True
                continue
            nodes.append(node)
        return prompt.replace(nodes=tuple(nodes)) if is_changed else prompt

    async def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            for store_key in await self._store.keys(NAMESPACE, limit=STORED_MAX):
                self._cache(store_key, None)

    async def _find(self, key: str, message: Message) -> HiddenMessages | None:
        for call in message.calls:
            store_key = callers_key(key, call.id)
            if store_key in self._known:
                if (hidden := self._known[store_key]) is None and (
                    kept := await self._store.get(NAMESPACE, store_key)
                ) is not None:
                    hidden = msgspec.json.decode(kept, type=HiddenMessages)
                    self._cache(store_key, hidden)
                if hidden is None:
                    del self._known[store_key]
                elif _callers_calls(hidden) == {(call.id, call.name): call.arguments for call in message.calls}:
                    return hidden
        return None

    def _cache(self, store_key: str, hidden: HiddenMessages | None) -> None:
        self._known[store_key] = hidden
        self._known.move_to_end(store_key)
        if len(self._known) > STORED_MAX:
            self._known.popitem(last=False)


_ID = re.compile(rb'"(?:id|call_id|tool_call_id)"\s*:\s*"([^"]+)"')  # where the dialects write the ids of calls


def _callers_calls(hidden: HiddenMessages) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the caller's calls in a turn's last round, with their arguments: some servers repeat the same ids."""
    answered = {result.call_id for result in hidden.results}
    calls = hidden.messages[-1].calls if hidden.messages else ()
    return {(call.id, call.name): call.arguments for call in calls if call.id not in answered}
