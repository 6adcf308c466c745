"""Secrets stay where they belong, and what people said is for nobody else to read: through the command line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rondel import Agent, App
from rondel.events import CallFinished
from rondel.plugins.approval import ApprovalGate
from rondel.project.config import load, secrets_in
from rondel.testing import Scripted, call
from rondel.text.redaction import Redactor
from rondel.tool import Approval
from rondel.tools.shell import run_shell
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.helpers import events_of, of, play

OURS = {
    "ANTHROPIC_API_KEY": "canary-anthropic-11",
    "OPENROUTER_API_KEY": "canary-openrouter-12",
    "OPENAI_API_KEY_OLD": "canary-openai-13",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-14",
    "GITHUB_TOKEN": "canary-github-15",
    "DB_PASSWORD": "canary-password-16",
    "DATABASE_URL": "postgres://me:canary-url-17@db/x",
    "SOME_HEADERS": "Authorization: Bearer canary-bearer-18",
    "NPM_CONFIG__AUTH": "sk-canary-looks-like-a-key-19",
    "GH": "github_pat_11canary_looks_like_a_key_20",
    "CI": "glpat-canary-looks-like-a-key-21",
    "SESSION": "eyJhbGciOiJI.canary-looks-like-a-token.22",
}


def test_a_shell_command_finds_no_key_in_its_environment(monkeypatch: pytest.MonkeyPatch):
    """Trust 14: `run_shell` inherited the providers' keys: `env` told them to the model."""
    for name, value in OURS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EDITOR", "an-editor")
    monkeypatch.setenv("ODD", "not\udc80utf-8")
    gate = ApprovalGate({"run_shell": Approval("auto")})
    agent = Agent("a", engine=Scripted(call("run_shell", command="env"), "done"), tools=[run_shell], plugins=[gate])

    async def scene(app: App) -> str:
        events = await events_of(await app.conversation().send("go"))
        return of(CallFinished, events)[0].result.text

    shown = play(scene, agent)
    assert "canary" not in shown
    assert "EDITOR=an-editor" in shown
    assert "PATH=" in shown
    given = play(
        scene,
        Agent("a", engine=Scripted(call("run_shell", command="env"), "done"), tools=[run_shell], plugins=[gate]),
        environment={"PATH": os.environ["PATH"], "ONLY": "this"},
    )
    assert "ONLY=this" in given
    assert "EDITOR" not in given


def test_a_variable_that_the_configuration_uses_as_a_key_is_one_and_some_are_passed_on(
    place: Place, server: ModelServer
):
    """Trust 14: whatever it is called; `tools.pass_env` names those that commands need."""
    place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
        'key = "${UPSTREAM}"\nheaders = {x-team = "Bearer ${TEAM}"}\n[tools]\npass_env = ["GITHUB_TOKEN"]\n',
    )
    server.calls("run_shell", "one", command="env")
    server.says("Done.")
    ours = OURS | {"UPSTREAM": "canary-upstream-23", "TEAM": "canary-team-24", "COLOUR": "green"}
    done = place.spawn("chat", stdin=b"go\nyes\n", **ours)
    assert done.code == 0, done.err
    told = str(server.requests[1]["messages"])
    assert "GITHUB_TOKEN=canary-github-15" in told
    assert "COLOUR=green" in told
    assert told.count("canary") == 1
    assert "canary" not in (done.out + done.err).replace("canary-github-15", "")


def test_a_coding_program_gets_the_gateways_key_and_no_providers(place: Place, server: ModelServer):
    """Trust 14: it has the keys of the person's other work, and none that the gateway asks models with."""
    place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
        'key = "${UPSTREAM}"\n[gateway]\nport = 0\n',
    )
    show = "import os; print({k: v for k, v in os.environ.items()})"
    done = place.spawn("code", "--", sys.executable, "-c", show, **OURS, UPSTREAM="canary-upstream-23")
    assert done.code == 0, done.err
    for name in ("ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "UPSTREAM"):
        assert f"'{name}'" not in done.out
    assert "canary-github-15" in done.out


def test_every_secret_of_a_configuration_is_known(place: Place):
    """Trust 14: keys, headers, addresses, proxies, variables with a telling name."""
    place.write(
        "rondel.toml",
        'engine = "a"\n[engines.a]\nbase_url = "https://me:canary-1@h.example/?sig=canary-2-long"\nkey = "canary-3"\n'
        'headers = {x-a = "canary-4-long", x-b = "Bearer canary-5-long", accept = "application/json"}\n'
        'body = {user = "${SOME_TOKEN}"}\n[gateway.keys]\nann = {key = "canary-7"}\n'
        '[telemetry]\nendpoint = "https://t.example"\nheaders = {x-k = "canary-8-long"}\n',
    )
    env = place.env | {
        "XAI_API_KEY": "canary-\udc80",
        "SOME_TOKEN": "canary-6",
        "GROQ_API_KEY": "canary-9",
        "https_proxy": "http://u:canary-10@p:1",
    }
    secrets = secrets_in(load(place.project, env), env)
    for number in range(1, 11):
        assert any(secret.startswith(f"canary-{number}") for secret in secrets), number
    assert "application/json" not in secrets
    assert Redactor(secrets).text("a canary-\udc80 and canary-7") == "a *** and ***"


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def everything_allowed() -> Iterator[None]:
    """No mask: a file has the mode that it is made with."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def test_a_trace_in_a_file_has_no_known_secret(place: Place, server: ModelServer):
    place.uses(server)
    config = place.project / "rondel.toml"
    config.write_text(config.read_text() + '[gateway.keys.ann]\nkey = "canary-4711-secret"\n')
    config.chmod(0o600)
    server.says("The key is canary-4711-secret.")
    assert place.spawn("run", "rondel", "Say canary-4711-secret").code == 0
    for form in ("--html", "--markdown", "--json"):
        place.spawn("trace", "last", form, "--output", "shared")
        shared = (place.project / "shared").read_text()
        assert "The key is" in shared
        assert "canary" not in shared, form


def test_what_people_said_is_in_files_that_only_they_can_read(place: Place, server: ModelServer):
    """Trust 14: `trace --html` wrote files that others can read."""
    place.uses(server)
    (place.project / "rondel.toml").chmod(0o600)
    before = set(place.folder.rglob("*"))
    server.says("Hello.")
    server.says("Hello again.")
    old = place.write("old.html", "from before")
    before.add(old)
    with everything_allowed():
        assert place.spawn("run", "rondel", "Hi").code == 0
        with place.chat() as terminal:
            terminal.type("Hi there", until="Hello again.")
            held = _private_files(place.folder, before)  # with the database in use
            terminal.press("\x04")
            terminal.wait_end()
        for form, name in (("--html", "t.html"), ("--json", "t.json"), ("--markdown", "t.md"), ("--html", "old.html")):
            assert place.spawn("trace", "last", form, "--output", name).code == 0
        with place.terminal("serve", "--port", "0") as terminal:
            terminal.wait_for("http://127.0.0.1")
            terminal.press("\x03")
            terminal.wait_end()
    made = _private_files(place.folder, before - {old}) | held
    for ending in (".html", ".json", ".md", ".db", ".db-wal", ".db-shm", "history", ".jsonl"):
        assert any(path.name.endswith(ending) for path in made), (ending, made)
    assert place.spawn("trace", "last", "--json", "--output", "/dev/stdout").out.startswith("{")


def _private_files(folder: Path, but: set[Path]) -> set[Path]:
    """All files and folders but these, which are of nobody else's business."""
    made = {path for path in folder.rglob("*") if path not in but and "__pycache__" not in path.parts}
    for path in made:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, f"{path} has mode {path.lstat().st_mode:o}"
    return made
