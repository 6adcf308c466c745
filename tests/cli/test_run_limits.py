"""`rondel run` at a limit: an exit code of its own, the sentence on stderr, and never an older answer on stdout."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer

SPENT = '[[ledger.limits]]\nscope = {model = "model"}\ntokens = 1\nmode = "block"\n'


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("[limits]\nrounds = 0\n", "the turn used its 0 rounds; raise limits.rounds or ask for less"),
        (SPENT, "The day token limit of 1 for model model has been reached."),
    ],
    ids=["rounds", "ledger"],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_turn_that_a_limit_ends_gives_its_sentence_and_4(
    place: Place, server: ModelServer, setting: str, sentence: str, as_json: bool
):
    """Trust 4: the answer of the turn before it is not printed again."""
    place.uses(server)
    server.says("The first answer.")
    first = place.rondel("run", "rondel", "one")
    assert (first.code, first.out) == (0, "The first answer.\n")
    config = place.project / "rondel.toml"
    config.write_text(config.read_text() + setting)
    done = place.rondel("run", "rondel", "two", "--conversation", "last", *(["--json"] if as_json else []))
    assert (done.code, done.err) == (4, f"rondel: {sentence}\n")
    assert "The first answer." not in done.out
    if as_json:
        last = json.loads(done.out.splitlines()[-1])
        assert (last["outcome"], last["reason"]) == ("limited", sentence)
    else:
        assert done.out == ""


def test_what_was_said_before_a_limit_is_on_stdout(place: Place, server: ModelServer):
    """Trust 4: a partial answer is this turn's own."""
    place.uses(server)
    place.write(
        "agents/helper.md", "---\nplugins: [{auto_reply: {text: more, max: 9}}]\nlimits: {rounds: 2}\n---\nHelp.\n"
    )
    server.says("Part one.", "Part two.")
    done = place.rondel("run", "helper", "go")
    assert (done.code, done.out) == (4, "Part two.\n")
    assert done.err == "rondel: the turn used its 2 rounds; raise limits.rounds or ask for less\n"


def test_the_turn_that_follows_a_job_gives_its_own_end(place: Place, server: ModelServer):
    """Trust 4: when the turn that hears of a job fails, the first answer is not printed twice, and the code says so."""
    place.uses(server)
    place.write("agents/worker.md", "---\ntemplate: worked\n---\n")
    place.write("agents/boss.md", "---\ntools: [worker]\nbackground: {worker: inline}\n---\nLead.\n")
    server.calls("worker", "c1", input="x")
    server.says("Started.")
    server.fails(400)
    done = place.rondel("run", "boss", "go")
    assert (done.code, done.out) == (1, "Started.\n")
    assert "status 400" in done.err
