"""A foreign request as a turn of the loop: the caller's prompt, the plugins that apply, and the tools that they lend.

There is no second loop. The caller's conversation is the transcript's beginning; calls of lent tools are answered
inside; a call of the caller's own tools is held, which lets the turn rest, and goes out. What was answered inside
beside it is remembered, and put back into the next request. Knows no network and no wire format.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import msgspec

from ..agent import Agent
from ..app import App
from ..charge import Scope, Tell
from ..clock import Clock
from ..crew import Crew, Host
from ..engine import Engine, EngineFace
from ..errors import EngineDenied
from ..events import Entry, HistoryGiven, Kept, TurnStarted
from ..journal import Journal, Unkept
from ..limits import Limits
from ..plugin import Chain, Key, Plugin
from ..plugins.limits import LimitsGuard
from ..prompt import HISTORY, Node, Prompt
from ..question import Hold, Question
from ..store import Store
from ..turn import Turn
from ..values import Message, Messages, Options, ToolCall, ToolResult, ToolSpec, Value
from .request import Request

GATEWAY = "gateway"
"""The name of the agent that stands for foreign requests which name none of ours."""
_HISTORY = Node(HISTORY)
JOINS = "gateway.joins"
JOINS_MAX = 10_000
JOIN_S = 7 * 24 * 3600.0
"""How long it is remembered what was answered inside; a caller who comes back later gets on without it."""


async def _at_once() -> None:
    """Nobody waits for anything."""


BEFORE_LENT: Key[Callable[[], Awaitable[None]]] = Key("before_lent", lambda: _at_once)
"""What happens before a lent call is answered: the caller is sent what was said so far."""


class CallerTools(Plugin):
    """Whatever is not lent belongs to the caller: the call is held, and the turn rests until the caller comes back."""

    name = "caller_tools"
    required = True

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | Hold:
        if call.name in turn.tools:
            await turn.state[BEFORE_LENT]()
            return call
        return Hold(Question(f"caller-{call.id}", "ask", f"the caller answers {call.name!r}", call_id=call.id))


class Trail:
    """Where a request's turn is kept for a trace: under a name of its own, because the caller has the conversation."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    async def append(
        self, conversation: str, seq: int, events: tuple[Kept, ...], *, at: float, wait: bool = True
    ) -> None:
        await self._store.append(self._name, seq, events, at=at, wait=wait)

    async def read(self, conversation: str, after: int = 0) -> list[Entry]:
        return await self._store.read(self._name, after)


class Inside:
    """The host of one foreign request's turn: the app in everything but the crew and the engines."""

    def __init__(
        self, app: App, crew: Crew, engine: Callable[[str], EngineFace], dress: Callable[[Engine], Engine]
    ) -> None:
        self._app, self._crew, self.engine, self._dress = app, crew, engine, dress
        self.clock, self.new_id = app.clock, app.new_id

    def crew(self, agent: str) -> Crew:
        return self._crew if agent == self._crew.agent.name else self._app.crew(agent)

    def meter(self, engine: EngineFace, scope: Callable[[], Scope], tell: Tell) -> Engine:
        return self._dress(self._app.meter(engine, scope, tell))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


def _anybody(_: str) -> bool:
    return True


class Opening(msgspec.Struct, frozen=True):
    """How a foreign request's turn is opened."""

    agent: str = ""
    """One of ours, which answers instead of a bare model."""
    image: str = ""
    """The engine that sees images."""
    may_use: Callable[[str], bool] = _anybody
    """Whether the caller may use an engine that a plugin asks for."""


class Lending:
    """Opens turns for foreign requests, with the gateway's plugins or with those of the agent that is named."""

    def __init__(
        self,
        app: App,
        plugins: Iterable[Plugin] = (),
        *,
        limits: Limits | None = None,
        engine: Callable[[str], Engine] | None = None,
    ) -> None:
        self._app = app
        self._engine: Callable[[str], EngineFace] = engine or app.engine
        self._chains = {"": Chain((CallerTools(), LimitsGuard(), *plugins))}
        self._plain = Chain((CallerTools(), LimitsGuard()))
        self._agent = Agent(GATEWAY, limits=limits or Limits())
        self._always_look = any(not plugin.looks_for for plugin in self.plugins)
        self._look_for = tuple(text for plugin in self.plugins for text in plugin.looks_for)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return self._chains[""].plugins[2:]

    def may_apply(self, request: Request) -> bool:
        """Whether some plugin might want to see this request; it is asked for real once the prompt is read."""
        return self._always_look or request.holds(*self._look_for)

    async def open(
        self,
        request: Request,
        prompt: Prompt,
        engine: Engine,
        opening: Opening,
        *,
        dress: Callable[[Engine], Engine],
        plain: bool = False,
        kept: bool = False,
    ) -> Turn:
        """The turn that answers a request. `dress` puts around each engine that it asks what belongs there; `plain`
        says that nothing in it is for the gateway's plugins; what is `kept` is in the store, for a trace."""
        at = _instructions(prompt)
        crew = self._crew(prompt, at, engine, opening.agent, plain=plain)
        conversation = f"gateway/{request.key}/{request.session}" if request.session else f"gateway/{request.id}"
        journal = self._kept(conversation, request.id) if kept else Unkept(conversation)
        inputs = {
            "key": request.key,
            "session": request.session,
            "project": request.project,
            "model": engine.name,
            "dialect": request.dialect.name,
            "image": opening.image,
        }
        history = Messages(cast("tuple[Message, ...]", prompt.nodes[at:]))
        started = TurnStarted(request.id, crew.agent.name, inputs=inputs, scope=scope_of(request))
        await journal.append(started, HistoryGiven(history), wait=False)

        def allowed(name: str) -> EngineFace:
            if not opening.may_use(name):
                raise EngineDenied(f"the caller's key may not use {name!r}", code="permission_error")
            return self._engine(name)

        host = cast(Host, Inside(self._app, crew, allowed, dress))
        turn = Turn(host, journal, id=request.id, agent=crew.agent.name, inputs=inputs)
        _lend(turn, prompt.tools)
        return turn

    def _kept(self, conversation: str, request: str) -> Journal:
        trail = Trail(self._app.store, f"gateway-{request}")
        return Journal(conversation, cast(Store, trail), self._app.clock)

    def _crew(self, prompt: Prompt, at: int, engine: Engine, agent: str, *, plain: bool) -> Crew:
        """Who answers: a bare model, or one of our agents. The messages before `at` are the caller's instructions."""
        instructions = prompt.nodes[:at]
        if not agent:
            nodes = cast("tuple[Node, ...]", instructions)
            return Crew(
                self._agent,
                engine,
                self._plain if plain else self._chains[""],
                {},
                prompt.tools,
                (*nodes, _HISTORY),
                prompt.options,
                "",
                prompt.opaque,
            )
        told = tuple(
            Node(f"caller-{n}", text=message.text, role="system")
            for n, message in enumerate(cast("tuple[Message, ...]", instructions))
        )
        ours = self._app.crew(agent)
        if agent not in self._chains:
            self._chains[agent] = Chain((CallerTools(), *ours.chain.plugins))
        at = next((n for n, node in enumerate(ours.nodes) if node.id == HISTORY), len(ours.nodes))
        return msgspec.structs.replace(
            ours,
            engine=engine,
            chain=self._chains[agent],
            nodes=(*ours.nodes[:at], *told, *ours.nodes[at:]),
            options=_merged(ours.options, prompt.options),
            opaque=prompt.opaque,
        )


def scope_of(request: Request, engine: str = "") -> Scope:
    """What a request's calls are charged to, of this engine or of any."""
    _, colon, model = engine.partition(":")
    return Scope(
        "gateway",
        model if colon else engine,
        engine,
        key=request.key,
        project=request.project,
        conversation=request.session,
    )


def _instructions(prompt: Prompt) -> int:
    """How many messages at the beginning are instructions."""
    count = 0
    for node in prompt.nodes:
        if node.role != "system":
            break
        count += 1
    return count


def _merged(ours: Options, callers: Options) -> Options:
    given = {k: v for k, v in msgspec.structs.asdict(callers).items() if v not in (None, (), "")}
    return msgspec.structs.replace(ours, **given)


def _lend(turn: Turn, callers: tuple[ToolSpec, ...]) -> None:
    """Offer the applying plugins' tools and the agent's own before the caller's. A name that the caller has is its."""
    own = (*turn.crew.tools.values(), *turn.plugins.tools)
    if not own and turn.crew.specs is callers:
        return
    taken = {spec.name for spec in callers}
    lent = {tool.name: tool for tool in own if tool.name not in taken}
    turn.tools = lent
    turn.crew = msgspec.structs.replace(turn.crew, tools=lent, specs=(*(tool.spec for tool in lent.values()), *callers))


# --- what was answered inside, for the caller's next request ----------------------------------------------------------


class Join(Value, frozen=True):
    """The messages of a turn as they were inside, and the results of the lent calls in its last round."""

    messages: tuple[Message, ...]
    results: tuple[ToolResult, ...]


class Joins:
    """What was answered inside beside a call that went out, by the caller's key and that call's id."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: OrderedDict[str, Join | None] = OrderedDict()
        self._loaded = False

    async def remember(self, key: str, turn: Turn, given: int) -> None:
        """Keep what this turn did inside, when calls of the caller's ended it. `given` is how many messages it began
        with."""
        calls = turn.transcript.calls
        callers = [id for id, call in calls.items() if call.result is None]
        messages = tuple(turn.transcript.messages[given:])
        if not callers or not any(call.name in turn.tools for message in messages for call in message.calls):
            return
        results = tuple(call.result for call in calls.values() if call.result is not None)
        join = Join(messages, results)
        for id in callers:
            self._note(_place(key, id), join)
            await self._store.put(JOINS, _place(key, id), msgspec.json.encode(join), until=self._clock.now() + JOIN_S)

    async def concern(self, request: Request) -> bool:
        """Whether a request goes on from something that was answered inside. Cheap: it may only look as if it did."""
        await self._load()
        return bool(self._known) and any(
            _place(request.key, id.decode("utf-8", "replace")) in self._known for id in request.find(_ID)
        )

    async def restore(self, key: str, prompt: Prompt) -> Prompt:
        """The prompt with what was answered inside put back into its place."""
        await self._load()
        if not self._known:
            return prompt
        nodes: list[Any] = []
        pending: tuple[ToolResult, ...] = ()
        is_joined = False
        for node in prompt.nodes:
            if isinstance(node, Message) and node.role == "tool" and pending:
                node, pending = msgspec.structs.replace(node, parts=(*pending, *node.parts)), ()
            elif isinstance(node, Message) and node.role == "assistant" and (join := await self._find(key, node)):
                nodes.extend(join.messages)
                pending, is_joined = join.results, True
                continue
            nodes.append(node)
        return prompt.replace(nodes=tuple(nodes)) if is_joined else prompt

    async def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            for place in await self._store.keys(JOINS, limit=JOINS_MAX):
                self._note(place, None)

    async def _find(self, key: str, message: Message) -> Join | None:
        for call in message.calls:
            place = _place(key, call.id)
            if place in self._known:
                if (join := self._known[place]) is None and (kept := await self._store.get(JOINS, place)) is not None:
                    join = msgspec.json.decode(kept, type=Join)
                    self._note(place, join)
                if join is None:
                    del self._known[place]
                elif _went_out(join) == {(call.id, call.name): call.arguments for call in message.calls}:
                    return join
        return None

    def _note(self, place: str, join: Join | None) -> None:
        self._known[place] = join
        self._known.move_to_end(place)
        if len(self._known) > JOINS_MAX:
            self._known.popitem(last=False)


_ID = re.compile(rb'"(?:id|call_id|tool_call_id)"\s*:\s*"([^"]+)"')
"""Where the dialects have the ids of calls that were made."""


def _place(key: str, id: str) -> str:
    return f"{key}/{id}"


def _went_out(join: Join) -> dict[tuple[str, str], dict[str, Any]]:
    """The caller's calls in a turn's last round. Some servers give the same ids again and again: what was called tells
    one from another."""
    answered = {result.call_id for result in join.results}
    calls = join.messages[-1].calls if join.messages else ()
    return {(call.id, call.name): call.arguments for call in calls if call.id not in answered}
