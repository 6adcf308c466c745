"""Applies what a conversation overrides of its agent: options, nodes of the prompt, parameters of plugins.

Each is one key: `options.temperature`, `prompt.tone`, `plugins.trim.share`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import RondelError, nearest
from ..machine.resolved import ResolvedAgent
from ..plugin import Chain, Plugin
from ..prompt import HISTORY, Child, Node
from ..values import Options

TEXT_CHARS_MAX = 100_000


def adjust(resolved: ResolvedAgent, settings: Mapping[str, Any], *, strict: bool = False) -> ResolvedAgent:
    """Return the agent with these settings. What no longer fits it, because its file has changed, is left out; if
    `strict`, it raises RondelError."""
    for key, value in settings.items():
        try:
            resolved = _with(resolved, key, value)
        except RondelError:
            if strict:
                raise
    return resolved


def _with(resolved: ResolvedAgent, key: str, value: Any) -> ResolvedAgent:
    kind, _, rest = key.partition(".")
    if kind == "options" and rest:
        return msgspec.structs.replace(resolved, options=_options(resolved.options, rest, value))
    if kind == "prompt" and rest:
        return msgspec.structs.replace(resolved, nodes=_nodes(resolved.nodes, rest, value))
    if kind == "plugins" and "." in rest:
        name, _, parameter = rest.rpartition(".")
        return msgspec.structs.replace(resolved, chain=_chain(resolved, name, parameter, value))
    raise RondelError(f"{key!r} is not a setting; write model, options.NAME, prompt.NODE or plugins.NAME.PARAMETER")


def _options(options: Options, name: str, value: Any) -> Options:
    known = tuple(field for field in Options.__struct_fields__ if field != "output")
    if name not in known:
        raise RondelError(f"there is no option {name!r}{nearest(name, known)}")
    try:
        given = getattr(msgspec.convert({name: value}, Options, strict=False), name)
    except msgspec.ValidationError as error:
        raise RondelError(f"the option {name!r} cannot be {value!r}: {error}") from None
    return msgspec.structs.replace(options, **{name: given})


# --- the prompt -------------------------------------------------------------------------------------------------------


def _nodes(nodes: tuple[Node, ...], id: str, value: Any) -> tuple[Node, ...]:
    known = [node.id for node in _walk(nodes) if node.id != HISTORY]
    if id not in known:
        raise RondelError(f"the prompt has no node {id!r}{nearest(id, known) or '; it is empty'}")
    if not isinstance(value, (str, bool)):
        raise RondelError(f"the node {id!r} takes a text, or true and false to turn it on and off, not {value!r}")
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        raise RondelError(f"the text of the node {id!r} has more than {TEXT_CHARS_MAX:,} characters; write less")
    change = {"text": value} if isinstance(value, str) else {"enabled": value}

    def edited(child: Child) -> Child:
        if not isinstance(child, Node):
            return child
        if child.id == id:
            child = msgspec.structs.replace(child, **change)
        return msgspec.structs.replace(child, children=tuple(map(edited, child.children))) if child.children else child

    return tuple(node for node in map(edited, nodes) if isinstance(node, Node))


def _walk(nodes: tuple[Child, ...]) -> typing.Iterator[Node]:
    for node in nodes:
        if isinstance(node, Node):
            yield node
            yield from _walk(node.children)


# --- plugins ----------------------------------------------------------------------------------------------------------


def _chain(resolved: ResolvedAgent, name: str, parameter: str, value: Any) -> Chain:
    plugins = resolved.chain.plugins
    found = [plugin for plugin in plugins if name in (plugin.entry, plugin.name)]
    if not found:
        known = tuple(plugin.entry or plugin.name for plugin in plugins)
        raise RondelError(f"agent {resolved.agent.name!r} has no plugin {name!r}{nearest(name, known)}")
    made = _remade(found[0], parameter, value)
    made.check(resolved.agent)
    return Chain(made if plugin is found[0] else plugin for plugin in plugins)


def _remade(plugin: Plugin, parameter: str, value: Any) -> Plugin:
    kind = type(plugin)
    if plugin.required or plugin.tools or kind.lifespan is not Plugin.lifespan:
        why = "it is required" if plugin.required else "it offers tools" if plugin.tools else "it opens resources"
        raise RondelError(f"the plugin {plugin.name!r} cannot be changed for one conversation: {why}")
    signature = inspect.signature(kind)
    hidden = ("project",)
    known = tuple(name for name in signature.parameters if name not in hidden)
    if parameter not in known:
        hint = nearest(parameter, known) or "; it takes none"
        raise RondelError(f"the plugin {plugin.name!r} has no parameter {parameter!r}{hint}")
    arguments, named = plugin.made_with
    given = {**signature.bind_partial(*arguments, **named).arguments, parameter: _converted(kind, parameter, value)}
    try:
        made = kind(**given)
    except (TypeError, ValueError) as error:
        raise RondelError(f"the plugin {plugin.name!r} does not take {parameter} = {value!r}: {error}") from None
    if plugin.entry:
        made.entry = plugin.entry
    return made


def _converted(kind: type[Plugin], parameter: str, value: Any) -> Any:
    try:
        hint = typing.get_type_hints(kind.__init__).get(parameter, Any)
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise RondelError(f"the plugin {kind.name!r} does not take {parameter} = {value!r}: {error}") from None
    except (NameError, TypeError):  # a type that values cannot have: only code can give it
        raise RondelError(f"the parameter {parameter!r} of the plugin {kind.name!r} can only be set in code") from None
