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
    assert "rondel asks: Which colour?\nRun `rondel resume " in done.err


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


def test_ctrl_c_writes_what_was_said_into_a_pipe(place: Place, server: ModelServer):
    """F05: what was said is not lost, and nothing else is in the pipe."""
    place.uses(server)
    server.says("Yes?")
    assert place.rondel("hello").out == "Yes?\n"
    held = server.holds("Once upon a time ")
    with place.terminal("chat", "--conversation", "last") as watching:
        watching.wait_for_rest()
        child = subprocess.Popen(
            [sys.executable, "-m", "rondel", "Tell me a story.", "--conversation", "last"],
            cwd=place.project,
            env=place.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with child:
            watching.wait_for("Once upon a time")
            os.kill(child.pid, signal.SIGINT)
            out, said = child.communicate(timeout=WAIT_S)
    held.release()
    assert (child.returncode, out.strip()) == (130, b"Once upon a time")
    assert b"stopped; `rondel chat --conversation" in said


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
    question = place.rondel("run", "What is the time?", "hi")
    assert question.code == 2
    assert question.err == "rondel: the agent comes first: `rondel run AGENT TEXT`; known: helper, rondel\n"
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


def test_an_agent_of_a_library_runs_by_its_name_and_takes_its_inputs_as_text_or_by_name(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    assert place.rondel("run", "text.upper", "hello").out == "HELLO\n"
    assert place.rondel("run", "text.truncate", "abcdefgh", "--input", "length=5").out == "abcd…\n"
    assert place.rondel("run", "text.truncate", "-i", "length=5", "-i", "text=a=b", "-i", "mark=").out == "a=b\n"
    assert place.rondel("run", "text.join", '{"pieces": ["a", "b"], "by": "+"}').out == "a+b\n"
    assert place.rondel("run", "text.count", "one two three").out == "3\n"
    assert place.rondel("run", "time.now").out.endswith("+00:00\n")
    assert place.spawn("run", "text.trim", "-", stdin=b"  hello \n").out == "hello\n"


def test_an_agent_of_a_library_asks_no_model_and_needs_none(place: Place):
    place.write("rondel.toml", 'engine = "openai:gpt-4.1"\n')  # whose key is missing
    assert place.rondel("run", "text.truncate", "abcdefgh", "-i", "length=5").out == "abcd…\n"
    refused = place.rondel("run", "rondel", "hello")
    assert (refused.code, "has no key" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("time.nwo",), "there is no agent 'time.nwo'; did you mean 'time.now'?"),
        (("time.now", "-i", "zon=UTC"), "agent 'time.now' has no input 'zon'; did you mean 'zone'?"),
        (("time.now", "-i", "zone"), "the input 'zone' has no '='; write it as --input name=value"),
        (
            ("time.now", "Rome", "-i", "zone=UTC"),
            "agent 'time.now' takes [zone], and all are given; leave out the text",
        ),
        (
            ("text.truncate", "x"),
            "'text.truncate' still needs length. Give each input as --input name=value (text, length,",
        ),
        (("text.truncate", "x", "-i", "length=x"), "'length' of agent 'text.truncate' must be a whole number, not 'x'"),
        (("rondel", "hi", "-i", "a=b"), "'rondel' takes no named inputs; give it a message instead"),
    ],
)
def test_wrong_inputs_are_said_in_a_sentence_before_anything_runs(
    place: Place, arguments: tuple[str, ...], sentence: str
):
    place.write("rondel.toml", 'engine = "echo"\n')
    done = place.rondel("run", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert sentence in done.err


def test_an_agent_of_the_project_takes_inputs_by_name_too_and_no_text_where_it_needs_none(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write(
        "agents/usual.yaml",
        """
agents:
  usual:
    template: 'In {{ .Input "city" }} it is {{ .Input "how" "mild" }}.'
    inputs: {city: {required: true}, how: {}}
  same: {alias: usual}
  greeting: {template: Hello.}
""",
    )
    assert place.rondel("run", "usual", "Rome", "-i", "how=hot").out == "In Rome it is hot.\n"
    assert place.rondel("run", "same", "-i", "city=Rome").out == "In Rome it is mild.\n"
    assert (
        "'usual' still needs city. Give each input as --input name=value (city, [how])."
        in place.rondel("run", "usual").err
    )
    assert place.rondel("run", "greeting").out == "Hello.\n"


def test_a_prompt_that_is_blank_is_said(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/blank.md", """---\ninputs: {city: {}}\n---\n{{ .Input "city" }}\n""")
    done = place.rondel("run", "blank", "-i", "city= ")
    assert (done.code, done.out) == (0, "")
    assert done.err == "rondel: the prompt of 'blank' is blank, so no model was asked\n"


@pytest.mark.parametrize("arguments", [["{}"], ["run", "{}"], ["run", "guide", "{}"], ["-e", "echo", "{}"]])
def test_a_question_needs_no_agent_and_no_command(place: Place, arguments: list[str]):
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/guide.yaml", "agents:\n  guide: {prompt: You guide.}\n")
    asked = [argument.format("How are you?") for argument in arguments]
    assert place.rondel(*asked).out == "How are you?\n"
    assert json.loads(place.rondel("conversations", "--json").out)[0]["agent"] == "guide"


def test_stdin_is_the_question_or_goes_with_it(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    assert place.spawn("-", stdin=b"from a pipe").out == "from a pipe\n"
    assert place.spawn("run", stdin=b"from a pipe").out == "from a pipe\n"
    both = place.spawn("summarise", stdin=b"my notes").out
    assert both.startswith("summarise\n")
    assert "my notes" in both


def test_options_go_before_or_after_the_question(place: Place):
    assert place.rondel("hello", "--engine", "echo").out == "hello\n"
    assert place.rondel("--engine", "echo", "-c", "--cost", "again").out == "again\n"
    (only,) = json.loads(place.rondel("conversations", "--json").out)
    assert only["messages"] == 4


def test_a_word_near_an_agent_is_a_typo_and_another_one_a_question(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/helper.yaml", "agents:\n  helper: {prompt: You help.}\n")
    assert "did you mean 'helper'" in place.rondel("run", "helpr").err
    assert place.rondel("run", "hello").out == "hello\n"


def test_an_answer_streams_on_a_terminal_and_ctrl_c_keeps_and_shows_what_was_said(place: Place, server: ModelServer):
    place.uses(server)
    held = server.holds("Once upon a **time** ")
    with place.terminal("Tell me a story.") as terminal:
        terminal.wait_for("Once upon a")
        terminal.press("\x03")
        assert terminal.wait_end() == 130
        assert terminal.all_text.count("Once upon a time") == 1
        assert "stopped; `rondel chat --conversation" in terminal.all_text
    held.release()
    assert "Once upon a **time**" in place.rondel("trace", "last").out


def test_a_terminal_shows_how_long_it_has_worked(place: Place, server: ModelServer):
    place.uses(server)
    held = server.holds("", "Here it is.")
    with place.terminal("Think about it.") as terminal:
        terminal.wait_for_line("working … ", end=" s")
        held.release()
        terminal.wait_for("Here it is.")
        assert terminal.wait_end() == 0
    assert "working" not in terminal.text


def test_run_without_a_question_says_which_agents_there_are(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/guide.yaml", "agents:\n  guide: {prompt: You guide., listeners: [time.now]}\n")
    done = place.rondel("run")
    assert done.code == 2
    assert done.err.startswith(
        "rondel: there is no question: `rondel run TEXT`, or `rondel run AGENT TEXT`; known: guide,"
    )
    assert done.err.count("time.now") == 1
