"""`rondel code` and `rondel activate`: what a program gets, what it leaves behind, and lines for every shell."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib

import pytest

from rondel.cli.activate import set_line, unset_line
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.serving import Serving
from tests.helpers import rest_slow

SHOWN = "import json, os; print(json.dumps(dict(os.environ)))"
ASKS = """
import json, os, urllib.request
body = {"model": "claude-x", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
head = {"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"]}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as answer:
    print("answered" if b"Hello." in answer.read() else "not answered")
"""
NASTY = """a'b"c $(touch made) `touch made` \\ $HOME !! ; é"""


def _write(place: Place, server: ModelServer, gateway: str = "") -> None:
    path = place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
        f"retry = {{attempts = 1}}\n[gateway]\n{gateway}",
    )
    path.chmod(0o600)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def _is_open(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _python(*code: str) -> list[str]:
    return ["--", sys.executable, "-c", *code]


# --- what the program gets --------------------------------------------------------------------------------------------


def test_the_program_gets_where_the_gateway_is_and_the_parents_environment_stays(place: Place, server: ModelServer):
    """C06: the environment of a coding agent, as one program sees it."""
    port = _free_port()
    _write(place, server, f"port = {port}\n")
    given = {"NO_PROXY": "intranet", "CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": "real", "MINE": "kept"}
    done = place.spawn("code", *_python(SHOWN), **given)
    assert done.code == 0
    env = json.loads(done.out)
    url = f"http://127.0.0.1:{port}"
    assert env["ANTHROPIC_BASE_URL"] == url
    assert env["OPENAI_BASE_URL"] == env["OPENAI_API_BASE"] == f"{url}/v1"
    assert env["ANTHROPIC_AUTH_TOKEN"] == env["OPENAI_API_KEY"] == "rondel"
    assert env["NO_PROXY"] == "intranet,127.0.0.1,localhost,::1"
    assert env["no_proxy"] == "127.0.0.1,localhost,::1"
    assert env["API_TIMEOUT_MS"] == "600000"
    assert env["DISABLE_TELEMETRY"] == env["DISABLE_COST_WARNINGS"] == "true"
    assert not {"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_API_KEY"} & set(env)
    assert env["MINE"] == "kept"
    assert done.err.count("\n") == 1
    assert f"through the gateway at {url}, with test: set in {place.project}/rondel.toml:1.\n" in done.err
    assert not _is_open(port)


def test_the_program_asks_the_gateway_with_a_key_that_is_still_good(place: Place, server: ModelServer):
    _write(
        place,
        server,
        'port = 0\n[gateway.keys]\nold = {key = "old-key-1", expires = 2001-01-01}\nnew = {key = "new-key-1"}\n'
        'other = {key = "other-key-1"}\n',
    )
    server.says("Hello.", "Hello.")
    assert place.spawn("code", *_python(ASKS)).out == "answered\n"
    assert json.loads(place.spawn("code", *_python(SHOWN)).out)["OPENAI_API_KEY"] == "new-key-1"
    chosen = place.spawn("code", "--key", "other", *_python(SHOWN))
    assert json.loads(chosen.out)["OPENAI_API_KEY"] == "other-key-1"
    for name, said in {"old": "the key 'old' expired on 2001-01-01", "othr": "did you mean 'other'?"}.items():
        done = place.spawn("code", "--key", name, *_python(SHOWN))
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert said in done.err
        assert "key-1" not in done.err


@pytest.mark.parametrize(
    ("code", "ended"),
    rest_slow([("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)]),
)
def test_the_exit_code_is_the_programs(place: Place, server: ModelServer, code: str, ended: int):
    _write(place, server, "port = 0\n")
    assert place.spawn("code", *_python(code)).code == ended


def test_arguments_go_to_the_program_and_options_alone_to_claude(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    folder = place.project / "bin"
    folder.mkdir()
    program = folder / "claude"
    program.write_text('#!/bin/sh\nprintf "%s|" claude "$@"\n')
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{place.env['PATH']}"
    assert place.spawn("code", PATH=path).out == "claude|"
    assert place.spawn("code", "claude", "--resume", "--key", "x", PATH=path).out == "claude|--resume|--key|x|"
    assert place.spawn("code", "--", "-p", "a b", PATH=path).out == "claude|-p|a b|"


def test_codex_is_told_where_to_ask_before_its_own_arguments(place: Place, server: ModelServer):
    """No variable tells it; what a person says comes later, and so it wins."""
    port = _free_port()
    _write(place, server, f"port = {port}\n")
    program = place.write("bin/codex", '#!/bin/sh\nprintf "%s|" "$@"\n')
    program.chmod(0o755)
    said = place.spawn("code", "codex", "exec", "Fix it.", PATH=f"{program.parent}{os.pathsep}{place.env['PATH']}").out
    first, provider, second, table, *rest = said.split("|")
    assert (first, provider, second) == ("-c", 'model_provider="rondel"', "-c")
    assert rest == ["exec", "Fix it.", ""]
    told = tomllib.loads(table)["model_providers"]["rondel"]
    assert told["base_url"] == f"http://127.0.0.1:{port}/v1"
    assert (told["env_key"], told["wire_api"]) == ("OPENAI_API_KEY", "responses")


def test_what_a_person_says_of_a_coding_agent_stays(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    place.env |= {"API_TIMEOUT_MS": "5", "CLAUDE_CODE_ATTRIBUTION_HEADER": "1", "CLAUDE_CODE_USE_FOUNDRY": "1"}
    env = json.loads(place.spawn("code", *_python(SHOWN)).out)
    assert (env["API_TIMEOUT_MS"], env["CLAUDE_CODE_ATTRIBUTION_HEADER"]) == ("5", "1")
    assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert "CLAUDE_CODE_USE_FOUNDRY" not in env


def test_a_program_that_is_not_there_or_cannot_run_is_one_sentence(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    place.env["PATH"] = str(place.project)
    done = place.spawn("code")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "the program 'claude' was not found" in done.err
    assert "`rondel code codex`" in done.err
    place.write("broken", "#!/nowhere/at/all\n").chmod(0o755)
    done = place.spawn("code", "--", "broken")
    assert done.code == 1
    assert "broken' cannot be started: " in done.err


# --- which gateway ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gateway_that_runs_is_used_and_stays(place: Place, server: ModelServer):
    port = _free_port()
    _write(place, server, f'port = {port}\nkeys = {{team = {{key = "team-key-1"}}}}\n')
    with Serving(place, "serve") as serving:
        assert serving.port == port
        server.says("Hello.")
        done = place.spawn("code", *_python(ASKS))
        assert done.out == "answered\n"
        assert f"through the running gateway at http://127.0.0.1:{port}.\n" in done.err
        assert _is_open(port)
        other = place.folder / "other"
        other.mkdir()
        place.project = other
        _write(place, server, f"port = {port}\n")
        done = place.spawn("code", *_python(SHOWN))
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert "does not accept this project's key" in done.err


@pytest.mark.slow
def test_clients_find_a_gateway_on_whatever_port_it_was_given(place: Place, server: ModelServer):
    place.uses(server)
    with Serving(place, "serve", "--port", "0") as serving:
        port = serving.port
        assert f"http://127.0.0.1:{port}" in place.rondel("activate", "--shell", "bash").out
        assert f"The gateway at http://127.0.0.1:{port} runs" in place.rondel("status").out
        asked = place.spawn("code", "sh", "-c", "echo $ANTHROPIC_BASE_URL")
        assert asked.out == f"http://127.0.0.1:{port}\n"
        assert "Running `sh` through the running gateway" in asked.err
        serving.signal(signal.SIGTERM)
        serving.wait_end()
    assert not [*place.folder.joinpath("state/rondel/gateways").iterdir()]
    assert f":{port}" not in place.rondel("activate", "--shell", "bash").out


@pytest.mark.slow
def test_where_something_else_has_the_port_a_free_one_is_taken(place: Place, server: ModelServer):
    taken = int(server.url.rpartition(":")[2])
    _write(place, server, f"port = {taken}\n")
    server.says("Hello.")
    done = place.spawn("code", *_python(ASKS))
    assert done.out == "answered\n"
    assert f"Port {taken} of 127.0.0.1 is taken; using port " in done.err


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_go_to_the_program_and_nothing_stays_behind(place: Place, server: ModelServer, number: signal.Signals):
    port = _free_port()
    _write(place, server, f"port = {port}\n")
    code = "import os, signal; print('ready', os.getpid(), flush=True); signal.pause()"
    program = ["-c", f"import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); {code}"]
    with Serving(place, "code", "--", sys.executable, *program) as serving:
        pid = int(serving.wait_said(r"ready (\d+)")[1])
        assert _is_open(port)
        serving.signal(number)
        assert serving.wait_end() == 128 + number
        assert not _is_open(port)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert "Traceback" not in serving.text


def test_ctrl_c_is_the_programs_own_and_reaches_it_once(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    code = """
import signal
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
print("ready", flush=True)
input()
print("caught", len(caught), flush=True)
raise SystemExit(5)
"""
    with place.terminal("code", *_python(code)) as screen:
        screen.wait_for("ready")
        screen.press("\x03", until="^C")
        screen.press("\r", until="caught 1")
        assert screen.wait_end() == 5


# --- activate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", [name for name in ("bash", "zsh") if shutil.which(name)])
def test_a_shell_reads_the_lines_as_text_whatever_is_in_them(place: Place, shell: str):
    """C06: activate prints lines that set, and lines that unset."""
    place.write("rondel.toml", "[gateway.keys.team]\nkey = '''" + NASTY + "'''\n").chmod(0o600)
    lines = place.rondel("activate", "--shell", shell)
    assert lines.code == 0
    back = place.rondel("activate", "--shell", shell, "--unset").out
    script = 'eval "$LINES_"; printf "%s\\n" "$OPENAI_API_KEY" "$ANTHROPIC_BASE_URL" "${ANTHROPIC_API_KEY-gone}"; '
    script += 'eval "$BACK_"; printf "%s" "${OPENAI_API_KEY-gone} ${ANTHROPIC_BASE_URL-gone}"'
    env = place.env | {"LINES_": lines.out, "BACK_": back, "ANTHROPIC_API_KEY": "real"}
    done = subprocess.run([shell, "-c", script], env=env, cwd=place.project, capture_output=True, check=True)
    assert done.stdout.decode().split("\n") == [NASTY, "http://127.0.0.1:8484", "gone", "gone gone"]
    assert not (place.project / "made").exists()
    assert "No gateway is running at http://127.0.0.1:8484 yet; `rondel serve` starts it." in lines.err


def test_the_lines_of_other_shells_quote_as_those_do():
    assert set_line("fish", "A", r"it's \ $HOME") == r"set -gx A 'it\'s \\ $HOME'"
    assert set_line("powershell", "A", "it's $(x) \u2019") == "$env:A = 'it''s $(x) \u2019\u2019'"
    assert unset_line("fish", "A") == "set -e A"
    assert unset_line("powershell", "A") == "Remove-Item Env:A -ErrorAction SilentlyContinue"


def test_the_shell_is_the_persons_own(place: Place, monkeypatch: pytest.MonkeyPatch):
    for path, line in {
        "/usr/bin/fish": "set -gx ANTHROPIC_BASE_URL ",
        "/bin/zsh": "export ANTHROPIC_BASE_URL=",
    }.items():
        monkeypatch.setenv("SHELL", path)
        assert place.rondel("activate").out.startswith(line)


def test_what_activate_cannot_do_is_one_sentence(place: Place):
    cases = {
        ("--shell", "fsh"): "the shell 'fsh' is not supported; did you mean 'fish'?",
        ("--key", "x"): "there is no key 'x'; rondel.toml has no keys",
    }
    for arguments, said in cases.items():
        done = place.rondel("activate", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert said in done.err
    place.write("rondel.toml", "[gateway]\nport = 0\n")
    assert "port 0, which means a new port at each start" in place.rondel("activate").err
