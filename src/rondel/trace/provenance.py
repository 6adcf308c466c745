"""Shows how a prompt is made: step by step, what each edit changed in its tree, and which pieces make each message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Literal, TypeAlias

from ..machine.tokens import estimate_tokens, message_tokens, tools_tokens
from ..machine.turn import Turn
from ..prompt import Child, Prompt, runs, source_path, walk
from ..values import Message, Value

Ids: TypeAlias = tuple[str, ...]
Keyed: TypeAlias = dict[tuple[str, int], tuple[Ids, Child]]


class Piece(Value, frozen=True):
    """A node or a message of the tree, without its children."""

    id: str
    kind: Literal["node", "message"]
    role: str
    text: str
    tokens: int
    source: tuple[str, ...]  # the path to the author's text, or the plugin entry that inserted it
    depth: int = 0
    enabled: bool = True
    caption: str = ""


class Change(Value, frozen=True):
    """What an edit did to one piece or one tool. `tokens` is how much the prompt grew."""

    what: Literal["added", "changed", "removed"]
    kind: Literal["node", "message", "tool"]
    id: str
    tokens: int
    text: str = ""
    source: tuple[str, ...] = ()
    position: str = ""  # where a new piece is: `in system`, `before history`, `after history`


class SentMessage(Value, frozen=True):
    """A message of the prompt and the pieces that it was made of. The first piece sets the role."""

    message: Message
    tokens: int
    pieces: tuple[Piece, ...]

    @property
    def source(self) -> tuple[str, ...]:
        return self.pieces[0].source


def pieces(prompt: Prompt) -> Iterator[Piece]:
    return (_piece(ids, child) for ids, child in walk(prompt.nodes))


def _piece(ids: Ids, child: Child) -> Piece:
    depth, source = len(ids) - 1, source_path(ids)
    if isinstance(child, Message):
        return Piece(child.id, "message", child.role, child.text, message_tokens(child), source, depth)
    tokens, source = estimate_tokens(child.text), child.source or source
    return Piece(child.id, "node", child.role or "", child.text, tokens, source, depth, child.enabled, child.caption)


def changes(before: Prompt, after: Prompt) -> tuple[Change, ...]:
    """Return what changed in the tree and the tools: added and changed ones in order, then those removed."""
    if before is after:
        return ()
    return (*_tree_changes(before, after), *_tool_changes(before, after))


def _tree_changes(before: Prompt, after: Prompt) -> Iterator[Change]:
    old, new = _by_key(before), _by_key(after)
    _skip_renamed(old, new)
    positions = _positions(after.nodes)
    for key, (ids, child) in new.items():
        was_ids, was_child = old.get(key, ((), None))
        if was_child is child and was_ids == ids:
            continue
        piece = _piece(ids, child)
        if was_child is None:
            yield Change("added", piece.kind, piece.id, piece.tokens, piece.text, piece.source, positions.get(ids, ""))
            continue
        was = _piece(was_ids, was_child)
        if _as_sent(piece) != _as_sent(was) or (isinstance(child, Message) and child != was_child):
            grown = piece.tokens - was.tokens
            yield Change("changed", piece.kind, piece.id, grown, piece.text, piece.source)
        elif ids[:-1] != was_ids[:-1]:
            yield Change("changed", piece.kind, piece.id, 0, piece.text, piece.source, positions.get(ids, ""))
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


def _as_sent(piece: Piece) -> tuple[str, str, bool]:
    return piece.role, piece.text, piece.enabled


def _by_key(prompt: Prompt) -> Keyed:
    """Return every piece by its id, or by its content if it has none; equal ones are numbered."""
    found: Keyed = {}
    counts: dict[str, int] = {}
    for ids, child in walk(prompt.nodes):
        name = child.id or f"\n{child.role}\n{child.text}"
        counts[name] = counts.get(name, 0) + 1
        found[name, counts[name]] = ids, child
    return found


def _skip_renamed(old: Keyed, new: Keyed) -> None:
    # A message at the same position that differs only in its id is the same to the model.
    gone = {_content(*old[key]): key for key in old.keys() - new.keys() if isinstance(old[key][1], Message)}
    for key in [key for key, (_, child) in new.items() if key not in old and isinstance(child, Message)]:
        if (was := gone.pop(_content(*new[key]), None)) is not None:
            del new[key], old[was]


def _content(ids: Ids, child: Child) -> tuple[Ids, str | None, str, int]:
    return ids[:-1], child.role, child.text, len(child.parts) if isinstance(child, Message) else 0


def _positions(nodes: tuple[Child, ...]) -> dict[Ids, str]:
    """Describe where pieces are: inside their parent, or at the top before or after another piece."""
    positions: dict[Ids, str] = {ids: f"in {ids[-2]}" for ids, _ in walk(nodes) if len(ids) > 1}
    for index, child in enumerate(nodes):
        if index + 1 < len(nodes):
            positions[child.id,] = f"before {nodes[index + 1].id}"
        elif index:
            positions[child.id,] = f"after {nodes[index - 1].id}"
    return positions


def sent_messages(prompt: Prompt) -> tuple[SentMessage, ...]:
    made = _pieces_of_messages(prompt)
    return tuple(
        SentMessage(message, message_tokens(message), parts)
        for message, parts in zip(prompt.messages, made, strict=True)
    )


def _pieces_of_messages(prompt: Prompt) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of each message, in the order of `flatten`."""
    paths: defaultdict[int, list[Ids]] = defaultdict(list)  # the same node may occur in a tree more than once
    for ids, child in reversed(list(walk(prompt.nodes))):
        paths[id(child)].append(ids)
    for node, children in runs(prompt.nodes):
        pieces = [_piece(paths[id(child)].pop(), child) for child in children]
        if node is None:
            yield from ((piece,) for piece in pieces)
        elif node.role is not None or "".join(piece.text for piece in pieces).strip():
            yield (pieces[0], *(piece for piece in pieces[1:] if piece.text.strip()))


class PreviewStep(Value, frozen=True):
    """`prompt` is the tree after this step, `messages` the flattened tree; `progress` goes from 0 to 1."""

    step: Literal["plugin", "finalize", "flatten", "complete"]
    progress: float
    prompt: Prompt
    messages: tuple[Message, ...]
    plugin: str = ""
    source: str = ""  # the entry, if the agent has several of one plugin


async def assemble(turn: Turn) -> AsyncIterator[PreviewStep]:
    """Yield a step for each plugin that edits prompts, then `finalize`, `flatten` and `complete`."""
    prompt = turn.prompt()
    plugins = turn.plugins.editors
    total = len(plugins) + 2
    for number, (plugin, edit) in enumerate(plugins, 1):
        prompt = await edit(turn, prompt)
        yield PreviewStep("plugin", number / total, prompt, prompt.messages, plugin.name, plugin.entry)
    yield PreviewStep("finalize", (total - 1) / total, prompt, prompt.messages)
    yield PreviewStep("flatten", 1.0, prompt, prompt.messages)
    yield PreviewStep("complete", 1.0, prompt, prompt.messages)
