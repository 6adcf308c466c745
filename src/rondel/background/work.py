"""The jobs of an app's conversations: how a call becomes one, how it is worked on, and how its end is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from ..agent import Agent
from ..crew import Crew, Host
from ..errors import RondelError, StoreConflict, StoreError, ToolError, nearest
from ..events import (
    CallFinished,
    CallProgressed,
    Digest,
    Event,
    JobChanged,
    JobFinished,
    JobMode,
    JobStarted,
    JobStatus,
    MessageQueued,
    Outcome,
)
from ..job import Job, JobInfo, Runtime
from ..journal import Journal
from ..loop import run_turn
from ..plugin import Chain
from ..store import Store
from ..tool import CallContext, Tool, job_mode
from ..turn import Turn
from ..values import Message, user
from .order import JOBS_AT_ONCE, Order, Step, digest_message, ended, job_id, line_of
from .shelf import SHELF, ask_to_cancel, is_alive, is_to_cancel, read_job, shelve
from .steps import Steps

logger = logging.getLogger("rondel.background")

JOBS_OPEN_MAX = 64
"""Jobs of one conversation that are queued or run. A model that starts more is told so."""
JOB_S = 3_600.0
"""Seconds for each step of a job that does not say its own."""
ATTEND_S = 1.0
"""How often a running job is told to the shelf, and asked whether another process wants it cancelled."""
PLUGINS = ("limits", "soft_failures", "log")
"""The plugins of an agent that its jobs have, too. The call was judged before it became a job."""
BACKGROUND_NOTE = "Works in the background: the answer is the id of a job, and its result comes in a later message."


class Workshop(Host, Protocol):
    """What jobs need of the app that runs them."""

    @property
    def store(self) -> Store: ...

    @property
    def runtime(self) -> Runtime: ...

    def open_journal(self, conversation: str) -> Journal | None: ...

    async def start_turn(
        self, conversation: str, agent: str, message: Message | None = None, *, turn: str = ""
    ) -> bool: ...


class Background:
    """The jobs of an app's conversations."""

    def __init__(self, app: Workshop) -> None:
        self._app = app
        self._tools: dict[tuple[str, str], Tool] = {}
        self._running: dict[str, Turn] = {}
        self._infos: dict[str, JobInfo] = {}
        # The jobs of each line that are not over: a new one goes where the fewest are.
        self._lines: dict[str, set[str]] = {}

    # --- from an agent's tools to jobs --------------------------------------------------------------------------------

    def prepare(self, agent: Agent, tools: dict[str, Tool], find: Callable[[str], Tool]) -> dict[str, Tool]:
        """An agent's tools, with those in the background answered by the start of a job."""
        for name in agent.job:
            found = find(name)
            self._tools[agent.name, found.name] = _tolerant(found)
        modes = _modes(agent, tools)
        return {name: self._prepared(agent, tool, modes.get(name) or tool.background) for name, tool in tools.items()}

    def _prepared(self, agent: Agent, tool: Tool, mode: JobMode | None) -> Tool:
        if mode is None:
            return tool
        self._tools.setdefault((agent.name, tool.name), tool)

        async def start(arguments: dict[str, Any], context: CallContext) -> str:
            return await self._start_call(context, tool.name, mode)

        return msgspec.structs.replace(
            tool,
            run=start,
            description=f"{tool.description}\n\n{BACKGROUND_NOTE}".strip(),
            timeout_s=None,
            idempotent=True,  # the same call is the same job
        )

    async def _start_call(self, context: CallContext, tool: str, mode: JobMode) -> str:
        turn, call = context.turn, context.call
        id = job_id(turn, call.id)
        await self._start(turn, Order(id, "", tool, turn.agent.name, turn.now(), (Step(tool, call.arguments),), mode))
        then = "a later message brings its result" if mode == "background" else "you are told when its result is there"
        return f"{tool!r} works in the background as job {id}; {then}. Do not wait for it and do not call it again."

    async def start_chain(self, turn: Turn) -> None:
        """Start an agent's `job`: its agents one after the other, the first with what this turn's agent answered."""
        agent, id = turn.agent, job_id(turn, "job")
        steps = tuple(Step(name.replace(".", "_")) for name in agent.job)
        order = Order(id, "", agent.name, agent.name, turn.now(), steps, input=turn.transcript.output)
        try:
            await self._start(turn, order)
        except ToolError as error:
            await turn.warn("job", str(error))

    async def _start(self, turn: Turn, order: Order) -> None:
        """Submitted first, then told: a turn that is stopped between the two leaves a job that tells of itself."""
        root = await turn.root()
        order = msgspec.structs.replace(order, conversation=root.conversation, path=turn.path, scope=turn.scope("job"))
        jobs = root.transcript.jobs
        if order.id in jobs:
            order = msgspec.structs.replace(order, at=jobs[order.id].started_at)
        elif sum(not job.is_over for job in jobs.values()) >= JOBS_OPEN_MAX:
            raise ToolError(
                f"{order.name!r} was not started: {JOBS_OPEN_MAX} jobs of this conversation are queued or at work; "
                "wait until some are over, or cancel some"
            )
        if order.id in jobs and jobs[order.id].is_over:
            return
        lines = [line_of(root.conversation, number) for number in range(JOBS_AT_ONCE)]
        line = min(lines, key=lambda line: len(self._lines.get(line, ())))
        waiting = self._lines.setdefault(line, set())
        waiting.add(order.id)
        if not await self._app.runtime.submit(Job(order.id, "job", line, msgspec.to_builtins(order))):
            waiting.discard(order.id)  # it was submitted before, perhaps by a process that is gone
            await self._recover(root.conversation)
        await self._tell_start(root, order)

    async def _recover(self, conversation: str) -> None:
        for number in range(JOBS_AT_ONCE):
            await self._app.runtime.recover(line_of(conversation, number))

    async def _tell_start(self, root: Journal, order: Order) -> None:
        if order.id in root.transcript.jobs:
            return
        info = self._infos.setdefault(order.id, order.info)
        await root.append(JobStarted(order.id, order.name, order.agent, order.at, order.mode, info.steps))
        if (info := self._infos.get(order.id)) is not None:  # else it is over already, and was put there so
            await shelve(self._app.store, info)

    # --- the work -----------------------------------------------------------------------------------------------------

    async def run(self, job: Job) -> None:
        """Do the work of a job, from wherever it was, and tell its conversation what came of it."""
        order = msgspec.convert(job.payload, Order)
        self._lines.setdefault(job.key, set()).add(order.id)
        self._infos.setdefault(order.id, order.info)
        try:
            root = await self._app.journal(order.conversation)
            if root.seq == 0:  # somebody deleted the conversation
                await self._app.store.remove(SHELF, order.id)
                return
            await self._tell_start(root, order)
            if not root.transcript.jobs[order.id].is_over:
                await self._finish(order, await self._work(order))
            if order.mode == "inline":
                await self._follow_up(order)
        finally:
            self._leave(job.key, order.id)

    def _leave(self, line: str, id: str) -> None:
        self._infos.pop(id, None)
        waiting = self._lines.get(line, set())
        waiting.discard(id)
        if not waiting:
            self._lines.pop(line, None)

    async def _work(self, order: Order) -> JobFinished:
        if await is_to_cancel(self._app.store, order.id):
            return self._ended(order, "cancelled", "it was cancelled before it began")
        try:
            journal = await self._app.journal(order.place)
            crew = self._crew(order)
            task = user(order.task, id=f"{order.id}-task", author=f"agent:{order.agent}")
            turn = Turn(
                self._app,
                journal,
                id=order.id,
                agent=order.agent,
                path=order.path,
                messages=(task,),
                crew=crew,
                scope=order.scope,
            )
        except RondelError as error:
            return self._ended(order, "failed", str(error))
        if order.id not in journal.transcript.turns_done:
            await self._attended(order, journal, turn)
        return self._outcome(order, turn)

    async def _attended(self, order: Order, journal: Journal, turn: Turn) -> None:
        self._running[order.id] = turn
        self._note(order.id, status="running")
        try:
            with journal.listen(_Progress(self, order)):
                async with asyncio.TaskGroup() as group:
                    attending = group.create_task(self._attend(order.id, turn))
                    try:
                        await run_turn(turn)
                        if turn.outcome is Outcome.WAITING:
                            asked = "; ".join(question.text for question in turn.held)
                            await turn.settle()
                            turn.reason = f"it needs an answer to go on, and nobody can be asked from here: {asked}"
                    finally:
                        attending.cancel()
        finally:
            del self._running[order.id]

    async def _attend(self, id: str, turn: Turn) -> None:
        """Keep the shelf current for other processes, and heed what they ask."""
        told: JobInfo | None = None
        while True:
            try:
                await is_alive(self._app.store, id, self._app.clock.now())
                if (info := self._infos.get(id)) is not None and info != told:
                    await shelve(self._app.store, info)
                    told = info
                if await is_to_cancel(self._app.store, id):
                    turn.stop()
                    return
            except StoreError as error:
                logger.warning("how far job %s is could not be told to other processes: %s", id, error)
            await self._app.clock.sleep_until(self._app.clock.now() + ATTEND_S)

    def _crew(self, order: Order) -> Crew:
        """The agent's tools as they are when they work, behind an engine that only calls them."""
        known = self._app.crew(order.agent)
        tools = {step.tool: self._tool(order.agent, step.tool) for step in order.steps}
        limits = msgspec.structs.replace(known.agent.limits, call_s=JOB_S, batch_s=JOB_S, rounds=len(order.steps) + 1)
        chain = Chain(plugin for plugin in known.chain.plugins if plugin.name in PLUGINS)
        agent = Agent(order.agent, limits=limits)
        return Crew.of(agent, Steps(order, tools), chain, tools)

    def _tool(self, agent: str, name: str) -> Tool:
        tool = self._tools.get((agent, name))
        if tool is None:
            raise RondelError(f"agent {agent!r} has no tool {name!r} any more, so the job cannot run")
        return tool

    def _outcome(self, order: Order, turn: Turn) -> JobFinished:
        """What the work came to; its transcript tells, when it had come to rest before a crash."""
        outcome = turn.outcome or turn.transcript.outcome
        if turn.reason:
            return self._ended(order, "failed", turn.reason)
        if outcome is Outcome.DONE:
            return self._ended(order, "done", turn.transcript.output)
        if outcome is Outcome.STOPPED:
            return self._ended(order, "cancelled", "it was cancelled")
        failure = turn.failure or turn.transcript.failure
        return self._ended(order, "failed", failure.message if failure else "it failed")

    def _ended(self, order: Order, status: JobStatus, text: str) -> JobFinished:
        return ended(order.info, status, text, self._app.clock.now())

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _finish(self, order: Order, finished: JobFinished) -> None:
        """Tell the conversation, all or nothing: that the job is over, and the digest for the next turn."""
        for attempt in range(3):
            root = await self._app.journal(order.conversation)
            try:
                await _write_end(root, finished, quiet=order.mode == "background" or finished.status == "cancelled")
                break
            except StoreConflict:  # another process wrote into this conversation; the journal is read anew
                if attempt == 2:
                    raise
        self._note(order.id, status=finished.status, progress=1.0 if finished.digest.success else None, text="")
        await shelve(self._app.store, order.info.after(finished))

    async def _follow_up(self, order: Order) -> None:
        """A turn with the result; the same job twice is one turn."""
        root = await self._app.journal(order.conversation)
        info = root.transcript.jobs[order.id]
        if info.status != "cancelled":
            digest = Digest(info.id, info.name, info.status == "done", info.summary, info.detail, info.finished_at)
            agent = order.agent if self._app.knows_agent(order.agent) and not order.path else root.transcript.home
            await self._app.start_turn(order.conversation, agent, digest_message(digest), turn=f"{order.id}.turn")

    # --- what people ask ----------------------------------------------------------------------------------------------

    async def jobs(self, conversation: str) -> list[JobInfo]:
        """The jobs of a conversation, oldest first, those that are over included."""
        transcript = (await self._app.journal(conversation)).transcript
        infos = [job if job.is_over else self._infos.get(job.id, job) for job in transcript.jobs.values()]
        return [msgspec.structs.replace(info, conversation=conversation) for info in infos]

    async def cancel(self, conversation: str, id: str) -> bool:
        """Cancel a job, wherever it is: at work here, queued here, or in another process. False when it is over."""
        root = await self._app.journal(conversation)
        info = root.transcript.jobs.get(id)
        if info is None:
            raise RondelError(f"there is no job {id!r} in this conversation")
        if info.is_over:
            return False
        if (turn := self._running.get(id)) is not None:
            turn.stop()
        elif await self._app.runtime.cancel(id):
            finished = ended(info, "cancelled", "it was cancelled before it began", self._app.clock.now())
            await _write_end(root, finished, quiet=True)
            await shelve(self._app.store, msgspec.structs.replace(info, conversation=conversation).after(finished))
            for line, waiting in list(self._lines.items()):
                if id in waiting:
                    self._leave(line, id)
        else:
            await ask_to_cancel(self._app.store, id, self._app.clock.now())
        return True

    async def take_up(self, conversation: str) -> None:
        """Go on with the jobs of a conversation that a process which is gone has left, and learn of those that another
        process has cancelled since."""
        root = await self._app.journal(conversation)
        ours = {id for waiting in self._lines.values() for id in waiting}
        left = [job for job in root.transcript.jobs.values() if not job.is_over and job.id not in ours]
        if not left:
            return
        await self._recover(conversation)
        for job in left:
            info = await read_job(self._app.store, job.id)
            if info is not None and info.status == "cancelled":
                await _write_end(root, ended(job, "cancelled", info.summary, info.finished_at), quiet=True)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _note(self, id: str, **fields: Any) -> None:
        """Remember how far a job is, and tell whoever watches its conversation."""
        if (info := self._infos.get(id)) is None:
            return
        changes = {name: value for name, value in fields.items() if value is not None}
        info = self._infos[id] = msgspec.structs.replace(info, **changes)
        if (journal := self._app.open_journal(info.conversation)) is not None:
            journal.emit(JobChanged(id, info.status, info.progress, info.text))

    def heard(self, order: Order, event: Event) -> None:
        """Something happened in a job's own transcript."""
        if isinstance(event, CallProgressed):
            known = event.progress is not None or len(order.steps) > 1
            progress = order.progress(event.call_id, event.progress or 0.0) if known else None
            self._note(order.id, text=event.text, progress=progress)
        elif isinstance(event, CallFinished) and len(order.steps) > 1:
            self._note(order.id, progress=order.progress(event.result.call_id, 1.0))


async def _write_end(root: Journal, finished: JobFinished, *, quiet: bool) -> None:
    """Write a job's end into its conversation, once. What is not quiet brings a turn of its own with the digest."""
    if root.transcript.jobs[finished.job].is_over:
        return
    digest = (MessageQueued(digest_message(finished.digest), quiet=True),) if quiet else ()
    await root.append(finished, *digest)


class _Progress:
    """Listens to a job's own transcript."""

    def __init__(self, background: Background, order: Order) -> None:
        self._background, self._order = background, order

    def put(self, event: Event, seq: int) -> None:
        self._background.heard(self._order, event)


def _modes(agent: Agent, tools: dict[str, Tool]) -> dict[str, JobMode]:
    """What an agent says of its tools in the background, checked."""
    listed = agent.background
    modes: dict[str, JobMode] = dict(listed) if isinstance(listed, Mapping) else dict.fromkeys(listed, "background")
    for name, mode in modes.items():
        if name not in tools:
            hint = nearest(name, list(tools))
            raise RondelError(f"agent {agent.name!r} wants {name!r} in the background and has no such tool{hint}")
        job_mode(mode)
    return modes


def _tolerant(tool: Tool) -> Tool:
    """An agent in a chain takes any text: what it declares as inputs is read out of it."""
    return msgspec.structs.replace(tool, validate=dict) if "agent" in tool.tags else tool
