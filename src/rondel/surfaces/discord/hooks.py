"""Functions of a bot's author that change what is sent to the model and what is said to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ...calling.callbacks import is_awaitable
from ...errors import RondelError, nearest
from ...machine.conversation import Conversation
from ...values import Message, Person, ToolCall
from .outlet import Extras

if TYPE_CHECKING:
    from .delivery import Delivery


class ChatReply(msgspec.Struct, frozen=True):
    """What a reply hook says instead, with what the first message also shows."""

    text: str = ""
    extras: Extras | None = None


class ReplyContext(msgspec.Struct, frozen=True):
    """What a reply hook sees. `mcp_calls` are those of `calls` that went to MCP servers, and `degraded_servers` are the
    servers that could not be used."""

    text: str
    person: Person
    channel: Any = None
    conversation: str = ""
    calls: tuple[ToolCall, ...] = ()
    degraded_servers: tuple[str, ...] = ()

    @property
    def mcp_calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for call in self.calls if call.name.startswith("mcp-"))


HookName: TypeAlias = Literal["chat", "reply"]


class Hooks:
    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {"chat": [], "reply": []}

    def on(self, name: HookName, hook: Callable[..., Any]) -> None:
        if name not in self._hooks:
            raise RondelError(f"{name!r} is not a hook{nearest(name, list(self._hooks))}")
        self._hooks[name].append(hook)

    def off(self, name: HookName, hook: Callable[..., Any]) -> None:
        self._hooks[name].remove(hook)

    @property
    def has_chat(self) -> bool:
        return bool(self._hooks["chat"])

    @property
    def has_reply(self) -> bool:
        return bool(self._hooks["reply"])

    async def chat(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages as the hooks leave them: each may change the list, or return another one."""
        current = list(messages)
        for hook in self._hooks["chat"]:
            returned = await _called("chat", hook, current)
            if returned is not None:
                current = list(returned)
        return tuple(current)

    async def reply(self, delivery: Delivery, text: str) -> ChatReply | None:
        """Return the value of the first hook that has one."""
        pending, calls = delivery.pending, tuple(delivery.fold.calls)
        degraded = degraded_servers(delivery.conversation)
        return await self.replace(
            ReplyContext(text, pending.person, delivery.channel, pending.conversation, calls, degraded)
        )

    async def replace(self, context: ReplyContext) -> ChatReply | None:
        for hook in self._hooks["reply"]:
            returned = await _called("reply", hook, context)
            if isinstance(returned, (str, ChatReply)):
                return ChatReply(returned) if isinstance(returned, str) else returned
            if returned is not None:
                raise RondelError(f"a reply hook returned {returned!r}; it must be a text, a ChatReply or None")
        return None


def degraded_servers(conversation: Conversation) -> tuple[str, ...]:
    """Return the names of the MCP servers that the conversation's agent has and cannot use now."""
    from ...mcp.plugin import McpServers

    plugins = conversation.app.registry.resolve(conversation.agent).chain.plugins
    links = (link for plugin in plugins if isinstance(plugin, McpServers) for link in plugin.links)
    return tuple(link.spec.name for link in links if not link.is_ready)


async def _called(kind: HookName, hook: Callable[..., Any], given: Any) -> Any:
    try:
        returned = hook(given)
        return await returned if is_awaitable(returned) else returned
    except Exception as error:  # of any kind: it is the author's code, and the error must stay with this one answer
        name = getattr(hook, "__qualname__", type(hook).__name__)
        raise RondelError(f"the {kind} hook {name!r} failed") from error
