"""The tables of the documentation say what the code says: commands, keys, hooks, defaults, tools, providers."""

from __future__ import annotations

import asyncio
import inspect
import re
import runpy
from collections.abc import Iterator
from typing import Any

import msgspec

from rondel import Agent, App, Plugin, default_plugins
from rondel.charge import DIMENSIONS
from rondel.cli.program import program
from rondel.cli.run import EXIT_CODES
from rondel.contracts.endpoint import PROVIDERS
from rondel.dialects import DIALECTS
from rondel.engines.transform import TRANSFORMS
from rondel.gateway.relay.request import GatewayRequest
from rondel.gateway.routing.router import Router
from rondel.knowledge.settings import KnowledgeSettings, WebSearchSettings
from rondel.limits import Limits
from rondel.mcp.spec import ServerSettings
from rondel.plugin import EDITING, HOOKS
from rondel.project import settings
from rondel.project.agents.settings import AgentSettings, NodeSettings
from rondel.project.config import OVERRIDES, _File  # pyright: ignore[reportPrivateUsage]
from rondel.project.lookup import PLUGINS, TOOLS, find_plugin, find_tool, plugin_class
from rondel.surfaces.terminal.chat import Terminal
from rondel.testing import Echo
from rondel.values import Options
from tests.docs.pages import ROOT, codes_in, rows_after, text_of

COMMAND_LINE = "docs/commands-and-terminal.md"
CONFIGURATION = "docs/configuration.md"
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


def _keys(name: str, heading: str) -> list[str]:
    return [key for row in rows_after(name, heading) for key in codes_in(row[0])]


def _fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


# --- the command line -------------------------------------------------------------------------------------------------


def _commands(group: Any, path: str = "rondel") -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands") and command.params and "list" not in command.commands:
            yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _usage(path: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    shown = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
    return " ".join((path, *shown))


def _options(command: Any) -> list[list[str]]:
    return [p.opts for p in command.params if p.param_type_name == "option"]


def test_every_command_is_listed_with_its_arguments_its_help_and_its_options():
    root: Any = program
    expected = {
        "rondel [QUESTION]": (
            "Without a command: chat with one, or ask it a question.",
            [names[0] for names in _options(root)],
        )
    }
    for path, command in _commands(root):
        said = re.split(r"\s+Exit codes:", command.help)[0]
        expected[_usage(path, command)] = (said, [names[0] for names in _options(command)])
    listed = {codes_in(row[0])[0]: (row[1], codes_in(row[2])) for row in rows_after(COMMAND_LINE, "## Commands")}
    assert listed == expected


def test_every_option_is_explained_with_its_short_form():
    root: Any = program
    options = {tuple(names) for command in (root, *(c for _, c in _commands(root))) for names in _options(command)}
    explained = re.findall(r"^\| (`--.*?) \|", text_of(COMMAND_LINE), re.M)
    known = {name for cell in explained for name in codes_in(cell)}
    assert {name for names in options for name in names} | {"--help", "-h"} == known


def test_the_exit_codes_are_those_of_the_program():
    from rondel.cli.main import DONE, FAILED, INTERRUPTED, NOT_TRUSTED, USAGE
    from rondel.cli.serve import CUT_OFF

    codes = {*EXIT_CODES.values(), DONE, FAILED, USAGE, NOT_TRUSTED, INTERRUPTED, CUT_OFF}
    assert {int(codes_in(row[0])[0]) for row in rows_after(COMMAND_LINE, "## Exit codes")} == codes


def test_every_command_of_the_chat_is_listed():
    commands = Terminal(App(Agent("a"), engine=Echo())).session.commands
    expected = [
        f"| `/{c.name} {c.usage.replace('|', chr(92) + '|')}".rstrip() + f"` | {c.description} |" for c in commands
    ]
    listed = re.findall(r"^\| `/.*$", text_of(COMMAND_LINE), re.M)
    assert listed == expected


# --- configuration ----------------------------------------------------------------------------------------------------


def test_every_key_of_rondel_toml_is_listed():
    assert set(_keys(CONFIGURATION, "## rondel.toml")) == _fields(_File)
    assert set(_keys(CONFIGURATION, "## Engines")) == _fields(settings.EngineSettings)
    assert set(_keys(CONFIGURATION, "## Store")) == _fields(settings.StoreSettings)
    assert set(_keys(CONFIGURATION, "## Telemetry")) == _fields(settings.TelemetrySettings)
    assert set(_keys(CONFIGURATION, "## Knowledge")) == _fields(KnowledgeSettings)
    assert set(_keys(CONFIGURATION, "## Web search")) == _fields(WebSearchSettings)
    assert set(_keys(CONFIGURATION, "## Tools")) == _fields(settings.ToolSettings)
    assert set(_keys(CONFIGURATION, "## MCP servers")) == _fields(ServerSettings)
    assert set(_keys(CONFIGURATION, "## Options")) == _fields(Options) - {"output"}


def test_every_key_and_command_of_discord_is_listed():
    page = "docs/discord.md"
    assert set(_keys(page, "## Settings")) == _fields(settings.DiscordSettings)
    named = " ".join(codes_in(" ".join(row[0] for row in rows_after(page, "## Slash commands"))))
    assert {name for name in settings.DISCORD_COMMANDS if f"/ai {name}" in named} == set(settings.DISCORD_COMMANDS)


def test_every_dimension_of_the_ledger_is_listed():
    assert _keys("docs/ledger.md", "## What is charged") == list(DIMENSIONS)


def test_every_key_of_images_is_listed():
    assert set(_keys(CONFIGURATION, "## Images")) == _fields(settings.ImageSettings)


def test_every_key_of_the_gateway_is_listed():
    assert set(_keys(CONFIGURATION, "## Gateway")) == _fields(settings.GatewaySettings)
    assert set(_keys(CONFIGURATION, "### Routes")) == _fields(settings.MainRouteSettings)
    assert set(_keys(CONFIGURATION, "### Keys")) == _fields(settings.KeySettings)
    budget = next(row[1] for row in rows_after(CONFIGURATION, "### Keys") if "`budget`" in row[0])
    assert _fields(settings.BudgetSettings) <= set(codes_in(budget))


def test_the_transforms_are_listed_with_their_options():
    rows = rows_after("docs/routing.md", "## Transforms")
    listed = {codes_in(row[0])[0]: set(codes_in(row[2])) for row in rows}
    assert listed == {name: set() if t.takes_any else _fields(t) for name, t in TRANSFORMS.items()}


def test_the_rules_of_routing_are_listed_in_their_order():
    config = settings.Config(engine="echo")
    request = GatewayRequest("r", DIALECTS["openai-chat"](), b'{"model": "m", "messages": []}', {})
    decision = asyncio.run(Router(config, env={}).decide(request))
    assert _keys("docs/routing.md", "## Rules") == [step.rule for step in decision.steps]


def test_the_keys_of_retry_and_facts_are_listed_in_their_order():
    rows = {codes_in(row[0])[0]: codes_in(row[1]) for row in rows_after(CONFIGURATION, "## Engines")}
    assert rows["retry"] == [field.name for field in msgspec.structs.fields(settings.RetrySettings)]
    assert rows["facts"] == [field.name for field in msgspec.structs.fields(settings.FactSettings)]


def test_every_limit_is_listed_with_its_default():
    listed = {codes_in(row[0])[0]: float(row[1]) for row in rows_after(CONFIGURATION, "## Limits")}
    assert listed == msgspec.structs.asdict(Limits())


def test_every_key_of_an_agent_file_is_listed():
    assert set(_keys(CONFIGURATION, "## Agent files")) == _fields(AgentSettings) | {"name"}
    assert set(_keys(CONFIGURATION, "## Nodes of a prompt")) == _fields(NodeSettings)


def test_every_variable_of_ours_is_listed():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"\bRONDEL_[A-Z]+", source))
    assert {*OVERRIDES, *used, "NO_COLOR"} == set(_keys(CONFIGURATION, "## Variables"))


# --- generated pages --------------------------------------------------------------------------------------------------


def test_the_generated_pages_are_those_of_the_code():
    for name, text in REFERENCE["pages"]().items():
        assert text_of(f"docs/reference/{name}") == text, "run `make docs`, and commit what it wrote"


def test_every_parameter_of_every_plugin_is_explained():
    for name in PLUGINS:
        found = plugin_class(name)
        about, means = REFERENCE["parameters_of"](found)
        assert about, f"{name} has no docstring"
        assert set(means) == set(inspect.signature(found).parameters) - set(REFERENCE["HIDDEN"]), name


# --- parts ------------------------------------------------------------------------------------------------------------


def test_the_table_of_hooks_is_that_of_the_plugin_class():
    rows = rows_after("docs/plugins.md", "## Hooks")
    assert [codes_in(row[0])[0] for row in rows] == list(HOOKS)
    for hook, row in zip(HOOKS, rows, strict=True):
        method = getattr(Plugin, hook)
        assert codes_in(row[1]) == list(inspect.signature(method).parameters)[1:], hook
        assert (row[2] != "nothing") == (hook in EDITING), hook
        assert row[3] == (method.__doc__ or "").strip(), hook


def test_the_default_plugins_are_listed_in_their_order():
    mine = type("Mine", (Plugin,), {})()
    listed = [row for row in rows_after("docs/plugins.md", "## Order")]
    names = [codes_in(row[1])[0] if codes_in(row[1]) else mine.name for row in listed]
    plugins = default_plugins(mine)
    assert names == [plugin.name for plugin in plugins]
    required = {plugin.name for plugin in plugins if plugin.required}
    assert {name for name, row in zip(names, listed, strict=True) if row[3] == "yes"} == required
    assert {find_plugin(name).name for name in names if name != mine.name} == set(names) - {mine.name}
    assert set(names) - {mine.name} <= set(PLUGINS)


def test_the_tools_that_come_with_rondel_are_listed():
    rows = rows_after("docs/tools.md", "## Tools that come with Rondel")
    listed = {codes_in(row[0])[0]: row[2] == "yes" for row in rows}
    assert listed == {name: find_tool(name).approval is not None for name in TOOLS}


def test_the_providers_are_listed_with_their_dialects_variables_and_models():
    listed = {
        codes_in(row[0])[0]: (codes_in(row[1])[0], tuple(codes_in(row[2])), "".join(codes_in(row[3])))
        for row in rows_after("docs/engines.md", "## Providers")
    }
    assert listed == {name: (p.dialect, p.key_variables, p.model) for name, p in PROVIDERS.items()}


def test_the_dialects_are_listed():
    assert _keys("docs/dialects.md", "# Dialects") == list(DIALECTS)
