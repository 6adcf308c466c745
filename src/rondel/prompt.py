"""The prompt of a round: a tree of nodes that flattens to messages, the tools on offer, and the options.

A node has text of its own and children; a child may be a whole message (history is a node whose children are messages).
Editing returns a new prompt. Knows no plugin, no engine, and no wire format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

import msgspec

from .errors import RondelError, nearest
from .values import ROLES, Message, Messages, Opaque, Options, Role, Text, ToolSpec, Value

DEPTH_MAX = 100  # How deep an author may nest nodes. Plugins may nest deeper: nothing here is recursive.
HISTORY = "history"  # the id of the node that holds the conversation

Child: TypeAlias = "Node | Message"
Position: TypeAlias = Literal["before", "after", "child"]


_POSITIONS: dict[str, Position] = {"before": "before", "after": "after", "child": "child", "relative": "child"}


def position_of(word: str) -> Position:
    """Return where to insert, for the word that people write."""
    if word not in _POSITIONS:
        raise RondelError(f"{word!r} is not a position{nearest(word, tuple(_POSITIONS))}")
    return _POSITIONS[word]


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

    def __post_init__(self) -> None:
        if self.role is not None and self.role not in ROLES:
            raise RondelError(f"node {self.id!r} has the unknown role {self.role!r}{nearest(self.role, ROLES)}")


class Found(Value, frozen=True):
    """A node or a message in a tree, its siblings (itself included), and its index among them."""

    child: Child
    siblings: tuple[Child, ...]
    index: int


class Prompt(Value, frozen=True):
    """What a round sends to an engine: a tree of nodes, tools and options. Edits return a new prompt."""

    nodes: tuple[Child, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    options: Options = Options()
    model: str = ""
    """The model that a gateway caller asked for; an engine knows its own."""
    opaque: Opaque = {}

    @classmethod
    def of(cls, *messages: Message, tools: Iterable[ToolSpec] = (), options: Options | None = None) -> Prompt:
        """Return a prompt of messages only."""
        return cls(messages, tuple(tools), options or Options())

    @property
    def messages(self) -> tuple[Message, ...]:
        """The tree as messages, in the order in which a model reads them."""
        found: list[Message] = []
        for index, child in enumerate(self.nodes):
            if type(child) is not Message or child.role == "error":
                return (*found, *flatten(self.nodes[index:]))
            found.append(child)
        return tuple(found)

    @property
    def is_blank(self) -> bool:
        """Whether all messages contain only white space."""
        return not any(map(_has_content, reversed(self.nodes)))

    def replace(self, **fields: object) -> Prompt:
        """Return the prompt with other fields."""
        return msgspec.structs.replace(self, **fields)

    def instruct(self, text: str, *, id: str = "") -> Prompt:
        """Add a system instruction after the existing ones, before the history."""
        node = Node(id or f"instruction-{len(self.nodes)}", text=text, role="system")
        at = next((i for i, child in enumerate(self.nodes) if not _is_instruction(child)), len(self.nodes))
        return self.replace(nodes=(*self.nodes[:at], node, *self.nodes[at:]))

    def append(self, *messages: Message) -> Prompt:
        """Add messages at the end."""
        return self.replace(nodes=(*self.nodes, *messages))

    # --- editing by id: a target that is not there changes nothing; ask `find` first to tell ------------------------

    def find(self, id: str) -> Found | None:
        """Return the node or message with this id, or None."""
        path = _path_to(self.nodes, id)
        return None if path is None else self._at(path)

    def _at(self, path: tuple[int, ...]) -> Found:
        siblings = self.nodes
        for index in path[:-1]:
            siblings = cast(Node, siblings[index]).children
        return Found(siblings[path[-1]], siblings, path[-1])

    def insert(self, node: Node, position: Position, target: str) -> Prompt:
        """Insert a node before, after or into the one with this id."""
        if position == "before":
            return self.insert_before(target, node)
        return self.insert_after(target, node) if position == "after" else self.insert_into(target, node)

    def insert_before(self, id: str, *children: Child) -> Prompt:
        """Insert before the node or message with this id."""
        return self._edit(id, lambda child: (*children, child))

    def insert_after(self, id: str, *children: Child) -> Prompt:
        """Insert after the node or message with this id."""
        return self._edit(id, lambda child: (child, *children))

    def insert_into(self, id: str, *children: Child) -> Prompt:
        """Insert at the end of the node with this id."""
        return self._edit(id, lambda child: (_grown(child, children),))

    def replace_node(self, id: str, *children: Child) -> Prompt:
        """Replace the node or message with this id."""
        return self._edit(id, lambda _: children)

    def _edit(self, id: str, edit: Callable[[Child], tuple[Child, ...]]) -> Prompt:
        path = _path_to(self.nodes, id)
        return self if path is None else self._edit_at(path, edit)

    def _edit_at(self, path: tuple[int, ...], edit: Callable[[Child], tuple[Child, ...]]) -> Prompt:
        levels: list[tuple[Child, ...]] = [self.nodes]
        for index in path[:-1]:
            levels.append(cast(Node, levels[-1][index]).children)
        edited = _spliced(levels[-1], path[-1], edit(levels[-1][path[-1]]))
        for siblings, index in zip(reversed(levels[:-1]), reversed(path[:-1]), strict=True):
            parent = msgspec.structs.replace(cast(Node, siblings[index]), children=edited)
            edited = _spliced(siblings, index, (parent,))
        return self.replace(nodes=edited)

    def inject(self, *tools: ToolSpec) -> Prompt:
        """Offer more tools."""
        return self.replace(tools=(*tools, *self.tools))

    # --- the conversation: a node's children, wherever the author put it, or the bare messages of a gateway prompt ----

    def with_history(self, messages: Iterable[Message]) -> Prompt:
        """Replace the conversation's messages."""
        kept = Messages(messages)
        path = _path_to_history(self.nodes)
        if path is None:
            return self.replace(nodes=(*(c for c in self.nodes if isinstance(c, Node) or c.role == "system"), *kept))
        return self._edit_at(path, lambda child: (_refill(cast(Node, child), kept),))

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation's messages in this prompt, without the instructions."""
        path = _path_to_history(self.nodes)
        if path is None:
            return tuple(c for c in self.nodes if isinstance(c, Message) and c.role != "system")
        node = cast(Node, self._at(path).child)
        return only_messages(node) or tuple(c for c in node.children if isinstance(c, Message))

    def newest_first(self) -> Iterator[Message]:
        """Yield the messages in this prompt, the last one first."""
        pending: list[Iterator[Child]] = [reversed(self.nodes)]
        while pending:
            child = next(pending[-1], None)
            if child is None:
                pending.pop()
            elif isinstance(child, Message):
                yield child
            else:
                pending.append(reversed(child.children))

    @property
    def instructions(self) -> tuple[Message, ...]:
        """The messages that are not part of the conversation."""
        return self.with_history(()).messages


def _has_content(child: Child) -> bool:
    """Return whether anything in this child has content. The newest message comes first, because it nearly always
    has."""
    pending: list[Child] = [child]
    while pending:
        child = pending.pop()
        if isinstance(child, Message):
            for part in child.parts:
                if not isinstance(part, Text) or part.text.strip():
                    return True
        elif child.enabled:
            if child.text.strip():
                return True
            pending.extend(child.children)
    return False


def _refill(node: Node, messages: tuple[Message, ...]) -> Node:
    """Replace a node's messages; the author's own text stays, before them."""
    nodes = () if only_messages(node) else tuple(child for child in node.children if isinstance(child, Node))
    return msgspec.structs.replace(node, children=nodes + messages if nodes else messages)


def _is_instruction(child: Child) -> bool:
    return child.role == "system" or (isinstance(child, Node) and child.role is None and child.id != HISTORY)


def flatten(nodes: Iterable[Child]) -> Iterator[Message]:
    """Return the tree as messages, depth first and in order.

    A node's own text and that of its children without a role are joined without a separator and stripped: one message.
    Each descendant with a role follows as its own message. A blank node without a role is left out, one with a role
    stays. Disabled nodes are skipped at any depth. Errors go to models as user messages.
    """
    return chain.from_iterable(map(_messages_of, runs(nodes)))


def runs(nodes: Iterable[Child]) -> Iterator[tuple[Node | None, Sequence[Child]]]:
    """Yield the sources of the messages, in order: a node and the nodes whose texts are joined to its own, itself
    first; or None and messages that are sent unchanged."""
    pending: list[Child] = list(nodes)[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, Message):
            yield None, (child,)
        elif not child.enabled:
            continue
        elif child.id == HISTORY and not child.text and (messages := only_messages(child)):
            yield None, messages
        else:
            joined, inner = _gather(child)
            pending.extend(reversed(inner))
            yield child, joined


def _messages_of(run: tuple[Node | None, Sequence[Child]]) -> Sequence[Message]:
    node, children = run
    if node is None:
        messages = cast("Sequence[Message]", children)
        is_error = len(messages) == 1 and messages[0].role == "error"
        return (msgspec.structs.replace(messages[0], role="user"),) if is_error else messages
    text = "".join([child.text for child in children]).strip()
    if not text and node.role is None:
        return ()
    return (Message("user" if node.role == "error" else node.role or "system", (Text(text),), id=node.id),)


def only_messages(node: Node) -> tuple[Message, ...]:
    """Return a node's children if all are messages, else an empty tuple. Fast for a history of ten thousand."""
    children = cast("tuple[Message, ...]", node.children)
    if type(children) is Messages:
        return children
    return children if _MESSAGE.issuperset(map(type, children)) else ()


_MESSAGE = frozenset((Message,))


def _gather(node: Node) -> tuple[list[Node], list[Child]]:
    """Return the nodes whose texts make one message, and the descendants that make messages of their own, in order. Not
    recursive: trees may be ten thousand nodes deep."""
    joined, messages = [node], list[Child]()
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
            joined.append(child)
            pending.extend(reversed(child.children))
    return joined, messages


# --- finding, and the path back to what was written -------------------------------------------------------------------


def walk(nodes: Iterable[Child]) -> Iterator[tuple[tuple[str, ...], Child]]:
    """Yield every node and message with the ids on the path to it, depth first. Not recursive."""
    pending: list[tuple[tuple[str, ...], Child]] = []
    pending.extend(((child.id,), child) for child in reversed(tuple(nodes)))
    while pending:
        ids, child = pending.pop()
        yield ids, child
        if isinstance(child, Node):
            pending.extend(((*ids, inner.id), inner) for inner in reversed(child.children))


def _path_to(nodes: tuple[Child, ...], id: str) -> tuple[int, ...] | None:
    """Return the indexes on the path to the first child with this id. Each step refers to its parent's step, so that
    depth costs no more than breadth."""
    pending: list[tuple[Any, int, Child]] = [(None, index, child) for index, child in enumerate(nodes)][::-1]
    while pending:
        step = pending.pop()
        child = step[2]
        if child.id == id:
            path: list[int] = []
            while step is not None:
                path.append(step[1])
                step = step[0]
            return tuple(reversed(path))
        if isinstance(child, Node):
            pending.extend((step, index, inner) for index, inner in reversed(list(enumerate(child.children))))
    return None


def _path_to_history(nodes: tuple[Child, ...]) -> tuple[int, ...] | None:
    """Return the path to the node with the conversation: one that has messages, else the one with the id `history`."""
    named: tuple[int, ...] | None = None
    pending: list[tuple[tuple[int, ...], Child]] = []
    pending.extend(((n,), child) for n, child in reversed(list(enumerate(nodes))))
    while pending:
        path, child = pending.pop()
        if isinstance(child, Message):
            continue
        if child.children and isinstance(child.children[0], Message) and only_messages(child):
            return path
        if named is None and child.id == HISTORY:
            named = path
        if len(path) < DEPTH_MAX:
            pending.extend(((*path, n), inner) for n, inner in reversed(list(enumerate(child.children))))
    return named


def _spliced(siblings: tuple[Child, ...], index: int, instead: tuple[Child, ...]) -> tuple[Child, ...]:
    return (*siblings[:index], *instead, *siblings[index + 1 :])


def _grown(child: Child, children: tuple[Child, ...]) -> Child:
    if isinstance(child, Message):
        raise RondelError(f"nothing can be inserted into the message {child.id!r}: insert before or after it")
    return msgspec.structs.replace(child, children=(*child.children, *children))


def with_sources(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Give each node without a source the path of ids to its author's text; insertions do not change ids."""
    if (depth := _depth(nodes)) > DEPTH_MAX:
        raise RondelError(f"a prompt is nested {depth:,} levels deep; use at most {DEPTH_MAX}")
    return tuple(cast("list[Node]", _sourced(nodes, ("prompts",))))


def _depth(nodes: Iterable[Child]) -> int:
    deepest, level = 0, list(nodes)
    while level:
        deepest += 1
        level = [inner for child in level if isinstance(child, Node) for inner in child.children]
    return deepest


def _sourced(nodes: Iterable[Child], path: tuple[str, ...]) -> list[Child]:
    return [
        msgspec.structs.replace(
            child,
            source=child.source or (*path, child.id),
            children=tuple(_sourced(child.children, (*path, child.id, "children"))),
        )
        if isinstance(child, Node)
        else child
        for child in nodes
    ]


def source_paths(nodes: Iterable[Child], plugins: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return where each id comes from: `("prompts", id, "children", id, …)`, or `("plugins", id)` for an entry."""
    paths = {child.id: source_path(ids) for ids, child in walk(nodes) if child.id}
    return paths | {id: ("plugins", id) for id in plugins}


def source_path(ids: tuple[str, ...]) -> tuple[str, ...]:
    return ("prompts", *chain.from_iterable((id, "children") for id in ids[:-1]), ids[-1])
