"""Agents in files: `agents/*.yaml` with several, `agents/*.md` with one, beside rondel.toml.

    agents:                                     ---
      weather:                                  description: Writes release notes
        description: The weather in a city      tools: [notes:changes_since]
        inputs: {city: {required: true}}        ---
        function: app.weather:lookup            You write release notes. Be brief.
      guide:
        prompt: You know what to wear.
        listeners: [weather, time.now]

Each agent is one of four: a `prompt` for a model, a `template` that is filled in, an `alias` of another one, or a
Python `function`. A Markdown file's text is the prompt, and its name is the agent's unless the front matter gives a
`name`. What the keys mean is in `AgentSettings`; a new key is one field there and one line in `bind.py`. Limits and
options stand on top of those in rondel.toml. Knows no app: other agents stay names, which whoever runs them looks up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..agent import Agent
from ..settings import Config
from .bind import agents_of
from .drafts import Draft, agent_paths, no_such_default, read_drafts
from .links import Link, Links
from .settings import KINDS, AgentSettings, NodeSettings

__all__ = [
    "KINDS",
    "AgentSettings",
    "Draft",
    "Link",
    "Links",
    "NodeSettings",
    "agent_paths",
    "agents_of",
    "load_agents",
    "no_such_default",
    "read_drafts",
]


def load_agents(config: Config, env: Mapping[str, str] | None = None) -> list[Agent]:
    """The agents in `agents/` beside rondel.toml, in the order of their files' names and of the files' lines.
    Behind them stand those of libraries that they name."""
    if not config.project:
        return []
    drafts = read_drafts(agent_paths(config), os.environ if env is None else env)
    if config.agent and config.agent not in drafts:
        raise no_such_default(config, tuple(drafts))
    return list(agents_of(drafts, config, tuple(drafts)).values())
