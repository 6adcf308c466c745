"""Rewrites the messages of a prompt wherever they stand: bare, as those of a foreign prompt, or below a node. Pure.

What is not changed stays the same object, so that what was made of it once need not be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import cast

import msgspec

from .prompt import DEPTH_MAX, Child, Node, Prompt
from .values import Message, Messages

Run = tuple[Message, ...]


def rewrite_runs(prompt: Prompt, rewrite: Callable[[Run], Run]) -> Prompt:
    """The prompt with each run of messages rewritten. Nodes that are nested too deep are left as they are."""
    nodes = _rewritten(prompt.nodes, rewrite, 1)
    return prompt if nodes is prompt.nodes else prompt.replace(nodes=nodes)


def _rewritten(siblings: tuple[Child, ...], rewrite: Callable[[Run], Run], depth: int) -> tuple[Child, ...]:
    made: list[Child] = []
    for bare, run in _runs(siblings):
        if bare:
            made += rewrite(cast(Run, run))
        else:
            made += (_node(cast(Node, node), rewrite, depth) for node in run)
    if len(made) == len(siblings) and all(new is old for new, old in zip(made, siblings, strict=True)):
        return siblings
    return Messages(cast("list[Message]", made)) if type(siblings) is Messages else tuple(made)


def _node(node: Node, rewrite: Callable[[Run], Run], depth: int) -> Node:
    if not node.children or depth >= DEPTH_MAX:
        return node
    children = _rewritten(node.children, rewrite, depth + 1)
    return node if children is node.children else msgspec.structs.replace(node, children=children)


def _runs(siblings: tuple[Child, ...]) -> Iterator[tuple[bool, tuple[Child, ...]]]:
    """Neighbours of one kind: messages (True), or nodes (False)."""
    if type(siblings) is Messages:
        if siblings:
            yield True, siblings
        return
    for bare, run in groupby(siblings, lambda child: isinstance(child, Message)):
        yield bare, tuple(run)
