"""The contract of an agent: who answers, with which engine, prompt, tools and plugins, within which limits.

Frozen, and only data until an app runs it. Written in code or in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from .engine import Engine
from .errors import RondelError, ToolError, nearest
from .events import JobMode
from .limits import Limits
from .plugin import Plugin
from .prompt import HISTORY, Node
from .text.inputs import TEXT_INPUT, schema_of, validator
from .text.template import TemplateError, parse
from .tool import NAME, CallContext, Tool, is_function, job_mode, tool
from .values import Handoff, Options, OutputSchema, Value

if TYPE_CHECKING:
    from .text.schedule import Schedule

AGENT_NAME = re.compile(rf"{NAME.pattern}(?:\.{NAME.pattern})?")  # A name with a dot belongs to a library: `time.now`

ToolLike: TypeAlias = "Tool | Agent | Callable[..., Any] | str"


class Fact(Value, frozen=True):
    """A value that an agent learns while it runs; other agents read it as `agent.fact`."""

    description: str = ""
    type: str = "string"
    scope: Literal["global", "local"] = "global"
    """A local fact is visible to its own agent only."""
    tags: tuple[str, ...] = ()


class Agent(msgspec.Struct, frozen=True):
    """`Agent("adder", engine="anthropic:claude-sonnet-5", tools=[add])`.

    Names (strings) in `tools` and `plugins` are looked up by the app that runs the agent.
    """

    name: str
    prompt: str | Node | Sequence[Node] = ""
    engine: str | Engine | None = None
    """`provider:model`, an engine, or None for the app's default."""
    tools: Sequence[ToolLike] = ()
    plugins: Sequence[Plugin | str] = ()
    limits: Limits = Limits()
    options: Options = Options()
    description: str = ""
    inputs: dict[str, Any] = {}
    """What the agent takes: the properties of a JSON schema, each optional unless it says `required: True`."""
    output: OutputSchema | None = None
    template: str = ""
    """A template whose filled-in text is the answer; no model is asked."""
    function: Callable[..., Any] | None = None
    """A Python function that returns the answer; no model is asked."""
    alias: str = ""
    """The agent that answers under this name, with this one's description, inputs and facts."""
    listeners: Sequence[str] = ()
    """Agents that are offered to the model as tools."""
    handoffs: Sequence[Agent | str] = ()
    """Agents that the model may hand the conversation over to: the chosen one answers in this one's place."""
    expands_output: bool = False
    """Whether directives in what this agent's model or function returns are run, for the agents in `recruits`."""
    recruits: Sequence[str] = ()
    facts: dict[str, Fact] = {}
    job: Sequence[str] = ()
    """Agents that run in the background, one after the other, when this one has answered."""
    background: Sequence[str] | Mapping[str, JobMode] = ()
    """Which of its tools run in the background; a mapping says how each reports, `background` or `inline`."""
    schedules: Sequence[Schedule] = ()
    """When it receives a message without a person, in a conversation of its own."""

    def __post_init__(self) -> None:
        if not AGENT_NAME.fullmatch(self.name):
            raise RondelError(f"{self.name!r} is not a valid agent name: use 1 to 64 letters, digits, '_' or '-'")
        for key, value in (("tools", self.tools), ("plugins", self.plugins), ("handoffs", self.handoffs)):
            if isinstance(value, str):
                raise RondelError(f"agent {self.name!r}: {key} is a list; write {key}=[{value!r}]")
        self._check_words()
        if self.tools:
            msgspec.structs.force_setattr(self, "tools", tuple(_as_tool(item) for item in self.tools))
        for plugin in self.plugins:
            if isinstance(plugin, Plugin):
                plugin.check(self)

    def _check_words(self) -> None:
        """Check that there is exactly one kind of answer, and that directives are well formed."""
        kinds = {"prompt": self.prompt, "template": self.template, "alias": self.alias, "function": self.function}
        given = [kind for kind, value in kinds.items() if value]
        if len(given) > 1:
            raise RondelError(f"agent {self.name!r} must be one of {', '.join(kinds)}; it has {' and '.join(given)}")
        texts = [("template", self.template)] if self.template else [(f"prompt {n.id!r}", n.text) for n in self._pieces]
        for what, text in texts:
            if "{{" in text:
                try:
                    parse(text)
                except TemplateError as error:
                    raise RondelError(f"agent {self.name!r}, {what}, {error}") from None

    @property
    def _pieces(self) -> Iterator[Node]:
        pending: list[Any] = list(self.nodes)[::-1]
        while pending:
            if isinstance(piece := pending.pop(), Node):
                yield piece
                pending.extend(reversed(piece.children))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The prompt as nodes, with a node for the history."""
        if isinstance(self.prompt, str):
            nodes = (Node("instructions", text=self.prompt, role="system"),) if self.prompt else ()
        elif isinstance(self.prompt, Node):
            nodes = (self.prompt,)
        else:
            nodes = tuple(self.prompt)
        if any(node.id == HISTORY for node in nodes):
            return nodes
        return (*nodes, Node(HISTORY))

    def as_tool(self, *, background: bool | JobMode = False) -> Tool:
        """Return this agent as a tool of another one: it works on a transcript of its own and returns its answer.

        Models take no names with dots: `time.now` is called `time_now`.
        """
        fields = self.inputs or TEXT_INPUT

        async def run(arguments: dict[str, Any], context: CallContext) -> Any:
            return await context.turn.recruit(self, arguments, context)

        return Tool(
            name=self.name.replace(".", "_"),
            run=run,
            description=self.description or f"Ask the agent {self.name}.",
            schema=schema_of(fields),
            validate=validator(self.name, fields),
            timeout_s=0,
            idempotent=True,  # its own transcript shows its progress, so running it again resumes it
            tags=("agent",),
            origin=f"agent:{self.name}",
            background=job_mode(background),
        )


def handoff_tool(agents: Sequence[Agent]) -> Tool:
    """Return the tool with which a model chooses the agent that takes over."""
    names = [agent.name for agent in agents]
    about = "\n".join(f"- {agent.name}{f': {agent.description}' if agent.description else ''}" for agent in agents)

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        if (chosen := arguments.get("agent")) not in names:
            raise ToolError(f"argument 'agent': {chosen!r} cannot take over{nearest(str(chosen), names)}")
        return arguments

    async def run(arguments: dict[str, Any], context: CallContext) -> Handoff:
        return Handoff(arguments["agent"], str(arguments.get("reason") or ""))

    choice = {"type": "string", "enum": names, "description": "the agent that takes over"}
    reason = {"type": "string", "description": "why, in a few words"}
    return Tool(
        name="hand_off",
        run=run,
        description=f"Hand the conversation over to another agent, which answers in your place:\n{about}",
        schema={"type": "object", "properties": {"agent": choice, "reason": reason}, "required": ["agent"]},
        validate=validate,
        idempotent=True,
        tags=("handoff",),
        origin="rondel:hand_off",
    )


def _as_tool(item: ToolLike) -> Tool | str:
    if isinstance(item, (Tool, str)):
        return item
    if isinstance(item, Agent):
        return item.as_tool()
    if is_function(item):
        return tool(item)
    raise RondelError(f"{item!r} is not a tool: give a function, a Tool, an Agent, or a name")


def alias_path(name: str, alias_of: Callable[[str], str]) -> tuple[str, ...]:
    """Return the names from an alias to its agent. The last one repeats an earlier one if they form a circle."""
    path = [name]
    while (target := alias_of(path[-1])) and path.count(path[-1]) == 1:
        path.append(target)
    return tuple(path)
