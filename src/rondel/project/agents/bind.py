"""Makes agents from drafts: binds them to the tools, plugins, functions and agents that they name.

Refuses what cannot work. What only fails at run time, such as an agent that gets itself, is for the linter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ...agent import Agent, alias_path
from ...errors import RondelError, nearest
from ...libraries import find_agent, has_agent, names_for
from ...plugin import Plugin
from ...prompt import DEPTH_MAX, HISTORY, Node
from ...text.document import AlreadyReported, KeyPath, Mistakes, collecting, dotted
from ...text.inputs import described_by, typed
from ...text.schedule import Schedule, parse
from ...tool import CallContext, Tool, is_function
from ...values import OutputSchema
from ..config import engine_problem, mcp_plugin, plugins_of
from ..config.entries import limits_of, options_of
from ..config.mcp import agent_servers
from ..lookup import find_tool, import_attribute
from ..settings import Config
from .drafts import Draft, with_paths
from .links import Links
from .settings import NodeSettings

TYPE_NAMES = {"list": "array"}  # other words for types
TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def agents_of(
    drafts: Mapping[str, Draft], config: Config, names: tuple[str, ...], mistakes: Mistakes | None = None
) -> dict[str, Agent]:
    """Return the agents of these drafts by name, and the library agents that they name. `names` are those of all
    agents, even if some could not be read."""
    agents: dict[str, Agent] = {}
    for draft in drafts.values():
        with collecting(mistakes):
            agents[draft.name] = agent_of(draft, config, names)
    libraries: dict[str, Agent] = {}
    for draft in drafts.values():
        for link in Links(draft):
            if link.to not in libraries and has_agent(link.to):
                libraries[link.to] = find_agent(link.to)
    for draft in drafts.values():
        _check_alias(draft, drafts, names)
        _check_listeners(draft, {**agents, **libraries}, names)
    return {**agents, **libraries}


def agent_of(draft: Draft, config: Config, names: tuple[str, ...]) -> Agent:
    """Return the agent, bound to its tools and plugins. `names` are those of all agents."""
    settings, checker, path = draft.settings, draft.checker, draft.path
    errors = Links(draft).errors
    checker.report(*errors)
    draft.check_filled()
    function, said, inputs = _function(draft, config)
    bound = dict[str, Any](
        prompt=_prompt(draft),
        engine=_engine(draft, config),
        tools=_tools(draft, config, names),
        plugins=_plugins(draft, config),
        limits=limits_of(checker, settings.limits, (*path, "limits"), config.limits),
        options=options_of(checker, settings.options, (*path, "options"), config.options),
        description=settings.description or said,
        inputs=_needed(_inputs(draft), function) or inputs,
        output=OutputSchema(settings.output, name=draft.name) if settings.output else None,
        template=settings.template,
        function=function,
        alias=settings.alias,
        listeners=_known(draft, "listeners", settings.listeners),
        handoffs=_named(draft, "handoffs", settings.handoffs, names),
        expands_output=settings.expands_output,
        recruits=_named(draft, "recruits", settings.recruits, names),
        facts=_facts(draft),
        job=_named(draft, "job", settings.job, names),
        background=settings.background,
        schedules=_schedules(draft),
    )
    draft.check_kind()
    if errors:
        raise AlreadyReported
    try:
        return Agent(draft.name, **bound)
    except RondelError as error:
        raise draft.error((), str(error)) from None


def _engine(draft: Draft, config: Config) -> str | None:
    name = draft.settings.engine
    if name and (problem := engine_problem(name, config.engines)):
        draft.report(("engine",), problem)
    return name or None


def _tools(draft: Draft, config: Config, agents: tuple[str, ...]) -> tuple[Tool | str, ...]:
    tools: dict[str, Tool | str] = {}
    for index, name in enumerate(cast("tuple[str | None, ...]", draft.settings.tools)):
        if name is None:
            continue
        with collecting(draft.mistakes):
            where = draft.checker.document.where((*draft.path, "tools", index))
            known = name in agents or has_agent(name)
            found = name if known else find_tool(name, where, project=config.project, known=agents)
            called = found if isinstance(found, str) else found.name
            if called in tools:
                raise where.error(f"agent {draft.name!r} has two tools named {called!r}; remove or rename one")
            tools[called] = found
    return tuple(tools.values())


def _plugins(draft: Draft, config: Config) -> tuple[Plugin, ...]:
    own: list[Plugin] = []
    for settings in draft.plugins():
        with collecting(draft.mistakes):
            if settings.enabled:
                own.append(settings.make(config.project, mistakes=draft.mistakes))
    with collecting(draft.mistakes):
        settings, checker = draft.settings, draft.checker
        servers = agent_servers(checker, draft.path, settings.mcp, settings.mcpServers, config.mcp)
        if servers is not None:
            own.append(mcp_plugin(config, servers))
    named = {plugin.name for plugin in own}
    # A new instance for each agent: a plugin is opened and closed with its agent.
    return (*(plugin for plugin in plugins_of(config) if plugin.name not in named), *own)


def _schedules(draft: Draft) -> tuple[Schedule, ...]:
    found: list[Schedule] = []
    for index, given in enumerate(cast("tuple[dict[str, Any] | None, ...]", draft.settings.schedules)):
        with collecting(draft.mistakes):
            try:
                found += [parse(given)] if given is not None else []
            except RondelError as error:
                raise draft.error(("schedules", index), str(error)) from None
    return tuple(found)


# --- inputs, facts and functions --------------------------------------------------------------------------------------


def _inputs(draft: Draft) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for name, field in draft.settings.inputs.items():
        with collecting(draft.mistakes):
            if not isinstance(field.get("required", False), bool):
                raise draft.error(("inputs", name, "required"), f"'required' of input {name!r} must be true or false")
            field = {**field, "type": TYPE_NAMES.get(str(field["type"]), field["type"])} if "type" in field else field
            _check_type(draft, ("inputs", name), field.get("type"))
            inputs[name] = typed(field)
    return inputs


def _facts(draft: Draft) -> dict[str, Any]:
    facts = {
        name: msgspec.structs.replace(fact, type=TYPE_NAMES.get(fact.type, fact.type))
        for name, fact in draft.settings.facts.items()
    }
    for name, fact in facts.items():
        with collecting(draft.mistakes):
            if "." in name:
                raise draft.error(("facts", name), f"the fact {name!r} has a dot; others find it as 'agent.fact'")
            _check_type(draft, ("facts", name), fact.type)
    return facts


def _check_type(draft: Draft, path: KeyPath, kind: Any) -> None:
    for one in cast("list[Any]", kind) if isinstance(kind, list) else [kind]:
        if one is not None and one not in TYPES:
            raise draft.error((*path, "type"), f"{one!r} is not a type{nearest(str(one), TYPES)}")


def _function(draft: Draft, config: Config) -> tuple[Callable[..., Any] | None, str, dict[str, Any]]:
    name = draft.settings.function
    if not name:
        return None, "", {}
    where = draft.checker.document.where((*draft.path, "function"))
    if ":" not in name:
        raise where.error(f"{name!r} is not a function; write it as module:attribute")
    found = import_attribute(name, where, project=config.project)
    if isinstance(found, Tool):
        raise where.error(f"{name!r} is a tool; name a plain function, or put it among the 'tools' of an agent")
    if not is_function(found):
        raise where.error(f"{name!r} is not a function but {type(found).__name__!r}")
    if draft.settings.inputs:
        _check_parameters(draft, found)
        return found, (inspect.getdoc(found) or "").partition("\n\n")[0], {}
    try:
        return found, *described_by(found)
    except RondelError as error:
        raise where.error(f"{name!r} does not say what it takes: {error}; write its 'inputs' here") from None


def _needed(inputs: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
    """Mark the inputs that the function requires as required, whatever the file says."""
    if function is None:
        return inputs
    parameters = inspect.signature(function).parameters
    return {
        name: {**field, "required": True}
        if name in parameters and parameters[name].default is inspect.Parameter.empty and "default" not in field
        else field
        for name, field in inputs.items()
    }


def _check_parameters(draft: Draft, function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in draft.settings.inputs:
        if name not in parameters:
            hint = nearest(name, tuple(parameters))
            raise draft.error(
                ("inputs", name), f"the function {draft.settings.function!r} has no parameter {name!r}{hint}"
            )
    for name, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.annotation not in (CallContext, "CallContext")
        if needed and name not in draft.settings.inputs and parameter.kind is not parameter.VAR_POSITIONAL:
            raise draft.error(
                ("inputs",), f"the function {draft.settings.function!r} needs {name!r}, which is not one of the inputs"
            )


# --- other agents -----------------------------------------------------------------------------------------------------


def _known(draft: Draft, key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    given = cast("tuple[str | None, ...]", names)
    if len(set(given)) < len(given):
        twice = next(name for index, name in enumerate(given) if name in given[:index])
        draft.report((key,), f"{key!r} of agent {draft.name!r} has {twice!r} twice; remove one")
    return tuple(dict.fromkeys(name for name in given if name is not None))


def _named(draft: Draft, key: str, names: tuple[str, ...], agents: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(cast("tuple[str | None, ...]", names)):
        if name is not None and name not in agents and not has_agent(name):
            draft.report((key, index), no_such_agent(name, agents))
    return tuple(name for name in cast("tuple[str | None, ...]", names) if name is not None)


def no_such_agent(name: str, agents: tuple[str, ...]) -> str:
    return f"there is no agent {name!r}{nearest(name, (*agents, *names_for(name)))}"


def _check_alias(draft: Draft, drafts: Mapping[str, Draft], agents: tuple[str, ...]) -> None:
    path = alias_path(draft.name, lambda name: drafts[name].settings.alias if name in drafts else "")
    if path[-1] in path[:-1]:
        if path[-1] == draft.name:  # a cycle is reported for the agents in it, not for those that lead to it
            what = "of itself" if len(path) == 2 else f"that leads back to itself: {' -> '.join(path)}"
            draft.report(("alias",), f"agent {draft.name!r} is an alias {what}; name another agent")
        return
    name = draft.settings.alias
    if name and name not in agents and not has_agent(name):
        draft.report(("alias",), no_such_agent(name, agents))


def _check_listeners(draft: Draft, agents: Mapping[str, Agent], names: tuple[str, ...]) -> None:
    """Check that every listener has a description and inputs, which the model needs. Reports all that do not."""
    bad: list[str] = []
    for name in cast("tuple[str | None, ...]", draft.settings.listeners):
        if name is None or (name in names and name not in agents):
            continue  # already reported
        if name not in agents:
            bad.append(f"{name!r} (there is no such agent{nearest(name, (*names, *names_for(name)))})")
            continue
        description, inputs = _offered(agents[name], agents)
        lacks = " and ".join(word for word, has in (("description", description), ("inputs", inputs)) if not has)
        if lacks:
            bad.append(f"{name!r} (it has no {lacks})")
    if bad:
        told = f"agent {draft.name!r} cannot listen to {', '.join(bad)}; listeners need a description and inputs"
        draft.report(("listeners",), told)


def _offered(agent: Agent, agents: Mapping[str, Agent]) -> tuple[str, bool]:
    """Return what a model reads about an agent. An alias inherits what it does not set."""
    path = alias_path(agent.name, lambda name: agents[name].alias if name in agents else "")
    agents_on_path = [agents[name] for name in path if name in agents]
    description = next((one.description for one in agents_on_path if one.description), "")
    # A function's signature says what it takes, even if that is nothing.
    return description, any(one.inputs or one.function is not None for one in agents_on_path)


# --- the prompt -------------------------------------------------------------------------------------------------------


def _prompt(draft: Draft) -> str | tuple[Node, ...]:
    prompt = draft.settings.prompt
    if isinstance(prompt, str):
        return prompt
    seen: dict[str, KeyPath] = {}
    for path, node in draft.nodes():
        with collecting(draft.mistakes):
            _check_node(draft, node, path, seen)
    return tuple(_node(node, ("prompts",)) for _, node in with_paths(prompt, ()))


def _check_node(draft: Draft, node: NodeSettings, path: KeyPath, seen: dict[str, KeyPath]) -> None:
    if len(path) // 2 == DEPTH_MAX + 1:
        raise draft.error(path, f"the prompt is nested more than {DEPTH_MAX} levels deep; make it flatter")
    if not node.id:
        raise draft.error(path, f"{dotted(path)!r} has an empty id; name it")
    if node.id in seen:
        line = draft.checker.document.where((*draft.path, *seen[node.id])).line
        raise draft.error(path, f"two pieces of the prompt have the id {node.id!r}: on line {line} and here")
    seen[node.id] = path
    if node.id == HISTORY and len(path) > 2:
        raise draft.error(path, f"{dotted(path)!r}: the conversation's node must be at the top level of the prompt")


def _node(settings: NodeSettings, source: tuple[str, ...]) -> Node:
    source = (*source, settings.id)
    inner = (*source, "children")
    return Node(
        settings.id,
        text=settings.text,
        role=settings.role,
        children=tuple(_node(child, inner) for _, child in with_paths(settings.children, ())),
        caption=settings.caption,
        enabled=settings.enabled,
        tags=settings.tags,
        source=source,
    )
