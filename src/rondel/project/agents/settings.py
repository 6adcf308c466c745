"""The values of an agent in a file."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from ...agent import Fact
from ...values import Options

AgentKind: TypeAlias = Literal["prompt", "template", "alias", "function"]
KINDS: tuple[AgentKind, ...] = ("prompt", "template", "alias", "function")  # an agent has exactly one of these keys


class NodeSettings(msgspec.Struct, frozen=True):
    """A node of a prompt. The conversation goes into the one with the id `history`."""

    id: str
    text: str = ""
    role: Literal["system", "user", "assistant"] | None = None
    caption: str = ""
    enabled: bool = True
    tags: tuple[str, ...] = ()
    children: tuple[NodeSettings, ...] = ()


class AgentSettings(msgspec.Struct, frozen=True):
    MEANT: ClassVar[dict[str, str]] = {
        "model": "; write it as 'engine'",
        **dict.fromkeys(Options.__struct_fields__, "; write it below 'options'"),
    }
    description: str = ""  # what it does: other agents read this when it is one of their tools
    prompt: str | tuple[NodeSettings, ...] = ""
    template: str = ""  # a text with directives; filled in, it is the answer
    alias: str = ""  # another agent, which this one behaves like
    function: str = ""  # `module:attribute`: a Python function that returns the answer
    engine: str = ""
    tools: tuple[str, ...] = ()  # built-in tools, `module:attribute` of the project, or other agents
    listeners: tuple[str, ...] = ()  # agents that the model may call; each needs a description and inputs
    handoffs: tuple[str, ...] = ()  # agents that the model may hand the conversation over to
    plugins: tuple[str | dict[str, Any], ...] = ()
    mcp: tuple[str, ...] | dict[str, Any] | None = None
    """Which of the project's MCP servers it gets, or its own; without it, all of the project's."""
    mcpServers: Any = None
    limits: dict[str, Any] = {}
    options: dict[str, Any] = {}
    inputs: dict[str, dict[str, Any]] = {}
    """The properties of a JSON schema; inputs are optional unless marked `required: true`."""
    output: dict[str, Any] = {}  # the JSON schema of its answer
    facts: dict[str, Fact] = {}  # the facts that it learns when it runs
    expands_output: bool = False  # directives in its output are carried out, for the agents in `recruits`
    recruits: tuple[str, ...] = ()
    job: tuple[str, ...] = ()  # agents that run one after the other in the background, after this one has answered
    background: tuple[str, ...] | dict[str, Literal["background", "inline"]] = ()
    """Which of its tools run in the background; a table says how each reports."""
    schedules: tuple[dict[str, Any], ...] = ()
    """Messages at set times: `{cron: "0 9 * * 1-5", zone: Europe/Berlin, say: ...}`."""
