"""What commands of the chat show and change, typed into a real terminal."""

from __future__ import annotations

import msgspec
import pytest

from rondel.testing import call, say
from rondel.values import Usage
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer

PRICED = "claude-sonnet-4-5"


def priced(place: Place, server: ModelServer) -> None:
    """Let the project ask that server for a model that a price list knows."""
    server.model = PRICED
    place.write(
        "rondel.toml",
        f'engine = "anthropic:{PRICED}"\n[engines.anthropic]\nbase_url = "{server.url}"\nretry = {{attempts = 1}}\n',
    )


def test_a_trace_in_the_chat_has_the_money_of_each_round_and_of_all(place: Place, server: ModelServer):
    """O01: the tree has tokens and money, in the chat as on the command line."""
    priced(place, server)
    wanted = call("calculate", "one", expression="2 + 40")
    server.replies(msgspec.structs.replace(wanted, usage=Usage(1_000, 100)))
    server.replies(say("It is 42.", usage=Usage(2_000, 200)))
    with place.chat(ANTHROPIC_API_KEY="k") as terminal:
        terminal.type("2 + 40?", until="It is 42.")
        terminal.wait_for_rest()
        terminal.type("/trace", until="output: It is 42.")
        shown = " ".join(terminal.all_text.split())
        assert "1,000 in, 100 out, $0.0045]" in shown
        assert "2,000 in, 200 out, $0.0090]" in shown
        assert "3,000 in, 300 out, $0.014]" in shown
    told = " ".join(place.rondel("trace", "last").out.split())
    for money in ("$0.0045]", "$0.0090]", "$0.014]"):
        assert (money in told, shown.count(money)) == (True, told.count(money))


def two_models(place: Place, server: ModelServer) -> None:
    engine = f'base_url = "{server.url}"\ndialect = "anthropic"\nretry = {{attempts = 1}}\n'
    place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nmodel = "small"\n{engine}[engines.other]\nmodel = "large"\n{engine}',
    )


def models(server: ModelServer) -> list[str]:
    return [request["model"] for request in server.requests]


def test_another_model_answers_from_the_next_message_on_and_after_a_resume(place: Place, server: ModelServer):
    two_models(place, server)
    server.says("I am small.", "I am large.", "Large once more.", "Small again.")
    with place.chat() as terminal:
        terminal.type("who?", until="I am small.")
        terminal.type("/model othr", until="there is no engine 'othr'; did you mean 'other'?")
        terminal.press("/model o", until="other:large")
        terminal.press("\t\r", until="other:large answers from the next message on.")
        terminal.wait_for("rondel · other:large")
        terminal.type("and now?", until="I am large.")
        terminal.type("/model", until="rondel uses other:large, chosen for this conversation.")
        terminal.type("/new", until="rondel · test:small")
        terminal.type("/quit")
        terminal.wait_end()
    with place.terminal("resume", "last") as terminal:
        terminal.wait_for("rondel uses other:large, chosen for this conversation.")
        terminal.wait_for_rest()
        terminal.type("still there?", until="Large once more.")
        terminal.type("/model test:small", until="test:small answers from the next message on.")
        terminal.type("and you?", until="Small again.")
        terminal.type("/trace short", until="model changed: each agent uses its own engine again")
    assert models(server) == ["small", "large", "large", "small"]


@pytest.mark.slow
def test_a_model_chosen_before_anything_is_said_leaves_no_conversation_behind(place: Place, server: ModelServer):
    two_models(place, server)
    server.says("I am large.")
    with place.chat() as terminal:
        terminal.type("/model other", until="rondel · other:large")
        assert "No conversations yet." in place.rondel("conversations").out
        terminal.type("who?", until="I am large.")
    assert models(server) == ["large"]


def test_a_setting_made_before_anything_is_said_leaves_no_conversation_behind(place: Place, server: ModelServer):
    """P24: it counts from the first message on."""
    place.uses(server)
    server.says("Briefly.")
    with place.chat() as terminal:
        terminal.type("/set options.temperatur 0.5", until="did you mean 'temperature'?")
        terminal.type("/set options.temperature 0.5", until="options.temperature is set for this conversation.")
        terminal.type("/set options.top_p 0.9", until="options.top_p is set")
        terminal.type("/set options.top_p", until="options.top_p is the agent's own again.")
        assert "No conversations yet." in place.rondel("conversations").out
        terminal.type("hello", until="Briefly.")
        terminal.type("/set", until="options.temperature  0.5")
    assert server.requests[0]["temperature"] == 0.5
    assert "top_p" not in server.requests[0]


def test_a_turn_is_retried_edited_undone_copied_and_exported_on_a_real_terminal(place: Place, server: ModelServer):
    place.uses(server)
    place.write("note.txt", "The key is under the mat.\n")
    server.says("First.", "Second.", "Third.")
    with place.chat() as terminal:
        terminal.type("/file missing.txt", until="✗ ")
        terminal.type("/file note.txt", until="note.txt (26 bytes) goes with the next message.")
        terminal.type("Where is it?", until="First.")
        terminal.wait_for_rest()
        terminal.type("/retry", until="Second.")
        terminal.wait_for_rest()
        terminal.type("/edit", until="› /edit Where is it?")
        terminal.press("\x7f now?\r")  # the line can be changed
        terminal.wait_for("Third.")
        terminal.wait_for_rest()
        terminal.type("/copy", until="Asked the terminal to copy 6 characters.")
        assert b"\x1b]52;c;VGhpcmQu\x07" in terminal.raw
        terminal.type("/export", until="Saved as")
        terminal.type("/undo", until="The last turn no longer counts: Where is it now?")
        terminal.type("/copy", until="✗ there is no answer")
        terminal.type("/quit")
        terminal.wait_end()
    asked = [request["messages"][-1]["content"] for request in server.requests]
    assert ["The key is under the mat." in str(one) for one in asked] == [True, True, True]
    assert "Where is it now?" in str(asked[2])
    (saved,) = place.project.glob("*.md")
    assert "Third." in saved.read_text()
    assert "Second." not in saved.read_text()


@pytest.mark.slow
def test_the_engine_of_the_command_line_answers_in_a_conversation_that_goes_on(place: Place, server: ModelServer):
    two_models(place, server)
    place.write("agents/guide.yaml", "agents:\n  guide:\n    prompt: You guide.\n")
    server.says("Small.", "Large.", "Large again.")
    assert place.rondel("run", "guide", "hello").out == "Small.\n"
    done = place.spawn("chat", "--conversation", "last", "--engine", "other", stdin=b"and now?\n")
    assert "guide uses other:large, chosen for this conversation." in done.out
    assert place.rondel("run", "guide", "still?", "--conversation", "last").out == "Large again.\n"
    assert models(server) == ["small", "large", "large"]


def test_leaving_with_a_question_open_says_how_to_answer_it(place: Place, server: ModelServer):
    place.uses(server)
    server.calls("ask_user", "q", question="What is your name?")
    with place.chat() as terminal:
        terminal.type("ask me", until="type your answer")
        terminal.press("\x04")
        assert terminal.wait_end() == 0
        assert "A question is open; `rondel resume " in terminal.all_text


def test_leaving_says_how_to_continue_and_that_continues_it(place: Place):
    left = place.spawn("chat", "--engine", "echo", stdin=b"remember me\n")
    hint = "To continue this conversation: rondel resume "
    assert hint in left.err
    again = place.spawn("resume", left.err.partition(hint)[2].split()[0], "--engine", "echo", stdin=b"/history\n")
    assert "remember me" in again.out
    assert hint not in place.spawn("chat", "--engine", "echo", stdin=b"").err  # nothing was said


def test_no_model_is_named_for_an_agent_that_asks_none(place: Place, server: ModelServer):
    place.uses(server)
    place.write("agents/clerk.yaml", "agents: {clerk: {template: 'At your service.'}}\n")
    done = place.spawn("chat", "clerk", stdin=b"hello\n")
    assert "At your service." in done.out
    assert "test:model" not in done.out + done.err
    assert server.requests == []


def test_ctrl_c_ends_a_trace_that_is_watched_as_it_should(place: Place):
    assert place.rondel("run", "rondel", "hello", "--engine", "echo").code == 0
    with place.terminal("trace", "--watch") as terminal:
        terminal.wait_for("asked echo")
        terminal.press("\x03")
        assert terminal.wait_end() == 0


def test_the_model_of_an_agent_with_words_of_its_own_is_said_to_be_asked_only_where_they_need_one(
    place: Place, server: ModelServer
):
    two_models(place, server)
    done = place.spawn("chat", stdin=b"/agent text.upper\nhello\n/model other\n/model\n")
    assert "Using test:small: set in rondel.toml:1." in done.out
    assert "HELLO" in done.out
    said = " ".join(done.out.split())
    assert "text.upper uses other:large if it needs a model, chosen for this" in said


@pytest.mark.slow
def test_a_long_name_of_a_model_is_cut_where_the_terminal_ends(place: Place, server: ModelServer):
    place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nmodel = "a-long-name-of-a-model-of-2027"\nbase_url = "{server.url}"\n',
    )
    with place.terminal(columns=40) as terminal:
        terminal.wait_for("rondel · test:a-long-name-of-a-model-o…")
        terminal.press("\x04")
        assert terminal.wait_end() == 0
