"""The values that travel through Rondel: parts, messages, prompts' options, replies and their deltas.

Everything here is frozen and pure. Knows no network, no clock, no store, and no vendor: what only one wire format
understands rides in `opaque[dialect]`, which the same dialect writes back unchanged and every other ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "error"]
ROLES = ("system", "user", "assistant", "tool", "error")
StopReason: TypeAlias = Literal["end", "calls", "length", "stop_sequence", "refusal", "pause", "interrupted"]
MediaKind: TypeAlias = Literal["image", "audio", "file"]

Opaque: TypeAlias = dict[str, Any]
"""What a dialect knows and our values do not, by the dialect's name."""


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The base of every value: frozen, compared by content, small on disk.

    Frozen values form no cycles, so the garbage collector need not look at them: with thousands of conversations in
    memory that is most of its work.
    """


class Citation(Value, frozen=True):
    """Where a text's claim comes from. `start` and `end` count characters of the text, where they are known."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None
    opaque: Opaque = {}


class Text(Value, frozen=True, tag="text"):
    text: str
    refusal: bool = False
    citations: tuple[Citation, ...] = ()
    opaque: Opaque = {}


class Thinking(Value, frozen=True, tag="thinking"):
    """What the model thought. Signatures, redacted and encrypted thinking are opaque; `text` may then be empty."""

    text: str = ""
    opaque: Opaque = {}


class ToolCall(Value, frozen=True, tag="call"):
    """A model wants a tool. `broken` holds the arguments as they came when they are not a JSON object."""

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


class ToolResult(Value, frozen=True, tag="result"):
    """What a call gave. `final` ends the turn with this text as its answer (the finish tool)."""

    call_id: str
    parts: tuple[Text | Media, ...] = ()
    name: str = ""
    is_error: bool = False
    final: bool = False
    opaque: Opaque = {}

    @property
    def text(self) -> str:
        return text_of(self.parts)


class Handoff(Value, frozen=True, tag="handoff"):
    """Control went to another agent."""

    agent: str
    reason: str = ""


class Foreign(Value, frozen=True, tag="foreign"):
    """A block that only its own dialect understands (a server tool's call, say). Other dialects leave it out."""

    opaque: Opaque


Part: TypeAlias = Text | Thinking | ToolCall | ToolResult | Media | Handoff | Foreign


class Message(Value, frozen=True, tag="message"):
    """One message of a transcript.

    `duration` is how many rounds it is sent to models: none is always, 0 is never (it is kept and shown all the same).
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
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


class Messages(tuple[Message, ...]):
    """Messages and nothing else: who is given ten thousand of them need not look at each."""

    __slots__ = ()


def text_of(parts: Iterable[Part]) -> str:
    """The plain text of some parts, joined with nothing between them."""
    return "".join([part.text for part in parts if isinstance(part, Text)])


def system(text: str, **fields: Any) -> Message:
    return Message("system", (Text(text),), **fields)


def user(*content: str | Text | Media, **fields: Any) -> Message:
    return Message("user", tuple(Text(c) if isinstance(c, str) else c for c in content), **fields)


def assistant(*content: str | Part, **fields: Any) -> Message:
    return Message("assistant", tuple(Text(c) if isinstance(c, str) else c for c in content), **fields)


class ToolSpec(Value, frozen=True):
    """What a model is told about a tool. A server tool of one dialect has an empty schema and its own opaque."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    strict: bool | None = None
    opaque: Opaque = {}


class OutputSchema(Value, frozen=True):
    """The reply must be JSON of this schema."""

    schema: dict[str, Any]
    name: str = "output"
    description: str = ""
    strict: bool | None = None


class Options(Value, frozen=True):
    """How a model is asked. None leaves it to the model's own default."""

    tokens_max: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    thinking: Literal["off", "minimal", "low", "medium", "high"] | None = None
    thinking_tokens_max: int | None = None
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or `tool:<name>` for that very tool."""
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
    """What one engine call gave, and where control goes next: `human`, `self`, `agent:<id>`, or `again`.

    With `self`, `next_message` is a user message that the plugin puts before the next round. With `again` this reply is
    thrown away and the same question is asked once more.
    """

    message: Message
    stop: StopReason = "end"
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    opaque: Opaque = {}
    next: str = "human"
    next_message: Message | None = None

    @property
    def text(self) -> str:
        return self.message.text

    def with_text(self, text: str) -> Reply:
        """The same reply with its text replaced; thinking, calls and media stay."""
        others = tuple(part for part in self.message.parts if not isinstance(part, Text))
        thinking = tuple(part for part in others if isinstance(part, Thinking))
        rest = others[len(thinking) :]
        parts = (*thinking, *((Text(text),) if text else ()), *rest)
        return msgspec.structs.replace(self, message=msgspec.structs.replace(self.message, parts=parts))


# --- deltas: a reply while it streams ---------------------------------------------------------------------------------
#
# ReplyStarted, then for each part PartStarted, PartDelta*, PartFinished, then ReplyFinished. Parts may overlap (two
# tool calls in pieces); an index names the part. PartFinished carries the whole part and is authoritative.


class ReplyStarted(Value, frozen=True, tag="reply_started"):
    model: str = ""
    id: str = ""
    usage: Usage | None = None


class PartStarted(Value, frozen=True, tag="part_started"):
    """A part begins. `part` has what is known: a call's id and name, an empty text, or the beginning of a sentence that
    an earlier round of the turn has shown."""

    index: int
    part: Part


class PartDelta(Value, frozen=True, tag="part_delta"):
    """More of a part: of its text, its thinking, or of the JSON text of a call's arguments."""

    index: int
    text: str


class PartFinished(Value, frozen=True, tag="part_finished"):
    index: int
    part: Part


class ReplyFinished(Value, frozen=True, tag="reply_finished"):
    stop: StopReason = "end"
    usage: Usage = Usage()
    opaque: Opaque = {}


class Notice(Value, frozen=True, tag="notice"):
    """Something that a person who waits wants to know (a retry, a model being loaded). Not part of the reply."""

    text: str


Delta: TypeAlias = ReplyStarted | PartStarted | PartDelta | PartFinished | ReplyFinished | Notice


class ReplyBuilder:
    """Folds deltas into a Reply. What was received so far can be taken at any time (a stopped turn keeps it)."""

    __slots__ = ("_id", "_kinds", "_model", "_opaque", "_parts", "_pieces", "_stop", "_usage", "finished")

    def __init__(self) -> None:
        self._parts: dict[int, Part] = {}
        self._kinds: dict[int, Part] = {}
        self._pieces: dict[int, list[str]] = {}
        self._model = self._id = ""
        self._stop: StopReason = "end"
        self._usage = NO_USAGE
        self._opaque: Opaque = {}
        self.finished = False

    def add(self, delta: Delta) -> None:
        if type(delta) is PartDelta:
            self._pieces[delta.index].append(delta.text)
        elif isinstance(delta, PartStarted):
            self._kinds[delta.index] = delta.part
            self._pieces[delta.index] = []
        elif isinstance(delta, PartFinished):
            self._parts[delta.index] = delta.part
            self._pieces.pop(delta.index, None)
        elif isinstance(delta, ReplyStarted):
            self._model, self._id = delta.model, delta.id
            if delta.usage is not None:
                self._usage = delta.usage
        elif isinstance(delta, ReplyFinished):
            self._stop, self._usage, self._opaque = delta.stop, delta.usage, delta.opaque
            self.finished = True

    def reply(self) -> Reply:
        """The reply so far. A reply that was cut off keeps its text and thinking; half a call is left out."""
        parts = dict(self._parts)
        for index, pieces in self._pieces.items():
            part, text = self._kinds[index], "".join(pieces)
            if isinstance(part, (Text, Thinking)) and (part.text or text):
                parts[index] = msgspec.structs.replace(part, text=part.text + text)
        stop = self._stop if self.finished else "interrupted"
        message = Message("assistant", tuple(parts[index] for index in sorted(parts)))
        return Reply(message, stop=stop, usage=self._usage, model=self._model, id=self._id, opaque=self._opaque)


def deltas_of(reply: Reply) -> Iterable[Delta]:
    """A whole reply as the deltas that would have built it."""
    yield ReplyStarted(reply.model, reply.id)
    for index, part in enumerate(reply.message.parts):
        yield PartStarted(index, msgspec.structs.replace(part, text="") if isinstance(part, (Text, Thinking)) else part)
        if isinstance(part, (Text, Thinking)) and part.text:
            yield PartDelta(index, part.text)
        yield PartFinished(index, part)
    yield ReplyFinished(reply.stop, reply.usage, reply.opaque)


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
    """Images may be given by their address. Where not, they are fetched first."""


class AgentResult(Value, frozen=True):
    """What running an agent gave. `ran` is False when the prompt was blank and no model was asked."""

    output: str = ""
    error: str = ""
    ran: bool = True
    agent: str = ""
    data: Any = None
    """The output as JSON, where the agent has an output schema."""

    def __str__(self) -> str:
        return f"[{self.agent} failed: {self.error}]" if self.error else self.output
