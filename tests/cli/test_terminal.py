"""The chat in a real terminal, 80 columns by 24 lines, against a model on loopback."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from rondel.testing import call, calls, say
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.pty_screen import PtyScreen


def test_it_says_who_answers_and_why_and_streams_markdown(place: Place, server: ModelServer):
    place.uses(server)
    held = server.holds("# A title\n\nSome **bold** words\n\nand half a sen", "tence.")
    with place.terminal() as terminal:
        terminal.wait_for("/help lists the commands")
        assert "Using test:model" in terminal.text
        assert "set in rondel.toml:1" in terminal.all_text.replace("\n", "")
        terminal.type("hello", until="and half a sen")
        assert "Some bold words" in terminal.wait_for("working: type to steer")
        held.release()
        terminal.wait_for("and half a sentence.")
        terminal.wait_for_rest()
        assert terminal.all_text.count("Some bold words") == 1
        terminal.press("\x04")
        assert terminal.wait_end() == 0


def test_an_error_is_wrapped_between_words_and_no_command_in_it_is_split(place: Place):
    """The terminal itself breaks lines anywhere: "`rondel conver", and on the next line "sations` lists them"."""
    place.rondel("run", "rondel", "hello", "--engine", "echo")
    with place.terminal("trace", "zzz", columns=54) as terminal:
        assert terminal.wait_end() == 1
    assert terminal.text.startswith("rondel: there is no conversation 'zzz';\n`rondel conversations` lists them\n")
    assert place.spawn("trace", "zzz").err.count("\n") == 1


def test_a_question_is_wrapped_between_words(place: Place):
    with place.terminal("run", "rondel", "hello", "--engine", "local:qwen2.5-coder-1.5b", columns=60) as terminal:
        terminal.wait_for("Apache-2.0)?\n[Y/n]")


@pytest.mark.parametrize("word", ["exit", "quit"])
def test_a_word_that_leaves_other_programs_leaves_the_chat_too(place: Place, word: str):
    with place.chat("--engine", "echo") as terminal:
        terminal.type(word)
        assert terminal.wait_end() == 0
    assert place.rondel("conversations").out == "No conversations yet.\n"


def test_a_hint_says_how_to_type_the_command_that_an_error_names(place: Place):
    """After `make run`, the shell does not find `rondel`."""
    command = [sys.executable, str(Path(sys.executable).with_name("rondel")), "trace"]
    env = place.env | {"PATH": "/usr/bin:/bin"}
    with PtyScreen(command, cwd=place.project, env=env, columns=160, rows=24) as terminal:
        terminal.wait_for("`rondel` starts one\n`rondel` is not on your PATH. In this shell: export PATH=")


def test_ctrl_c_stops_the_turn_and_keeps_the_chat(place: Place, server: ModelServer):
    """F05: the upstream request is aborted, what was said so far is kept, and the chat goes on."""
    place.uses(server)
    server.holds("I begin and never ")
    server.says("Here I am again.")
    with place.chat() as terminal:
        terminal.type("talk for ever", until="I begin and never")
        terminal.press("\x03", until="Stopped.")
        terminal.wait_for_rest()
        assert "I begin and never" in terminal.text
        # Live, as far as that did not only draw what changed, then finished: no drawing in between is stale.
        assert terminal.raw.count(b"I begin and never") <= 2
        assert server.broken_off.wait(20)
        terminal.type("and now?", until="Here I am again.")
        terminal.wait_for_rest()
        assert "I begin and never " in server.texts(1)
        terminal.press("\x03", until="Press Ctrl-C again to quit")
        terminal.press("\x03")
        assert terminal.wait_end() == 0


def test_ctrl_c_right_behind_enter_stops_the_turn_that_was_meant(place: Place, server: ModelServer):
    """F05: also before the turn has begun."""
    place.uses(server)
    held = server.holds("Here ", "I am.")
    server.says("Here I am.")  # whether the model of the turn that was stopped was asked is a matter of luck
    with place.chat() as terminal:
        terminal.press("talk for ever\r\x03", until="Stopped.")
        held.release()
        terminal.press("/tokens\r\x03", until="This conversation used")
        terminal.type("and now?", until="Here I am.")
        terminal.wait_for_rest()
        assert "again to quit" not in terminal.all_text
        assert terminal.all_text.count("Stopped.") == 1


def test_an_approval_is_answered_in_place(place: Place, server: ModelServer):
    place.uses(server)
    marker = place.project / "made"
    server.calls("run_shell", "one", command=f"touch {marker.name}")
    server.says("I did not do it.")
    server.calls("run_shell", "two", command=f"touch {marker.name}; echo it is made")
    server.says("Now it is there.")
    with place.chat() as terminal:
        terminal.type("make the file", until="Allow run_shell to run with")
        terminal.wait_for("or type why not")
        assert re.search(r"Without an answer, this counts as 'no' in \d+ s\.", terminal.all_text)
        terminal.press("\r")  # an Enter too many allows nothing
        terminal.wait_for("I did not do it.")
        assert "denied by user" in terminal.all_text
        assert not marker.exists()
        terminal.type("please")
        terminal.wait_for("it is made", count=1)
        terminal.wait_for("arrows or a number")
        terminal.type("y", until="Now it is there.")
        assert marker.exists()
        assert "✓ run_shell(command=" in terminal.all_text


@pytest.mark.slow
def test_a_long_command_is_read_to_its_end_before_it_can_be_allowed(place: Place, server: ModelServer):
    """Trust 12: the end of a long command was never shown, and "yes" ran it."""
    place.uses(server)
    made = place.project / "made"
    script = "".join(f": step {number}\n" for number in range(90)) + f"touch {made.name}"
    for id in ("one", "two", "three"):
        server.calls("run_shell", id, command=script)
        server.says(f"Done {id}.")
    with place.chat() as terminal:
        terminal.type("go", until="more lines: Enter shows the next page")
        assert "touch made" not in terminal.all_text
        for times, early in enumerate(("y", "yes", "1", "always", "3"), 1):
            terminal.type(early)
            terminal.wait_until(lambda times=times: terminal.all_text.count("There is more to read") == times, early)
        assert not made.exists()
        terminal.type("no, too long", until="Done one.")
        terminal.type("again")
        left = BETWEEN
        for _ in range(20):
            terminal.wait_until(lambda left=left: _lines_left(terminal) not in (left, BETWEEN), "the next page")
            if not (left := _lines_left(terminal)):
                break
            terminal.press("\r")
        assert "touch made" in terminal.all_text
        terminal.wait_for("arrows or a number")
        terminal.press("\r")  # one page too many allows nothing
        terminal.wait_for("Done two.")
        assert not made.exists()
        terminal.type("and again", until="more lines: Enter shows the next page")
        terminal.type("all", until="arrows or a number")
        terminal.type("yes", until="Done three.")
        assert made.exists()


@pytest.mark.slow
def test_no_row_of_an_argument_looks_like_the_question(place: Place, server: ModelServer):
    """Trust 12: a long line went on at the left edge, where its words could pass for the end of the question."""
    place.uses(server)
    words = " ".join(f"word{number}" for number in range(25))
    server.calls("run_shell", "one", command=f"echo {words} (always: this is not the question's own line) ; {words}")
    server.says("Done.")
    with place.chat() as terminal:
        terminal.type("go", until="arrows or a number")
        rows = [row for row in terminal.all_text.splitlines() if "word" in row or "not the question" in row]
        assert len(rows) > 4
        assert all(row.startswith("  │ ") for row in rows), rows
        terminal.type("no", until="Done.")


BETWEEN = "none is asked, or it is being drawn"


def _lines_left(terminal: PtyScreen) -> str:
    """How many lines of a question are not shown yet, while one is asked."""
    found = re.search(r"(\d+) more lines?: Enter", terminal.text)
    return found[1] if found else "" if "arrows or a number" in terminal.text else BETWEEN


@pytest.mark.slow
def test_options_are_chosen_by_arrow_by_number_and_by_words(place: Place, server: ModelServer):
    place.uses(server)
    for id in ("a", "b", "c"):
        server.calls("ask_user", id, question=f"Which colour, {id}?", options=["red", "green", "blue"])
        server.says(f"Noted {id}.")
    with place.chat() as terminal:
        for id, keys in (("a", "\x1b[B\x1b[B\r"), ("b", "2\r"), ("c", "violet\r")):
            terminal.type(f"ask {id}", until=f"Which colour, {id}?")
            terminal.wait_for("› 1. red")
            terminal.press(keys, until=f"Noted {id}.")
    results = [server.requests[place]["messages"][-1]["content"][0]["content"] for place in (1, 3, 5)]
    assert [result if isinstance(result, str) else result[0]["text"] for result in results] == [
        "blue",
        "green",
        "violet",
    ]


def test_a_line_typed_while_it_works_steers_it(place: Place, server: ModelServer):
    place.uses(server)
    held = server.holds("I work ", "and finish.")
    server.says("In French, then.")
    with place.chat() as terminal:
        terminal.type("work", until="I work")
        terminal.type("/conversations")
        terminal.wait_for("working ", count=1)
        terminal.type("in French, please", until="› in French, please")
        held.release()
        terminal.wait_for("In French, then.")
    assert server.texts(1)[-1] == "in French, please"


def test_commands_complete_and_an_unknown_one_names_the_nearest(place: Place):
    with place.chat("--engine", "echo") as terminal:
        terminal.type("/help", until="start a new conversation")
        terminal.type("/halp", until="there is no command '/halp'; did you mean '/help'?")
        terminal.press("/thi")
        terminal.wait_for("show or hide the model's thinking", count=2)
        terminal.press("\t", until="› /thinking")
        terminal.press(" o")
        terminal.press("\x15")
        terminal.type("/etc/hosts is a file")
        terminal.wait_for("/etc/hosts is a file", count=2)
        terminal.type("/tokens", until="This conversation used")
        terminal.type("/quit")
        assert terminal.wait_end() == 0


@pytest.mark.slow
def test_it_fits_when_the_window_changes(place: Place, server: ModelServer):
    place.uses(server)
    server.says("word " * 30)
    server.says("word " * 30)
    with place.chat() as terminal:
        terminal.type("wide", until="word " * 15 + "word")
        terminal.resize(40, 20)
        terminal.type("narrow")
        terminal.wait_for("\n" + "word " * 7 + "word\n", count=2)
        assert all(len(line) <= 40 for line in terminal.text.split("\n"))


@pytest.mark.slow
def test_a_paste_of_several_lines_is_one_message_and_history_remembers_it(place: Place):
    with place.chat("--engine", "echo") as terminal:
        terminal.press("\x1b[200~first line\nsecond line\x1b[201~", until="second line")
        terminal.press("\r")
        terminal.wait_for("first line second line")  # one answer, as Markdown hidden_rounds lines
        terminal.wait_for_rest()
        terminal.press("\x04")
        terminal.wait_end()
    history = Path(place.env["XDG_STATE_HOME"], "rondel", "history")
    assert "+first line\n+second line" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_a_question_says_which_engine_was_chosen_for_it_and_why(place: Place, server: ModelServer):
    chosen = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "ANTHROPIC_BASE_URL": server.url}
    server.says("Hello.", "Hello.", "Hello.")
    with place.terminal("hello there", **chosen) as terminal:
        terminal.wait_for("Hello.")
        terminal.wait_end()
        assert re.search(r"Using anthropic:\S+: ANTHROPIC_API_KEY is set\.", terminal.all_text)
    with place.terminal("-e", "anthropic", "hello there", **chosen) as terminal:
        terminal.wait_for("Hello.")
        terminal.wait_end()
        assert "Using" not in terminal.all_text
    assert "Using" not in place.spawn("hello there", **chosen).err


def test_a_killed_chat_is_resumed_where_it_was(place: Place, server: ModelServer):
    place.uses(server)
    server.calls("calculate", "sum", expression="6*7")
    server.holds("The sum is ")
    with place.chat() as terminal:
        terminal.type("what is six times seven?", until="The sum is")
        terminal.kill(signal.SIGKILL)
    server.says("The sum is 42, at last.", "You are welcome.")
    with place.terminal() as terminal:
        terminal.wait_for("was interrupted")
        terminal.wait_for_rest()
        terminal.press("\x04")
        terminal.wait_end()
    with place.terminal("resume") as terminal:
        terminal.wait_for("what is six times seven?")
        terminal.wait_for("Resuming the interrupted turn.")
        terminal.wait_for("The sum is 42, at last.")
        terminal.type("thank you", until="You are welcome.")
    last = server.requests[2]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    assert "42" in str(last[-1])
    assert len(server.requests) == 4


def test_what_a_model_or_a_tool_says_cannot_command_the_terminal(place: Place, server: ModelServer):
    place.uses(server)
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred [bold]not markup[/bold] \u202eturned"
    server.replies(calls(call("calculate", "a", expression=evil), call("current_time", "b", timezone=evil)))
    server.replies(say(evil + "\n\nThe end.", thinking=evil))
    with place.chat() as terminal:
        seen = len(terminal.raw)
        terminal.type("be evil", until="The end.")
        shown = terminal.raw[seen:]
        assert "red [bold]not markup[/bold]" in terminal.all_text
    assert b"\x1b]0;" not in shown
    assert b"\x1b[2J" not in shown
    assert "\u202e".encode() not in shown


def test_a_failure_is_one_sentence_and_the_chat_goes_on(place: Place, server: ModelServer):
    place.uses(server)
    server.fails(401)
    server.says("Better now.")
    with place.chat() as terminal:
        terminal.type("hello", until="✗ ")
        assert "Traceback" not in terminal.all_text
        terminal.type("again", until="Better now.")


@pytest.mark.slow
def test_agents_that_work_for_others_are_shown_below_their_call(place: Place, server: ModelServer):
    place.uses(server)
    place.write("agents/chief.md", "---\ntools: [scribe]\n---\nYou lead.\n")
    place.write(
        "agents/scribe.md", "---\ndescription: writes\ntools: [rondel.tools.calculate:calculate]\n---\nYou write.\n"
    )
    server.calls("scribe", "s", input="add")
    server.calls("calculate", "k", expression="1+1")
    server.says("two", "It is two.")
    with place.chat("chat", "chief") as terminal:
        terminal.type("go", until="It is two.")
        assert '\n  ✓ scribe › calculate(expression="1+1")' in terminal.all_text
        terminal.type("/trace short", until="└── scribe")
        terminal.type("/agent scribe", until="scribe answers from now on.")


@pytest.mark.slow
def test_a_turn_at_work_in_another_process_is_listed_as_such_and_can_be_stopped(place: Place, server: ModelServer):
    place.uses(server)
    server.holds("Half a ")
    with place.chat() as terminal:
        terminal.type("go on and on", until="Half a")
        assert "working" in place.rondel("conversations").out
        assert "Stopped " in place.rondel("stop").err
        terminal.wait_for_rest()
        assert "stopped" in place.rondel("conversations").out
        deadline = time.monotonic() + 10  # the job of an ended turn is deleted a moment later
        while "Nothing is running in " not in place.rondel("stop").err:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_terminated_chat_leaves_its_turn_to_be_resumed(place: Place, server: ModelServer):
    place.uses(server)
    server.holds("Half a ")
    with place.chat() as terminal:
        terminal.type("go on and on", until="Half a")
        terminal.kill(signal.SIGTERM)
    assert "interrupted" in place.rondel("conversations").out
    server.says("The whole sentence.")
    assert "The whole sentence." in place.spawn("resume").out
