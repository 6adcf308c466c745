"""Routes for looking at what happened and what there is: traces, usage, agents, jobs, settings, gateway requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Literal, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from ...agent import Agent
from ...contracts.runtime import JobInfo
from ...errors import RondelError
from ...jobs.background import read_jobs
from ...jobs.timetable import Scheduled, read_schedules
from ...machine.transcript import Transcript
from ...trace import TraceNode, markdown, only_turn, read
from ...trace.assembly import Assembly, assembly_of
from ...trace.redact import without_content, without_secrets
from ...trace.request import RoundRequest, before_round, before_turn, first_message, request_of
from ...values import Media, Text, Value, user
from ..usage import UsageReport, report, to_csv
from .conversations import Created, continued, find, find_to_talk, owns
from .feed import FIRST, PING, PING_S
from .route import Call, Done, Nothing, Problem, Route, encode, event_stream, refused_with

LISTED_MAX = 500
PREVIEW_CHARS_MAX = 20_000

J = TypeVar("J", bound=JobInfo | Scheduled)


# --- traces -----------------------------------------------------------------------------------------------------------


class TraceQuery(Value, frozen=True):
    """`content` is `no` for a trace to share: texts are replaced by their lengths. Known secrets are always hidden in
    files to share."""

    turn: str = ""
    format: Literal["json", "markdown", "html"] = "json"
    content: Literal["yes", "no"] = "yes"


async def trace(call: Call[Nothing, TraceQuery]) -> Response:
    conversation = await find(call)
    await call.app.ledger.ready()
    root = await read(call.app.store, conversation.id, price=call.app.ledger.paid)
    if call.query.turn:
        with refused_with(404):
            root = only_turn(root, call.query.turn)
    if call.query.content == "no" or call.query.format != "json":
        root = without_secrets(root, call.web.about.hide)
    if call.query.content == "no":
        root = without_content(root)
    if call.query.format == "markdown":
        return Response(markdown(root), media_type="text/markdown; charset=utf-8")
    if call.query.format == "html":
        from ...trace.page import page

        name = f"trace-{conversation.id[-10:]}.html"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(page(root), media_type="text/html; charset=utf-8", headers=headers)
    return Response(root.to_json(), media_type="application/json")


class RequestQuery(Value, frozen=True):
    """`round` counts from 1 in its turn."""

    turn: str
    round: int = 1


class Rerun(Value, frozen=True):
    """`engine` answers instead; empty for the agent's own."""

    turn: str
    engine: str = ""


async def request(call: Call[Nothing, RequestQuery]) -> RoundRequest:
    """Assemble the request of a round again, as it would be made now. No model is asked."""
    conversation = await find(call)
    entries = await conversation.entries()
    with refused_with(404):
        agent, before = before_round(entries, call.query.turn, call.query.round)
        transcript = Transcript(before)
        resolved = call.app.registry.resolve(agent, transcript.engine, transcript.settings)
        return await request_of(agent, resolved, before, call.app.preview(agent, None, before))


async def rerun(call: Call[Rerun, Nothing]) -> Created:
    """Start a conversation with what was said before a turn, and send its message again, to another engine."""
    conversation = await find_to_talk(call)
    if call.body.engine:
        call.check_engine(call.body.engine)
    entries = await conversation.entries()
    with refused_with(404):
        kept = tuple(Transcript(before_turn(entries, call.body.turn)).messages)
        message = first_message(entries, call.body.turn)
        if message is None:
            raise Problem(409, "this turn did not start with a message of a person, so it cannot be run again")
        if call.body.engine:
            call.app.registry.engine(call.body.engine)  # raises for a wrong name
    new = await continued(call, conversation.agent, kept)
    if call.body.engine:
        await new.use_engine(call.body.engine)
    parts = [part for part in message.parts if isinstance(part, Text | Media)]
    (await new.send(parts, person=call.person, scope=call.scope)).close()
    return Created(new.id, new.agent, new.engine.name)


# --- usage ------------------------------------------------------------------------------------------------------------


class UsageQuery(Value, frozen=True):
    by: str = "model"
    window: str = ""
    since: str = ""
    limit: int = 50


async def usage(call: Call[Nothing, UsageQuery]) -> UsageReport:
    query = call.query
    limit = max(1, min(query.limit, LISTED_MAX))
    with refused_with(400):
        return await report(call.app.ledger, by=query.by, window=query.window, since=query.since, limit=limit)


async def usage_csv(call: Call[Nothing, UsageQuery]) -> Response:
    headers = {"content-disposition": 'attachment; filename="usage.csv"'}
    return Response(to_csv(await usage(call)), media_type="text/csv; charset=utf-8", headers=headers)


# --- agents -----------------------------------------------------------------------------------------------------------


class AgentInfo(Value, frozen=True):
    name: str
    description: str
    kind: str
    engine: str
    tools: tuple[str, ...]
    plugins: tuple[str, ...]
    inputs: dict[str, Any]
    is_default: bool
    file: str
    problem: str = ""


class PreviewQuery(Value, frozen=True):
    text: str


def _info(call: Call[Any, Any], agent: Agent) -> AgentInfo:
    registry = call.app.registry
    kind = next((kind for kind in ("template", "alias", "function") if getattr(agent, kind, None)), "prompt")
    is_default = agent.name == call.agent()
    file = call.web.about.files.get(agent.name, "") if call.is_admin else ""
    try:
        resolved = registry.resolve(agent.name)
    except RondelError as error:
        problem = str(error)
        return AgentInfo(agent.name, agent.description, kind, "", (), (), {}, is_default, file, problem)
    tools = tuple(spec.name for spec in resolved.specs)
    plugins = tuple(plugin.name for plugin in resolved.chain.plugins)
    inputs = dict(agent.inputs or {})
    return AgentInfo(
        agent.name, agent.description, kind, resolved.engine.name, tools, plugins, inputs, is_default, file
    )


async def agents(call: Call[Nothing, Nothing]) -> tuple[AgentInfo, ...]:
    allowed = (agent for agent in call.app.registry.agents if call.web.gate.allows(call.key, f"agent:{agent.name}"))
    return tuple(_info(call, agent) for agent in allowed)


async def preview(call: Call[PreviewQuery, Nothing]) -> Assembly:
    """Assemble an agent's prompt for a message, step by step. No model is asked."""
    name = call.agent(call.path("agent"))
    text = call.body.text[:PREVIEW_CHARS_MAX]
    if not text.strip():
        raise Problem(400, "the message is empty; type what a person would say")
    message = user(text, id="message")
    return await assembly_of(name, call.app.registry.resolve(name), (message,), call.app.preview(name, message))


# --- jobs -------------------------------------------------------------------------------------------------------------


class ScheduleInfo(Value, frozen=True):
    """`text` is said to the agent. `when` is for people; `next_at` is the next time, in seconds since the epoch."""

    id: str
    agent: str
    conversation: str
    text: str
    when: str
    next_at: float


class Jobs(Value, frozen=True):
    jobs: tuple[JobInfo, ...]
    schedules: tuple[ScheduleInfo, ...]


class Retried(Value, frozen=True):
    """`id` is the new job."""

    id: str


async def _may_see(call: Call[Any, Any], conversation: str) -> bool:
    if call.is_admin:
        return True
    info = await call.app.store.info(conversation)
    return info is not None and owns(call, info)


async def jobs(call: Call[Nothing, Nothing]) -> Jobs:
    schedules = [
        ScheduleInfo(one.id, one.agent, one.conversation, one.schedule.say, str(one.schedule), one.next_at)
        for one in await _visible(call, await read_schedules(call.app.store))
    ]
    return Jobs(tuple(await _visible(call, await read_jobs(call.app.store))), tuple(schedules))


async def _visible(call: Call[Any, Any], known: Iterable[J]) -> list[J]:
    """Return the first of those that the person may see."""
    found: list[J] = []
    for one in known:
        if len(found) == LISTED_MAX:
            break
        if await _may_see(call, one.conversation):
            found.append(one)
    return found


async def cancel_job(call: Call[Nothing, Nothing]) -> Done:
    found = await _find_job(call, (*await read_jobs(call.app.store), *await read_schedules(call.app.store)))
    if isinstance(found, Scheduled):
        await call.app.timetable.cancel(found.id)
    elif not await call.app.background.cancel(found.conversation, found.id):
        raise Problem(409, "this job has already finished")
    return Done()


async def retry_job(call: Call[Nothing, Nothing]) -> Retried:
    job = await _find_job(call, await read_jobs(call.app.store))
    with refused_with(409):
        return Retried(await call.app.background.retry(job.conversation, job.id))


async def _find_job(call: Call[Any, Any], known: Iterable[J]) -> J:
    id = call.path("job")
    for one in known:
        if one.id == id and await _may_see(call, one.conversation):
            return one
    raise Problem(404, f"there is no job {id[:40]!r}")


# --- settings and problems --------------------------------------------------------------------------------------------


class Setting(Value, frozen=True):
    """`kind` says what a setting that can be changed may be: an engine, a number, true or false, or one of these."""

    key: str
    value: str
    source: str
    kind: Literal["engine", "number", "switch"] | tuple[str, ...] | None = None


class SettingChange(Value, frozen=True):
    """`was` is the value as it was shown. Without a value, the default holds."""

    key: str
    was: str
    value: str | int | float | bool | None = None


class LintProblem(Value, frozen=True):
    path: str
    line: int | None
    severity: str
    message: str


async def settings(call: Call[Any, Nothing]) -> tuple[Setting, ...]:
    return tuple(Setting(*row) for row in call.web.about.settings())


async def change_setting(call: Call[SettingChange, Nothing]) -> Setting:
    """Change a setting in rondel.toml, which keeps its comments, and apply it."""
    if call.web.about.change is None:
        raise Problem(409, "this server's settings cannot be changed while it runs")
    await call.web.about.change(call.body.key, call.body.value, call.body.was)
    return next(one for one in await settings(call) if one.key == call.body.key)


async def problems(call: Call[Nothing, Nothing]) -> tuple[LintProblem, ...]:
    found = await asyncio.to_thread(call.web.about.lint)
    return tuple(LintProblem(p.path, p.line, p.severity, p.message) for p in found)


async def api_description(call: Call[Nothing, Nothing]) -> Response:
    return Response(call.web.openapi, media_type="application/json")


# --- requests of the gateway ------------------------------------------------------------------------------------------


async def requests(call: Call[Nothing, Nothing]) -> dict[str, Any]:
    return {"requests": [record_of(record) for record in reversed(call.web.records.newest)]}


async def request_events(call: Call[Nothing, Nothing]) -> StreamingResponse:
    return event_stream(_records(call))


async def _records(call: Call[Any, Any]) -> AsyncGenerator[bytes]:
    queue: asyncio.Queue[bytes] = asyncio.Queue(1_000)

    def put(record: Any) -> None:
        if not queue.full():
            queue.put_nowait(b"event: request\ndata: %b\n\n" % encode(record_of(record)))

    unwatch = call.web.records.watch(put)
    loop = asyncio.get_running_loop()
    checked = loop.time()
    try:
        yield FIRST
        while True:
            piece = PING
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    piece = await queue.get()
            if loop.time() - checked >= PING_S:  # also while requests arrive all the time
                if not await call.is_still_allowed():
                    return
                checked = loop.time()
            yield piece
    finally:
        unwatch()


def record_of(record: Any) -> dict[str, Any]:
    """A request without its speed, which is an object that still changes."""
    shown = {name: getattr(record, name) for name in record.__struct_fields__ if name != "speed"}
    return msgspec.to_builtins(shown, enc_hook=str)


_AGENT = "/api/agents/{agent}"
ROUTES = (
    Route("GET", "/api/conversations/{id}/trace", trace, "Show what happened, as a tree.", query=TraceQuery,
          returns=TraceNode),
    Route("GET", "/api/conversations/{id}/request", request, "Assemble the request of a round in its dialect.",
          query=RequestQuery, returns=RoundRequest),
    Route("POST", "/api/conversations/{id}/rerun", rerun, "Run a turn again in a new conversation, with any engine.",
          body=Rerun, returns=Created),
    Route("GET", "/api/usage", usage, "Show tokens and cost, and the limits.", "admin", query=UsageQuery,
          returns=UsageReport),
    Route("GET", "/api/usage.csv", usage_csv, "Download usage for a spreadsheet.", "admin", query=UsageQuery,
          media="text/csv"),
    Route("GET", "/api/agents", agents, "List the agents.", returns=tuple[AgentInfo, ...]),
    Route("POST", f"{_AGENT}/prompt", preview, "Preview an agent's prompt without calling a model.",
          body=PreviewQuery, returns=Assembly),
    Route("GET", "/api/jobs", jobs, "List background jobs and schedules.", returns=Jobs),
    Route("POST", "/api/jobs/{job}/cancel", cancel_job, "Cancel a job or a schedule."),
    Route("POST", "/api/jobs/{job}/retry", retry_job, "Run a finished job again.", returns=Retried),
    Route("GET", "/api/settings", settings, "Show the effective settings and where each comes from.", "admin",
          returns=tuple[Setting, ...]),
    Route("PATCH", "/api/settings", change_setting, "Change a setting that can be changed at run time.", "admin",
          body=SettingChange, returns=Setting),
    Route("GET", "/api/problems", problems, "Check the project's files.", "admin", returns=tuple[LintProblem, ...]),
    Route("GET", "/api/requests", requests, "List the newest requests of the gateway, without content.", "admin"),
    Route("GET", "/api/requests/events", request_events, "Watch requests of the gateway.", "admin",
          media="text/event-stream"),
    Route("GET", "/api/openapi.json", api_description, "Describe this API.", "public"),
)  # fmt: skip
