"""Rewrites the messages of a prompt wherever they are: bare, as in a gateway prompt, or below a node.

What does not change stays the same object, so that caches of what was computed from it stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_

import msgspec

from ..prompt import DEPTH_MAX, Child, Node, Prompt
from ..values import Message, Messages

Run = tuple[Message, ...]


def rewrite_runs(prompt: Prompt, rewrite: Callable[[Run], Run]) -> Prompt:
    """Rewrite each run of messages in a prompt. Nodes that are nested too deeply are left unchanged."""
    nodes = _rewritten(prompt.nodes, rewrite, 1)
    return prompt if nodes is prompt.nodes else prompt.replace(nodes=nodes)


def _rewritten(siblings: tuple[Child, ...], rewrite: Callable[[Run], Run], depth: int) -> tuple[Child, ...]:
    if type(siblings) is Messages:
        messages = rewrite(siblings) if siblings else siblings
        return siblings if _same(messages, siblings) else Messages(messages)
    made: list[Child] = []
    run: list[Message] = []
    for child in siblings:
        if isinstance(child, Message):
            run.append(child)
            continue
        if run:
            made += rewrite(tuple(run))
            run = []
        made.append(_node(child, rewrite, depth))
    if run:
        made += rewrite(tuple(run))
    return siblings if _same(made, siblings) else tuple(made)


def _same(made: Sequence[Child], before: Sequence[Child]) -> bool:
    return len(made) == len(before) and all(map(is_, made, before))


def _node(node: Node, rewrite: Callable[[Run], Run], depth: int) -> Node:
    if not node.children or depth >= DEPTH_MAX:
        return node
    children = _rewritten(node.children, rewrite, depth + 1)
    return node if children is node.children else msgspec.structs.replace(node, children=children)
