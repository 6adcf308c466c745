"""Stores responses that a caller may continue by their id (`previous_response_id`).

Each is stored with its messages and the id of the response before it; following these ids restores the conversation.
Only responses that were made here are stored: an upstream of the same dialect stores its own. A caller sees only its
own responses.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from ...contracts.clock import Clock
from ...contracts.store import Store
from ...errors import PromptRejected
from ...prompt import Prompt
from ...values import Message, Value

NAMESPACE = "gateway.responses"
DIALECT = "openai-responses"
KEPT_S = 30 * 24 * 3600.0
ID_CHARS_MAX = 512
LINKS_MAX = 2_000  # how many responses a conversation may have. A longer chain is refused.
PREVIOUS = "previous_response_id"


class StoredResponse(Value, frozen=True):
    messages: tuple[Message, ...]  # the messages of the request, without the instructions, and the reply
    previous: str = ""


class Responses:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def knows(self, key: str, id: str) -> bool:
        return await self._store.get(NAMESPACE, callers_key(key, id)) is not None

    async def keep(self, key: str, id: str, said: Prompt, reply: Message, previous: str) -> None:
        messages = tuple(message for message in said.messages if not _is_instructions(message))
        kept = msgspec.json.encode(StoredResponse((*messages, reply), previous))
        await self._store.put(NAMESPACE, callers_key(key, id), kept, until=self._clock.now() + KEPT_S)

    async def forget(self, key: str, id: str) -> bool:
        return await self._store.remove(NAMESPACE, callers_key(key, id))

    async def continued(self, key: str, prompt: Prompt, *, required: bool) -> Prompt:
        """Return the prompt with the conversation that it continues in front. If it is not `required`, an unknown id is
        left to the upstream."""
        opaque = prompt.opaque.get(DIALECT, {})
        id = opaque.get(PREVIOUS)
        if not isinstance(id, str) or not id:
            return prompt
        if len(id) > ID_CHARS_MAX:
            raise PromptRejected(f"`{PREVIOUS}` is longer than {ID_CHARS_MAX} characters", code="bad_body")
        earlier: list[tuple[Message, ...]] = []
        while id and len(earlier) < LINKS_MAX:
            found = await self._store.get(NAMESPACE, callers_key(key, id))
            if found is None:
                break
            kept = msgspec.json.decode(found, type=StoredResponse)
            earlier.append(kept.messages)
            id = kept.previous
        if not earlier or id:
            if required or earlier:
                raise PromptRejected(
                    f"there is no stored response {id!r}; send the whole conversation, or the id of a response that is "
                    f"less than {KEPT_S / 86400:.0f} days old",
                    code="previous_response_not_found",
                )
            return prompt
        before = tuple(message for messages in reversed(earlier) for message in messages)
        at = next((n for n, node in enumerate(prompt.nodes) if node.role != "system"), len(prompt.nodes))
        left = {name: value for name, value in opaque.items() if name != PREVIOUS}
        return prompt.replace(
            nodes=(*prompt.nodes[:at], *before, *prompt.nodes[at:]), opaque={**prompt.opaque, DIALECT: left}
        )


def _is_instructions(message: Message) -> bool:
    # `instructions` hold for one response only.
    return bool(message.opaque.get(DIALECT, {}).get("instructions"))


def callers_key(key: str, id: str) -> str:
    # Callers choose the id: one with a slash must not name a response of the key `key/…`.
    return f"{quote(key, safe='')}/{id}"
