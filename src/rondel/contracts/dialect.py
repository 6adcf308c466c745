"""The contract of a dialect: a wire format in four methods, without IO.

An engine uses `write_prompt` and `reply_reader`; the gateway uses `read_prompt` and `reply_writer`. If caller and model
speak the same dialect, the gateway can relay bytes, which needs `Passthrough`. No dialect is canonical: our values are.
Knows no network and no clock.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from ..errors import EngineError
from ..prompt import Prompt
from ..values import Delta, Media, ModelFacts, Opaque, Reply, ToolSpec, Usage

Json = dict[str, Any]
_SEALED = msgspec.json.Decoder(dict[str, Any])

UNSIGNED = "unsigned-by-rondel"
"""Replaces a provider's signature on thinking that came in another dialect. Callers send it back with their next
request; it is never sent to a provider."""
SIGNED_BY = "signed by"  # the key in the opaque of a thinking part that names the provider that signed it


def seal(opaque: Opaque, dialect: str) -> str:
    """Return what a caller of this dialect gets in place of a signature: the mark, followed by the signed data in the
    provider's own dialect. The caller keeps it in its conversation."""
    if SIGNED_BY not in opaque:
        return UNSIGNED
    signed = {name: kept for name, kept in opaque.items() if name != dialect}
    return f"{UNSIGNED}:{b64encode(msgspec.json.encode(signed)).decode()}"


def unseal(mark: str) -> Opaque | None:
    """Return the opaque that a caller sent back in place of a signature: empty if it cannot be read, None if this is a
    provider's signature."""
    if not mark.startswith(UNSIGNED):
        return None
    try:
        signed = _SEALED.decode(b64decode(mark[len(UNSIGNED) + 1 :], validate=True))
    except (binascii.Error, ValueError, RecursionError):  # what msgspec raises is a ValueError
        return {}
    signer = signed.pop(SIGNED_BY, None)
    if not isinstance(signer, str) or not all(isinstance(kept, dict) for kept in signed.values()):
        return {}
    return {**signed, SIGNED_BY: signer}


def headers_key(dialect: str) -> str:
    """Return the key in a prompt's opaque for the headers that its caller sent to a server of this dialect."""
    return f"{dialect} headers"


class ReplyReader(Protocol):
    """Reads one reply: `feed` and `finish` if it streams, `read_whole` if it does not, `read_error` for an error."""

    @property
    def failure(self) -> EngineError | None:
        """An error after the deltas of the last `feed`: an error event, or nonsense. Nothing follows it."""
        ...

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that these bytes complete; bytes may be split anywhere. Raises the failure if no text came
        before it in these bytes."""
        ...

    def finish(self) -> list[Delta]:
        """Return the last deltas after the upstream closed. Raises EngineGarbled if the answer had not ended."""
        ...

    def read_whole(self, body: Json) -> Reply: ...

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        """Return the error for a status and a body: what the provider said, and what to do."""
        ...


class ReplyWriter(Protocol):
    """Writes one reply: `feed` if it streams, `write_whole` or `write_error` if it does not. A stream has exactly one
    terminal event, whatever happens."""

    def feed(self, delta: Delta) -> bytes: ...

    def fail(self, error: EngineError) -> bytes:
        """End the stream with an error; nothing if it has ended already."""
        ...

    def ping(self) -> bytes:
        """Return bytes that keep the connection open and that clients ignore."""
        ...

    def write_whole(self, reply: Reply) -> Json: ...

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        """Return the status and the body of an error answer."""
        ...


class Dialect(Protocol):
    """Converts our values to a wire format and back. If a class also has the methods of Passthrough, its requests can
    be relayed."""

    name: str  # the key of its data in `opaque`: `openai-chat`, `openai-responses`, `anthropic`
    path: str  # where a prompt is posted, below the base URL, such as `/v1/messages`
    headers: Mapping[str, str]
    """Sent with each request. `{key}` stands for the key; without a key, a header that has it is left out."""
    messages_field: str
    """The field of a body that contains the messages. A history is written there as its parts would be, one after the
    other, unless a part begins with instructions, which some dialects write elsewhere, with the results of calls, which
    belong to those before them, or with a user's message after results with media."""

    def read_prompt(self, body: Json) -> Prompt:
        """Read a body. Raises PromptRejected with one clear sentence if it does not follow this dialect. Does not
        change the body, because other requests may share parts of it."""
        ...

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json: ...

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        """Return a reader. `tools` are the prompt's: calls get their tools' own names back if others were sent."""
        ...

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> ReplyWriter:
        """Return a writer. `prompt` is the caller's: some dialects repeat parts of it. `created_s` is the current
        time."""
        ...


@runtime_checkable
class ChecksAttachments(Protocol):
    """A dialect that cannot send every attachment, neither unchanged nor as text."""

    def carries(self, media: Media) -> bool: ...


@runtime_checkable
class AddsHeaders(Protocol):
    """A dialect with fields that are read only if a header announces them."""

    def headers_for(self, body: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a request, with what its body needs."""
        ...


class StreamMeter(Protocol):
    """Watches an answer that is relayed as bytes: whole events pass, and are read on the way."""

    model: str
    usage: Usage  # the usage so far; complete when the answer has ended
    token_seen: bool
    """Whether a part has begun, or the answer has ended well. Until then, another engine may still answer."""
    done: bool  # whether the last event has passed; nothing passes after it
    failure: EngineError | None
    """The error with which the stream ended: the upstream's own, which was passed on, or that of `fail`."""
    broken: EngineError | None  # nonsense after the last events that passed; `finish` raises it

    def feed(self, data: bytes) -> bytes:
        """Return the whole events that these bytes complete, unchanged. Raises an EngineError for an error event before
        the first token, and for nonsense, unless something of the answer came before it."""
        ...

    def finish(self) -> bytes:
        """Return what is still to be passed on after the upstream closed. Raises EngineGarbled if the answer had not
        ended."""
        ...

    def whole(self, body: bytes) -> None:
        """Read an answer that did not stream. Raises an EngineError if it is an error, or not an answer."""

    def fail(self, error: EngineError) -> bytes:
        """Return the event that ends a running stream with an error; nothing if it has ended already."""
        ...


@runtime_checkable
class Passthrough(Protocol):
    """What the byte relay needs from a dialect in addition. Without it, requests are always parsed and written
    again."""

    def meter(self, fields: dict[str, msgspec.Raw]) -> StreamMeter:
        """Return a meter for the answer to a request. Edits the fields if the answer would otherwise not be metered."""
        ...

    def takes(self, fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
        """Return whether a model with these facts takes the fields unchanged. If not, the request is parsed and written
        again."""
        ...

    def edit_images(self, messages: object, edit: Callable[[Media], Media]) -> None:
        """Replace each image in the decoded messages of a body by the result of `edit`. Everything else stays
        unchanged, even if it does not follow this dialect."""


def passthrough(dialect: Dialect) -> Passthrough | None:
    # isinstance(dialect, Passthrough) takes many times as long, and this is asked for each request.
    return cast(Passthrough, dialect) if hasattr(dialect, "meter") else None
