"""What a file may say of an agent, as values. Knows no file."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..agent import Fact

Kind: TypeAlias = Literal["prompt", "template", "alias", "function"]
KINDS: tuple[Kind, ...] = ("prompt", "template", "alias", "function")
"""What an agent can be. Exactly one of these keys says it."""


class NodeSettings(msgspec.Struct, frozen=True):
    """A piece of a prompt. The one with the id `history` is where the conversation goes."""

    id: str
    text: str = ""
    role: Literal["system", "user", "assistant"] | None = None
    caption: str = ""
    enabled: bool = True
    tags: tuple[str, ...] = ()
    children: tuple[NodeSettings, ...] = ()


class AgentSettings(msgspec.Struct, frozen=True):
    """What a file may say of an agent."""

    description: str = ""
    """What it is good for: other agents read it when it is one of their tools."""
    prompt: str | tuple[NodeSettings, ...] = ""
    template: str = ""
    """A text with directives that is filled in and is the answer."""
    alias: str = ""
    """Another agent, whose body this one has."""
    function: str = ""
    """`module:attribute`: a Python function that gives the answer."""
    engine: str = ""
    tools: tuple[str, ...] = ()
    """Built-in tools, `module:attribute` of the project, or other agents."""
    listeners: tuple[str, ...] = ()
    """Agents that the model may call; each has a description and inputs."""
    plugins: tuple[str | dict[str, Any], ...] = ()
    limits: dict[str, Any] = {}
    options: dict[str, Any] = {}
    inputs: dict[str, dict[str, Any]] = {}
    """What it takes: the properties of a JSON schema, each required only where it says `required: true`."""
    output: dict[str, Any] = {}
    """The JSON schema of its answer."""
    facts: dict[str, Fact] = {}
    """What it learns when it runs."""
    expands_output: bool = False
    """Directives in what it returns are carried out, for the agents in `recruits`."""
    recruits: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    """Agents that run one after the other, in the background, when this one has answered."""
    background: tuple[str, ...] | dict[str, Literal["background", "inline"]] = ()
    """Which of its tools work in the background; a table says how each reports."""
    schedules: tuple[dict[str, Any], ...] = ()
    """When it is spoken to without a person: `{cron: "0 9 * * 1-5", zone: Europe/Berlin, say: ...}`."""
