"""Responses that a caller may go on from by their id (`previous_response_id`), kept in the store.

Each is kept with what was said in it and the id of the one before; a conversation is read back along those ids. Only
responses that were made here are: what an upstream of the same dialect made, it keeps itself. A caller sees its own
responses only. Knows no network.
"""

from __future__ import annotations

import msgspec

from ..clock import Clock
from ..errors import PromptRejected
from ..prompt import Prompt
from ..store import Store
from ..values import Message, Value

SHELF = "gateway.responses"
DIALECT = "openai-responses"
KEPT_S = 30 * 24 * 3600.0
LINKS_MAX = 2_000
"""How many responses a conversation may have; a longer chain is no conversation."""
PREVIOUS = "previous_response_id"


class KeptResponse(Value, frozen=True):
    messages: tuple[Message, ...]
    """What the caller said in its request, without the instructions, and the reply."""
    previous: str = ""


class Responses:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def knows(self, key: str, id: str) -> bool:
        return await self._store.get(SHELF, _place(key, id)) is not None

    async def keep(self, key: str, id: str, said: Prompt, reply: Message, previous: str) -> None:
        messages = tuple(message for message in said.messages if not _is_instructions(message))
        kept = msgspec.json.encode(KeptResponse((*messages, reply), previous))
        await self._store.put(SHELF, _place(key, id), kept, until=self._clock.now() + KEPT_S)

    async def forget(self, key: str, id: str) -> bool:
        return await self._store.remove(SHELF, _place(key, id))

    async def continued(self, key: str, prompt: Prompt, *, required: bool) -> Prompt:
        """The prompt with the conversation that it goes on from before it. Where it is not `required`, an id that is
        not known here is left to the upstream."""
        opaque = prompt.opaque.get(DIALECT, {})
        id = opaque.get(PREVIOUS)
        if not isinstance(id, str) or not id:
            return prompt
        earlier: list[tuple[Message, ...]] = []
        while id and len(earlier) < LINKS_MAX:
            found = await self._store.get(SHELF, _place(key, id))
            if found is None:
                break
            kept = msgspec.json.decode(found, type=KeptResponse)
            earlier.append(kept.messages)
            id = kept.previous
        if not earlier or id:
            if required or earlier:
                raise PromptRejected(
                    f"no response {id!r} is kept here to go on from; send the whole conversation, or one that was "
                    f"stored less than {KEPT_S / 86400:.0f} days ago",
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
    """What the field `instructions` said, which holds for one response only."""
    return bool(message.opaque.get(DIALECT, {}).get("instructions"))


def _place(key: str, id: str) -> str:
    return f"{key}/{id}"
