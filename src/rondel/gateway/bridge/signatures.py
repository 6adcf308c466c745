"""Stores signed thinking between requests for callers whose dialect cannot carry it.

Providers sign their models' thinking and expect it back before the calls that followed it. Callers of the Messages and
the Responses API send it themselves (`dialect.seal`). The Chat API has no field for it: it is stored under the caller's
key and a hash of the reply, and put back when the caller sends the reply again. Signed thinking goes only to the
provider that signed it. Knows nothing of the wire format except the fields of signatures.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, cast

import msgspec

from ...contracts.clock import Clock
from ...contracts.dialect import SIGNED_BY
from ...contracts.store import Store
from ...errors import StoreError
from ...machine.rewriting import Run, rewrite_runs
from ...prompt import Prompt
from ...values import Message, Part, Thinking, Value

log = logging.getLogger("rondel.gateway")

NAMESPACE = "gateway.thinking"
KEPT_MAX = 10_000  # how many replies' thinking is stored; the oldest is removed first
KEPT_BYTES_MAX = 256 * 1024  # longer thinking of one reply is not stored
KEPT_S = 7 * 24 * 3600.0
CACHE_BYTES_MAX = 16 * 1024 * 1024  # how much of it is cached in memory; the rest is read from the store
SIGNING = ("anthropic", "openai-responses")
"""Providers of these dialects sign thinking, and callers who speak one of them send it back themselves."""
_SIGNATURES = ("signature", "encrypted_content", "data")  # the fields that hold what a provider signed or encrypted


class SignedThinking(Value, frozen=True):
    parts: tuple[tuple[int, Thinking], ...]  # the index of each in its reply, and the part
    others: int  # how many other parts the reply has


def stamped(part: Part, signer: str) -> Part:
    """Return a reply's part with the name of the provider that signed it, if it is signed."""
    if isinstance(part, Thinking) and any(map(_is_signed, part.opaque.values())):
        return msgspec.structs.replace(part, opaque={**part.opaque, SIGNED_BY: signer})
    return part


def _is_signed(kept: object) -> bool:
    return isinstance(kept, dict) and any(cast("dict[str, Any]", kept).get(field) for field in _SIGNATURES)


def all_stamped(messages: Iterable[Message], signer: str) -> tuple[Message, ...]:
    return tuple(
        msgspec.structs.replace(message, parts=tuple(stamped(part, signer) for part in message.parts))
        for message in messages
    )


def signed_by(prompt: Prompt, signer: str) -> Prompt:
    """Return the prompt without the signatures of other providers."""

    def rewritten(message: Message) -> Message:
        if message.role != "assistant" or not any(_is_foreign(part, signer) for part in message.parts):
            return message
        parts = [Thinking(cast(Thinking, p).text) if _is_foreign(p, signer) else p for p in message.parts]
        return msgspec.structs.replace(message, parts=tuple(parts))

    return rewrite_runs(prompt, lambda run: tuple(map(rewritten, run)))


def _is_foreign(part: Part, signer: str) -> bool:
    return isinstance(part, Thinking) and part.opaque.get(SIGNED_BY, signer) != signer


class Signatures:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: OrderedDict[str, bytes] = OrderedDict()
        """What is stored, oldest first; empty bytes for what must be read from the store."""
        self._cached = 0
        self._loaded = False

    async def remember(self, key: str, dialect: str, signer: str, said: tuple[Message, ...]) -> None:
        """Store the signed thinking of a reply for a caller who cannot send it back."""
        if dialect in SIGNING or len(said) != 1 or said[0].role != "assistant":
            return  # `HiddenRounds` stores replies of several rounds
        parts = [stamped(part, signer) for part in said[0].parts]
        thought = [(n, part) for n, part in enumerate(parts) if isinstance(part, Thinking) and SIGNED_BY in part.opaque]
        if not thought:
            return
        others = sum(not isinstance(part, Thinking) for part in parts)
        data = msgspec.json.encode(SignedThinking(tuple(thought), others))
        if len(data) > KEPT_BYTES_MAX:
            return
        await self._load()
        store_key = _store_key(key, said[0])
        self._cache(store_key, data)
        try:
            await self._store.put(NAMESPACE, store_key, data, until=self._clock.now() + KEPT_S)
            while len(self._known) > KEPT_MAX:
                oldest, cached = self._known.popitem(last=False)
                self._cached -= len(cached)
                await self._store.remove(NAMESPACE, oldest)
        except StoreError as error:  # the answer is complete and must not fail because of this
            log.warning("could not store the model's signed thinking for the caller's next request: %s", error)

    async def restore(self, key: str, dialect: str, prompt: Prompt) -> Prompt:
        """Return the prompt with the signed thinking put back into its replies."""
        if dialect in SIGNING:
            return prompt
        await self._load()
        replies = [message for message in prompt.messages if message.role == "assistant"]
        found: dict[str, SignedThinking] = {}
        for message in replies:
            store_key = _store_key(key, message)
            # Another process may have stored the newest reply's, so that is looked up in any case.
            if (store_key in self._known or message is replies[-1]) and (
                kept := await self._find(store_key)
            ) is not None:
                found[store_key] = kept
        if not found:
            return prompt

        def rewritten(message: Message) -> Message:
            kept = found.get(_store_key(key, message)) if message.role == "assistant" else None
            return message if kept is None else _with_thinking(message, kept)

        def rewrite(run: Run) -> Run:
            return tuple(map(rewritten, run))

        return rewrite_runs(prompt, rewrite)

    async def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            for store_key in await self._store.keys(NAMESPACE, limit=KEPT_MAX):
                self._known.setdefault(store_key, b"")

    async def _find(self, store_key: str) -> SignedThinking | None:
        data = self._known.get(store_key) or await self._store.get(NAMESPACE, store_key)
        if not data:
            self._known.pop(store_key, None)
            return None
        self._cache(store_key, data)
        return msgspec.json.decode(data, type=SignedThinking)

    def _cache(self, store_key: str, data: bytes) -> None:
        self._cached += len(data) - len(self._known.pop(store_key, b""))
        self._known[store_key] = data
        if self._cached > CACHE_BYTES_MAX:
            for old in self._known:
                self._cached -= len(self._known[old])
                self._known[old] = b""
                if self._cached <= CACHE_BYTES_MAX // 2:
                    break


def _store_key(key: str, message: Message) -> str:
    # A reply is identified by its calls, or by its text if it has none.
    calls = [(call.id, call.name, call.arguments, call.broken) for call in message.calls]
    said = msgspec.json.encode(calls, order="sorted") if calls else message.text.strip().encode("utf-8", "replace")
    return f"{key}/{blake2b(said, digest_size=20).hexdigest()}"


def _with_thinking(message: Message, kept: SignedThinking) -> Message:
    """Return a reply with its thinking where it was, or in front if the caller split the reply differently."""
    parts: list[Part] = [part for part in message.parts if not isinstance(part, Thinking)]
    in_place = len(parts) == kept.others
    for count, (index, thought) in enumerate(kept.parts):
        parts.insert(index if in_place else count, thought)
    return msgspec.structs.replace(message, parts=tuple(parts))
