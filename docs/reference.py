"""Writes the pages in docs/reference/ from the code: `python docs/reference.py`. A test compares them with the code."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rondel.cli.program import program
from rondel.plugin import Plugin
from rondel.project.lookup import PLUGINS, TOOLS, find_tool, plugin_class

FOLDER = Path(__file__).parent / "reference"
MADE = "[reference.py](../reference.py) writes this page from the code."
HIDDEN = ("project", "fetcher")  # parameters that a file cannot set


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    return {"commands.md": _commands(), "plugins.md": _plugins(), "tools.md": _tools()}


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


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


if __name__ == "__main__":
    write()
