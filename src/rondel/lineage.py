"""Where a prompt came from: what an edit changed in its tree, and of which pieces each message was made.

For people who look at how a prompt comes about. Tokens are estimates. Knows no plugin and no terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal, TypeAlias

from .prompt import HISTORY, Child, Node, Prompt, only_messages, walk
from .tokens import estimate_tokens, message_tokens, tools_tokens
from .values import Message, Value

Ids: TypeAlias = tuple[str, ...]
Keyed: TypeAlias = dict[tuple[str, int], tuple[Ids, Child]]


class Piece(Value, frozen=True):
    """A node or a message of the tree as it stands there, its children left out."""

    id: str
    kind: Literal["node", "message"]
    role: str
    text: str
    tokens: int
    source: tuple[str, ...]
    """The path back to what the author wrote, or to the entry of the plugin that put it there."""
    depth: int = 0
    enabled: bool = True
    caption: str = ""


class Change(Value, frozen=True):
    """What an edit did to one piece, or to one tool on offer. `tokens` is what the prompt grew by."""

    what: Literal["added", "changed", "removed"]
    kind: Literal["node", "message", "tool"]
    id: str
    tokens: int
    text: str = ""
    source: tuple[str, ...] = ()
    place: str = ""
    """Where something new stands: `in system`, `before history`, `after history`."""


class Told(Value, frozen=True):
    """A message that a model is sent, and the pieces that it was made of; the first gave it its role."""

    message: Message
    tokens: int
    pieces: tuple[Piece, ...]

    @property
    def source(self) -> tuple[str, ...]:
        return self.pieces[0].source


def pieces(prompt: Prompt) -> Iterator[Piece]:
    """The whole tree, depth first, disabled nodes included."""
    return (_piece(ids, child) for ids, child in walk(prompt.nodes))


def _piece(ids: Ids, child: Child) -> Piece:
    depth, source = len(ids) - 1, _path(ids)
    if isinstance(child, Message):
        return Piece(child.id, "message", child.role, child.text, message_tokens(child), source, depth)
    return Piece(
        child.id,
        "node",
        child.role or "",
        child.text,
        estimate_tokens(child.text),
        child.source or source,
        depth,
        child.enabled,
        child.caption,
    )


def _path(ids: Ids) -> Ids:
    return ("prompts", *chain.from_iterable((id, "children") for id in ids[:-1]), ids[-1])


# --- what a step did --------------------------------------------------------------------------------------------------


def changes(before: Prompt, after: Prompt) -> tuple[Change, ...]:
    """What became of the tree and the tools: what is new or other in their order, then what is gone."""
    if before is after:
        return ()
    return (*_tree_changes(before, after), *_tool_changes(before, after))


def _tree_changes(before: Prompt, after: Prompt) -> Iterator[Change]:
    old, new = _by_key(before), _by_key(after)
    _pass_over_renamed(old, new)
    places = _places(after.nodes)
    for key, (ids, child) in new.items():
        was_ids, was_child = old.get(key, ((), None))
        if was_child is child and was_ids == ids:
            continue
        piece = _piece(ids, child)
        if was_child is None:
            yield Change("added", piece.kind, piece.id, piece.tokens, piece.text, piece.source, places.get(ids, ""))
            continue
        was = _piece(was_ids, was_child)
        if _as_told(piece) != _as_told(was) or (isinstance(child, Message) and child != was_child):
            grown = piece.tokens - was.tokens
            yield Change("changed", piece.kind, piece.id, grown, piece.text, piece.source)
        elif ids[:-1] != was_ids[:-1]:
            yield Change("changed", piece.kind, piece.id, 0, piece.text, piece.source, places.get(ids, ""))
    for key, (ids, child) in old.items():
        if key not in new:
            piece = _piece(ids, child)
            yield Change("removed", piece.kind, piece.id, -piece.tokens, piece.text, piece.source)


def _tool_changes(before: Prompt, after: Prompt) -> Iterator[Change]:
    old, new = ({tool.name: tool for tool in prompt.tools} for prompt in (before, after))
    for name, tool in new.items():
        if name not in old:
            yield Change("added", "tool", name, tools_tokens((tool,)), tool.description)
        elif tool != old[name]:
            yield Change("changed", "tool", name, tools_tokens((tool,)) - tools_tokens((old[name],)), tool.description)
    for name, tool in old.items():
        if name not in new:
            yield Change("removed", "tool", name, -tools_tokens((tool,)), tool.description)


def _as_told(piece: Piece) -> tuple[str, str, bool]:
    return piece.role, piece.text, piece.enabled


def _by_key(prompt: Prompt) -> Keyed:
    """Every piece by its id, or by what it says when it has none; equal ones are counted."""
    found: Keyed = {}
    counts: dict[str, int] = {}
    for ids, child in walk(prompt.nodes):
        name = child.id or f"\n{child.role}\n{child.text}"
        counts[name] = counts.get(name, 0) + 1
        found[name, counts[name]] = ids, child
    return found


def _pass_over_renamed(old: Keyed, new: Keyed) -> None:
    """A message that only has another id, in the same place, is the same to whoever is told."""
    gone = {_content(*old[key]): key for key in old.keys() - new.keys() if isinstance(old[key][1], Message)}
    for key in [key for key, (_, child) in new.items() if key not in old and isinstance(child, Message)]:
        if (was := gone.pop(_content(*new[key]), None)) is not None:
            del new[key], old[was]


def _content(ids: Ids, child: Child) -> tuple[Ids, str | None, str, int]:
    return ids[:-1], child.role, child.text, len(child.parts) if isinstance(child, Message) else 0


def _places(nodes: tuple[Child, ...]) -> dict[Ids, str]:
    """In words, where pieces stand: inside of their parent, or at the top before or after another one."""
    places: dict[Ids, str] = {ids: f"in {ids[-2]}" for ids, _ in walk(nodes) if len(ids) > 1}
    for index, child in enumerate(nodes):
        if index + 1 < len(nodes):
            places[child.id,] = f"before {nodes[index + 1].id}"
        elif index:
            places[child.id,] = f"after {nodes[index - 1].id}"
    return places


# --- what a model is told ---------------------------------------------------------------------------------------------


def told(prompt: Prompt) -> tuple[Told, ...]:
    """The flattened messages, each with its pieces. The messages are those of `prompt.messages`, in their order."""
    made = (pieces for pieces in _runs((((child.id,), child)) for child in prompt.nodes))
    return tuple(
        Told(message, message_tokens(message), parts) for message, parts in zip(prompt.messages, made, strict=True)
    )


def _runs(nodes: Iterable[tuple[Ids, Child]]) -> Iterator[tuple[Piece, ...]]:
    """The pieces of each message, in the order in which `flatten` makes them."""
    pending = list(nodes)[::-1]
    while pending:
        ids, child = pending.pop()
        if isinstance(child, Message):
            yield (_piece(ids, child),)
        elif not child.enabled:
            continue
        elif child.id == HISTORY and not child.text and (messages := only_messages(child)):
            yield from ((_piece((*ids, message.id), message),) for message in messages)
        else:
            joined, inner = _gather(ids, child)
            pending.extend(reversed(inner))
            if child.role is not None or "".join(piece.text for piece in joined).strip():
                said = tuple(piece for piece in joined[1:] if piece.text.strip())
                yield (joined[0], *said)


def _gather(ids: Ids, node: Node) -> tuple[list[Piece], list[tuple[Ids, Child]]]:
    """The node and what is joined to its text, and the descendants that make messages of their own."""
    joined, messages = [_piece(ids, node)], list[tuple[Ids, Child]]()
    pending = _below(ids, node)
    while pending:
        at, child = pending.pop()
        if isinstance(child, Message) or (child.enabled and child.role is not None):
            messages.append((at, child))
        elif child.enabled:
            joined.append(_piece(at, child))
            pending.extend(_below(at, child))
    return joined, messages


def _below(ids: Ids, node: Node) -> list[tuple[Ids, Child]]:
    return [((*ids, child.id), child) for child in reversed(node.children)]
