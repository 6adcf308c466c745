"""The prompt of a round: a tree of nodes that flattens to messages, the tools on offer, and the options.

A node has text of its own and children; a child may be a whole message (history is a node whose children are messages).
Editing returns a new prompt. Knows no plugin, no engine, and no wire format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias, TypeGuard, cast

import msgspec

from .values import Message, Messages, Opaque, Options, Role, Text, ToolSpec, Value

HISTORY = "history"
"""The id of the node that holds the conversation."""

Child: TypeAlias = "Node | Message"


class Node(Value, frozen=True, tag="node"):
    """A piece of a prompt. Without a role its text belongs to the nearest ancestor that makes a message."""

    id: str
    text: str = ""
    role: Role | None = None
    children: tuple[Child, ...] = ()
    caption: str = ""
    enabled: bool = True
    tags: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    """The path back to what the author wrote: `("prompts", "system", "children", "tone")`, or `("plugins", id)`."""


class Prompt(Value, frozen=True):
    nodes: tuple[Child, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    options: Options = Options()
    model: str = ""
    """The model that a foreign request asked for; an engine knows its own."""
    opaque: Opaque = {}

    @classmethod
    def of(cls, *messages: Message, tools: Iterable[ToolSpec] = (), options: Options | None = None) -> Prompt:
        return cls(messages, tuple(tools), options or Options())

    @property
    def messages(self) -> tuple[Message, ...]:
        """The tree, flattened."""
        return tuple(flatten(self.nodes))

    @property
    def is_blank(self) -> bool:
        """Nothing is asked: no message has any content but white space."""
        return not any(map(_has_content, reversed(self.nodes)))

    def replace(self, **fields: object) -> Prompt:
        return msgspec.structs.replace(self, **fields)

    def instruct(self, text: str, *, id: str = "") -> Prompt:
        """Add a system instruction after the ones that are there, before the history."""
        node = Node(id or f"instruction-{len(self.nodes)}", text=text, role="system")
        at = next((i for i, child in enumerate(self.nodes) if not _is_instruction(child)), len(self.nodes))
        return self.replace(nodes=(*self.nodes[:at], node, *self.nodes[at:]))

    def append(self, *messages: Message) -> Prompt:
        """Add messages after everything else."""
        return self.replace(nodes=(*self.nodes, *messages))

    def lend(self, *tools: ToolSpec) -> Prompt:
        """Offer more tools, first in the list."""
        return self.replace(tools=(*tools, *self.tools))

    def with_history(self, messages: Iterable[Message]) -> Prompt:
        """The same prompt with another history: the history node's children, or the bare messages after the nodes."""
        kept = Messages(messages)
        if not any(_is_history(child) for child in self.nodes):
            return self.replace(nodes=(*(c for c in self.nodes if isinstance(c, Node) or c.role == "system"), *kept))
        return self.replace(nodes=tuple(_refill(c, kept) if _is_history(c) else c for c in self.nodes))

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation's messages in this prompt, without the instructions."""
        for child in self.nodes:
            if _is_history(child):
                return only_messages(child) or tuple(c for c in child.children if isinstance(c, Message))
        return tuple(c for c in self.nodes if isinstance(c, Message) and c.role != "system")

    @property
    def instructions(self) -> tuple[Message, ...]:
        """What the prompt says besides the conversation."""
        if any(_is_history(child) for child in self.nodes):
            return tuple(flatten(child for child in self.nodes if not _is_history(child)))
        return tuple(flatten(child for child in self.nodes if isinstance(child, Node) or child.role == "system"))


def _has_content(child: Child) -> bool:
    """Whether a model would be told anything. The newest message is looked at first: it nearly always says yes."""
    if isinstance(child, Message):
        return any(not isinstance(part, Text) or part.text.strip() for part in child.parts)
    return child.enabled and (bool(child.text.strip()) or any(map(_has_content, reversed(child.children))))


def _is_history(child: Child) -> TypeGuard[Node]:
    return isinstance(child, Node) and child.id == HISTORY


def _refill(node: Node, messages: tuple[Message, ...]) -> Node:
    """The node with other messages; what its author wrote there stays, before them."""
    nodes = () if only_messages(node) else tuple(child for child in node.children if isinstance(child, Node))
    return msgspec.structs.replace(node, children=nodes + messages if nodes else messages)


def _is_instruction(child: Child) -> bool:
    return child.role == "system" or (isinstance(child, Node) and child.role is None and child.id != HISTORY)


def flatten(nodes: Iterable[Child]) -> Iterator[Message]:
    """Depth first, in order.

    A node's own text and that of its role-less children are joined with nothing between and stripped: one message. Each
    descendant with a role follows as its own message. A blank node without a role is left out, one with a role stays.
    Disabled nodes are skipped at any depth. Errors go to models as user messages.
    """
    return chain.from_iterable(_runs(nodes))


def _runs(nodes: Iterable[Child]) -> Iterator[Iterable[Message]]:
    pending: list[Child] = list(nodes)[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, Message):
            yield (child if child.role != "error" else msgspec.structs.replace(child, role="user"),)
        elif not child.enabled:
            continue
        elif child.id == HISTORY and not child.text and (messages := only_messages(child)):
            yield messages
        else:
            text, inner = _gather(child)
            pending.extend(reversed(inner))
            if text or child.role is not None:
                role = child.role or "system"
                yield (Message("user" if role == "error" else role, (Text(text),), id=child.id),)


def only_messages(node: Node) -> tuple[Message, ...]:
    """A node's children when all are messages, else none. A history of ten thousand must not be walked in Python."""
    children = cast("tuple[Message, ...]", node.children)
    if type(children) is Messages:
        return children
    return children if _MESSAGE.issuperset(map(type, children)) else ()


_MESSAGE = frozenset((Message,))


def _gather(node: Node) -> tuple[str, list[Child]]:
    """A node's joined text, and the descendants that make messages of their own, in order. Not recursive: trees may be
    ten thousand nodes deep."""
    if not node.children:
        return node.text.strip(), []
    texts, messages = [node.text], list[Child]()
    pending: list[Child] = list(node.children)[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, Message):
            messages.append(child)
        elif not child.enabled:
            continue
        elif child.role is not None:
            messages.append(child)
        else:
            texts.append(child.text)
            pending.extend(reversed(child.children))
    return "".join(texts).strip(), messages
