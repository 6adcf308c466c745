"""Real coding agents against a real gateway, where they are installed: a question, and a round with tools that run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rondel.cli._client import client_arguments

from .asked import asked
from .programs import Programs, streams
from .served import SHORT, Served
from .speech import DIALECTS, Answer, Call, Say, Think, calls, says
from .upstream import Upstream

needs_claude = pytest.mark.skipif(
    not shutil.which("claude"), reason="no `claude` here: npm i @anthropic-ai/claude-code"
)
needs_codex = pytest.mark.skipif(not shutil.which("codex"), reason="no `codex` here: npm i @openai/codex")
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
