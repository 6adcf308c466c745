"""The composition root: agents, engines, plugins, a store and a runtime, and their lifetime.

registry.py resolves names; machine/ runs turns; machine/conversation.py is what a surface talks to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..agent import Agent
from ..charge import Scope, Tell
from ..contracts.clock import Clock, SystemClock
from ..contracts.deadline import Deadlines
from ..contracts.runtime import Job, Runtime
from ..contracts.store import Store
from ..engine import Engine, EngineInfo, close
from ..errors import RondelError, StoreError, TurnFailed
from ..events import DurableEvent, MessageAdded, TurnStarted
from ..limits import ReplyBound
from ..machine.conversation import Conversation
from ..machine.journal import Journal
from ..machine.journals import Journals
from ..machine.runner import TurnRunner
from ..machine.turn import Turn
from ..plugin import Plugin
from ..tool import Tool
from ..values import AgentResult, Message, Outcome
from .registry import Registry, default_plugins

if TYPE_CHECKING:
    from ..contracts.embedder import Embedder
    from ..contracts.knowledge import KnowledgeBases
    from ..contracts.web import WebSearch
    from ..knowledge.bases import Knowledge
    from ..ledger.ledger import Ledger
    from ..machine.images import GivenEngines
    from ..trace.provenance import PreviewStep

__all__ = ["App", "ask", "default_plugins", "run"]

log = logging.getLogger("rondel.app.app")

KEEP_UP_S = 10.0  # how often a long-running process looks for jobs that other processes have left


class App:
    """Compose by constructor, live by context manager: `async with App(agent) as app: ...`."""

    def __init__(
        self,
        *agents: Agent,
        engine: str | Engine | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        runtime: Runtime | None = None,
        plugins: Sequence[Plugin] | None = None,
        tools: Iterable[Tool] = (),
        make_engine: Callable[[str], Engine] | None = None,
        clock: Clock | None = None,
        ledger: Ledger | None = None,
        recover: bool = True,
        environment: Mapping[str, str] | None = None,
        knowledge: Knowledge | None = None,
        web_search: WebSearch | None = None,
        embedder: Embedder | Callable[[], Embedder | None] | None = None,
        images: GivenEngines = (),
        image_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Compose an app. The first agent answers where none is named. `engine` is for agents without one; without it
        they get the one that the command line would choose. `store` is a path of a database, a store, or None for
        memory; `recover` resumes what a process that died has left. `plugins` replaces the default list. `embedder`
        finds tools by their meaning, or returns an embedder that does; without it, that of the knowledge bases is used.
        `images` are engines that make pictures, in the order in which they are asked; `image_options`, such as `size`
        and `quality`, are used where a request has none."""
        from ..jobs.background import Background
        from ..jobs.timetable import Timetable
        from ..ledger.ledger import Ledger
        from ..machine.images import Images

        self._environment = environment
        self._knowledge, self.web_search = knowledge, web_search
        self.knowledge: KnowledgeBases = knowledge or _no_knowledge()  # what agents can look up
        self._embedder = embedder
        self.clock = clock or SystemClock()
        self.deadlines = Deadlines()
        self.store: Store = _open_store(store, self.clock)
        self.ledger = ledger or Ledger(self.store.ledger_store, clock=self.clock)  # charges every engine call
        self.images = Images(images, self.ledger.charge_images, image_options)
        self._runtime = runtime
        self._recover = recover
        self.registry = Registry(self, engine=engine, plugins=plugins, tools=tools, make_engine=make_engine)
        self.turns = TurnRunner(self)
        self.journals = Journals(self)
        self.background = Background(self)
        self.timetable = Timetable(self)
        self._life = contextlib.AsyncExitStack()
        self._id_seed = os.urandom(5).hex()
        self._id_count = 0
        for agent in agents:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise RondelError(f"{agent!r} is not an agent; give an Agent, or load a folder with Project.load")
            self.registry.add_agent(agent)

    # --- its lifetime -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> App:
        async with contextlib.AsyncExitStack() as life:
            life.push_async_callback(self._close)
            for plugin in self.registry.plugins:
                if type(plugin).lifespan is not Plugin.lifespan:
                    await life.enter_async_context(plugin.lifespan(self))
            await self.registry.choose_engine(*self.registry.agents)
            self.registry.resolve_all()
            if self._runtime is None:
                from ..jobs.runtime import LocalRuntime

                self._runtime = LocalRuntime(self.store, self.clock)
            handlers = {
                "turn": self.turns.run_job,
                "job": self._run_job,
                "schedule": self.timetable.run,
                "write": self.journals.run_change,
            }
            await self.runtime.start(handlers, recover=self._recover, on_signal=self.turns.handle_signal)
            life.push_async_callback(self.runtime.stop)
            if self._recover:
                await self.timetable.open()
            self._life = life.pop_all()
        return self

    async def _run_job(self, job: Job) -> None:
        await (self.turns.run_deadline(job) if "question" in job.payload else self.background.run(job))

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def _close(self) -> None:
        await self.registry.aclose()
        await self.images.aclose()
        await close(self._embedder)
        if self._knowledge is not None:
            await self._knowledge.aclose()
        self.deadlines.close()
        await self.ledger.aclose()
        await self.store.aclose()
        for result in (*self.turns.waiting, *self.journals.waiting):
            if not result.done():
                result.set_exception(
                    RondelError("the app was closed before this turn ended; the next start resumes it")
                )
                result.exception()  # marks it as retrieved: perhaps nothing waits for it

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs this app's jobs. Raises RondelError before the app has started."""
        if self._runtime is None:
            raise RondelError("the app has not started: use it in `async with App(...) as app:`")
        return self._runtime

    async def keep_up(self) -> None:
        """Run jobs that other processes leave when they end. Never returns; cancel it."""
        while True:
            await self.clock.sleep_until(self.clock.now() + KEEP_UP_S)
            try:
                await self.runtime.recover("")
            except StoreError as error:  # locked or full for a while; the next attempt finds the jobs
                log.warning("cannot recover the jobs of other processes yet: %s", error)

    async def drain(self) -> None:
        """Wait until no turn runs and none is queued. Questions may be open."""
        await self.runtime.drain()

    # --- what turns need ----------------------------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """Return a unique id in the order of time: milliseconds, this app's random seed, a count."""
        self._id_count += 1
        return f"{prefix}_{int(self.clock.now() * 1000):011x}{self._id_seed}{self._id_count:x}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables for processes that tools start: the given ones, else the program's own without secrets."""
        from ..text.redaction import without_secrets

        return without_secrets(os.environ) if self._environment is None else dict(self._environment)

    def charge(
        self,
        engine: EngineInfo | str,
        scope: Scope | Callable[[], Scope],
        tell: Tell | None = None,
        bound: Callable[[], ReplyBound] | None = None,
    ) -> Engine:
        """Return an engine whose calls the ledger charges to a scope."""
        found = self.registry.engine(engine) if isinstance(engine, str) else engine
        return self.ledger.charge(found, scope, tell, bound)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder that finds tools by their meaning; None if only words are searched. Created when it is first
        needed."""
        if callable(given := self._embedder):
            self._embedder = given = given()
        return given if given is not None or self._knowledge is None else self._knowledge.embedder

    def charge_embedder(
        self, embedder: Embedder, scope: Scope | Callable[[], Scope], tell: Tell | None = None
    ) -> Embedder:
        """Return the embedder, with each of its calls charged to the ledger."""
        return self.ledger.charge_embedder(embedder, scope, tell)

    # --- conversations ------------------------------------------------------------------------------------------------

    def conversation(self, id: str = "", *, agent: str = "") -> Conversation:
        """Return the conversation of this id, which the store may know already, or a new one. `agent` answers in it."""
        if not id:
            id = self.new_id("c")
            self.journals.create(id)
        return Conversation(self, id, agent)

    async def preview(
        self, agent: str, message: Message | None, before: Sequence[DurableEvent] = ()
    ) -> AsyncIterator[PreviewStep]:
        """Assemble the prompt of a first round step by step. No model is asked, and nothing is stored. `before` are the
        events of the conversation in which the message would be sent. Without a message, the prompt is that of the next
        round of their turn."""
        from ..trace.provenance import assemble

        journal = Journal("preview", _open_store(None, self.clock), self.clock)
        if before:
            await journal.append(*before)
        name = self.registry.agent(agent).name
        resolved = self.registry.resolve(name, settings=journal.transcript.settings)
        id = "preview" if message is not None else journal.transcript.turn
        messages = () if message is None else (message,)
        turn = Turn(self, journal, id=id, agent=name, messages=messages, resolved=resolved)
        turn.previewing = True
        if message is not None:
            await journal.append(TurnStarted("preview", turn.agent.name), MessageAdded(message))
        await turn.report_left_out()
        await turn.plugins.start(turn)
        async for step in assemble(turn):
            yield step


def _no_knowledge() -> KnowledgeBases:
    from ..contracts.knowledge import NoKnowledge

    return NoKnowledge()


def _open_store(given: Store | str | os.PathLike[str] | None, clock: Clock) -> Store:
    if given is None:
        from ..stores.memory import MemoryStore

        return MemoryStore(clock=clock)
    if isinstance(given, (str, os.PathLike)):
        from ..stores.sqlite import SqliteStore

        return SqliteStore(os.fspath(given))
    return given


async def ask(
    agent: Agent,
    content: str | Message,
    *,
    engine: str | Engine | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    conversation: str = "",
    check: bool = True,
) -> AgentResult:
    """Ask an agent once and return its answer. Raises TurnFailed if there is none, unless `check` is False.

    With a `store`, such as the path of a database, and the id of a `conversation`, the agent remembers earlier calls.
    """
    async with App(agent, engine=engine, store=store) as app:
        result = await app.conversation(conversation).ask(content, check=check)
    if check and store is None and result.outcome is Outcome.WAITING:
        raise TurnFailed(f"{result.error}; no one can answer here: use `App.conversation`, or pass a store", result)
    return result


def run(
    agent: Agent,
    content: str | Message,
    *,
    engine: str | Engine | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    conversation: str = "",
    check: bool = True,
) -> AgentResult:
    """Ask an agent once, wait for its answer and return it: `ask` for programs that are not async."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RondelError(
            "rondel.run cannot wait here, in async code or a notebook: write `await rondel.ask(...)` instead"
        )
    # Outside the handler: a failure must not look as if the missing event loop had caused it.
    return asyncio.run(ask(agent, content, engine=engine, store=store, conversation=conversation, check=check))
