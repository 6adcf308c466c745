"""`rondel run`: the answer on stdout, everything else on stderr, and an exit code that says how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import WAIT_S, Place
from tests.cli.model_server import ModelServer


def test_a_finished_turn_gives_its_answer_and_0(place: Place):
    """F01: completed."""
    done = place.spawn("run", "rondel", "hello there", "--engine", "echo")
    assert (done.code, done.out, done.err) == (0, "hello there\n", "")


def test_a_failed_turn_gives_one_sentence_and_1(place: Place, server: ModelServer):
    """F01: failed."""
    place.uses(server)
    server.fails(401)
    done = place.rondel("run", "rondel", "hello")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("rondel: ")
    assert done.err.count("\n") == 1


def test_a_turn_that_waits_says_what_for_and_gives_3(place: Place, server: ModelServer):
    """F01: input-required."""
    place.uses(server)
    server.calls("ask_user", "q", question="Which colour?")
    done = place.rondel("run", "rondel", "paint")
    assert (done.code, done.out) == (3, "")
    assert "rondel asks: Which colour? (answer it with `rondel resume " in done.err


def test_ctrl_c_stops_the_turn_keeps_it_and_gives_130(place: Place, server: ModelServer):
    """F01, F05: canceled in mid-stream, the upstream request is aborted."""
    place.uses(server)
    held = server.holds("never ")
    child = subprocess.Popen(
        [sys.executable, "-m", "rondel", "run", "rondel", "talk", "--json"],
        cwd=place.project,
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        assert child.stdout is not None
        while b"never" not in child.stdout.readline():
            pass
        os.kill(child.pid, signal.SIGINT)
        rest, said = child.communicate(timeout=WAIT_S)
    assert child.returncode == 130
    assert json.loads(rest.splitlines()[-1])["outcome"] == "stopped"
    assert b"stopped" in said
    assert b"Traceback" not in said
    assert server.broken_off.wait(20)
    held.release()
    shown = place.rondel("trace", "last")
    assert "output: never" in shown.out


def test_json_prints_every_event_as_a_line(place: Place):
    done = place.rondel("run", "rondel", "one two", "--engine", "echo", "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "turn_started"
    assert kinds[-1] == "turn_finished"
    assert "part_delta" in kinds
    assert events[-1]["outcome"] == "done"


def test_a_dash_reads_stdin_also_bytes_that_are_no_text(place: Place):
    done = place.spawn("run", "rondel", "-", "--engine", "echo", stdin=b"from a pipe \xff")
    assert (done.code, done.out) == (0, "from a pipe \ufffd\n")


@pytest.mark.parametrize("stdin", [b"", None])
def test_an_empty_message_or_a_closed_stdin_is_wrong_usage(place: Place, stdin: bytes | None):
    done = place.spawn("run", "rondel", "-", "--engine", "echo", stdin=stdin)
    assert (done.code, done.out) == (2, "")
    assert done.err == "rondel: the message is empty; give a text, or - to read it from stdin\n"


def test_a_file_goes_along_and_one_that_is_missing_is_named(place: Place, server: ModelServer):
    place.uses(server)
    server.says("A dot.")
    place.project.joinpath("dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = place.rondel("run", "rondel", "what is it?", "--file", "dot.png")
    assert (done.code, done.out) == (0, "A dot.\n")
    parts = server.requests[0]["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image"]
    missing = place.rondel("run", "rondel", "what is it?", "--file", "nothing.png")
    assert (missing.code, "'nothing.png' cannot be read" in missing.err) == (2, True)


def test_a_conversation_goes_on_by_the_end_of_its_id(place: Place, server: ModelServer):
    place.uses(server)
    server.says("Ann, nice to meet you.", "You are Ann.")
    place.rondel("run", "rondel", "I am Ann.")
    listed = json.loads(place.rondel("conversations", "--json").out)
    place.rondel("run", "rondel", "Who am I?", "--conversation", listed[0]["id"][-8:])
    assert server.texts(1) == ["I am Ann.", "Ann, nice to meet you.", "Who am I?"]


def test_an_unknown_agent_and_an_unknown_engine_name_the_nearest(place: Place):
    place.write("agents/helper.md", "---\n---\nHelp.\n")
    place.write("rondel.toml", "")
    agent = place.rondel("run", "helpr", "hi")
    assert (agent.code, agent.err) == (2, "rondel: there is no agent 'helpr'; did you mean 'helper'?\n")
    engine = place.rondel("run", "helper", "hi", "--engine", "ecko")
    assert (engine.code, engine.err) == (2, "rondel: there is no engine 'ecko'; did you mean 'echo'?\n")


def test_an_agent_without_its_key_is_told_which_and_does_not_stop_others(place: Place, server: ModelServer):
    place.uses(server)
    place.write("agents/keyless.md", "---\nengine: anthropic:claude-sonnet-5-5\n---\nHelp.\n")
    place.write("agents/local.md", "---\nengine: echo\n---\nHelp.\n")
    keyless = place.rondel("run", "keyless", "hi")
    assert (keyless.code, "ANTHROPIC_API_KEY" in keyless.err) == (2, True)
    assert place.rondel("run", "local", "hi").out == "hi\n"


def test_a_reader_that_goes_away_is_no_error(place: Place):
    command = f'{sys.executable} -m rondel run rondel - --engine echo | head -c 5; echo " ${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command],
        input=b"word " * 100_000,
        cwd=place.project,
        env=place.env,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"word  0\n", b"")
