"""Agents in files: `agents/*.yaml` or `*.json` with several, `agents/*.md` with one, beside rondel.toml.

`AgentSettings` documents the keys; a new key is a field there and a line in `bind.py`. References to other agents stay
names, which the app resolves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...agent import Agent
from ..settings import Config
from .bind import agents_of
from .drafts import agent_paths, no_such_default, read_drafts


def load_agents(config: Config, env: Mapping[str, str] | None = None) -> list[Agent]:
    """Return the agents in `agents/` beside rondel.toml, in the order of files and lines, then the library agents that
    they name."""
    if not config.project:
        return []
    drafts = read_drafts(agent_paths(config), os.environ if env is None else env)
    if config.agent and config.agent not in drafts:
        raise no_such_default(config, tuple(drafts))
    return list(agents_of(drafts, config, tuple(drafts)).values())


def agent_files(config: Config) -> dict[str, str]:
    """Return the file and line of each agent in `agents/`, relative to the project."""
    drafts = read_drafts(agent_paths(config), os.environ, []) if config.project else {}
    return {name: os.path.relpath(str(draft.where), config.project) for name, draft in drafts.items()}
