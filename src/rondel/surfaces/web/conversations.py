"""Routes of conversations: list, read, watch, talk, stop, answer, edit, export, delete."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from ...contracts.store import ConversationInfo
from ...events import Entry, HistoryGiven
from ...files.media import image_type, type_by_content
from ...machine.conversation import Conversation, TurnView
from ...machine.journal import Journal
from ...machine.transcript import Transcript
from ...machine.turn import caller_conversation
from ...question import Question
from ...text.attached import decoded
from ...values import Media, MediaKind, Message, Text, ToolResult, Value
from ..export import export
from .feed import without_data
from .route import Call, Done, Nothing, Problem, Route, event_stream, refused_with

PAGE_MAX = 200
ENTRIES_MAX = 5_000
TEXT_CHARS_MAX = 2_000_000
ATTACHMENTS_MAX, ATTACHMENT_BYTES_MAX = 20, 32_000_000
ID_CHARS_MAX = 200
ADDRESS_CHARS_MAX = 4_000
CHANGE_S = 2.0  # how long a change waits for a turn in another process

T = TypeVar("T")


# --- values -----------------------------------------------------------------------------------------------------------


class Listing(Value, frozen=True):
    search: str = ""
    limit: int = 50
    before: str = ""  # the id of the last conversation of the previous page


class ConversationPage(Value, frozen=True):
    conversations: tuple[ConversationInfo, ...]
    more: bool


class NewConversation(Value, frozen=True):
    agent: str = ""


class Created(Value, frozen=True):
    id: str
    agent: str
    engine: str


class Shown(Value, frozen=True):
    """A conversation as it is now. `seq` is where to begin watching."""

    id: str
    info: ConversationInfo | None
    agent: str
    engine: str
    seq: int
    is_at_work: bool
    questions: tuple[Question, ...]


class Range(Value, frozen=True):
    after: Annotated[int, Meta(lt=2**53)] = 0
    limit: int = ENTRIES_MAX


class Entries(Value, frozen=True):
    entries: tuple[Entry, ...]
    seq: int
    more: bool


class Attachment(Value, frozen=True):
    """A file. `data` is Base64."""

    name: str
    data: str


class NewMessage(Value, frozen=True):
    """`mode` says what happens while a turn runs: `queue` waits for it, `steer` is read by it between two steps."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    mode: Literal["queue", "steer"] = "queue"
    id: str = ""
    """The client's own id for the message: sending it again adds nothing."""


class Sent(Value, frozen=True):
    turn: str
    seq: int


class Title(Value, frozen=True):
    title: str


class NewText(Value, frozen=True):
    """What a person types: another text for the last message, or the answer to a question."""

    text: str


class Stopped(Value, frozen=True):
    stopped: bool


class Resumed(Value, frozen=True):
    resumed: bool  # false if nothing was left to do


class Fork(Value, frozen=True):
    """`message` is the id of the last message that the new conversation keeps."""

    message: str


class EngineChoice(Value, frozen=True):
    engine: str


class Export(Value, frozen=True):
    format: Literal["markdown", "json"] = "markdown"


# --- who may see it ---------------------------------------------------------------------------------------------------


def owns(call: Call[Any, Any], info: ConversationInfo) -> bool:
    return call.is_admin or info.person == call.person.id


async def find(call: Call[Any, Any]) -> Conversation:
    """Return the conversation of the path. Others' conversations look as if they did not exist."""
    return await find_id(call, call.path("id"))


async def find_id(call: Call[Any, Any], id: str) -> Conversation:
    if len(id) > ID_CHARS_MAX or "/" in id:
        raise _missing(id)
    info = await call.app.store.info(id)
    is_stored = info is not None and owns(call, info)
    if not (is_stored or call.web.is_new(id, call.person)):
        raise _missing(id)
    transcript = (await call.app.journals.open(id)).transcript
    agent = transcript.starting_agent or call.web.new_agent(id)
    if is_stored and transcript.starting_agent:  # a message that was just accepted is not in the store yet
        call.web.forget_new(id)
    return call.app.conversation(id, agent=agent if call.app.registry.knows_agent(agent) else "")


async def find_to_talk(call: Call[Any, Any]) -> Conversation:
    """Return the conversation of the path. Raises if the caller's key may not use its agent or its engine."""
    conversation = await find(call)
    transcript = await conversation.transcript()
    call.check_agent(transcript.starting_agent or conversation.agent)
    check_chosen_engine(call, transcript)
    return conversation


def check_chosen_engine(call: Call[Any, Any], transcript: Transcript) -> None:
    """Raise if the caller's key may not use the engine that was chosen for this conversation."""
    if transcript.engine:
        call.check_engine(transcript.engine)


def _missing(id: str) -> Problem:
    return Problem(404, f"there is no conversation {id[:40]!r}")


# --- lists ------------------------------------------------------------------------------------------------------------


async def list_conversations(call: Call[Nothing, Listing]) -> ConversationPage:
    limit = max(1, min(call.query.limit, PAGE_MAX))
    before = await call.app.store.info(call.query.before) if call.query.before else None
    person = None if call.is_admin else call.person.id
    if words := call.query.search.strip():
        found = await call.app.store.search(words, limit=limit, person=person)
        return ConversationPage(tuple(one.info for one in found), False)
    found = await call.app.store.conversations(limit=limit + 1, before=before, person=person)
    # Without the turns of gateway requests: people do not chat there.
    shown = [info for info in found[:limit] if not info.id.startswith(caller_conversation(""))]
    return ConversationPage(tuple(shown), len(found) > limit)


async def create(call: Call[NewConversation, Nothing]) -> Created:
    agent = call.agent(call.body.agent)
    conversation = call.app.conversation(agent=agent)
    call.web.add_new(conversation.id, call.person, agent)
    return Created(conversation.id, conversation.agent, conversation.engine.name)


async def show(call: Call[Nothing, Nothing]) -> Shown:
    conversation = await find(call)
    transcript = await conversation.transcript()
    return Shown(
        conversation.id,
        await call.app.store.info(conversation.id),
        conversation.agent,
        conversation.engine.name,
        (await call.app.journals.open(conversation.id)).seq,
        await conversation.is_at_work(),
        tuple(transcript.questions),
    )


async def rename(call: Call[Title, Nothing]) -> Done:
    await _changed((await find(call)).rename(call.body.title))
    return Done()


async def delete(call: Call[Nothing, Nothing]) -> Done:
    conversation = await find(call)
    if await conversation.is_at_work():
        raise Problem(409, "a turn is running in this conversation; stop it first")
    await call.app.store.delete(conversation.id)
    call.web.feeds.close(conversation.id)
    return Done()


async def fork(call: Call[Fork, Nothing]) -> Created:
    """Start a new conversation with the messages up to one of this conversation."""
    conversation = await find_to_talk(call)
    messages = list((await conversation.transcript()).messages)
    index = next((n for n, message in enumerate(messages) if message.id == call.body.message), None)
    if index is None:
        raise Problem(404, f"there is no message {call.body.message[:40]!r} in this conversation")
    new = await continued(call, conversation.agent, tuple(messages[: index + 1]))
    return Created(new.id, new.agent, new.engine.name)


async def continued(call: Call[Any, Any], agent: str, messages: tuple[Message, ...]) -> Conversation:
    """Return a new conversation of this person that begins with these messages."""
    new = call.app.conversation(agent=agent)
    await give_history(call, new, messages)
    call.web.add_new(new.id, call.person, agent)
    return new


async def give_history(call: Call[Any, Any], conversation: Conversation, messages: tuple[Message, ...]) -> None:
    """Append messages that were said elsewhere to a conversation."""

    async def give(journal: Journal) -> None:
        await journal.append(HistoryGiven(messages, owed=False, person=call.person))

    if messages:
        await call.app.journals.change(conversation.id, give)


# --- what happened ----------------------------------------------------------------------------------------------------


async def entries(call: Call[Nothing, Range]) -> Entries:
    conversation = await find(call)
    limit = max(1, min(call.query.limit, ENTRIES_MAX))
    found = await conversation.entries(max(0, call.query.after))
    shown = [
        msgspec.structs.replace(entry, event=without_data(entry.event, conversation.id)) for entry in found[:limit]
    ]
    seq = shown[-1].seq if shown else call.query.after
    return Entries(tuple(shown), seq, len(found) > limit)


async def events(call: Call[Nothing, Range]) -> StreamingResponse:
    conversation = await find(call)
    last = call.request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else max(0, call.query.after)
    return event_stream(call.web.feeds.stream(conversation, after, call.is_still_allowed))


async def media(call: Call[Nothing, Nothing]) -> Response:
    """Return an image or a file of a message, for download or for an <img>. Its type is detected from its content."""
    conversation = await find(call)
    wanted, given = call.path("message"), call.path("index")
    if not (given.isascii() and given.isdigit() and len(given) < 6):
        raise Problem(404, "there is no such file in this conversation")
    index = int(given)
    for message in (await conversation.transcript()).messages:
        for owner, parts in _holders(message):
            if owner == wanted and index < len(parts):
                part = parts[index]
                if isinstance(part, Media) and part.data:
                    return _file(part)
    raise Problem(404, "there is no such file in this conversation")


def _holders(message: Message) -> list[tuple[str, Sequence[Any]]]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    return [(message.id, message.parts), *((result.call_id, result.parts) for result in results)]


def _file(part: Media) -> Response:
    kind, mime = typed(part.data)
    disposition = "inline" if kind == "image" else "attachment"
    return Response(
        part.data,
        media_type=mime,
        headers={
            "content-disposition": disposition,
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
            "cache-control": "private, max-age=3600",
        },
    )


# --- talking ----------------------------------------------------------------------------------------------------------


async def send(call: Call[NewMessage, Nothing]) -> Sent:
    conversation = await find_to_talk(call)
    parts = read_parts(call.body.text, call.body.attachments)
    id = call.body.id[:ID_CHARS_MAX]
    journal = await call.app.journals.open(conversation.id)
    seq = journal.seq
    if call.body.mode == "steer" and await conversation.is_at_work():
        await conversation.steer(Message("user", parts), person=call.person)
        return Sent(journal.transcript.turn, seq)
    await take_up(call, conversation)
    return await _sent(seq, conversation.send(parts, person=call.person, id=id, scope=call.scope))


async def _sent(seq: int, starting: Awaitable[TurnView]) -> Sent:
    """Start a turn, without watching it. `seq` is the position of the last entry before it."""
    view = await starting
    view.close()
    return Sent(view.id, seq)


async def take_up(call: Call[Any, Any], conversation: Conversation) -> None:
    """Run what a stopped server has left in this conversation, before what is sent next."""
    await call.app.runtime.recover(conversation.id)


def read_parts(text: str, attachments: Sequence[Attachment], images: Sequence[Media] = ()) -> tuple[Text | Media, ...]:
    """Return the parts of a message. `images` are those that are given by their address."""
    if len(text) > TEXT_CHARS_MAX:
        raise Problem(413, f"the text has {len(text):,} characters; at most {TEXT_CHARS_MAX:,} are possible")
    if len(attachments) > ATTACHMENTS_MAX:
        raise Problem(413, f"{len(attachments)} files are too many; attach at most {ATTACHMENTS_MAX}")
    media = (*map(_attached, attachments), *images)
    if not text.strip() and not media:
        raise Problem(400, "the message is empty; write something, or attach a file")
    return (Text(text), *media) if text.strip() else media


def _attached(given: Attachment) -> Media:
    name = given.name.replace("\\", "/").rpartition("/")[2][:120] or "file"
    try:
        data = base64.b64decode(given.data, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(400, f"the file {name!r} is not Base64") from None
    if len(data) > ATTACHMENT_BYTES_MAX:
        raise Problem(413, f"the file {name!r} is larger than {ATTACHMENT_BYTES_MAX // 1_000_000} MB")
    if not data:
        raise Problem(400, f"the file {name!r} is empty")
    kind, mime = typed(data)
    return Media(kind, mime, data, name=name)


def typed(data: bytes) -> tuple[MediaKind, str]:
    """Return the kind and the type of a file by its content, never by its name or by what its sender says."""
    if mime := image_type(data):
        return "image", mime
    return "file", type_by_content(data) or ("application/octet-stream" if decoded(data) is None else "text/plain")


async def stop(call: Call[Nothing, Nothing]) -> Stopped:
    return Stopped(await (await find(call)).stop())


async def resume(call: Call[Nothing, Nothing]) -> Resumed:
    view = await (await find_to_talk(call)).resume()
    if view is not None:
        view.close()
    return Resumed(view is not None)


async def regenerate(call: Call[Nothing, Nothing]) -> Sent:
    conversation = await find_to_talk(call)
    seq = (await call.app.journals.open(conversation.id)).seq
    return await _sent(seq, _changed(conversation.retry(person=call.person, scope=call.scope)))


async def edit(call: Call[NewText, Nothing]) -> Sent:
    conversation = await find_to_talk(call)
    seq = (await call.app.journals.open(conversation.id)).seq
    return await _sent(seq, _changed(conversation.edit(call.body.text, person=call.person, scope=call.scope)))


async def undo(call: Call[Nothing, Nothing]) -> Done:
    await _changed((await find(call)).undo(by=call.person.id))
    return Done()


async def _changed(change: Awaitable[T], status: int = 409) -> T:
    """Await a change. If another process is running a turn, cancel the change instead of waiting for its end."""
    try:
        with refused_with(status):
            async with asyncio.timeout(CHANGE_S):
                return await change
    except TimeoutError:
        raise Problem(409, "another process is working on this conversation; try again after its turn") from None


async def questions(call: Call[Nothing, Nothing]) -> tuple[Question, ...]:
    return tuple(await (await find(call)).questions())


async def answer(call: Call[NewText, Nothing]) -> Sent:
    conversation = await find_to_talk(call)
    seq = (await call.app.journals.open(conversation.id)).seq
    with refused_with(409):
        return await _sent(seq, conversation.answer(call.path("question"), call.body.text, by=call.person.id))


async def use_engine(call: Call[EngineChoice, Nothing]) -> Done:
    conversation = await find(call)
    if call.body.engine:
        call.check_engine(call.body.engine)
    await _changed(conversation.use_engine(call.body.engine), 400)
    return Done()


async def download(call: Call[Nothing, Export]) -> Response:
    conversation = await find(call)
    with refused_with(404):
        document = await export(call.app.store, conversation.id, call.query.format)
    kind = "application/json" if call.query.format == "json" else "text/markdown; charset=utf-8"
    headers = {"content-disposition": f'attachment; filename="{document.name}"'}
    return Response(document.text, media_type=kind, headers=headers)


_ID = "/api/conversations/{id}"
ROUTES = (
    Route("GET", "/api/conversations", list_conversations, "List or search your conversations, newest first.",
          query=Listing, returns=ConversationPage),
    Route("POST", "/api/conversations", create, "Start a conversation.", body=NewConversation, returns=Created),
    Route("GET", _ID, show, "Show a conversation's state.", returns=Shown),
    Route("PATCH", _ID, rename, "Rename a conversation.", body=Title),
    Route("DELETE", _ID, delete, "Delete a conversation."),
    Route("GET", f"{_ID}/entries", entries, "Read what happened.", query=Range, returns=Entries),
    Route("GET", f"{_ID}/events", events, "Watch what happens, as server-sent events.", query=Range,
          media="text/event-stream"),
    Route("GET", f"{_ID}/media/{{message}}/{{index}}", media, "Download an image or a file of a message.",
          media="application/octet-stream"),
    Route("GET", f"{_ID}/export", download, "Download a conversation as Markdown or JSON.", query=Export,
          media="text/markdown"),
    Route("POST", f"{_ID}/messages", send, "Send a message.", body=NewMessage, returns=Sent),
    Route("POST", f"{_ID}/stop", stop, "Stop what is running.", returns=Stopped),
    Route("POST", f"{_ID}/resume", resume, "Continue an interrupted turn.", returns=Resumed),
    Route("POST", f"{_ID}/regenerate", regenerate, "Undo the last turn and send its message again.", returns=Sent),
    Route("POST", f"{_ID}/edit", edit, "Undo the last turn and send another text.", body=NewText, returns=Sent),
    Route("POST", f"{_ID}/undo", undo, "Undo the last turn."),
    Route("POST", f"{_ID}/fork", fork, "Start a conversation with the messages up to one.", body=Fork,
          returns=Created),
    Route("POST", f"{_ID}/engine", use_engine, "Choose the engine of the turns from now on.", body=EngineChoice),
    Route("GET", f"{_ID}/questions", questions, "List the open questions.", returns=tuple[Question, ...]),
    Route("POST", f"{_ID}/questions/{{question}}", answer, "Answer a question or an approval.", body=NewText,
          returns=Sent),
)  # fmt: skip
