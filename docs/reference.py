"""Writes the pages in docs/reference/ from the code: `python docs/reference.py`. A test compares them with the code."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

import rondel
from rondel import Engine, Store, Surface, Tool
from rondel.cli.program import program
from rondel.plugin import Plugin
from rondel.project.lookup import PLUGINS, TOOLS, find_tool, plugin_class

FOLDER = Path(__file__).parent / "reference"
MADE = "[reference.py](../reference.py) writes this page from the code."
CONTRACTS = (Engine, Plugin, Store, Surface)  # what a method that implements one of these does is said there
HIDDEN = ("project", "fetcher")  # parameters that a file cannot set


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    return {"commands.md": _commands(), "plugins.md": _plugins(), "python.md": _python(), "tools.md": _tools()}


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


# --- commands ---------------------------------------------------------------------------------------------------------


def _commands() -> str:
    root: Any = program
    parts = [
        f"# Every command\n\n{MADE} [The command line and the terminal](../commands-and-terminal.md) explains how they "
        "work together. Every command has `--help`.",
        *(_command(path, command) for path, command in _leaves(root, "rondel")),
    ]
    return "\n\n".join(parts) + "\n"


def _leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(path: str, command: Any) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join((path, *command.collect_usage_pieces(context)))
    parts = [f"## {path}", f"```text\n{usage}\n```", textwrap.dedent(command.help or "").strip()]
    records = [parameter.get_help_record(context) for parameter in command.params]
    if rows := [f"| `{_cell(names)}` | {_cell(means)} |" for names, means in filter(None, records)]:
        parts.append("\n".join(("| option | means |", "|---|---|", *rows)))
    return "\n\n".join(parts)


# --- plugins ----------------------------------------------------------------------------------------------------------


def _plugins() -> str:
    parts = [
        f"# Every plugin\n\n{MADE} [Plugins](../plugins.md) explains how to turn one on and in which order they run, "
        "[prompts](../prompt.md) what targets, positions and triggers are.",
        *(_plugin(name, plugin_class(name)) for name in sorted(PLUGINS)),
    ]
    return "\n\n".join(parts) + "\n"


def _plugin(name: str, found: type[Plugin]) -> str:
    about, means = parameters_of(found)
    parts = [f"## {name}", about]
    rows = [
        f"| `{parameter.name}` | {_default(parameter)} | {_cell(means.get(parameter.name, ''))} |"
        for parameter in inspect.signature(found).parameters.values()
        if parameter.name not in HIDDEN
    ]
    if rows:
        parts.append("\n".join(("| parameter | default | means |", "|---|---|---|", *rows)))
    return "\n\n".join(parts)


def parameters_of(found: type[Plugin]) -> tuple[str, dict[str, str]]:
    """A plugin's description, and what each of its parameters means, from the docstring of its class."""
    about, _, rest = inspect.cleandoc(found.__doc__ or "").partition("\n\nArgs:\n")
    lines = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", rest, re.M)
    return _joined(about), {name: _joined(text) for name, text in lines}


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "*required*"
    value = parameter.default
    return f"`{value!r}`" if isinstance(value, str | int | float) and value != "" else "none"


# --- tools ------------------------------------------------------------------------------------------------------------


def _tools() -> str:
    parts = [
        f"# Every tool\n\n{MADE} [Tools](../tools.md) explains how an agent gets them and how to write your own.",
        *(_tool(name) for name in sorted(TOOLS)),
    ]
    return "\n\n".join(parts) + "\n"


def _tool(name: str) -> str:
    tool = find_tool(name)
    asks = " A person is asked before each call." if tool.approval is not None else ""
    parts = [f"## {name}", _joined(tool.description) + asks]
    required = tool.schema.get("required", ())
    rows = [
        f"| `{key}` | {_type(schema)} | {'yes' if key in required else 'no'} | {_cell(schema.get('description', ''))} |"
        for key, schema in tool.schema.get("properties", {}).items()
    ]
    if rows:
        parts.append("\n".join(("| argument | type | required | means |", "|---|---|---|---|", *rows)))
    return "\n\n".join(parts)


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


# --- the Python API ---------------------------------------------------------------------------------------------------

GROUPS = {
    "Asking and running": "Agent run ask App Project Conversation TurnView AgentResult Outcome Limits Options Fact",
    "Tools": "tool Tool Toolbox Approval CallContext NoResult Handoff Hold Question Answer error_of",
    "Plugins and prompts": "Plugin Key Turn Prompt Node default_plugins Command Chat escape",
    "Engines": "engine_at Engine EngineInfo ModelFacts Fallback Retry HttpEngine Endpoint Transform transformed",
}
"""What most programs use, in the order in which people meet it. Everything else is sorted by the module that has it."""
OTHERS = {
    "values": "Messages, parts and deltas",
    "events": "Events",
    "errors": "Errors",
    "tools": "Built-in tools",
    "": "Stores, the ledger, surfaces and more",
}


def _python() -> str:
    grouped = {title: names.split() for title, names in GROUPS.items()}
    known = {name for names in grouped.values() for name in names}
    for name in rondel.__all__:
        if name not in known:
            home = "tools" if name in TOOLS else rondel._HOME_OF[name].partition(".")[0]
            grouped.setdefault(OTHERS.get(home, OTHERS[""]), []).append(name)
    parts = [
        f"# The Python API\n\n{MADE} These names are imported from `rondel`, and each is loaded when it is first used. "
        "The [plugins](plugins.md) are in `rondel.plugins`, the fakes for [tests](../testing.md) in `rondel.testing`."
    ]
    for title in (*GROUPS, *OTHERS.values()):
        parts += [f"## {title}", *(_name(name) for name in grouped[title])]
    return "\n\n".join(parts) + "\n"


def _name(name: str) -> str:
    found = getattr(rondel, name)
    if isinstance(found, Tool):
        return f"### {name}\n\nThe tool [`{name}`](tools.md#{name}). {_summary(found.description)}"
    if inspect.isroutine(found):
        return f"### {name}\n\n```text\n{_signature(name, found)}\n```\n\n{_doc(found)}"
    if isinstance(found, type):
        rows = [*_fields(found), *(row for key, value in vars(found).items() if (row := _member(found, key, value)))]
        is_made = not (_is_protocol(found) or issubclass(found, Enum | msgspec.Struct | Exception))
        called = [f"```text\n{_signature(name, found)}\n```"] if is_made else []
        table = "\n".join(("| member | |", "|---|---|", *rows))
        return "\n\n".join((f"### {name}", *called, _doc(found), *((table,) if rows else ())))
    kinds = [f"`{kind.__name__}`" for kind in get_args(found)]
    known = kinds or [f"`{key}`" for key in found]
    return f"### {name}\n\n{'One of these' if kinds else 'A table of'}: {', '.join(known)}."


def _fields(found: type) -> Iterator[str]:
    """A row for each field of a value, with the text below it in the source."""
    if not issubclass(found, msgspec.Struct):
        return
    body = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    assert isinstance(body, ast.ClassDef)
    for at, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            after = body.body[at + 1] if at + 1 < len(body.body) else None
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            yield f"| `{_cell(f'{node.target.id}: {ast.unparse(node.annotation)}{default}')}` | {_cell(str(text))} |"


def _member(owner: type, name: str, value: Any) -> str:
    """A row for a public method, property or constant."""
    if name.startswith("_"):
        return ""
    if isinstance(value, property):
        return f"| `{name}` | {_cell(_summary(inspect.getdoc(value) or ''))} |"
    if isinstance(value, Enum):
        return f"| `{name}` | `{value.value!r}` |"
    function = getattr(value, "__func__", value)
    if not inspect.isroutine(function):
        return ""
    about = inspect.getdoc(getattr(owner, name)) or _inherited(name)
    shown = _signature(name, getattr(owner, name), drop_self=not isinstance(value, classmethod | staticmethod))
    return f"| `{_cell(shown)}` | {_cell(_joined(about))} |"


def _inherited(name: str) -> str:
    return next((doc for kind in CONTRACTS if (doc := inspect.getdoc(getattr(kind, name, None)) or "")), "")


def _signature(name: str, found: Any, *, drop_self: bool = False) -> str:
    """The call as it is written, with types; a default that is an object is `...`, as its repr may change."""
    signature = inspect.signature(found)
    parameters = list(signature.parameters.values())[1 if drop_self else 0 :]
    shown: list[str] = []
    for at, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            before.kind in (before.KEYWORD_ONLY, before.VAR_POSITIONAL) for before in parameters[:at]
        ):
            shown.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = f"{star}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            text += f": {_type_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            plain = isinstance(parameter.default, str | int | float | bool | None) or parameter.default == ()
            default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
            text += f" = {default!r}" if plain else " = ..."
        shown.append(text)
    returned = signature.return_annotation
    back = "" if returned is signature.empty or isinstance(found, type) else f" -> {_type_text(returned)}"
    prefix = "async " if inspect.iscoroutinefunction(found) else ""
    return f"{prefix}{name}({', '.join(shown)}){back}"


def _type_text(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:rondel|collections|typing|asyncio)(?:\.\w+)*\.(\w+)", r"\1", text).replace("'", "")


def _is_protocol(found: type) -> bool:
    return bool(getattr(found, "_is_protocol", False))


def _doc(found: Any) -> str:
    made = found.__init__.__doc__ if isinstance(found, type) and "__init__" in vars(found) else ""
    texts = (inspect.getdoc(found) or "", inspect.cleandoc(made or ""))
    return "\n\n".join(_joined(text.partition("\n\nArgs:")[0]) for text in texts if text)


def _summary(text: str) -> str:
    return _joined(text).partition("\n\n")[0]


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


if __name__ == "__main__":
    write()
