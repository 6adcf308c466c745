"""Real coding agents against a real gateway, where they are installed: a question, and a round with tools that run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rondel.cli._client import client_arguments
from rondel.testing.png import draw_png

from .asked import asked
from .programs import Programs, streams
from .served import SHORT, Served, engines
from .speech import DIALECTS, Answer, Call, Say, Think, calls, says
from .upstream import Upstream

needs_claude = pytest.mark.skipif(
    not shutil.which("claude"), reason="no `claude` here: npm i @anthropic-ai/claude-code"
)
needs_codex = pytest.mark.skipif(not shutil.which("codex"), reason="no `codex` here: npm i @openai/codex")
needs_opencode = pytest.mark.skipif(not shutil.which("opencode"), reason="no `opencode` here: npm i opencode-ai")
by_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@needs_claude
@by_dialect
def test_claude_writes_a_file_and_reads_it_back(dialect: str, upstream: Upstream, served: Served, tmp_path: Path):
    claude = Programs(tmp_path, served.base_url)
    file = claude.work / "hello.txt"
    writes = Call("toolu_1", "Write", {"file_path": str(file), "content": "hi there\n"})
    reads = [Call(f"toolu_{n}", "Bash", {"command": command}) for n, command in ((2, "cat hello.txt"), (3, "pwd"))]
    answers = Answer((Think("It wants a file."), Say("I write it."), writes)), calls(*reads), says("It says hi there.")
    name = upstream.plays(*streams(dialect, *answers))
    told = claude.run(
        *("claude", "-p", "Make a file.", "--model", f"{SHORT[dialect]}:{name}"),
        *("--output-format", "json", "--allowedTools", "Write,Bash"),
    )
    assert json.loads(told.out)["result"] == "It says hi there."
    assert file.read_text() == "hi there\n"
    first, *_, last = (asked(dialect, visit.body) for visit in upstream.visits(name, 3))
    assert "Make a file." in first.texts
    assert {"Write", "Bash", "Read"} <= set(first.tools)
    assert dict(last.results)["toolu_2"] == "hi there"
    assert dict(last.results)["toolu_3"] == str(claude.work)


@needs_codex
@by_dialect
def test_codex_writes_a_file_and_reads_it_back(dialect: str, upstream: Upstream, served: Served, tmp_path: Path):
    codex = Programs(tmp_path, served.base_url)
    writes = Call("call_1", "exec_command", {"cmd": "echo hi there > hello.txt"})
    reads = [Call(f"call_{n}", "exec_command", {"cmd": command}) for n, command in ((2, "cat hello.txt"), (3, "pwd"))]
    answers = Answer((Think("It wants a file."), Say("I write it."), writes)), calls(*reads), says("It says hi there.")
    name = upstream.plays(*streams(dialect, *answers))
    told = codex.run(
        *("codex", *client_arguments("codex", served.base_url), "-m", f"{SHORT[dialect]}:{name}"),
        *("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Make a file."),
    )
    said = [json.loads(line).get("item", {}).get("text") for line in told.out.splitlines()]
    assert said[-2] == "It says hi there."
    assert (codex.work / "hello.txt").read_text() == "hi there\n"
    first, *_, last = (asked(dialect, visit.body) for visit in upstream.visits(name, 3))
    assert "Make a file." in first.texts
    assert "hi there" in dict(last.results)["call_2"]
    assert str(codex.work) in dict(last.results)["call_3"]


@needs_claude
@by_dialect
def test_claude_reads_an_image_for_a_model_that_cannot_see(dialect: str, upstream: Upstream, tmp_path: Path):
    """I02, I03, I07: a new image is handed over; an older one is looked at by a tool that Claude Code never sees."""
    picture = tmp_path / "claude" / "work" / "picture.png"
    reads = calls(Call("toolu_1", "Read", {"file_path": str(picture)}))
    looks = calls(Call("toolu_2", "analyzeImage", {"imageId": ["1"], "task": "Which colour?"}))
    blind = upstream.plays(*streams(dialect, reads, looks, says("It is red.")))
    sees = upstream.plays(*streams("openai-responses", says("A square."), says("Red.")))
    routes = f'[gateway.routes]\ndefault = "{SHORT[dialect]}:{blind}"\nimage = "r:{sees}"\n'
    with Served(tmp_path / "served", engines(upstream) + routes) as served:
        claude = Programs(tmp_path / "claude", served.base_url)
        picture.write_bytes(draw_png(prompt="a red square"))
        told = claude.run("claude", "-p", "What is it?", "--output-format", "json", "--allowedTools", "Read")
        assert json.loads(told.out)["result"] == "A square."
        told = claude.run("claude", "-c", "-p", "Which colour?", "--output-format", "json")
        assert json.loads(told.out)["result"] == "It is red."
    first, second, third = (asked(dialect, visit.body) for visit in upstream.visits(blind, 3))
    assert "analyzeImage" not in first.tools
    assert second.tools[0] == "analyzeImage"
    assert dict(second.results)["toolu_1"].startswith("[Image #1]")
    assert dict(third.results)["toolu_2"].endswith("> Red.")
    handed, looked = (asked("openai-responses", visit.body) for visit in upstream.visits(sees, 2))
    assert dict(handed.results)["toolu_1"] == "read image successfully"
    assert "The user said:\nWhich colour?" in looked.texts


@needs_opencode
@by_dialect
def test_opencode_writes_a_file_and_reads_it_back(dialect: str, upstream: Upstream, served: Served, tmp_path: Path):
    opencode = Programs(tmp_path, served.base_url)
    file = opencode.work / "hello.txt"
    writes = Call("call_1", "write", {"filePath": str(file), "content": "hi there\n"})
    reads = [
        Call(f"call_{n}", "bash", {"command": command, "description": "look"})
        for n, command in ((2, "cat hello.txt"), (3, "pwd"))
    ]
    answers = Answer((Think("It wants a file."), Say("I write it."), writes)), calls(*reads), says("It says hi there.")
    name = f"{SHORT[dialect]}:{upstream.plays(*streams(dialect, *answers))}"
    title = f"{SHORT[dialect]}:{upstream.plays(*streams(dialect, says('A title')))}"
    options = {"baseURL": f"{served.base_url}/v1", "apiKey": "any"}
    provider = {"npm": "@ai-sdk/openai", "options": options, "models": {name: {}, title: {}}}
    config = {"provider": {"rondel": provider}, "small_model": f"rondel/{title}", "permission": {"*": "allow"}}
    (opencode.work / "opencode.json").write_text(json.dumps(config))
    opencode.env |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    told = opencode.run("opencode", "run", "-m", f"rondel/{name}", "Make a file.")
    assert told.out.splitlines() == ["I write it.", "It says hi there."]
    assert file.read_text() == "hi there\n"
    first, *_, last = (asked(dialect, visit.body) for visit in upstream.visits(name.partition(":")[2], 3))
    assert any("Make a file." in text for text in first.texts)
    assert dict(last.results)["call_2"] == "hi there\n"
    assert dict(last.results)["call_3"] == f"{opencode.work}\n"
