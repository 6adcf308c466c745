"""`/a2a/{agent}`: A2A 1.0 in its JSON-RPC binding, so that agents of other systems can give tasks to ours.

A context is a conversation and a task is a turn of it. The official SDK is not used: its server brings a task store and
an event queue of its own, and here the journal is both; what remains of the protocol is JSON.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from starlette.responses import Response

from ...errors import QuestionError, RondelError
from ...events import CallProgressed, Event, TurnFinished, TurnStarted
from ...machine.answer_text import AnswerText
from ...machine.conversation import Conversation, TurnView
from ...machine.journal import Watcher
from ...values import Media, Message, Text
from .a2a_tasks import INPUT_REQUIRED, SUBMITTED, WORKING, Task, Wire, task_id, tasks_of
from .conversations import (
    ADDRESS_CHARS_MAX,
    ID_CHARS_MAX,
    Attachment,
    check_chosen_engine,
    find_id,
    read_parts,
    take_up,
)
from .feed import PING
from .route import Call, Nothing, Open, Problem, Route, encode, event_stream, read_body

VERSION = "1.0"
CARD = "/.well-known/agent-card.json"
PAGE_MAX, PAGE = 100, 50
LISTED_MAX = 100  # the newest conversations whose tasks are listed
PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED, CONTENT, BAD_VERSION = -32001, -32002, -32003, -32004, -32005, -32009
REASONS = {
    NOT_FOUND: "TASK_NOT_FOUND",
    NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    NO_PUSH: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    CONTENT: "CONTENT_TYPE_NOT_SUPPORTED",
    BAD_VERSION: "VERSION_NOT_SUPPORTED",
}

P = TypeVar("P", bound=msgspec.Struct)


# --- values: what a client sends --------------------------------------------------------------------------------------


class GivenPart(Open, frozen=True):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    filename: str | None = None
    media_type: str | None = None


class GivenMessage(Open, frozen=True):
    message_id: str
    role: Literal["ROLE_USER"]
    parts: tuple[GivenPart, ...]
    context_id: str | None = None
    task_id: str | None = None


class Configuration(Open, frozen=True):
    history_length: int | None = None
    return_immediately: bool = False
    task_push_notification_config: Any = None


class SendParams(Open, frozen=True):
    message: GivenMessage
    configuration: Configuration | None = None


class TaskParams(Open, frozen=True):
    id: str
    history_length: int | None = None


class ListParams(Open, frozen=True):
    context_id: str | None = None
    status: str | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool = False


class RpcRequest(Open, frozen=True):
    """A JSON-RPC request. `method` is an operation of A2A 1.0, such as `SendMessage`."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: dict[str, Any] = {}


class A2AError(RondelError):
    """Why an operation cannot be done. `code` is the protocol's."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


Operation: TypeAlias = Callable[[Call[Any, Any], str, Any], Awaitable[Wire]]
Streaming: TypeAlias = Callable[[Call[Any, Any], str, Any], AsyncGenerator[Wire]]


# --- the card ---------------------------------------------------------------------------------------------------------


async def default_card(call: Call[Nothing, Nothing]) -> Response:
    return _card(call, call.agent(call.app.registry.agent().name))


async def agent_card(call: Call[Nothing, Nothing]) -> Response:
    return _card(call, call.agent(call.path("agent")))


def _card(call: Call[Nothing, Nothing], name: str) -> Response:
    agent = call.app.registry.agent(name)
    about = agent.description or f"The agent {name}."
    card: Wire = {
        "name": name,
        "description": about,
        "version": call.web.about.version,
        "supportedInterfaces": [
            {"url": f"{call.address}/a2a/{name}", "protocolBinding": "JSONRPC", "protocolVersion": VERSION}
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": ["text/plain", "application/json", "image/png", "image/jpeg", "application/pdf"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": name, "name": name, "description": about, "tags": ["chat"]}],
    }
    if call.web.gate.keys:
        card["securitySchemes"] = {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        card["securityRequirements"] = [{"schemes": {"key": {"list": []}}}]
    return Response(encode(card), media_type="application/json", headers={"cache-control": "private, max-age=60"})


# --- JSON-RPC ---------------------------------------------------------------------------------------------------------


async def a2a(call: Call[Nothing, Nothing]) -> Response:
    """Do one operation. Mistakes are answered in the protocol's form."""
    agent = call.agent(call.path("agent"))
    try:
        asked = await read_body(call.request, RpcRequest)
    except Problem as problem:
        if problem.status != 400:
            raise
        return _rpc(None, error=A2AError(PARSE if "is not JSON" in str(problem) else REQUEST, str(problem)))
    try:
        version = call.request.headers.get("a2a-version") or call.request.query_params.get("A2A-Version") or "0.3"
        if version.split(".")[:2] != VERSION.split("."):
            raise A2AError(
                BAD_VERSION, f"A2A {version[:20]} is not supported here; send the header A2A-Version: {VERSION}"
            )
        if asked.method in STREAMS:
            kind, stream = STREAMS[asked.method]
            events = stream(call, agent, _params(asked, kind))
            first = await anext(events)  # what is wrong is said before the stream begins
            pieces = _pieces(asked.id, first, events)
            return event_stream(pieces)
        if "PushNotification" in asked.method:
            raise A2AError(NO_PUSH, "push notifications are not sent; subscribe to the task, or ask for it again")
        if asked.method == "GetExtendedAgentCard":
            raise A2AError(UNSUPPORTED, "there is no extended card")
        if asked.method not in OPERATIONS:
            known = ", ".join((*OPERATIONS, *STREAMS))
            raise A2AError(METHOD, f"there is no method {asked.method[:80]!r}; use one of: {known}")
        kind, operation = OPERATIONS[asked.method]
        return _rpc(asked.id, await operation(call, agent, _params(asked, kind)))
    except A2AError as error:
        return _rpc(asked.id, error=error)
    except RondelError as error:
        return _rpc(asked.id, error=A2AError(PARAMS, str(error)))


def _params(asked: RpcRequest, kind: type[P]) -> P:
    # ProtoJSON may write a field as null that is not set, and 64-bit numbers as text.
    given = {name: value for name, value in asked.params.items() if value is not None}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise A2AError(PARAMS, f"the params of {asked.method} are wrong: {error}") from None


def _rpc(id: str | int | None, result: Wire | None = None, error: A2AError | None = None) -> Response:
    return Response(_answer(id, result, error), media_type="application/json", headers={"cache-control": "no-store"})


def _answer(id: str | int | None, result: Wire | None = None, error: A2AError | None = None) -> bytes:
    if error is None:
        return encode({"jsonrpc": "2.0", "id": id, "result": result})
    made: Wire = {"code": error.code, "message": str(error)}
    if reason := REASONS.get(error.code):
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}
        made["data"] = [info]
    return encode({"jsonrpc": "2.0", "id": id, "error": made})


async def _pieces(id: str | int | None, first: Wire, events: AsyncGenerator[Wire]) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(events):
        yield b"data: %b\n\n" % _answer(id, first)
        try:
            async for event in events:
                yield b"data: %b\n\n" % _answer(id, event) if event else PING
        except RondelError as error:
            yield b"data: %b\n\n" % _answer(id, error=A2AError(INTERNAL, str(error)))


# --- operations -------------------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """A task that was begun or continued. `view` is None if there is nothing to wait for."""

    conversation: Conversation
    turn: str
    view: TurnView | None


async def send(call: Call[Any, Any], agent: str, params: SendParams) -> Wire:
    configuration = params.configuration or Configuration()
    begun = await _begin(call, agent, params)
    if begun.view is not None and not configuration.return_immediately:
        await begun.view.result(check=False)
    task = await _task(call, begun.conversation, begun.turn)
    return {"task": task.wire(call.address, history=configuration.history_length)}


async def stream(call: Call[Any, Any], agent: str, params: SendParams) -> AsyncGenerator[Wire]:
    begun = await _begin(call, agent, params)
    if begun.view is not None:
        begun.view.close()
    async with contextlib.aclosing(_follow(call, begun.conversation, begun.turn)) as events:
        async for event in events:
            yield event


async def get(call: Call[Any, Any], agent: str, params: TaskParams) -> Wire:
    conversation, turn = await _find(call, params.id)
    return (await _task(call, conversation, turn)).wire(call.address, history=params.history_length)


async def cancel(call: Call[Any, Any], agent: str, params: TaskParams) -> Wire:
    conversation, turn = await _find(call, params.id)
    watcher = await conversation.watch()
    with watcher:
        if (await _task(call, conversation, turn)).is_over:
            raise A2AError(NOT_CANCELABLE, f"the task {params.id[:80]!r} has ended already")
        is_running = _is_running(call, conversation, turn)
        is_queued = not is_running and await call.app.turns.stop_queued(conversation.id, turn)
        if is_queued or await conversation.stop(turn):
            async with contextlib.aclosing(_ends(call, conversation, turn, watcher)) as ends:
                async for _ in ends:
                    pass
    return (await _task(call, conversation, turn)).wire(call.address)


async def subscribe(call: Call[Any, Any], agent: str, params: TaskParams) -> AsyncGenerator[Wire]:
    conversation, turn = await _find(call, params.id)
    if (await _task(call, conversation, turn)).is_over:
        raise A2AError(UNSUPPORTED, f"the task {params.id[:80]!r} has ended; get it instead")
    async with contextlib.aclosing(_follow(call, conversation, turn, waits=True)) as events:
        async for event in events:
            yield event


async def list_tasks(call: Call[Any, Any], agent: str, params: ListParams) -> Wire:
    size = PAGE if params.page_size is None else params.page_size
    if not 1 <= size <= PAGE_MAX:
        raise A2AError(PARAMS, f"pageSize must be from 1 to {PAGE_MAX}, not {size}")
    if params.context_id:
        contexts = [(await _context(call, params.context_id)).id]
    else:
        found = await call.app.store.conversations(limit=LISTED_MAX, person=call.person.id)
        contexts = [info.id for info in found if "/" not in info.id]
    tasks = [task for context in contexts for task in (await _tasks(call, context)).values() if task.agent == agent]
    if params.status:
        tasks = [task for task in tasks if task.state == params.status]
    if params.status_timestamp_after:
        tasks = [task for task in tasks if task.at >= _seconds(params.status_timestamp_after)]
    tasks.sort(key=lambda task: (task.at, task.id), reverse=True)
    first = next((n + 1 for n, task in enumerate(tasks) if task.id == params.page_token), None)
    if params.page_token and first is None:
        raise A2AError(PARAMS, "pageToken is not one of this list, or its task is gone; begin again without it")
    page = tasks[first or 0 : (first or 0) + size]
    more = bool(page) and page[-1] is not tasks[-1]
    address, artifacts = call.address, params.include_artifacts
    return {
        "tasks": [task.wire(address, history=params.history_length or 0, artifacts=artifacts) for task in page],
        "nextPageToken": page[-1].id if more else "",
        "pageSize": size,
        "totalSize": len(tasks),
    }


def _seconds(timestamp: str) -> float:
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise A2AError(PARAMS, f"statusTimestampAfter is not a time: {timestamp[:40]!r}") from None


OPERATIONS: dict[str, tuple[type[Any], Operation]] = {
    "SendMessage": (SendParams, send),
    "GetTask": (TaskParams, get),
    "ListTasks": (ListParams, list_tasks),
    "CancelTask": (TaskParams, cancel),
}
STREAMS: dict[str, tuple[type[Any], Streaming]] = {
    "SendStreamingMessage": (SendParams, stream),
    "SubscribeToTask": (TaskParams, subscribe),
}


# --- tasks ------------------------------------------------------------------------------------------------------------


async def _begin(call: Call[Any, Any], agent: str, params: SendParams) -> Begun:
    """Begin the task of a message, or continue the one that it names."""
    given = params.message
    if params.configuration and params.configuration.task_push_notification_config:
        raise A2AError(NO_PUSH, "push notifications are not sent; subscribe to the task, or ask for it again")
    if not 0 < len(given.message_id) <= ID_CHARS_MAX:
        raise A2AError(PARAMS, f"messageId must have 1 to {ID_CHARS_MAX} characters")
    if given.task_id:
        return await _continue(call, given)
    message = Message("user", _parts(given), id=given.message_id)
    if given.context_id:
        conversation = call.app.conversation((await _context(call, given.context_id)).id, agent=agent)
        check_chosen_engine(call, await conversation.transcript())
        await take_up(call, conversation)
        tasks = await _tasks(call, conversation.id)
        if known := next((turn for turn, task in tasks.items() if given.message_id in task.messages), None):
            return Begun(conversation, known, None)  # sent again
        if waiting := next((task for task in tasks.values() if task.state == INPUT_REQUIRED), None):
            raise A2AError(UNSUPPORTED, f"the task {waiting.id!r} of this context waits for input; answer it first")
    else:
        conversation = call.app.conversation(agent=agent)
    view = await conversation.send(message, person=call.person, id=given.message_id, scope=call.scope)
    return Begun(conversation, view.id, view)


async def _continue(call: Call[Any, Any], given: GivenMessage) -> Begun:
    """Answer what a task asks, or tell it something while it works."""
    conversation, turn = await _find(call, given.task_id or "")
    if given.context_id and given.context_id != conversation.id:
        raise A2AError(PARAMS, f"the task {given.task_id!r} is not in the context {given.context_id[:80]!r}")
    task = await _task(call, conversation, turn)
    call.check_agent(task.agent or conversation.agent)
    check_chosen_engine(call, await conversation.transcript())
    if task.is_over:
        raise A2AError(UNSUPPORTED, f"the task {task.id!r} has ended; leave taskId out to begin another in its context")
    if task.state != INPUT_REQUIRED:
        await conversation.steer(Message("user", _parts(given), id=given.message_id), person=call.person)
        journal = await call.app.journals.open(conversation.id)
        is_going_on = call.app.turns.is_under_way(turn)
        return Begun(conversation, turn, TurnView(conversation, journal.watch(), turn) if is_going_on else None)
    question, text = _answer_to(task, given)
    try:
        view = await conversation.answer(question, text, by=call.person.id)
    except QuestionError as error:
        raise A2AError(PARAMS, str(error)) from None
    return Begun(conversation, turn, view)


def _answer_to(task: Task, given: GivenMessage) -> tuple[str, str]:
    """Return which question a message answers, and how: data with `questionId` and `answer`, or the first with text."""
    for part in given.parts:
        given_data: Any = part.data
        data = cast(dict[str, Any], given_data) if isinstance(given_data, dict) else {}
        if "questionId" in data:
            return str(data["questionId"]), str(data.get("answer", ""))
    parts = [part for part in _parts(given) if isinstance(part, Text)]
    return next(iter(task.questions)), "\n".join(part.text for part in parts)


def _parts(given: GivenMessage) -> tuple[Text | Media, ...]:
    texts: list[str] = []
    attached: list[Attachment] = []
    images: list[Media] = []
    for part in given.parts:
        if part.text is not None:
            texts.append(part.text)
        elif part.data is not None:
            texts.append(encode(part.data).decode())
        elif part.raw is not None:
            attached.append(Attachment(part.filename or "file", part.raw))
        elif part.url is not None and (part.media_type or "").startswith("image/"):
            images.append(Media("image", part.media_type or "", url=part.url[:ADDRESS_CHARS_MAX]))
        else:
            raise A2AError(CONTENT, "send a file in `raw`, or an image by its `url` with its mediaType")
    return read_parts("\n".join(texts), attached, images)


async def _context(call: Call[Any, Any], context: str) -> Conversation:
    try:
        return await find_id(call, context)
    except Problem:
        why = f"there is no context {context[:80]!r}; leave contextId out to begin one"
        raise A2AError(PARAMS, why) from None


async def _find(call: Call[Any, Any], id: str) -> tuple[Conversation, str]:
    """Return the conversation and the turn of a task. Others' tasks look as if they did not exist."""
    context, _, turn = id.rpartition("~")
    try:
        conversation = await find_id(call, context)
    except Problem:
        raise _missing(id) from None
    return conversation, turn


async def _tasks(call: Call[Any, Any], context: str) -> dict[str, Task]:
    return tasks_of(context, await call.app.store.read(context))


async def _task(call: Call[Any, Any], conversation: Conversation, turn: str) -> Task:
    tasks = await _tasks(call, conversation.id)
    if turn in tasks:
        return tasks[turn]
    if not call.app.turns.is_under_way(turn):
        raise _missing(task_id(conversation.id, turn))
    task = Task(conversation.id, turn, "", call.app.clock.now())
    task.state = SUBMITTED
    return task


def _missing(id: str) -> A2AError:
    return A2AError(NOT_FOUND, f"there is no task {id[:80]!r}")


# --- what happens -----------------------------------------------------------------------------------------------------


async def _follow(
    call: Call[Any, Any], conversation: Conversation, turn: str, *, waits: bool = False
) -> AsyncGenerator[Wire]:
    """Yield the task as it is, then what happens in it, until it ends or waits for input. With `waits`, a task that
    waits for input is watched until somebody gives it."""
    watcher = await conversation.watch()  # before the task is read, so that nothing is missed in between
    task, address, answer = await _task(call, conversation, turn), call.address, AnswerText()
    sent, files = task.text, {artifact["artifactId"] for artifact in task.artifacts(address)}
    yield {"task": task.wire(address)}
    so_far = "".join(map(answer.feed, conversation.reply_so_far()))
    if so_far:
        sent += so_far
        yield _update(task, artifactUpdate={"artifact": task.answer(so_far), "append": bool(task.text)})
    if task.is_over or (task.state == INPUT_REQUIRED and not waits):
        watcher.close()
        return
    async with contextlib.aclosing(_ends(call, conversation, turn, watcher)) as batches:
        async for batch in batches:
            if not batch:
                yield {}
            for event in batch:
                if isinstance(event, TurnStarted):
                    yield _update(task, statusUpdate={"status": task.status(WORKING)})
                elif isinstance(event, CallProgressed):
                    yield _update(task, statusUpdate={"status": task.status(WORKING, event.text)})
                elif text := answer.feed(event):
                    yield _update(task, artifactUpdate={"artifact": task.answer(text), "append": bool(sent)})
                    sent += text
    task = await _task(call, conversation, turn)
    if task.text and task.text != sent:  # a reply was replaced after it had streamed, or pieces were missed
        yield _update(task, artifactUpdate={"artifact": task.answer(task.text), "append": False})
    for artifact in task.artifacts(address):
        if artifact["artifactId"] not in files and artifact["name"] != "answer":
            yield _update(task, artifactUpdate={"artifact": artifact, "lastChunk": True})
    yield _update(task, statusUpdate={"status": task.status()})


async def _ends(
    call: Call[Any, Any], conversation: Conversation, turn: str, watcher: Watcher
) -> AsyncGenerator[list[Event]]:
    """Yield a turn's events, until it ends or waits for input."""
    ours = _is_running(call, conversation, turn)
    async with contextlib.aclosing(call.web.feeds.batches(watcher, call.is_still_allowed)) as batches:
        async for batch in batches:
            seen: list[Event] = []
            for _, event in batch:
                if isinstance(event, TurnStarted):
                    ours = event.turn == turn
                if ours:
                    seen.append(event)
                if isinstance(event, TurnFinished) and event.turn == turn:
                    yield seen
                    return
            if seen or not batch:
                yield seen
    raise RondelError("the server closed this stream; the task continues")


def _is_running(call: Call[Any, Any], conversation: Conversation, turn: str) -> bool:
    running = call.app.turns.running(conversation.id)
    return running is not None and running.id == turn


def _update(task: Task, **kinds: Wire) -> Wire:
    return {kind: {"taskId": task.id, "contextId": task.context, **fields} for kind, fields in kinds.items()}


ROUTES = (
    Route("GET", CARD, default_card, "Describe the default agent to other agents (A2A)."),
    Route("GET", f"/a2a/{{agent}}{CARD}", agent_card, "Describe an agent to other agents (A2A)."),
    Route("POST", "/a2a/{agent}", a2a, "Give an agent a task, and watch it: A2A 1.0 as JSON-RPC.", body=RpcRequest,
          reads_body=True),
)  # fmt: skip
