"""`POST /agui/{agent}`: AG-UI 1.0, so that front ends which speak it can talk to agents.

A thread is a conversation. The server has its messages, so of those that come with a run only the new ones count: the
last messages of the person, results of the front end's own tools, answers to questions. A new message after an earlier
one than the thread's last edits the thread: the turns in between are undone. A run that brings nothing new shows the
thread as it is, or watches the turn that is running. A client that leaves does not stop the turn.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, cast

import msgspec
from starlette.responses import StreamingResponse

from ...errors import RondelError
from ...machine.conversation import Conversation
from ...machine.transcript import Transcript
from ...question import ALWAYS, NO, YES, Question
from ...values import Media, Message, Text, ToolCall, ToolResult, Value
from .agui_events import OURS, VERSION, RunEvents, is_clients
from .agui_messages import Address, messages_of
from .chat import MESSAGES_MAX
from .conversations import (
    ADDRESS_CHARS_MAX,
    ID_CHARS_MAX,
    TEXT_CHARS_MAX,
    Attachment,
    check_chosen_engine,
    find_id,
    give_history,
    read_parts,
    take_up,
)
from .feed import PING
from .route import Call, Nothing, Open, Problem, Route, encode, event_stream, sse

STATE_BYTES_MAX = 100_000
_UNSPOKEN = ("system", "developer", "activity", "reasoning")


# --- values: what a client sends --------------------------------------------------------------------------------------


class GivenTool(Open, frozen=True):
    name: str
    description: str = ""
    parameters: Any = None


class Context(Open, frozen=True):
    description: str
    value: str


class Resume(Open, frozen=True):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class FunctionCall(Open, frozen=True):
    name: str
    arguments: str = ""


class GivenCall(Open, frozen=True):
    id: str
    function: FunctionCall


class GivenSource(Open, frozen=True):
    """Where a file is: `data` is Base64, `url` an address, `file` a provider's own handle."""

    type: str
    value: str
    mime_type: str | None = None


class GivenPart(Open, frozen=True):
    type: str
    text: str | None = None
    source: GivenSource | None = None
    metadata: Any = None


class GivenMessage(Open, frozen=True):
    id: str
    role: str
    content: str | tuple[GivenPart, ...] | dict[str, Any] | None = None
    tool_calls: tuple[GivenCall, ...] | None = None
    tool_call_id: str | None = None
    error: str | None = None


class RunInput(Open, frozen=True):
    """`RunAgentInput` of AG-UI 1.0."""

    thread_id: str
    run_id: str
    messages: tuple[GivenMessage, ...]
    tools: tuple[GivenTool, ...] | None = None
    context: tuple[Context, ...] | None = None
    state: Any = None
    resume: tuple[Resume, ...] | None = None
    forwarded_props: Any = None
    protocol_version: str | None = None
    parent_run_id: str | None = None


class _Refused(RondelError):
    """Why a run cannot begin, for the stream. `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class _New(Value, frozen=True):
    """What a run brings that the thread does not have."""

    before: tuple[Message, ...] = ()
    message: Message | None = None
    results: dict[str, GivenMessage] = {}  # by the call's id
    undone: int = 0  # the newest turns that the message replaces


# --- the route --------------------------------------------------------------------------------------------------------


async def agui(call: Call[RunInput, Nothing]) -> StreamingResponse:
    """Run an agent and stream what happens."""
    given, agent = call.body, call.agent(call.path("agent"))
    for what, id in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not 0 < len(id) <= ID_CHARS_MAX:
            raise Problem(400, f"{what} must have 1 to {ID_CHARS_MAX} characters")
    if len(given.messages) > MESSAGES_MAX:
        raise Problem(413, f"at most {MESSAGES_MAX} messages can be sent; the thread keeps the earlier ones")
    conversation = await open_thread(call, given.thread_id, agent)
    return event_stream(_stream(call, conversation))


async def open_thread(call: Call[Any, Any], thread: str, agent: str) -> Conversation:
    """Return the conversation of a thread: the person's own of that id, else one that only this person can name. So two
    people may use the same id, and nobody learns whether another's conversation exists."""
    with contextlib.suppress(Problem):
        found = await find_id(call, thread)
        return call.app.conversation(found.id, agent=agent)
    name = hashlib.sha256(f"{call.person.id}\0{thread}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return call.app.conversation(f"thread-{name}", agent=agent)


async def _stream(call: Call[RunInput, Nothing], conversation: Conversation) -> AsyncGenerator[bytes]:
    given = call.body
    about = {OURS: {"conversation": conversation.id}}
    first = {"threadId": given.thread_id, "runId": given.run_id, "protocolVersion": VERSION, "metadata": about}
    yield sse({"type": "RUN_STARTED", **first})
    try:
        async with contextlib.aclosing(_run(call, conversation)) as events:
            async for event in events:
                yield event
    except RondelError as error:
        code = error.code if isinstance(error, _Refused) else "refused"
        yield sse({"type": "RUN_ERROR", "message": str(error), "code": code})


async def _run(call: Call[RunInput, Nothing], conversation: Conversation) -> AsyncGenerator[bytes]:
    given, busy = call.body, call.web.busy_threads
    await take_up(call, conversation)
    transcript = await conversation.transcript()
    is_running = conversation.id in busy or await conversation.is_at_work()
    new = _new(call, transcript)
    if not (new.message or new.results or given.resume):
        async for piece in _show(call, conversation, is_running):
            yield piece
        return
    if is_running:
        raise _Refused("busy", "a run is in progress in this thread; wait for its end, or run without a new message")
    check_chosen_engine(call, transcript)
    if new.message is None and transcript.starting_agent:  # continues a turn, perhaps of another agent than the path's
        call.check_agent(transcript.starting_agent)
    busy.add(conversation.id)
    try:
        if new.undone:
            if transcript.questions:
                await conversation.stop()
            await conversation.undo(new.undone, by=call.person.id)
            transcript = await conversation.transcript()
        answers = _answers(given, transcript, new)
        await _bring(call, conversation)
        watcher = await conversation.watch()
        try:
            turn = await _begin(call, conversation, transcript, new, answers)
        except BaseException:
            watcher.close()
            raise
        events = _events(call, conversation, transcript, turn, answered=[question for question, _, _ in answers])
        events.is_changed = bool(new.undone)
        async with contextlib.aclosing(_follow(call, conversation, events, watcher)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        busy.discard(conversation.id)


async def _begin(
    call: Call[RunInput, Nothing],
    conversation: Conversation,
    transcript: Transcript,
    new: _New,
    answers: Sequence[tuple[str, str, str]],
) -> str:
    """Start or resume the turn of a run, and return its id."""
    if new.message is None:
        turn = transcript.turn
        for question, text, by in answers:
            view = await conversation.answer(question, text, by=by)
            view.close()
        return turn
    if transcript.questions:  # calls of the front end's tools that it has left unanswered: the person went on
        await conversation.stop()
    before = new.before
    if not transcript.turn and not transcript.messages and before:
        await give_history(call, conversation, before)
        before = ()
    message = new.message
    view = await conversation.send(message, person=call.person, id=message.id, before=before, scope=call.scope)
    view.close()
    return view.id


async def _show(call: Call[RunInput, Nothing], conversation: Conversation, is_running: bool) -> AsyncGenerator[bytes]:
    """Show a thread as it is, and what is happening in it."""
    watcher = await conversation.watch()
    transcript = await conversation.transcript()
    events = _events(call, conversation, transcript, transcript.turn, is_running=True)
    events.questions = {question.id: question for question in transcript.questions}
    yield _snapshot(call, conversation, transcript)
    if is_running and transcript.turn and transcript.outcome is None:
        for delta in conversation.reply_so_far():
            for event in events.feed(delta):
                yield sse(event)
        async with contextlib.aclosing(_follow(call, conversation, events, watcher)) as pieces:
            async for piece in pieces:
                yield piece
        return
    watcher.close()
    for event in events.shown():
        yield sse(event)


async def _follow(
    call: Call[RunInput, Nothing], conversation: Conversation, events: RunEvents, watcher: Any
) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(call.web.feeds.batches(watcher, call.is_still_allowed)) as batches:
        async for batch in batches:
            made = [event for _, seen in batch for event in events.feed(seen)]
            yield b"".join(map(sse, made)) or PING
            if events.is_over:
                break
    if not events.is_over:
        raise _Refused("ended", "the server is ending this stream; the turn continues, and a new run shows it")
    if events.is_changed:
        yield _snapshot(call, conversation, await conversation.transcript())
    for event in events.ending():
        yield sse(event)


def _events(
    call: Call[RunInput, Nothing],
    conversation: Conversation,
    transcript: Transcript,
    turn: str,
    *,
    answered: Sequence[str] = (),
    is_running: bool = False,
) -> RunEvents:
    given = call.body
    known = {id for message in given.messages for id in (message.id, message.tool_call_id or "")}
    return RunEvents(
        given.thread_id,
        given.run_id,
        turn,
        transcript,
        _address(call, conversation),
        known=known,
        answered=answered,
        state=given.state,
        is_running=is_running,
    )


def _address(call: Call[Any, Any], conversation: Conversation) -> Address:
    return lambda message, index: f"{call.address}/api/conversations/{conversation.id}/media/{message}/{index}"


def _snapshot(call: Call[RunInput, Nothing], conversation: Conversation, transcript: Transcript) -> bytes:
    """All messages, with those that only the client has: its instructions."""
    given = call.body.messages
    theirs = [
        {"id": message.id, "role": message.role, "content": message.content}
        for message in given
        if message.role in ("system", "developer") and isinstance(message.content, str)
    ]
    tool_ids = {
        message.tool_call_id: message.id for message in given if message.role == "tool" and message.tool_call_id
    }
    messages = messages_of(transcript, _address(call, conversation), tool_ids)
    return sse({"type": "MESSAGES_SNAPSHOT", "messages": [*theirs, *messages]})


# --- what is new ------------------------------------------------------------------------------------------------------


def _new(call: Call[RunInput, Nothing], transcript: Transcript) -> _New:
    """Return what the thread does not have yet: the messages after the last one that it knows."""
    given = call.body.messages
    open_calls = {question.call_id for question in transcript.questions if is_clients(question)}
    results = {
        message.tool_call_id: message
        for message in given
        if message.role == "tool" and message.tool_call_id in open_calls and message.tool_call_id
    }
    if not transcript.messages:
        tail = list(given)
    else:
        known = [
            index for index, one in enumerate(given) if one.id in transcript.ids or one.role in ("assistant", "tool")
        ]
        tail = list(given[known[-1] + 1 :] if known else given)
    spoken = [message for message in tail if message.role not in _UNSPOKEN]
    places = {message.id: index for index, message in enumerate(transcript.messages) if message.id}
    if edited := _edited(given, transcript, places):
        message = msgspec.structs.replace(_history(call, [edited])[0], id=call.app.new_id("msg"))
        return _New((), message, results, _turns_after(transcript, places[edited.id] - 1))
    if not spoken or spoken[-1].role != "user":
        return _New(results=results)
    if transcript.undone and any(one.role == "user" and one.id in transcript.ids - places.keys() for one in given):
        raise _Refused(
            "changed", "the thread was changed elsewhere; run without a new message to see it, then send yours"
        )
    messages = list(_history(call, spoken))
    last = max((places[one.id] for one in given if one.id in places), default=len(transcript.messages))
    return _New(tuple(messages[:-1]), messages[-1], results, _turns_after(transcript, last))


def _edited(given: Sequence[GivenMessage], transcript: Transcript, places: dict[str, int]) -> GivenMessage | None:
    """Return the message of the person that the client has changed."""
    spoken = [message for message in given if message.role not in _UNSPOKEN]
    for message in spoken:
        if message.role == "user" and message.id in places:
            texts = (" ".join(one.split()) for one in (_text(message), transcript.messages[places[message.id]].text))
            if len(set(texts)) > 1:
                if message is not spoken[-1]:
                    raise _Refused("changed", f"message {message.id[:80]!r} was changed; send the thread only up to it")
                return message
    return None


def _text(message: GivenMessage) -> str:
    if isinstance(message.content, tuple):
        return "\n".join(part.text for part in message.content if part.text)
    return message.content if isinstance(message.content, str) else ""


def _turns_after(transcript: Transcript, index: int) -> int:
    """Return how many turns began after the message at this index."""
    count = 0
    while (start := transcript.start_of(count + 1)) is not None and start.messages > index:
        count += 1
    return count


def _history(call: Call[RunInput, Nothing], given: Sequence[GivenMessage]) -> list[Message]:
    """Return a client's messages as ours. Calls without a result are left out: no model takes them."""
    answered = {message.tool_call_id for message in given if message.role == "tool"}
    called = {one.id for message in given for one in message.tool_calls or ()}
    made: list[Message] = []
    for message in given:
        id = message.id[:ID_CHARS_MAX]
        if message.role == "user":
            made.append(Message("user", _parts(message), id=id, author=call.person.id))
        elif message.role == "assistant":
            calls = [_given_call(one) for one in message.tool_calls or () if one.id in answered]
            said = [Text(message.content)] if isinstance(message.content, str) and message.content else []
            if said or calls:
                made.append(Message("assistant", (*said, *calls), id=id))
        elif message.role == "tool" and message.tool_call_id in called:
            made.append(Message("tool", (ToolResult(message.tool_call_id or "", (Text(_result(message)),)),), id=id))
    return made


def _given_call(call: GivenCall) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return ToolCall(call.id, call.function.name, broken=call.function.arguments)
    return ToolCall(call.id, call.function.name, arguments)


def _parts(message: GivenMessage) -> tuple[Text | Media, ...]:
    if not isinstance(message.content, tuple):
        return read_parts(message.content if isinstance(message.content, str) else "", ())
    read = [_read_part(part) for part in message.content]
    text = "\n".join(part for part in read if isinstance(part, str))
    attached = [part for part in read if isinstance(part, Attachment)]
    media = [part for part in read if isinstance(part, Media)]
    return read_parts(text, attached, media)


def _read_part(part: GivenPart) -> str | Media | Attachment:
    """Return a part of a message: text, a file as Base64, or an image by its address."""
    if part.type == "text" and part.text is not None:
        return part.text
    source = part.source
    if part.type not in ("image", "audio", "document") or source is None:
        raise Problem(400, f"a part of a message is neither text nor an image, audio or document: {part.type[:40]!r}")
    if source.type == "data":
        return Attachment(str(_object(part.metadata).get("filename") or part.type), source.value)
    if source.type == "url" and part.type == "image" and source.value.startswith(("https://", "http://")):
        return Media("image", source.mime_type or "", url=source.value[:ADDRESS_CHARS_MAX])
    raise Problem(400, f"send the {part.type} as data, or an image by its web address; {source.type[:40]!r} is neither")


def _object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _result(message: GivenMessage) -> str:
    """Return the result of a front end's tool as text."""
    text = message.content if isinstance(message.content, str) else ""
    if isinstance(message.content, tuple):
        if any(part.text is None for part in message.content):
            raise _Refused("result", "the result of a front end's tool must be text")
        text = "\n".join(part.text or "" for part in message.content)
    if len(text) > TEXT_CHARS_MAX:
        raise Problem(413, f"a tool's result has {len(text):,} characters; at most {TEXT_CHARS_MAX:,} are possible")
    return f"Error: {message.error}\n{text}".strip() if message.error else text


# --- questions --------------------------------------------------------------------------------------------------------


def _answers(given: RunInput, transcript: Transcript, new: _New) -> list[tuple[str, str, str]]:
    """Return the answers to open questions, as (question, text, who). Raises if some are missing or wrong."""
    asked = {question.id: question for question in transcript.questions}
    resumed = {one.interrupt_id: one for one in given.resume or ()}
    if unknown := next((id for id in resumed if id not in asked), None):
        why = "it was answered already" if unknown in transcript.closed else "it was never asked in this thread"
        raise _Refused("interrupt_not_open", f"interrupt {unknown[:80]!r} is not open: {why}")
    missing = [question for question in asked.values() if not is_clients(question) and question.id not in resumed]
    if missing:
        raise _Refused(
            "interrupts_pending", f"the thread waits for an answer to {missing[0].id!r}; send it in `resume`"
        )
    if new.message is not None and resumed:
        raise _Refused("interrupts_pending", "answer the interrupts first, then send the new message in another run")
    answers = [_answer(asked[id], one) for id, one in resumed.items()]
    for question in asked.values():
        if is_clients(question) and (result := new.results.get(question.call_id)) is not None:
            answers.append((question.id, _result(result), ""))
    return answers


def _answer(question: Question, given: Resume) -> tuple[str, str, str]:
    payload = given.payload
    if given.status == "cancelled":
        if question.kind == "approve":
            return question.id, NO, ""
        if question.options and not question.free_text:
            return question.id, question.default, "deadline"  # as if the time had run out: no option was chosen
        return question.id, "(the person did not answer)", ""
    if question.kind == "approve":
        approved = _object(payload).get("approved") if isinstance(payload, dict) else payload
        if not isinstance(approved, bool):
            raise _Refused("payload", f'interrupt {question.id!r} needs a payload such as {{"approved": true}}')
        details = _object(payload)
        if details.get("editedArgs"):
            raise _Refused("payload", "arguments cannot be edited here; refuse the call and say what to change")
        if approved:
            return question.id, ALWAYS if details.get("always") is True else YES, ""
        return question.id, f"{NO} {details.get('reason') or ''}".strip(), ""
    answer = _object(payload).get("answer") if isinstance(payload, dict) else payload
    if not isinstance(answer, str):
        raise _Refused("payload", f'interrupt {question.id!r} needs a payload such as {{"answer": "…"}}')
    known = {option.casefold() for option in question.options}
    if known and not question.free_text and answer.strip().casefold() not in known:
        raise _Refused("payload", f"{answer[:80]!r} is not one of: {', '.join(question.options)}")
    return question.id, answer, ""


# --- what the client brings: tools, context, state --------------------------------------------------------------------


async def _bring(call: Call[RunInput, Nothing], conversation: Conversation) -> None:
    """Set the client's tools and context for the turns of the thread, if they have changed."""
    given = call.body
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": _object(tool.parameters),
        }
        for tool in given.tools or ()
    ]
    settings = {"client.tools": tools or None, "client.context": _context(given) or None}
    for key, value in settings.items():
        if value or key in (await conversation.transcript()).settings:
            await conversation.set(key, value)


def _context(given: RunInput) -> str:
    instructions = [
        message.content
        for message in given.messages
        if message.role in ("system", "developer") and isinstance(message.content, str)
    ]
    lines = [f"{one.description}: {one.value}" for one in given.context or ()]
    state: Any = given.state
    if isinstance(state, dict):
        state = {name: value for name, value in _object(state).items() if name != OURS}
    if state:
        written = encode(state)
        if len(written) > STATE_BYTES_MAX:
            raise _Refused("state", f"the state is larger than {STATE_BYTES_MAX // 1000} KB; send less")
        lines.append(f"The state of the application: {written.decode()}")
    return "\n\n".join([*instructions, *(["What the application knows:\n" + "\n".join(lines)] if lines else [])])


ROUTES = (
    Route("POST", "/agui/{agent}", agui, "Run an agent for a front end that speaks AG-UI 1.0.", body=RunInput,
          media="text/event-stream"),
)  # fmt: skip
