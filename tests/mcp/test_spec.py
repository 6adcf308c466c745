"""What can be written about servers, and what is said about mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App
from rondel.engines.remote_mcp import RemoteMcp
from rondel.errors import ConfigError, EngineOverloaded, NotTrusted, PromptRejected, RondelError
from rondel.mcp.names import tool_name
from rondel.mcp.native import native_tool
from rondel.mcp.plugin import McpServers
from rondel.mcp.spec import ServerSettings, read_block, spec_of
from rondel.project.agents import load_agents
from rondel.project.config import load, plugins_of
from rondel.project.engines import make_engine
from rondel.prompt import Prompt
from rondel.testing import Scripted, say
from rondel.values import ModelFacts, Notice, user

from .helpers import plugin_of, raw

NATIVE = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example.com/mcp",
    "require_approval": "never",
}


def project(folder: Path, toml: str, **files: str) -> Path:
    (folder / "rondel.toml").write_text(toml)
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_a_block_of_another_program_is_read_as_it_is(tmp_path: Path) -> None:
    block = {
        "mcpServers": {"files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "${HOME}"}, "alwaysAllow": ["x"]}}
    }
    (tmp_path / ".mcp.json").write_text(json.dumps(block))
    config = load(project(tmp_path, '[mcpServers.web]\nurl = "https://x.example/mcp"\n'), {"HOME": "/home/me"})
    assert [(spec.name, spec.command, spec.url) for spec in config.mcp] == [
        ("web", "", "https://x.example/mcp"),
        ("files", "npx", ""),
    ]
    assert config.mcp[1].env == {"A": "/home/me"}
    assert any("'alwaysAllow' of the MCP server 'files' is not known here" in warning for warning in config.warnings)
    assert config.mcp[1].approval == "confirm"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[mcp.a]\ncomand = 'x'", "rondel.toml:2: 'mcp.a.comand' is not known; did you mean 'command'?"),
        ("[mcp.a]\nargs = ['x']", "the MCP server 'a' has neither a command nor a url"),
        ("[mcp.a]\ncommand = 'x'\nurl = 'https://x'", "has both a command and a url"),
        ("[mcp.a]\nurl = 'ftp://x'", "is not a web address"),
        ("[mcp.a]\nurl = 'http://x'\ntype = 'sse'", "which the protocol has dropped"),
        ("[mcp.a]\nurl = 'http://x'\ntype = 'stdio'", "has the type 'stdio', but a url"),
        ("[mcp.'a b']\ncommand = 'x'", "cannot be the name of an MCP server"),
        (
            "[mcp.a]\ncommand = 'x'\ntimeout_s = -1",
            "3: 'mcp.a.timeout_s' is -1.0; it must be more than 0, and at most 86400",
        ),
        ("[mcp.a]\ncommand = 'x'\napproval = 'maybe'", "must be one of 'confirm', 'auto'"),
        ("[mcp.a]\ntype = 'mcp'\nserver_url = 'https://x'", "has no 'server_label'; it is required"),
        ("mcpServers = 3", "'mcpServers' must be a table"),
        ("[tools]\nsearch_share = 0.0", "it must be more than 0"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(project(tmp_path, toml))
    assert said in str(raised.value)


def test_a_list_in_the_providers_form_is_checked() -> None:
    """K03: type, label and url are required; a duplicate label is skipped; wrong optional fields are ignored."""
    for label in (None, "", 5, ["docs"]):
        with pytest.raises(RondelError, match="an entry of the list 'mcpServers' has no 'server_label'"):
            read_block([{**NATIVE, "server_label": label}])
    for key in ("type", "server_label", "server_url"):
        with pytest.raises(RondelError, match=key):
            read_block([{k: v for k, v in NATIVE.items() if k != key}])
    wrong: dict[str, Any] = {**NATIVE, "headers": 3, "allowed_tools": "all", "require_approval": "perhaps"}
    specs, warnings = read_block([wrong, {**NATIVE, "server_url": "https://other.example"}])
    assert [spec.url for spec in specs] == ["https://docs.example.com/mcp"]
    assert specs[0].native is not None
    assert "allowed_tools" not in specs[0].native
    assert specs[0].approval == "confirm"
    assert not specs[0].is_remote
    said = " | ".join(warnings)
    assert "two MCP servers named 'docs'; the second one is skipped" in said
    assert "'headers' of the MCP server 'docs' is ignored" in said
    assert "'allowed_tools' of the MCP server 'docs' is ignored" in said
    assert "'require_approval' of the MCP server 'docs' is 'perhaps'" in said


def test_no_secret_is_in_a_repr() -> None:
    settings = ServerSettings(url="https://user:pw@x.example/mcp?key=s3cret", headers={"authorization": "s3cret"})
    assert "s3cret" not in repr(spec_of("a", settings))
    assert "pw" not in repr(spec_of("a", settings))


def test_names_are_unique_and_depend_on_nothing_but_names() -> None:
    assert tool_name("files", "read") == "mcp-files-read"
    one, two = tool_name("a", "b-c", ["a", "a-b"]), tool_name("a-b", "c", ["a", "a-b"])
    assert one != two
    odd = tool_name("a", "näme with/slash" + "x" * 100)
    assert len(odd) <= 64
    assert odd.isascii()
    assert tool_name("a", "b/c") != tool_name("a", "b_c")


def test_an_agent_gets_the_servers_that_its_file_names(tmp_path: Path) -> None:
    folder = project(
        tmp_path,
        "engine = 'echo'\n[mcp.one]\ncommand = 'a'\n[mcp.two]\ncommand = 'b'\n",
        agents__all_dot_md="---\ndescription: x\n---\nHi",
        agents__some_dot_md="---\ndescription: x\nmcp: [two]\n---\nHi",
        agents__none_dot_md="---\ndescription: x\nmcp: []\n---\nHi",
        agents__own_dot_md="---\ndescription: x\nmcp: {three: {command: c}}\n---\nHi",
    )
    found = {
        agent.name: [spec.name for plugin in agent.plugins if isinstance(plugin, McpServers) for spec in plugin.specs]
        for agent in load_agents(load(folder))
    }
    assert found == {"all": ["one", "two"], "some": ["two"], "none": [], "own": ["three"]}
    project(folder, "engine = 'echo'\n[mcp.one]\ncommand = 'a'\n", agents__some_dot_md="---\nmcp: [oen]\n---\nHi")
    with pytest.raises(ConfigError, match=r"some.md:2: there is no MCP server 'oen'; did you mean 'one'"):
        load_agents(load(folder))


def test_a_project_that_is_not_trusted_starts_no_server(tmp_path: Path) -> None:
    config = load(project(tmp_path, "[mcp.one]\ncommand = 'a'\n"), trusts=lambda folder: False)
    assert [spec.name for spec in config.mcp] == ["one"]
    with pytest.raises(NotTrusted):
        plugins_of(config)


# --- servers that the provider connects to ----------------------------------------------------------------------------


async def test_a_provider_that_connects_itself_gets_the_server_and_others_do_not() -> None:
    """K03: passed on to an engine that supports it, and served by our own client otherwise."""
    specs, _ = read_block([NATIVE])
    native = _Responses(say("ok"), facts=ModelFacts(remote_mcp=True))
    async with App(Agent("helper", engine=native, plugins=[plugin_of(*specs)])) as app:
        await (await app.conversation().send("hi")).result()
    assert [spec.opaque["openai-responses"] for spec in native.prompts[0].tools] == [NATIVE]
    own = raw("docs").__class__("docs", command=raw().command, args=raw().args, native=NATIVE)
    other = Scripted(say("ok"))
    async with App(Agent("helper", engine=other, plugins=[plugin_of(own)])) as app:
        await (await app.conversation().send("hi")).result()
    assert "mcp-docs-echo" in [spec.name for spec in other.prompts[0].tools]


async def test_a_provider_that_cannot_reach_a_server_is_asked_again_and_then_without_it() -> None:
    """K04: 500·2^n ms, one extra attempt, then without the servers that failed, which alone are named."""
    specs, _ = read_block([NATIVE, {**NATIVE, "server_label": "wiki"}])
    tools = [tool for spec in specs if (tool := native_tool(spec)) is not None]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    down = EngineOverloaded("Error retrieving tool list from MCP server: 'wiki'")
    model = Scripted(down, down, say("without"))
    deltas = [delta async for delta in RemoteMcp(model, sleep=sleep).stream(Prompt.of(user("hi"), tools=tools))]
    assert waits == [0.5]
    assert [delta.text for delta in deltas if isinstance(delta, Notice)][-1].endswith("without the MCP servers wiki)")
    assert [spec.name for spec in model.prompts[2].tools] == ["docs"]
    assert "not used: wiki." in model.prompts[2].messages[0].text
    refused = Scripted(PromptRejected("bad schema"))
    with pytest.raises(PromptRejected):
        assert [delta async for delta in RemoteMcp(refused, sleep=sleep).stream(Prompt.of(user("hi"), tools=tools))]


class _Responses(Scripted):
    dialect = "openai-responses"


def test_only_the_providers_own_dialect_passes_servers_on(tmp_path: Path) -> None:
    both = "provider = 'openai'\nkey = 'sk-x'\n"
    toml = f"[engines.own]\n{both}[engines.chat]\n{both}dialect = 'openai-chat'\n"
    config = load(project(tmp_path, toml), {})
    assert make_engine("own", config).facts.remote_mcp
    assert not make_engine("chat", config).facts.remote_mcp
