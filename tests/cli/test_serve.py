"""`rondel serve` as a person meets it: what it says, what it refuses, how it ends, what it shows of its requests."""

from __future__ import annotations

import io
import re
import signal
import socket
import threading
from datetime import UTC
from pathlib import Path

import pytest
from rich.console import Console, Group

from rondel.cli._requests import failure_reasons, request_table
from rondel.gateway.relay.record import Record
from rondel.gateway.server.log import line_of
from rondel.testing import say
from rondel.values import Usage
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.serving import Serving

WAIT_S = 30.0


def _write(place: Place, server: ModelServer, gateway: str = "", *, mode: int = 0o600) -> Path:
    path = place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
        f'key = "sk-upstream-4711"\nretry = {{attempts = 1}}\n[gateway]\n{gateway}',
    )
    path.chmod(mode)
    return path


def test_it_says_where_it_listens_who_answers_and_why_and_how_clients_find_it(place: Place, server: ModelServer):
    _write(place, server)
    server.says("Hello.")
    with Serving(place, "serve", "--port", "0") as serving:
        url = f"http://127.0.0.1:{serving.port}"
        serving.wait_said("Ctrl-C stops it")
        assert "Default engine: test (set in " in serving.text
        assert "rondel.toml:1)." in serving.text
        assert f"ANTHROPIC_BASE_URL={url}\nor OPENAI_BASE_URL={url}/v1;\n" in serving.text, "in 80 columns"
        assert "No key needed; only local programs can connect." in serving.text
        assert "Warning" not in serving.text
        answer = serving.ask("Hi.")
        assert (answer.status, "Hello." in answer.rest()) == (200, True)
        serving.signal(signal.SIGINT)
        assert serving.wait_end() == 0
    assert serving.out == []


def test_an_engine_on_the_command_line_is_the_default_also_after_a_reload(place: Place, server: ModelServer):
    path = _write(place, server, '[gateway.routes]\ndefault = "test"\n')
    with Serving(place, "serve", "--port", "0", "-e", "echo") as serving:
        serving.wait_said(r"Default engine: echo \(set with --engine\)\.")
        assert "Ping" in serving.ask("Ping").rest()
        path.write_text(path.read_text() + "# changed\n")
        serving.wait_said(r"rondel\.toml was reloaded")
        assert "Pong" in serving.ask("Pong").rest()
        refused = serving.request("PATCH", "/api/settings", {"key": "engine", "was": "echo", "value": "test"})
        assert "'engine' comes from --engine; restart without this option first" in refused.rest()
    done = place.rondel("serve", "--port", "0", "-e", "ecco")
    assert (done.code, done.err) == (2, "rondel: there is no engine 'ecco'; did you mean 'echo'?\n")


def test_a_key_that_is_written_out_where_others_can_read_it_is_warned_of(place: Place, server: ModelServer):
    _write(place, server, mode=0o644)
    with Serving(place, "serve", "--port", "0") as serving:
        serving.wait_said("Ctrl-C stops it")
        assert re.search(r"Warning: .*'engines.test.key' is written out", serving.text)
        assert "sk-upstream" not in serving.text
        serving.signal(signal.SIGTERM)
        assert serving.wait_end() == 0


def test_the_status_without_the_variable_of_a_key_says_that_the_gateway_runs(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[gateway.keys.work]\nkey = "${WORK_KEY}"\n')
    with Serving(place, "serve", "--port", "0", WORK_KEY="work-key-0123456789") as serving:
        url = f"http://127.0.0.1:{serving.port}"
        said = place.spawn("status")
        assert (said.code, said.out) == (1, "")
        assert f"the gateway at {url} is running; what it does is shown with a key" in said.err
        assert "0 open requests" in place.spawn("status", WORK_KEY="work-key-0123456789").out


def test_a_gateway_never_asks_itself(place: Place, server: ModelServer):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    url = f"http://localhost:{port}"
    place.write("rondel.toml", f'[engines.me]\nbase_url = "{url}/v1"\nmodel = "m"\n[gateway]\nport = {port}\n')
    done = place.spawn("serve")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "rondel.toml:2: the engine 'me' is this gateway itself; give its `base_url` another address" in done.err
    place.write("rondel.toml", f'[engines.test]\nprovider = "anthropic"\nmodel = "m"\n[gateway]\nport = {port}\n')
    done = place.spawn(
        "serve", ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="rondel"
    )  # as in a shell that is set up for it
    assert done.code == 2
    assert "the engine 'test' has no key: set the variable ANTHROPIC_API_KEY" in done.err


def test_an_engine_that_a_route_names_and_that_cannot_be_made_is_warned_of(place: Place, server: ModelServer):
    _write(place, server, '[gateway.routes]\nthink = "openai:gpt-6.1-terra"\n')
    with Serving(place, "serve", "--port", "0") as serving:
        serving.wait_said("Ctrl-C stops it")
        assert "Warning: the engine 'openai:gpt-6.1-terra' has no key: set the variable OPENAI_API_KEY" in serving.text


def test_what_keeps_it_from_starting_is_one_sentence_and_a_code(place: Place, server: ModelServer):
    _write(place, server)
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    cases = [
        (["--port", port], 1, f"port {port} of 127.0.0.1 is taken; stop what listens there"),
        (["--host", "0.0.0.0"], 2, "without a key the gateway listens on this machine only, and '0.0.0.0' is not"),
        (["--host", "203.0.113.7"], 2, "'203.0.113.7' is not"),
        (["--port", "70000"], 2, "'--port'"),
    ]
    for arguments, code, said in cases:
        done = place.rondel("serve", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), arguments
        assert said in done.err
    taken.close()
    _write(place, server, "prot = 1\n")
    done = place.rondel("serve")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "rondel.toml:9: " in done.err
    assert "did you mean 'port'?" in done.err


def test_a_key_that_can_be_guessed_keeps_it_from_serving_others(place: Place, server: ModelServer):
    _write(place, server, 'keys = {team = {key = "team-secret-1"}}\n')
    done = place.rondel("serve", "--host", "0.0.0.0")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the key 'team' can be guessed" in done.err
    assert "team-secret" not in done.err


def test_a_callers_key_that_others_can_read_keeps_it_from_starting(place: Place, server: ModelServer):
    _write(place, server, '[gateway.keys]\nteam = {key = "team-secret-1"}\n', mode=0o644)
    done = place.rondel("serve", "--port", "0")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "chmod 600 rondel.toml" in done.err
    assert "team-secret" not in done.err


def test_ctrl_c_waits_for_requests_under_way(place: Place, server: ModelServer):
    _write(place, server)
    held = server.holds("Wait", " for it.")
    with Serving(place, "serve", "--port", "0") as serving:
        answer = serving.ask("Hi.")
        answer.read_until("Wait")
        serving.signal(signal.SIGINT)
        serving.wait_said("Waiting for 1 open request; press Ctrl-C again to stop at once.")
        held.release()
        assert "message_stop" in answer.rest()
        assert serving.wait_end() == 0


def test_a_second_ctrl_c_waits_for_nothing(place: Place, server: ModelServer):
    _write(place, server)
    server.holds("Wait")
    with Serving(place, "serve", "--port", "0") as serving:
        answer = serving.ask("Hi.")
        answer.read_until("Wait")
        serving.signal(signal.SIGINT)
        serving.wait_said("Ctrl-C again")
        serving.signal(signal.SIGINT)
        assert serving.wait_end() == 130
        answer.close()
        assert "Traceback" not in serving.text


@pytest.mark.slow
def test_a_change_of_the_file_is_taken_up_and_a_wrong_one_is_told_and_refused(place: Place, server: ModelServer):
    path = _write(place, server)

    def write(gateway: str) -> None:
        text = path.read_text().partition("[gateway]\n")[0] + "[gateway]\n" + gateway
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o600)
        new.rename(path)

    with Serving(place, "serve", "--port", "0") as serving:
        serving.wait_said("Ctrl-C stops it")
        write('keys = {team = {key = "team-secret-1"}}\n')
        serving.wait_said(r"rondel\.toml was reloaded\n")
        refused = serving.ask("Hi.")
        assert (refused.status, "No API key: send it as" in refused.rest()) == (401, True)
        server.says("Hello.")
        assert "Hello." in serving.ask("Hi.", key="team-secret-1").rest()
        write("body_mb_max = -1\n")
        serving.wait_said(r"rondel\.toml:9: .*must be more than 0; the previous settings stay active\n")
        assert serving.ask("Hi.").end() == 401
        write('port = 8080\nplugins = ["memory"]\n')
        serving.wait_said(r"was reloaded; `gateway\.port` will apply after a restart\n")
        write(
            'port = 8080\nproxies = ["10.0.0.1"]\nplugins = ["memory"]\n[limits]\nrounds = 9\n[mcp.x]\ncommand = "x"\n'
        )
        late = r"`mcp` and `gateway\.proxies` will apply after a restart; agents get `limits` after a restart\n"
        serving.wait_said(late)
        server.says("Hello.")
        assert "Hello." in serving.ask("Hi.").rest()
        write('plugins = ["nowhere:Nothing"]\n')
        serving.wait_said("nowhere.*; the previous settings stay active")
        assert "team-secret" not in serving.text


@pytest.mark.slow
def test_without_keys_it_never_takes_up_that_others_reach_it(place: Place, server: ModelServer):
    keys = 'keys = {team = {key = "team-secret-1234"}}\n'
    path = _write(place, server, f'host = "0.0.0.0"\n{keys}')
    with Serving(place, "serve", "--port", "0") as serving:
        serving.wait_said("Callers need a key: team.")
        path.write_text(path.read_text().replace(keys, ""))
        serving.wait_said("without a key the gateway listens on this machine only.*; the previous settings stay active")
        assert serving.ask("Hi.").end() == 401


# --- what is shown of requests ----------------------------------------------------------------------------------------


def test_watch_prints_a_line_for_each_request_where_nobody_has_a_terminal(place: Place, server: ModelServer):
    _write(place, server, '[gateway.keys]\nteam = {key = "team-secret-1"}\n')
    with Serving(place, "serve", "--port", "0", "--watch") as serving:
        server.replies(say("Hello.", usage=Usage(tokens_in=1200, tokens_out=40, tokens_cached=900)))
        serving.ask("Hi.", key="team-secret-1").rest()
        serving.wait_said(r"200 team claude-x → test:model \(default\) in 1,200 out 40 cached 900 .*first \d+\.\d\d s")
        server.fails(500)
        serving.ask("Hi.", key="team-secret-1", model="\x1b[31mred").rest()
        line = serving.wait_said(r".* red → test:model .*")[0]
        assert re.search(r"\d\d:\d\d:\d\d 500 team red → test:model .* – test had an internal error", line)
        assert serving.ask("Hi.", key="wrong-key-1").end() == 401
        serving.wait_said(r"\d\d:\d\d:\d\d 401 .*– Invalid API key")
        assert serving.ask("Hi.", key="team-secret-1", model=7).end() == 400
        serving.wait_said(r"400 team .*– the body has no model")
        assert len(serving.out) == 4
        assert "wrong-key" not in serving.text


def test_watch_shows_a_table_in_a_terminal(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    server.replies(say("Hello.", usage=Usage(tokens_in=1200, tokens_out=40, tokens_cached=900)))
    with place.terminal("serve", "--watch", columns=140) as screen:
        screen.wait_for("asked → answered")
        found = re.search(r"Listening on http://127\.0\.0\.1:(\d+)", screen.all_text)
        assert found
        serving = Serving(place)
        serving.err.append(found[0])
        serving.ask("Hi.", session="s-1").rest()
        screen.wait_for("claude-x → test:model")
        screen.wait_for("session s-1: ")
        row = screen.wait_for_line("claude-x", "900", end=" 200")
        assert row.split()[1:8] == ["claude-x", "→", "test:model", "default", "1,200", "40", "900"]
        assert serving.request("POST", "/v1/v1/messages", {}).end() == 404
        screen.wait_for("404 nothing is at '/v1/v1/messages': the base URL already ends in /v1")
        screen.press("\x03")
        assert screen.wait_end() == 0


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (160, "time key asked → answered rule in out cached cost first tok/s status"),
        (80, "time asked → answered rule in out cost status"),
        (50, "time asked → answered out status"),
    ],
)
def test_a_narrow_terminal_does_without_columns_and_never_cuts_a_number(width: int, names: str):
    usage = Usage(tokens_in=41_207, tokens_out=812, tokens_cached=38_400)
    record = Record(
        "r", 0.0, asked="claude-sonnet-5-5-20260", key="ada", streams=True, rule="background", engine="work:qwen-max",
        status=200, outcome="done", usage=usage, cost_nanousd=21_300_000, first_token_s=0.5, seconds=12.5,
    )  # fmt: skip
    printed = io.StringIO()
    Console(width=width, file=printed, color_system=None).print(request_table([line_of(record)], width, UTC))
    head, row = printed.getvalue().splitlines()
    assert head.split() == names.split()
    assert max(len(head.rstrip()), len(row.rstrip())) <= width
    shown = row.split()
    numbers = {"in": "41,207", "out": "812", "cached": "38,400", "cost": "$0.0213", "tok/s": "68", "status": "200"}
    assert all((number in shown) == (name in names.split()) for name, number in numbers.items())
    assert shown[0] == "00:00:00"


@pytest.mark.parametrize("width", [160, 50])
def test_the_reasons_of_failed_requests_are_below_the_table(width: int):
    reason = "test had an internal error (status 500)\x1b[31m: " + "word " * 100
    records = [Record("r", 0.0, status=200, outcome="done"), Record("r", 0.0, status=500, error=reason)]
    printed = io.StringIO()
    Console(width=width, file=printed, color_system=None).print(Group(*failure_reasons(map(line_of, records), UTC)))
    (row,) = printed.getvalue().splitlines()
    assert row.startswith("00:00:00 500 test had an internal error")
    assert (len(row) <= width, "\x1b" in row) == (True, False)


def test_requests_that_are_under_way_end_when_their_callers_leave(place: Place, server: ModelServer):
    _write(place, server)
    server.holds("Wait")
    with Serving(place, "serve", "--port", "0", "--watch") as serving:
        answer = serving.ask("Hi.")
        answer.read_until("Wait")
        threading.Thread(target=answer.close).start()
        serving.wait_said("left claude-x → test:model")
        assert server.broken_off.wait(WAIT_S)


@pytest.mark.parametrize("arguments", [["--watch", "now"], ["--hots", "x"]])
def test_wrong_usage_is_one_sentence(place: Place, arguments: list[str]):
    done = place.rondel("serve", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_callers_are_served_when_nobody_reads_the_lines_any_more(place: Place, server: ModelServer):
    _write(place, server, "port = 0\n")
    server.says("One.", "Two.", "Three.")
    with Serving(place, "serve", "--watch", reads_lines=False) as serving:
        for text in ("One.", "Two.", "Three."):
            assert text in serving.ask("Hi.").rest()
        serving.signal(signal.SIGTERM)
        assert serving.wait_end() == 0
        assert "Traceback" not in serving.text
