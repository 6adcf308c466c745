"""From agents as they stand in files to agents: bound to the tools, plugins, functions and agents that they name.

Loading refuses what cannot be: names that stand for nothing, listeners that no model could be told about, an alias of
itself, directives that are cut off. What only goes wrong when it runs (an agent that gets itself) is the linter's.
Knows no app.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..agent import Agent
from ..config import engine_problem, limits_of, options_of, plugins_of
from ..document import KeyPath, Mistakes, SaidAlready, dotted, going_on
from ..errors import RondelError, nearest
from ..inputs import described_by, typed
from ..libraries import agent_names, find_agent, is_library_name
from ..lookup import find_tool, import_attribute
from ..plugin import Plugin
from ..prompt import DEPTH_MAX, HISTORY, Node
from ..schedule import Schedule, parse
from ..settings import Config
from ..tool import CallContext, Tool, is_function
from ..values import OutputSchema
from .drafts import Draft, places
from .links import Links
from .settings import NodeSettings

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def agents_of(
    drafts: Mapping[str, Draft], config: Config, names: tuple[str, ...], mistakes: Mistakes | None = None
) -> dict[str, Agent]:
    """The agents of these drafts by name, and those of libraries that they name. `names` are those of all agents, also
    of some that could not be read."""
    agents: dict[str, Agent] = {}
    for draft in drafts.values():
        with going_on(mistakes):
            agents[draft.name] = agent_of(draft, config, names)
    libraries: dict[str, Agent] = {}
    for draft in drafts.values():
        for link in Links(draft):
            if is_library_name(link.to) and link.to in agent_names() and link.to not in libraries:
                libraries[link.to] = find_agent(link.to, project=config.project)
    for draft in drafts.values():
        _check_alias(draft, drafts, names)
        _check_listeners(draft, {**agents, **libraries}, names)
    return {**agents, **libraries}


def agent_of(draft: Draft, config: Config, names: tuple[str, ...]) -> Agent:
    """The agent, bound to the tools and plugins that it names. `names` are those of all agents."""
    settings, checker, path = draft.settings, draft.checker, draft.path
    errors = Links(draft).errors
    for error in errors:
        with going_on(draft.mistakes):
            raise error
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
        expands_output=settings.expands_output,
        recruits=_named(draft, "recruits", settings.recruits, names),
        facts=_facts(draft),
        job=_named(draft, "job", settings.job, names),
        background=settings.background,
        schedules=_schedules(draft),
    )
    draft.check_kind()
    if errors:
        raise SaidAlready
    try:
        return Agent(draft.name, **bound)
    except RondelError as error:
        raise draft.error((), str(error)) from None


def _engine(draft: Draft, config: Config) -> str | None:
    name = draft.settings.engine
    with going_on(draft.mistakes):
        if name and (problem := engine_problem(name, config.engines)):
            raise draft.error(("engine",), problem)
    return name or None


def _tools(draft: Draft, config: Config, agents: tuple[str, ...]) -> tuple[Tool | str, ...]:
    tools: dict[str, Tool | str] = {}
    for index, name in enumerate(cast("tuple[str | None, ...]", draft.settings.tools)):
        if name is None:
            continue
        with going_on(draft.mistakes):
            where = draft.checker.document.where((*draft.path, "tools", index))
            known = name in agents or name in _library_names(name)
            found = name if known else find_tool(name, where, project=config.project, known=agents)
            called = found if isinstance(found, str) else found.name
            if called in tools:
                raise where.error(f"agent {draft.name!r} has two tools named {called!r}; name one, or rename one")
            tools[called] = found
    return tuple(tools.values())


def _plugins(draft: Draft, config: Config) -> tuple[Plugin, ...]:
    """Those that rondel.toml turns on for all agents, then the agent's own, which replace those of the same name."""
    own: list[Plugin] = []
    for settings in draft.plugins():
        with going_on(draft.mistakes):
            if settings.enabled:
                own.append(settings.make(config.project, mistakes=draft.mistakes))
    named = {plugin.name for plugin in own}
    # Made anew for each agent: a plugin is opened and closed with each agent that has it.
    return (*(plugin for plugin in plugins_of(config) if plugin.name not in named), *own)


def _schedules(draft: Draft) -> tuple[Schedule, ...]:
    found: list[Schedule] = []
    for index, given in enumerate(cast("tuple[dict[str, Any] | None, ...]", draft.settings.schedules)):
        with going_on(draft.mistakes):
            try:
                found += [parse(given)] if given is not None else []
            except RondelError as error:
                raise draft.error(("schedules", index), str(error)) from None
    return tuple(found)


# --- inputs, facts and functions --------------------------------------------------------------------------------------


def _inputs(draft: Draft) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for name, field in draft.settings.inputs.items():
        with going_on(draft.mistakes):
            if not isinstance(field.get("required", False), bool):
                raise draft.error(("inputs", name, "required"), f"'required' of the input {name!r} is true or false")
            _check_type(draft, ("inputs", name), field.get("type"))
            inputs[name] = typed(field)
    return inputs


def _facts(draft: Draft) -> dict[str, Any]:
    for name, fact in draft.settings.facts.items():
        with going_on(draft.mistakes):
            if "." in name:
                raise draft.error(("facts", name), f"the fact {name!r} has a dot; others find it as 'agent.fact'")
            _check_type(draft, ("facts", name), fact.type)
    return draft.settings.facts


def _check_type(draft: Draft, path: KeyPath, kind: Any) -> None:
    for one in cast("list[Any]", kind) if isinstance(kind, list) else [kind]:
        if one is not None and one not in TYPES:
            raise draft.error((*path, "type"), f"{one!r} is no type{nearest(str(one), TYPES)}")


def _function(draft: Draft, config: Config) -> tuple[Callable[..., Any] | None, str, dict[str, Any]]:
    """The function that an agent names, with what it says of itself: a description and inputs."""
    name = draft.settings.function
    if not name:
        return None, "", {}
    where = draft.checker.document.where((*draft.path, "function"))
    if ":" not in name:
        raise where.error(f"{name!r} is no function; write it as module:attribute")
    found = import_attribute(name, where, project=config.project)
    if isinstance(found, Tool):
        raise where.error(f"{name!r} is a tool; name a plain function, or put it among the 'tools' of an agent")
    if not is_function(found):
        raise where.error(f"{name!r} is no function but {type(found).__name__!r}")
    if draft.settings.inputs:
        _check_parameters(draft, found)
        return found, (inspect.getdoc(found) or "").partition("\n\n")[0], {}
    try:
        return found, *described_by(found)
    except RondelError as error:
        raise where.error(f"{name!r} does not say what it takes: {error}; write its 'inputs' here") from None


def _needed(inputs: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
    """The same inputs; what a function cannot do without is required, whatever the file says."""
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
    """The inputs that a file declares are what the function takes."""
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
                ("inputs",), f"the function {draft.settings.function!r} needs {name!r}, which is none of the inputs"
            )


# --- other agents -----------------------------------------------------------------------------------------------------


def _library_names(name: str) -> tuple[str, ...]:
    """The agents of libraries, where a name looks as if it were one of them: none is imported otherwise."""
    return agent_names() if is_library_name(name) else ()


def _known(draft: Draft, key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    given = cast("tuple[str | None, ...]", names)
    if len(set(given)) < len(given):
        with going_on(draft.mistakes):
            twice = next(name for index, name in enumerate(given) if name in given[:index])
            raise draft.error((key,), f"{key!r} of agent {draft.name!r} has {twice!r} twice; once is enough")
    return tuple(dict.fromkeys(name for name in given if name is not None))


def _named(draft: Draft, key: str, names: tuple[str, ...], agents: tuple[str, ...]) -> tuple[str, ...]:
    """Names of agents that there are."""
    for index, name in enumerate(cast("tuple[str | None, ...]", names)):
        with going_on(draft.mistakes):
            if name is not None and name not in agents and name not in _library_names(name):
                raise draft.error((key, index), no_such_agent(name, agents))
    return tuple(name for name in cast("tuple[str | None, ...]", names) if name is not None)


def no_such_agent(name: str, agents: tuple[str, ...]) -> str:
    return f"there is no agent {name!r}{nearest(name, (*agents, *_library_names(name)))}"


def _check_alias(draft: Draft, drafts: Mapping[str, Draft], agents: tuple[str, ...]) -> None:
    """An alias leads to an agent in the end, and not to itself."""
    path, at = [draft.name], draft
    while at.settings.alias:
        path.append(at.settings.alias)
        if at.settings.alias in path[:-1]:
            if at.settings.alias == draft.name:  # each circle is told by those who stand in it
                with going_on(draft.mistakes):
                    what = "of itself" if len(path) == 2 else f"that comes back to itself: {' -> '.join(path)}"
                    raise draft.error(("alias",), f"agent {draft.name!r} is an alias {what}; name another agent")
            return
        if at.settings.alias not in drafts:
            break
        at = drafts[at.settings.alias]
    name = draft.settings.alias
    if name and name not in agents and name not in _library_names(name):
        with going_on(draft.mistakes):
            raise draft.error(("alias",), no_such_agent(name, agents))


def _check_listeners(draft: Draft, agents: Mapping[str, Agent], names: tuple[str, ...]) -> None:
    """A model is told what a listener is good for and what it takes: both must be said. All that are not are told."""
    bad: list[str] = []
    for name in cast("tuple[str | None, ...]", draft.settings.listeners):
        if name is None or (name in names and name not in agents):
            continue  # a mistake that has been found before
        if name not in agents:
            bad.append(f"{name!r} (there is no such agent{nearest(name, (*names, *_library_names(name)))})")
            continue
        description, inputs = _offered(agents[name], agents)
        lacks = " and ".join(word for word, has in (("description", description), ("inputs", inputs)) if not has)
        if lacks:
            bad.append(f"{name!r} (it has no {lacks})")
    if bad:
        with going_on(draft.mistakes):
            told = ", ".join(bad)
            raise draft.error(
                ("listeners",), f"agent {draft.name!r} cannot listen to {told}; a listener has a description and inputs"
            )


def _offered(agent: Agent, agents: Mapping[str, Agent]) -> tuple[str, bool]:
    """What a model is told of an agent. An alias that says nothing itself says what its target does."""
    description, inputs, seen = agent.description, bool(agent.inputs) or _takes_nothing(agent), {agent.name}
    while agent.alias in agents and agent.alias not in seen:
        agent = agents[agent.alias]
        seen.add(agent.name)
        description, inputs = description or agent.description, inputs or bool(agent.inputs) or _takes_nothing(agent)
    return description, inputs


def _takes_nothing(agent: Agent) -> bool:
    """A function says itself what it takes, also when that is nothing."""
    return agent.function is not None


# --- the prompt -------------------------------------------------------------------------------------------------------


def _prompt(draft: Draft) -> str | tuple[Node, ...]:
    prompt = draft.settings.prompt
    if isinstance(prompt, str):
        return prompt
    seen: dict[str, KeyPath] = {}
    for path, node in draft.nodes():
        with going_on(draft.mistakes):
            _check_node(draft, node, path, seen)
    return tuple(_node(node, ("prompts",)) for _, node in places(prompt, ()))


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
        raise draft.error(path, f"{dotted(path)!r}: the place of the conversation is at the top of the prompt's list")


def _node(settings: NodeSettings, source: tuple[str, ...]) -> Node:
    source = (*source, settings.id)
    inner = (*source, "children")
    return Node(
        settings.id,
        text=settings.text,
        role=settings.role,
        children=tuple(_node(child, inner) for _, child in places(settings.children, ())),
        caption=settings.caption,
        enabled=settings.enabled,
        tags=settings.tags,
        source=source,
    )
