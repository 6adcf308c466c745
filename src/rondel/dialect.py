"""The contract of a dialect: a wire format as four pure functions (and their not-streaming twins), no IO.

An engine uses `write_prompt` and `reply_reader`; the gateway uses `read_prompt` and `reply_writer`. What a caller and a
model both understand is passed on as bytes, past a `meter`. No dialect is canonical: our values are. Knows no network
and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .errors import EngineError
from .prompt import Prompt
from .values import Delta, Media, Reply, ToolSpec, Usage

Json = dict[str, Any]

UNSIGNED = "unsigned-by-rondel"
"""Stands where a provider's signature would, on what a model of another dialect thought. A caller sends that again with
its next request, and no provider takes it for its own: it is passed on to none."""


def headers_key(dialect: str) -> str:
    """Where a prompt's opaque has the headers that its caller sent for a server of this dialect."""
    return f"{dialect} headers"


class Again(list[Any]):
    """The new objects of a list whose beginning came before. `made` is what was made of that: whoever reads the new
    ones adds to it what it makes of them, and then nobody may change it. `kept` says whether that is remembered."""

    __slots__ = ("kept", "made")

    def __init__(self, new: list[Any], made: list[Any], *, kept: bool = True) -> None:
        super().__init__(new)
        self.made, self.kept = made, kept


class ReplyReader(Protocol):
    """Reads the bytes of a streamed answer, split anywhere, into deltas."""

    @property
    def failure(self) -> EngineError | None:
        """What was wrong behind the words that were given last: an error event, or nonsense. Nothing comes after it."""
        ...

    def feed(self, data: bytes) -> list[Delta]:
        """The deltas that these bytes complete. Raises the failure, where no words come before it."""
        ...

    def finish(self) -> list[Delta]:
        """The upstream closed: the last deltas. Raises EngineGarbled when the answer had not ended."""
        ...


class ReplyWriter(Protocol):
    """Writes deltas as the bytes of a streamed answer. Exactly one terminal event, whatever happens."""

    def feed(self, delta: Delta) -> bytes: ...

    def fail(self, error: EngineError) -> bytes:
        """The stream ends with an error in the caller's own envelope."""
        ...

    def ping(self) -> bytes:
        """Something that keeps the connection open and that a client ignores."""
        ...


class Meter(Protocol):
    """Watches an answer that is passed on as bytes: whole events pass, and what they tell is read on the way."""

    model: str
    usage: Usage
    """What is known of it so far; complete when the answer has ended."""
    token_seen: bool
    """Something of the answer has come: a part began, or it has ended well. Before that, another attempt may answer."""
    done: bool
    """The last event has passed. Nothing passes after it."""
    failure: EngineError | None
    """The error with which the stream ended: the upstream's own, which was passed on, or that of `fail`."""
    broken: EngineError | None
    """What was wrong behind the events that passed last: nonsense. `finish` raises it."""

    def feed(self, data: bytes) -> bytes:
        """The whole events that these bytes complete, as they came. Raises an EngineError for an error event before the
        first token, and for nonsense, unless something of the answer stands before it."""
        ...

    def finish(self) -> bytes:
        """The upstream closed: what is still to be passed on. Raises EngineGarbled when the answer had not ended."""
        ...

    def whole(self, body: bytes) -> None:
        """Read an answer that did not stream. Raises an EngineError when it is none, or an error."""
        ...

    def fail(self, error: EngineError) -> bytes:
        """The event that ends a stream that is under way with an error; nothing when it has ended already."""
        ...


class Dialect(Protocol):
    name: str
    """The key under which its opaque data rides: `openai-chat`, `openai-responses`, `anthropic`."""
    path: str
    """Where a prompt is posted, below the base URL, such as `/v1/messages`."""

    messages_field: str
    """The field of a body that holds the messages. What is written there for a history is what is written for its
    parts, one after the other, unless a part begins with instructions, which some dialects write elsewhere, or with
    the results of calls, which belong to those before them."""

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json: ...

    def decode_messages(self, data: bytes) -> list[Any]:
        """The messages of a body, a list, for `read_prompt`: objects as JSON has them, or in any form that is quicker
        to read. Raises what msgspec raises."""
        ...

    def read_prompt(self, body: Json) -> Prompt:
        """Raises PromptRejected with one clear sentence when the body is not what this dialect says."""
        ...

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        """`tools` are those of the prompt: a call has its tool's own name, whatever is sent for it."""
        ...

    def reply_writer(self, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0) -> ReplyWriter:
        """`prompt` is the caller's: what it asked for decides what some dialects send. `created_s` is the time now."""
        ...

    def read_reply(self, body: Json, tools: tuple[ToolSpec, ...] = ()) -> Reply: ...

    def write_reply(
        self, reply: Reply, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0
    ) -> Json: ...

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        """The error that an answer with this status means, with what the provider said and what to do."""
        ...

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        """The status and the body that tell a caller of an error."""
        ...

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        """For the answer to a request with these fields. Edits them where the answer would otherwise not be metered."""
        ...

    def write_failure(self, error: EngineError) -> bytes:
        """The event that ends a stream that is under way with an error, for a caller of whose stream nothing else is
        known; `Meter.fail` and `ReplyWriter.fail` know more."""
        ...

    def edit_images(self, messages: Any, edit: Callable[[Media], Media]) -> None:
        """Put what `edit` makes of each image in its place in `messages`, which are those of a body that is passed on:
        all else in them stays as it is, also what is not as this dialect says."""
        ...

    def headers(self, key: str) -> dict[str, str]:
        """How this dialect carries a key, and the version that it speaks."""
        ...
