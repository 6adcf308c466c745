"""Applies what a conversation overrides of its agent: options, nodes of the prompt, parameters of plugins.

Each is one key: `options.temperature`, `prompt.tone`, `plugins.trim.share`. A program that talks to the agent may add
tools that it answers itself (`client.tools`) and what the model should know of it (`client.context`).
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
from ..question import Hold, Question
from ..text.document import Checker, Document
from ..tool import NAME, CallContext, Tool
from ..values import Options, Value

TEXT_CHARS_MAX = 100_000
CLIENT = "client."
CLIENT_TOOLS_MAX = 128
CLIENT_QUESTION = "client:"
"""Begins the id of the question that waits for the result of a client's tool."""


class ClientTool(Value, frozen=True):
    """A tool that the client program answers. A call of it waits like a question."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


def adjust(resolved: ResolvedAgent, settings: Mapping[str, Any], *, strict: bool = False) -> ResolvedAgent:
    """Return the agent with these settings. A setting that no longer fits, because the agent's file has changed, is
    left out, or raises RondelError if `strict`."""
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
    if key == "client.tools":
        return _client_tools(resolved, value)
    if key == "client.context":
        return _client_context(resolved, str(value))
    if kind == "plugins" and "." in rest:
        name, _, parameter = rest.rpartition(".")
        return msgspec.structs.replace(resolved, chain=_chain(resolved, name, parameter, value))
    raise RondelError(f"{key!r} is not a setting; write model, options.NAME, prompt.NODE or plugins.NAME.PARAMETER")


def _options(options: Options, name: str, value: Any) -> Options:
    known = tuple(field for field in Options.__struct_fields__ if field != "output")
    if name not in known:
        raise RondelError(f"there is no option {name!r}{nearest(name, known)}")
    typed = Document("", {}, variables={(name,): ()})  # what a person types is text, as in a variable
    given = Checker(typed).fields(Options, {name: value}, ())
    return msgspec.structs.replace(options, **given)


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


# --- what a client brings ---------------------------------------------------------------------------------------------


def _client_tools(resolved: ResolvedAgent, value: Any) -> ResolvedAgent:
    try:
        given = msgspec.convert(value, tuple[ClientTool, ...])
    except msgspec.ValidationError as error:
        raise RondelError(f"the client's tools are wrong: {error}") from None
    if len(given) > CLIENT_TOOLS_MAX or len(msgspec.json.encode(value)) > TEXT_CHARS_MAX * 2:
        raise RondelError(
            f"the client offers too many tools, or too large ones; at most {CLIENT_TOOLS_MAX} are possible"
        )
    tools = dict(resolved.tools)
    for spec in given:
        if not NAME.fullmatch(spec.name):
            raise RondelError(f"{spec.name[:80]!r} is not a valid tool name: use 1 to 64 letters, digits, '_' or '-'")
        if spec.name in tools:
            raise RondelError(f"there is already a tool {spec.name!r}; the client must use another name for its own")
        tools[spec.name] = _client_tool(spec)
    specs = (*resolved.specs, *(tools[spec.name].spec for spec in given))
    return msgspec.structs.replace(resolved, tools=tools, specs=specs)


def _client_tool(spec: ClientTool) -> Tool:
    async def run(arguments: dict[str, Any], context: CallContext) -> Hold | str:
        id, answer = f"{CLIENT_QUESTION}{context.call.id}", context.answer
        if answer is not None and answer.question_id == id:  # an earlier answer may have been an approval of this call
            return answer.text
        text = f"Waiting for the result of {spec.name} from the program that offers it"
        return Hold(Question(id, "ask", text, call_id=context.call.id))

    schema = spec.schema or {"type": "object", "properties": {}}
    return Tool(
        name=spec.name, run=run, description=spec.description, schema=schema, idempotent=True, timeout_s=0,
        repeatable=True, origin="client",
    )  # fmt: skip


def _client_context(resolved: ResolvedAgent, text: str) -> ResolvedAgent:
    if len(text) > TEXT_CHARS_MAX:
        raise RondelError(f"the client's context has more than {TEXT_CHARS_MAX:,} characters; send less")
    at = next((n for n, node in enumerate(resolved.nodes) if node.id == HISTORY), len(resolved.nodes))
    node = Node("client-context", text=text, role="system")
    return msgspec.structs.replace(resolved, nodes=(*resolved.nodes[:at], node, *resolved.nodes[at:]))


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
    except (NameError, TypeError):  # a type that values cannot have: only code can set it
        raise RondelError(f"the parameter {parameter!r} of the plugin {kind.name!r} can only be set in code") from None
