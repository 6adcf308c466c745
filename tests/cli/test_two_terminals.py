"""Two terminals, one conversation: what is said in one waits for the other, and a stop reaches whichever is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import WAIT_S, Place
from tests.cli.model_server import ModelServer


def begin(place: Place, server: ModelServer) -> None:
    place.uses(server)
    server.says("Hello.")
    assert place.spawn("run", "rondel", "hi").out == "Hello.\n"


def test_what_is_said_in_the_second_terminal_waits_for_the_turn_of_the_first(place: Place, server: ModelServer):
    """Trust 2: both turns end well, and both terminals know what was said."""
    begin(place, server)
    held = server.holds("I count ", "to ten.")
    server.says("And I to twenty.", "We did.")
    with place.terminal("chat", "--conversation", "last") as one:
        one.wait_for_rest()
        one.type("count")
        one.wait_for("I count")
        with place.terminal("chat", "--conversation", "last") as other:
            other.wait_for("Another process is answering in this conversation.")
            other.type("you too")
            other.wait_for("working: type to steer")
            held.release()
            one.wait_for("I count to ten.")
            one.wait_for_rest()
            other.wait_for("And I to twenty.")
            other.wait_for_rest()
            assert "I count to ten." in other.all_text, "what the first one said is shown, too"
            assert other.all_text.count("you too") == 1
        one.type("what did you count?")
        one.wait_for("We did.")
        one.wait_for_rest()
        assert "✗" not in one.all_text
    assert [message["role"] for message in server.requests[-1]["messages"]] == ["user", "assistant"] * 3 + ["user"]


@pytest.mark.slow
def test_stop_in_one_terminal_stops_the_turn_of_the_other(place: Place, server: ModelServer):
    """Trust 2: `/stop` reaches the process that runs the turn."""
    begin(place, server)
    server.holds("I never ")
    with place.terminal("chat", "--conversation", "last") as one:
        one.wait_for_rest()
        one.type("talk")
        one.wait_for("I never")
        with place.terminal("chat", "--conversation", "last") as other:
            other.wait_for("Another process is answering in this conversation.")
            other.type("/stop")
            one.wait_for("Stopped.")
            one.wait_for_rest()
    assert server.broken_off.wait(20)


@pytest.mark.slow
def test_ctrl_c_withdraws_a_message_that_waits_and_leaves_the_other_turn_alone(place: Place, server: ModelServer):
    """Trust 2: who has not begun has nothing to stop but itself."""
    begin(place, server)
    held = server.holds("I count ", "to ten.")
    with place.terminal("chat", "--conversation", "last") as one:
        one.wait_for_rest()
        one.type("count")
        one.wait_for("I count")
        child = subprocess.Popen(
            [sys.executable, "-m", "rondel", "run", "rondel", "me too", "--conversation", "last"],
            cwd=place.project,
            env=place.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with child:
            deadline = time.monotonic() + WAIT_S
            while len(list(place.folder.rglob("*.worker-*"))) < 2:  # made together with its job
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.2)
            os.kill(child.pid, signal.SIGINT)
            out, said = child.communicate(timeout=WAIT_S)
        assert (child.returncode, out) == (130, b""), said
        held.release()
        one.wait_for("I count to ten.")
        one.wait_for_rest()
    assert len(server.requests) == 2


@pytest.mark.slow
def test_resume_beside_a_live_process_leaves_it_its_turn(place: Place, server: ModelServer):
    """Trust 2: and shows how it ends."""
    begin(place, server)
    held = server.holds("I count ", "to ten.")
    with place.terminal("chat", "--conversation", "last") as one:
        one.wait_for_rest()
        one.type("count")
        one.wait_for("I count")
        with place.terminal("resume", "last") as other:
            other.wait_for("Another process is answering in this conversation.")
            held.release()
            other.wait_for("I count to ten.")
            other.wait_for_rest()
        one.wait_for("I count to ten.")
        one.wait_for_rest()
    assert len(server.requests) == 2, "the model was asked once for each message"


@pytest.mark.slow
def test_resume_returns_after_a_kill_right_behind_the_end_of_a_turn(place: Place, server: ModelServer):
    """Trust 3: the job of a turn that has ended may be stored a little longer than the turn ran."""
    begin(place, server)
    for number in range(3):
        server.says(f"Answer {number}.")
        with place.terminal("chat", "--conversation", "last") as one:
            one.wait_for_rest()
            one.type(f"question {number}")
            one.wait_for(f"Answer {number}.")
            one.wait_for_rest()  # an answer that is only on the screen is asked for again
            os.kill(one.pid, signal.SIGKILL)
        done = place.spawn("resume", "last", stdin=b"")
        assert done.code == 0, done.err
    assert len(server.requests) == 4
