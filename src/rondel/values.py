"""The values that travel through Rondel: parts, messages, prompts' options, replies and their deltas.

Everything here is frozen. Knows no network, no clock, no store, and no vendor: data that only one wire format
understands is in `opaque[dialect]`, which the same dialect writes back unchanged and all others ignore.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

_encode = msgspec.json.Encoder().encode

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "error"]
ROLES = ("system", "user", "assistant", "tool", "error")
StopReason: TypeAlias = Literal["end", "calls", "length", "stop_sequence", "refusal", "pause", "interrupted"]
MediaKind: TypeAlias = Literal["image", "audio", "file"]
Feature: TypeAlias = Literal["vision", "voice", "transcription"]
ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high"]

Opaque: TypeAlias = dict[str, Any]  # data that our values have no fields for, by the dialect's name


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The base of every value: frozen, compared by content, small on disk.

    Frozen values form no cycles, so the garbage collector need not track them, which would be most of its work with
    thousands of conversations in memory.
    """


class Person(Value, frozen=True):
    """An author of messages on any surface: a user of this machine, the holder of a key, a user of a chat service."""

    id: str
    name: str = ""
    roles: tuple[str, ...] = ()
    origin: str = "local"


class Citation(Value, frozen=True):
    """A source: of a claim in an answer, or of a passage that a model was given.

    It is at a web address (`url`) or in a file (`path`). `start` and `end` count characters of the text that cites it,
    if they are known. A text with markers refers to it as `[number]`; 0 means that the text has no marker for it.
    """

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None
    opaque: Opaque = {}
    path: str = ""
    line: int | None = None  # from 1
    page: int | None = None  # from 1
    number: int = 0

    @property
    def address(self) -> str:
        """The web address, or the path with its line or page: `guide.md:12`, `manual.pdf#page=3`."""
        if self.url or not self.path:
            return self.url
        if self.page is not None:
            return f"{self.path}#page={self.page}"
        return self.path if self.line is None else f"{self.path}:{self.line}"


class Text(Value, frozen=True, tag="text"):
    """Text of a message. `refusal` marks a model's refusal."""

    text: str
    refusal: bool = False
    citations: tuple[Citation, ...] = ()
    opaque: Opaque = {}


class Thinking(Value, frozen=True, tag="thinking"):
    """What the model thought. Signatures, redacted and encrypted thinking are opaque; `text` may then be empty."""

    text: str = ""
    opaque: Opaque = {}


class ToolCall(Value, frozen=True, tag="call"):
    """A model calls a tool. `broken` has the arguments as they came if they are not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    broken: str = ""
    parallel: bool = True
    opaque: Opaque = {}


class Media(Value, frozen=True, tag="media"):
    """An image, a sound or a file: by `url`, by `data`, or by the `file_id` that a provider gave it."""

    kind: MediaKind
    mime: str = ""
    data: bytes = b""
    url: str = ""
    file_id: str = ""
    name: str = ""
    opaque: Opaque = {}


class Handoff(Value, frozen=True, tag="handoff"):
    """Control goes to another agent of the app. A tool may return it."""

    agent: str
    reason: str = ""


class ToolResult(Value, frozen=True, tag="result"):
    """The result of a call. `final` ends the turn with this text as its answer (the finish tool); with a `handoff`
    another agent answers when all calls of the round have results."""

    call_id: str
    parts: tuple[Text | Media, ...] = ()
    name: str = ""
    is_error: bool = False
    final: bool = False
    opaque: Opaque = {}
    handoff: Handoff | None = None

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return text_of(self.parts)


class Foreign(Value, frozen=True, tag="foreign"):
    """A block that only its own dialect understands, such as a server tool's call. Other dialects leave it out."""

    opaque: Opaque


Part: TypeAlias = Text | Thinking | ToolCall | ToolResult | Media | Handoff | Foreign


class Message(Value, frozen=True, tag="message"):
    """One message of a transcript.

    `duration` is the number of rounds in which models get it: None is always, 0 is never (it is stored and shown).
    `shown` is whether people see it.
    """

    role: Role
    parts: tuple[Part, ...] = ()
    id: str = ""
    author: str = ""
    duration: int | None = None
    opaque: Opaque = {}
    shown: bool = True

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in it."""
        return tuple([part for part in self.parts if type(part) is ToolCall])


class Messages(tuple[Message, ...]):
    """A tuple that contains only messages; its type says so, so that ten thousand need not be checked."""

    __slots__ = ()


def text_of(parts: Iterable[Part]) -> str:
    return "".join([part.text for part in parts if type(part) is Text])


def size_of(parts: Iterable[Part]) -> int:
    """Return the approximate memory of texts and files: their characters and bytes."""
    size = 0
    for part in parts:
        # Types are compared: isinstance takes several times as long for a struct of another type.
        if type(part) is Text:
            size += len(part.text)
        elif type(part) is Media:
            size += len(part.data)
        elif type(part) is ToolResult:
            size += size_of(part.parts)
    return size


def system(text: str, **fields: Any) -> Message:
    """Return a system message."""
    return Message("system", (Text(text),), **fields)


def user(*content: str | Text | Media, **fields: Any) -> Message:
    """Return a user's message of texts and media."""
    return Message("user", tuple(Text(c) if isinstance(c, str) else c for c in content), **fields)


def assistant(*content: str | Part, **fields: Any) -> Message:
    """Return a model's message."""
    return Message("assistant", tuple(Text(c) if isinstance(c, str) else c for c in content), **fields)


class Example(Value, frozen=True):
    """An example call of a tool. `asked` is what a person says before it; `result` is what the tool returns, and `said`
    what the model then says. Small models follow examples better than descriptions."""

    arguments: dict[str, Any] = {}
    asked: str = ""
    result: str = ""
    said: str = ""


class ToolSpec(Value, frozen=True):
    """What a model is told about a tool. A server tool of one dialect has an empty schema and its own opaque."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    """The JSON schema of its arguments."""
    strict: bool | None = None
    opaque: Opaque = {}
    examples: tuple[Example, ...] = ()
    """For embedded models; no dialect sends them."""


class OutputSchema(Value, frozen=True):
    """The reply must be JSON of this schema."""

    schema: dict[str, Any]
    name: str = "output"
    description: str = ""
    strict: bool | None = None


TokenCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Options(Value, frozen=True):
    """The options of an engine call. None means the model's own default."""

    tokens_max: TokenCount | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    thinking: ThinkingLevel | None = None
    thinking_tokens_max: TokenCount | None = None
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or `tool:<name>` for one tool."""
    parallel_calls: bool | None = None
    output: OutputSchema | None = None
    user: str = ""


class Usage(Value, frozen=True):
    """Tokens of one engine call. `tokens_in` counts all input, cached and cache-written tokens included."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_cache_written: int = 0
    tokens_reasoning: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tokens_cached + other.tokens_cached,
            self.tokens_cache_written + other.tokens_cache_written,
            self.tokens_reasoning + other.tokens_reasoning,
            self.estimated or other.estimated,
        )


NO_USAGE = Usage()


class Reply(Value, frozen=True):
    """The result of one engine call, and where control goes next: `human`, `self`, `agent:<id>`, or `again`.

    With `self`, `next_message` is a user message that a plugin adds before the next round. With `again`, this reply is
    discarded and the engine is asked again.
    """

    message: Message
    stop: StopReason = "end"
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    opaque: Opaque = {}
    next: str = "human"
    next_message: Message | None = None
    engine: str = ""
    """The engine that answered, if it is not the one that was asked."""

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return self.message.text

    def with_text(self, text: str) -> Reply:
        """Return the reply with other text; thinking, calls and media stay."""
        others = tuple(part for part in self.message.parts if not isinstance(part, Text))
        thinking = tuple(part for part in others if isinstance(part, Thinking))
        rest = others[len(thinking) :]
        parts = (*thinking, *((Text(text),) if text else ()), *rest)
        return msgspec.structs.replace(self, message=msgspec.structs.replace(self.message, parts=parts))


# --- deltas: a reply while it streams ---------------------------------------------------------------------------------
#
# ReplyStarted, then for each part PartStarted, PartDelta* or MediaDelta*, PartFinished, then ReplyFinished. Parts may
# overlap (two tool calls in pieces); an index names the part. PartFinished has the whole part and is authoritative.


class ReplyStarted(Value, frozen=True, tag="reply_started"):
    """A reply begins."""

    model: str = ""
    id: str = ""
    usage: Usage | None = None
    engine: str = ""
    """The engine that answered, if it is not the one that was asked."""


class PartStarted(Value, frozen=True, tag="part_started"):
    """A part begins. `part` has what is known: a call's id and name, an empty text, or the beginning of a sentence that
    an earlier round has shown."""

    index: int
    part: Part


class PartDelta(Value, frozen=True, tag="part_delta"):
    """More of a part: of its text, its thinking, or of the JSON text of a call's arguments."""

    index: int
    text: str


class MediaDelta(Value, frozen=True, tag="media_delta"):
    """More of an image or a sound: the next bytes of a `Media` part. `mime` may be left out if the part has it."""

    index: int
    data: bytes
    mime: str = ""


class PartFinished(Value, frozen=True, tag="part_finished"):
    """A part is complete. This has the whole part, whatever the deltas said."""

    index: int
    part: Part


class ReplyFinished(Value, frozen=True, tag="reply_finished"):
    """The reply is complete: why it ended, and its tokens."""

    stop: StopReason = "end"
    usage: Usage = Usage()
    opaque: Opaque = {}


class Notice(Value, frozen=True, tag="notice"):
    """Something for a person who waits, such as a retry. Not part of the reply.

    `lost` names the engine of each attempt that failed after it may have reached a model; the ledger charges the input
    of each.
    """

    text: str
    lost: tuple[str, ...] = ()


Delta: TypeAlias = ReplyStarted | PartStarted | PartDelta | MediaDelta | PartFinished | ReplyFinished | Notice


NOTICES_MAX = 20  # notices that are stored with a reply
NOTICE_CHARS_MAX = 1_000  # characters of each


class ReplyBuilder:
    """Folds deltas into a Reply. `reply` can be called at any time: a stopped turn keeps what was received."""

    def __init__(self) -> None:
        self._parts: dict[int, Part] = {}
        self._kinds: dict[int, Part] = {}
        self._pieces: dict[int, list[str]] = {}
        self._media: dict[int, list[MediaDelta]] = {}
        self._model = self._id = self._engine = ""
        self._stop: StopReason = "end"
        self._usage = NO_USAGE
        self._opaque: Opaque = {}
        self.finished = False
        self.notices: list[str] = []
        """The notices for people who waited for the reply."""

    def add(self, delta: Delta) -> None:
        """Add the next delta."""
        if type(delta) is PartDelta:
            self._pieces[delta.index].append(delta.text)
        elif type(delta) is PartStarted:
            self._kinds[delta.index] = delta.part
            self._pieces[delta.index] = []
        elif type(delta) is PartFinished:
            self._parts[delta.index] = delta.part
            self._pieces.pop(delta.index, None)
            self._media.pop(delta.index, None)
        elif type(delta) is ReplyStarted:
            self._model, self._id, self._engine = delta.model, delta.id, delta.engine
            if delta.usage is not None:
                self._usage = delta.usage
        elif type(delta) is ReplyFinished:
            self._stop, self._usage, self._opaque = delta.stop, delta.usage, delta.opaque
            self.finished = True
        elif type(delta) is MediaDelta:
            self._media.setdefault(delta.index, []).append(delta)
        elif type(delta) is Notice and len(self.notices) < NOTICES_MAX:
            self.notices.append(delta.text[: 2 * NOTICE_CHARS_MAX])

    def so_far(self) -> Iterable[Delta]:
        """Yield the deltas that a watcher who starts now needs to understand the next ones."""
        for index, part in self._kinds.items():
            yield PartStarted(index, part)
            if text := "".join(self._pieces.get(index, ())):
                yield PartDelta(index, text)
            if (whole := self._parts.get(index)) is not None:
                yield PartFinished(index, whole)

    def reply(self) -> Reply:
        """Return the reply so far. If it was cut off, unfinished calls are left out."""
        parts = dict(self._parts)
        for index, pieces in self._pieces.items():
            part, text = self._kinds[index], "".join(pieces)
            if isinstance(part, (Text, Thinking)) and (part.text or text):
                parts[index] = msgspec.structs.replace(part, text=part.text + text)
        for index, deltas in self._media.items():
            part = self._kinds[index]
            if isinstance(part, Media):
                data = part.data + b"".join([delta.data for delta in deltas])
                parts[index] = msgspec.structs.replace(part, data=data, mime=part.mime or deltas[0].mime)
        stop = self._stop if self.finished else "interrupted"
        message = Message("assistant", tuple([parts[index] for index in sorted(parts)]))
        return Reply(
            message,
            stop=stop,
            usage=self._usage,
            model=self._model,
            id=self._id,
            opaque=self._opaque,
            engine=self._engine,
        )


class Played(Value, frozen=True):
    """How much of a reply a person has seen or heard before stopping it."""

    chars: int | None = None
    """Characters of its text."""
    ms: int | None = None
    """Milliseconds of its audio."""

    def cut(self, message: Message) -> Message:
        """Return the message with only this part of its text."""
        if self.chars is None:
            return message
        left, parts = self.chars, list[Part]()
        for part in message.parts:
            if isinstance(part, Text):
                part, left = msgspec.structs.replace(part, text=part.text[:left]), max(0, left - len(part.text))
                if not part.text:
                    continue
            parts.append(part)
        return msgspec.structs.replace(message, parts=tuple(parts))


def deltas_of(reply: Reply) -> Iterable[Delta]:
    """Yield the deltas that would have built a reply."""
    yield ReplyStarted(reply.model, reply.id, engine=reply.engine)
    for index, part in enumerate(reply.message.parts):
        if isinstance(part, (Text, Thinking)):
            yield PartStarted(index, msgspec.structs.replace(part, text=""))
            if part.text:
                yield PartDelta(index, part.text)
        elif isinstance(part, ToolCall):
            yield PartStarted(index, msgspec.structs.replace(part, arguments={}, broken=""))
            if text := part.broken or arguments_json(part.arguments):
                yield PartDelta(index, text)
        else:
            yield PartStarted(index, part)
        yield PartFinished(index, part)
    yield ReplyFinished(reply.stop, reply.usage, reply.opaque)


def arguments_json(arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as JSON; an empty text if they are nested too deeply to be encoded."""
    try:
        return _encode(arguments).decode()
    except RecursionError:
        return ""


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and mappings are nested deeper than this many levels. Not recursive."""
    containers = [value]
    for _ in range(levels):
        containers = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list, tuple))
        ]
        if not containers:
            return False
    return True


class ModelFacts(Value, frozen=True):
    """Data about a model. Unknown is None, never a guess."""

    window_tokens: int | None = None
    output_tokens_max: int | None = None
    tools: bool = True
    images: bool = False
    files: bool = False
    thinking: bool | None = None
    output_schema: bool = False
    image_urls: bool = True
    """Whether it takes images by their address. If not, they are fetched first."""
    thinking_effort: bool = True
    """Whether thinking takes an effort (Anthropic's `adaptive`). If not, only a budget of tokens."""
    thinking_budget: bool = True
    """Whether thinking takes a budget of tokens (Anthropic's `enabled`). If not, only an effort."""
    thinking_strict: bool = False
    """Whether thinking excludes sampling options and a required call."""
    sampling: bool = True
    """Whether it takes `temperature`, `top_p` and `top_k`."""
    remote_mcp: bool = False
    """Whether its provider connects to MCP servers itself (OpenAI's and Anthropic's own form)."""
    small: bool = False
    """Whether it is a small model: it works best with few tools, and with the time in its prompt."""
    web_search: bool = False
    """Whether its server can search the web by itself."""
    voice: bool = False
    """Whether it holds spoken conversations: it hears and speaks in one session."""
    transcription: bool = False
    """Whether it turns speech into text."""

    @property
    def features(self) -> frozenset[Feature]:
        """What a surface can offer with it in addition to text and tools."""
        has: dict[Feature, bool] = {
            "vision": self.images,
            "voice": self.voice,
            "transcription": self.transcription,
        }
        return frozenset(name for name, there in has.items() if there)


class Outcome(StrEnum):
    """How a turn ended."""

    DONE = "done"
    LIMITED = "limited"
    """A limit ended the turn: `TurnFinished.reason` is the sentence, `LimitHit` has the limit's name."""
    WAITING = "waiting"
    """It waits for a person's answer, which resumes it."""
    FAILED = "failed"
    STOPPED = "stopped"


class AgentResult(Value, frozen=True):
    """The result of an agent. `ran` is False if no model was asked: the prompt was blank, or a limit was reached.

    `output` is the text of this turn. With an `error`, it is the text before the error, and may be empty.
    """

    output: str = ""
    error: str = ""
    ran: bool = True
    agent: str = ""
    data: Any = None
    """The output as JSON, if the agent has an output schema."""
    limit: str = ""
    """The name of the limit that ended the turn, such as `limits.rounds`; `error` has the sentence."""
    outcome: Outcome = Outcome.DONE
    usage: Usage = Usage()
    """The tokens of this agent's own rounds; agents that worked for it have their own."""
    citations: tuple[Citation, ...] = ()
    """The sources that the output refers to as `[number]`."""

    def __str__(self) -> str:
        if self.error and self.outcome is Outcome.WAITING:
            return f"[{self.agent} is {self.error}]"
        return f"[{self.agent} failed: {self.error}]" if self.error else self.output
