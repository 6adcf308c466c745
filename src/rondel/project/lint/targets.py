"""Warns about empty prompts, and about plugins whose target does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import ConfigError, nearest
from ...plugin import Plugin
from ...prompt import HISTORY
from ...text.document import KeyPath
from ..agents.drafts import Draft
from ..agents.settings import NodeSettings
from ..lookup import plugin_class
from ..settings import PluginSettings
from .problem import Problem, warning

INSTRUCTIONS = "instructions"  # the id of the node of a prompt that is one text


def prompt_warnings(draft: Draft, project: str) -> Iterator[Problem]:
    if draft.kinds == ("prompt",) and not _says_anything(draft):
        yield warning(draft.where, f"the prompt of {draft.name!r} is empty: its model gets only the messages")
    entries = [entry for entry in draft.plugins() if entry.enabled]
    for settings in entries:
        if _edits_prompts(settings, project):
            yield from _target_warnings(draft, settings, entries)


def _says_anything(draft: Draft) -> bool:
    prompt = draft.settings.prompt
    texts = [prompt] if isinstance(prompt, str) else [node.text for _, node in draft.nodes()]
    return any(text.strip() for text in texts)


def _edits_prompts(settings: PluginSettings, project: str) -> bool:
    try:
        found = plugin_class(settings.name, project=project)
    except ConfigError:  # already reported
        return False
    return found.on_prompt is not Plugin.on_prompt


def _target_warnings(draft: Draft, settings: PluginSettings, entries: Sequence[PluginSettings]) -> Iterator[Problem]:
    """Check that a `target` is the id of a node that the author wrote or that a plugin inserts."""
    target: Any = settings.parameters.get("target")
    if not isinstance(target, str):
        return
    nodes = dict((node.id, path) for path, node in draft.nodes()) or {INSTRUCTIONS: ()}
    where = settings.lines.where(("target",))
    if target not in (*nodes, HISTORY) and not any(_may_insert(entry, target) for entry in entries):
        hint = nearest(target, (*nodes, HISTORY))
        yield warning(where, f"the plugin {settings.name!r} targets {target!r}, which the prompt does not have{hint}")
    elif target in nodes and (off := _disabled_around(draft, nodes[target], settings.parameters.get("position"))):
        yield warning(
            where, f"the plugin {settings.name!r} targets {target!r}, but {off!r} is not enabled, so it is not sent"
        )


def _may_insert(entry: PluginSettings, id: str) -> bool:
    # Plugins name what they insert after their entry, unless an id is given.
    own = entry.entry or entry.name
    return id in (own, entry.parameters.get("id")) or id.startswith(f"{own}-")


def _disabled_around(draft: Draft, path: KeyPath, position: object) -> str:
    """Return the id of a disabled node that hides what is inserted here, or an empty text."""
    at: Mapping[KeyPath, NodeSettings] = dict(draft.nodes())
    ends_inside = position in ("child", "relative")
    for length in range(2, len(path) + 1, 2):
        if not at[path[:length]].enabled and (length < len(path) or ends_inside):
            return at[path[:length]].id
    return ""
