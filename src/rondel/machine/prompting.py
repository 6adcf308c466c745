"""The prompt of a turn's next round, before the plugins edit it, and the tools that it offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..prompt import HISTORY, Prompt

if TYPE_CHECKING:
    from .turn import Turn


def first_prompt(turn: Turn) -> Prompt:
    """Return the author's prompt with the conversation in its place."""
    resolved = turn.resolved
    offer_suggested_agents(turn)
    new = tuple(
        tool.spec for name, tool in turn.suggested.items() if name not in resolved.tools or name in resolved.unoffered
    )
    history = turn.transcript.history()
    written = resolved.nodes if turn.words is None else turn.words.fill(resolved.nodes)
    nodes = [
        msgspec.structs.replace(node, children=node.children + history if node.children else history)
        if node.id == HISTORY
        else node
        for node in written or ()
    ]
    return Prompt(tuple(nodes), resolved.specs + new, resolved.options, opaque=resolved.opaque)


def offer_suggested_agents(turn: Turn) -> None:
    names, registry = turn.transcript.offered, turn.services.registry
    if len(turn.suggested) == len(names):
        return
    tools = [registry.tool_of(name) for name in names if registry.knows_agent(name)]
    turn.suggested = {tool.name: tool for tool in tools}
    turn.collect_tools()
