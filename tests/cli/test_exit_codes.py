"""Every command ends with a code of the table in docs/commands-and-terminal.md, for the reason that it gives there."""

from __future__ import annotations

from rondel.cli.program import COMMANDS
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.docs.pages import codes_in, rows_after

CASES: list[tuple[list[str], int]] = [
    (["hello"], 0),
    (["run", "hello"], 0),
    (["run", "time.now"], 0),
    (["conversations"], 0),
    (["conversations", "search", "x"], 0),
    (["conversations", "export", "nope"], 1),
    (["conversations", "delete", "nope", "--yes"], 1),
    (["conversations", "delete", "last"], 2),
    (["resume", "nope"], 1),
    (["stop", "nope"], 1),
    (["trace", "nope"], 1),
    (["facts", "nope"], 1),
    (["usage"], 0),
    (["usage", "--by", "nonsense"], 2),
    (["prompt", "rondel", "hi"], 0),
    (["prompt", "nobody", "hi"], 2),
    (["route", "missing.json"], 2),
    (["lint"], 0),
    (["plugins", "nobody"], 2),
    (["doctor"], 0),
    (["config"], 0),
    (["jobs", "show", "nope"], 1),
    (["model", "remove", "nope"], 2),
    (["status"], 1),
    (["activate", "--shell", "tcsh"], 2),
    (["completion", "tcsh"], 2),
    (["code", "no-such-program"], 1),
    (["chat", "nobody"], 2),
    (["init", "rondel.toml"], 2),
    (["logs", "../secret"], 1),
    (["mcp"], 0),
    (["mcp", "list"], 0),
    (["mcp", "tools", "nonsense"], 2),
    (["mcp", "call", "a", "b", "no JSON"], 2),
    (["mcp", "call", "a", "b", '{"a":' * 20_000], 2),
    (["imagine", "a fox"], 1),
    (["imagine", " "], 1),
    (["imagine", "a fox", "--model", "nonsense:x"], 2),
    (["imagine", "a fox", "--out", "rondel.toml/x.png"], 2),
    (["knowledge", "list"], 1),
    (["knowledge", "show", "nonsense"], 1),
    (["help", "nonsense"], 2),
    (["--nonsense"], 2),
    (["run", "--engine", "nonsense:x", "hello"], 2),
]


def test_each_command_ends_with_the_code_that_is_documented(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[gateway]\nport = 1\n')
    wrong: list[str] = []
    for arguments, code in CASES:
        done = place.rondel(*arguments)
        if done.code != code or "Traceback" in done.err or (code and not done.err.startswith("rondel: ")):
            wrong.append(f"{arguments}: {done.code} and not {code}: {done.err}")
    assert not wrong


def test_only_documented_codes_are_expected_here():
    known = {int(codes_in(row[0])[0]) for row in rows_after("docs/commands-and-terminal.md", "## Exit codes")}
    assert {code for _, code in CASES} <= known
    named = {arguments[0] for arguments, _ in CASES}
    assert set(COMMANDS) - named <= {
        "serve",
        "trust",
        "discord",
    }  # they have tests of their own


def test_a_mistake_in_a_file_is_2_and_a_model_that_fails_1(place: Place, server: ModelServer):
    place.uses(server)
    server.fails(401)
    assert place.rondel("hello").code == 1
    place.write("agents/a.yaml", "agents: {a: {promt: x}}\n")
    assert place.rondel("hello").code == 2
    assert place.rondel("lint").code == 1
