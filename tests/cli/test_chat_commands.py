"""What commands of the chat show and change, typed into a real terminal."""

from __future__ import annotations

import msgspec

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
    with place.terminal(ANTHROPIC_API_KEY="k") as terminal:
        terminal.wait_for_rest()
        terminal.type("2 + 40?")
        terminal.wait_for("It is 42.")
        terminal.wait_for_rest()
        terminal.type("/trace")
        terminal.wait_for("output: It is 42.")
        shown = " ".join(terminal.all_text.split())
        assert "1,000 in, 100 out, $0.0045]" in shown
        assert "2,000 in, 200 out, $0.0090]" in shown
        assert "3,000 in, 300 out, $0.014]" in shown
    told = " ".join(place.rondel("trace", "last").out.split())
    for money in ("$0.0045]", "$0.0090]", "$0.014]"):
        assert (money in told, shown.count(money)) == (True, told.count(money))
