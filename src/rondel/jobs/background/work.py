"""Starts and runs the jobs of an app's conversations, and reports their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ...agent import Agent
from ...contracts.runtime import Job, JobInfo, Signal
from ...engine import EngineInfo
from ...errors import RondelError, StoreConflict, StoreError, ToolError, nearest
from ...events import (
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
from ...machine.ending import close_waiting_turn
from ...machine.journal import Journal
from ...machine.loop import run_turn
from ...machine.resolved import ResolvedAgent
from ...machine.services import Services
from ...machine.spending import scope_of
from ...machine.turn import Turn
from ...plugin import Chain
from ...tool import CallContext, Tool, job_mode
from ...values import user
from .job import JOBS_AT_ONCE, BackgroundJob, JobEngine, JobStep, again, digest_message, ended, job_id, key_of
from .status import NAMESPACE, mark_alive, publish, read_job

logger = logging.getLogger("rondel.background")

JOBS_OPEN_MAX = 64
"""How many jobs of one conversation may be queued or running. A model that starts more gets an error."""
JOB_S = 3_600.0  # the time limit of a step that does not set its own
ATTEND_S = 1.0  # how often a running job publishes its status
PLUGINS = ("limits", "soft_failures", "log")
"""The plugins of an agent that its jobs use, too. Approval is not among them: it judged the call before the job."""
BACKGROUND_NOTE = "Runs in the background: the answer is the id of a job, and its result comes in a later message."


class Background:
    """The jobs of an app's conversations."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tools: dict[tuple[str, str], Tool] = {}
        self._running: dict[str, Turn] = {}
        self._infos: dict[str, JobInfo] = {}
        self._held: set[str] = set()  # the jobs that run or wait in this process
        self._cancelled: set[str] = set()  # jobs that another process wants to cancel

    # --- from an agent's tools to jobs --------------------------------------------------------------------------------

    def prepare(self, agent: Agent, tools: dict[str, Tool], find: Callable[[str], Tool]) -> dict[str, Tool]:
        """Return an agent's tools. Calling one that is set to the background starts a job."""
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
            idempotent=True,  # the same call always starts the same job
        )

    async def _start_call(self, context: CallContext, tool: str, mode: JobMode) -> str:
        turn, call = context.turn, context.call
        id = job_id(turn, call.id)
        await self._start(
            turn, BackgroundJob(id, "", tool, turn.agent.name, turn.now(), (JobStep(tool, call.arguments),), mode)
        )
        then = "a later message brings its result" if mode == "background" else "you are told when its result is there"
        return f"{tool!r} runs in the background as job {id}; {then}. Do not wait for it and do not call it again."

    async def start_chain(self, turn: Turn) -> None:
        """Start an agent's `job`: its agents one after the other, the first with this turn's answer."""
        agent, id = turn.agent, job_id(turn, "job")
        steps = tuple(JobStep(name.replace(".", "_")) for name in agent.job)
        job = BackgroundJob(id, "", agent.name, agent.name, turn.now(), steps, input=turn.transcript.output)
        try:
            await self._start(turn, job)
        except ToolError as error:
            await turn.warn("job", str(error))

    async def _start(self, turn: Turn, job: BackgroundJob) -> None:
        # Submit first, then write the start: if the turn stops in between, the job itself writes its start.
        root = await turn.root()
        known = {"conversation": root.conversation, "path": turn.path, "person": turn.person}
        job = msgspec.structs.replace(job, scope=scope_of(turn, "job"), **known)
        await self._submit(job, root.transcript.jobs)

    async def _submit(self, job: BackgroundJob, jobs: Mapping[str, JobInfo]) -> None:
        if job.id in jobs:
            job = msgspec.structs.replace(job, at=jobs[job.id].started_at)
        elif sum(not job.is_over for job in jobs.values()) >= JOBS_OPEN_MAX:
            raise ToolError(
                f"{job.name!r} was not started: {JOBS_OPEN_MAX} jobs of this conversation are queued or running; "
                "wait for some to finish, or cancel some"
            )
        if job.id in jobs and jobs[job.id].is_over:
            return
        key = key_of(job.conversation)
        self._held.add(job.id)
        if not await self._services.runtime.submit(
            Job(job.id, "job", key, msgspec.to_builtins(job), slots=JOBS_AT_ONCE)
        ):
            self._held.discard(job.id)  # submitted before, perhaps by a process that has died
            await self._services.runtime.recover(key)
        await self._tell_start(job)

    async def _tell_start(self, job: BackgroundJob) -> None:
        info = self._infos.setdefault(job.id, job.info)

        async def tell(root: Journal) -> bool:
            if job.id in root.transcript.jobs:
                return False
            await root.append(JobStarted(job.id, job.name, job.agent, job.at, job.mode, info.steps))
            return True

        told = await self._services.journals.change(job.conversation, tell)
        if told and (known := self._infos.get(job.id)) is not None:  # else it has finished, and its status says so
            await publish(self._services.store, known)

    # --- the work -----------------------------------------------------------------------------------------------------

    async def run(self, queued: Job) -> None:
        """Run a job from where it stopped, and write its result to its conversation."""
        job = msgspec.convert(queued.payload, BackgroundJob)
        self._held.add(job.id)
        self._infos.setdefault(job.id, job.info)
        try:
            if (await self._services.journals.current(job.conversation)).seq == 0:  # the conversation was deleted
                await self._services.store.remove(NAMESPACE, job.id)
                return
            await self._tell_start(job)
            root = await self._services.journals.current(job.conversation)
            if not root.transcript.jobs[job.id].is_over:
                await self._finish(job, await self._work(job))
            if job.mode == "inline":
                await self._follow_up(job)
        finally:
            self._leave(job.id)

    def _leave(self, id: str) -> None:
        self._infos.pop(id, None)
        self._held.discard(id)
        self._cancelled.discard(id)

    async def _work(self, job: BackgroundJob) -> JobFinished:
        if job.id in self._cancelled:
            return self._ended(job, "cancelled", "it was cancelled before it began")
        try:
            journal = await self._services.journals.open(job.own_conversation)
            resolved = self._resolve(job)
            task = user(job.task, id=f"{job.id}-task", author=f"agent:{job.agent}")
            turn = Turn(
                self._services,
                journal,
                id=job.id,
                agent=job.agent,
                path=job.path,
                messages=(task,),
                resolved=resolved,
                scope=job.scope,
                person=job.person,
            )
        except RondelError as error:
            return self._ended(job, "failed", str(error))
        if job.id not in journal.transcript.turns_done:
            await self._attended(job, journal, turn)
        return self._outcome(job, turn)

    async def _attended(self, job: BackgroundJob, journal: Journal, turn: Turn) -> None:
        self._running[job.id] = turn
        self._note(job.id, status="running")
        try:
            with journal.listen(_Progress(self, job)):
                async with asyncio.TaskGroup() as group:
                    attending = group.create_task(self._attend(job.id))
                    try:
                        await run_turn(turn)
                        if turn.outcome is Outcome.WAITING:
                            asked = "; ".join(question.text for question in turn.held)
                            turn.reason = f"it needs an answer to continue, and a job cannot ask: {asked}"
                            await close_waiting_turn(turn)
                    finally:
                        attending.cancel()
        finally:
            del self._running[job.id]

    async def _attend(self, id: str) -> None:
        """Publish the status for other processes until cancelled."""
        told: JobInfo | None = None
        while True:
            try:
                await mark_alive(self._services.store, id, self._services.clock.now())
                if (info := self._infos.get(id)) is not None and info != told:
                    await publish(self._services.store, info)
                    told = info
            except StoreError as error:
                logger.warning("could not publish the state of job %s for other processes: %s", id, error)
            await self._services.clock.sleep_until(self._services.clock.now() + ATTEND_S)

    def _resolve(self, job: BackgroundJob) -> ResolvedAgent:
        """Return the job's agent: the tools without their background wrapper, and an engine that only calls them."""
        known = self._services.registry.resolve(job.agent)
        tools = {step.tool: self._tool(job.agent, step.tool) for step in job.steps}
        limits = msgspec.structs.replace(known.agent.limits, call_s=JOB_S, batch_s=JOB_S, rounds=len(job.steps) + 1)
        chain = Chain(plugin for plugin in known.chain.plugins if plugin.name in PLUGINS)
        agent = Agent(job.agent, limits=limits)
        return ResolvedAgent.of(agent, EngineInfo.of(JobEngine(job, tools)), chain, tools)

    def _tool(self, agent: str, name: str) -> Tool:
        tool = self._tools.get((agent, name))
        if tool is None:
            raise RondelError(f"agent {agent!r} no longer has the tool {name!r}, so the job cannot run")
        return tool

    def _outcome(self, job: BackgroundJob, turn: Turn) -> JobFinished:
        """Return the job's result, from its transcript if it had ended before a crash."""
        transcript = turn.transcript
        outcome = turn.outcome or transcript.outcome
        if outcome is Outcome.DONE:
            return self._ended(job, "done", transcript.output)
        if reason := turn.reason or transcript.reason:
            return self._ended(job, "failed", reason)
        if outcome is Outcome.STOPPED:
            return self._ended(job, "cancelled", "it was cancelled")
        failure = turn.failure or transcript.failure
        return self._ended(job, "failed", failure.message if failure else "it failed")

    def _ended(self, job: BackgroundJob, status: JobStatus, text: str) -> JobFinished:
        return ended(job.info, status, text, self._services.clock.now())

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _finish(self, job: BackgroundJob, finished: JobFinished) -> None:
        quiet = job.mode == "background" or finished.status == "cancelled"
        await self._services.journals.change(job.conversation, lambda root: _write_end(root, finished, quiet=quiet))
        self._note(job.id, status=finished.status, progress=1.0 if finished.digest.success else None, text="")
        await publish(self._services.store, job.info.after(finished))

    async def _follow_up(self, job: BackgroundJob) -> None:
        """Start a turn with the result, once for each job."""
        root = await self._services.journals.current(job.conversation)
        info = root.transcript.jobs[job.id]
        if info.status != "cancelled":
            digest = Digest(info.id, info.name, info.status == "done", info.summary, info.detail, info.finished_at)
            is_known = self._services.registry.knows_agent(job.agent) and not job.path
            agent = job.agent if is_known else root.transcript.starting_agent
            message, turn = digest_message(digest), f"{job.id}.turn"
            await self._services.turns.start(job.conversation, agent, message, turn=turn, person=job.person)

    # --- what people ask ----------------------------------------------------------------------------------------------

    async def jobs(self, conversation: str) -> list[JobInfo]:
        transcript = (await self._services.journals.current(conversation)).transcript
        infos = [job if job.is_over else self._infos.get(job.id, job) for job in transcript.jobs.values()]
        return [msgspec.structs.replace(info, conversation=conversation) for info in infos]

    async def cancel(self, conversation: str, id: str) -> bool:
        """Cancel a job that runs here, is queued here, or belongs to another process. Return False if it has
        finished."""
        root = await self._services.journals.current(conversation)
        info = root.transcript.jobs.get(id)
        if info is None:
            raise RondelError(f"there is no job {id!r} in this conversation")
        if info.is_over:
            return False
        if (turn := self._running.get(id)) is not None:
            turn.stop()
        elif await self._services.runtime.cancel(id):
            finished = ended(info, "cancelled", "it was cancelled before it began", self._services.clock.now())
            await self._services.journals.change(conversation, lambda root: _write_end(root, finished, quiet=True))
            cancelled = msgspec.structs.replace(info, conversation=conversation).after(finished)
            await publish(self._services.store, cancelled)
            self._leave(id)
        else:
            await self._services.runtime.signal(Signal("cancel", key=key_of(conversation), job=id))
        return True

    async def retry(self, conversation: str, id: str) -> str:
        """Start a job that repeats this one, and return its id. A job can be retried once; for a third attempt, retry
        the second job."""
        root = await self._services.journals.current(conversation)
        info = root.transcript.jobs.get(id)
        if info is None:
            raise RondelError(f"there is no job {id!r} in this conversation")
        if not info.is_over:
            raise RondelError("this job has not finished yet; cancel it first")
        entries = await self._services.store.read(f"{conversation}/{id}")
        info = msgspec.structs.replace(info, conversation=conversation)
        job = again(id, entries, info, self._services.clock.now())
        if job.id in root.transcript.jobs:
            raise RondelError(f"this job was already retried as job {job.id}")
        self._tool(job.agent, job.steps[0].tool)
        await self._submit(job, root.transcript.jobs)
        return job.id

    def hear_cancel(self, id: str) -> bool:
        """Cancel a job that runs or waits here, at another process's request. Return False if it is not here."""
        if id not in self._held:
            return False
        self._cancelled.add(id)
        if (turn := self._running.get(id)) is not None:
            turn.stop()
        return True

    async def take_up(self, conversation: str) -> None:
        """Resume the jobs of a conversation that a dead process left, and note those that another process cancelled."""
        root = await self._services.journals.current(conversation)
        left = [job for job in root.transcript.jobs.values() if not job.is_over and job.id not in self._held]
        if not left:
            return
        await self._services.runtime.recover(key_of(conversation))
        for job in left:
            info = await read_job(self._services.store, job.id)
            if info is not None and info.status == "cancelled":
                with suppress(StoreConflict):  # another process works on the conversation; a later turn finds out
                    await _write_end(root, ended(job, "cancelled", info.summary, info.finished_at), quiet=True)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _note(self, id: str, **fields: Any) -> None:
        if (info := self._infos.get(id)) is None:
            return
        changes = {name: value for name, value in fields.items() if value is not None}
        info = self._infos[id] = msgspec.structs.replace(info, **changes)
        if (journal := self._services.journals.get(info.conversation)) is not None:
            journal.emit(JobChanged(id, info.status, info.progress, info.text))

    def on_event(self, job: BackgroundJob, event: Event) -> None:
        if isinstance(event, CallProgressed):
            known = event.progress is not None or len(job.steps) > 1
            progress = job.progress(event.call_id, event.progress or 0.0) if known else None
            self._note(job.id, text=event.text, progress=progress)
        elif isinstance(event, CallFinished) and len(job.steps) > 1:
            self._note(job.id, progress=job.progress(event.result.call_id, 1.0))


async def _write_end(root: Journal, finished: JobFinished, *, quiet: bool) -> None:
    """Write a job's end into its conversation, once. Unless it is quiet, the digest comes in a turn of its own."""
    if root.transcript.jobs[finished.job].is_over:
        return
    digest = (MessageQueued(digest_message(finished.digest), quiet=True),) if quiet else ()
    await root.append(finished, *digest)


class _Progress:
    """Listens to a job's own transcript."""

    def __init__(self, background: Background, job: BackgroundJob) -> None:
        self._background, self._job = background, job

    def put(self, event: Event, seq: int) -> None:
        self._background.on_event(self._job, event)


def _modes(agent: Agent, tools: dict[str, Tool]) -> dict[str, JobMode]:
    """Return the mode of each tool that the agent runs in the background, checked."""
    listed = agent.background
    modes: dict[str, JobMode] = dict(listed) if isinstance(listed, Mapping) else dict.fromkeys(listed, "background")
    for name, mode in modes.items():
        if name not in tools:
            hint = nearest(name, list(tools))
            raise RondelError(f"agent {agent.name!r} lists {name!r} in `background` but has no such tool{hint}")
        job_mode(mode)
    return modes


def _tolerant(tool: Tool) -> Tool:
    # An agent in a chain takes any text: its inputs are extracted from it.
    return msgspec.structs.replace(tool, validate=dict) if "agent" in tool.tags else tool
