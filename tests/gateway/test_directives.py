"""Agents with directives behind a real gateway: they get the person's words, and nothing of who the caller is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .callers import question
from .raw import read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, PATHS, Call, calls, played, says
from .upstream import WAIT_S, Upstream

ANN, BOB = "sk-canary-ann-4c1d9a", "sk-canary-bob-5e2f1c"
KEY_NAMES = ("canary-key-ann", "canary-key-bob")
SESSION, PROJECT = "canary-session-77", "canary-project-78"
CANARIES = (ANN, BOB, *KEY_NAMES, SESSION, PROJECT)
CONFIG = f"""
[gateway.routes]
default = "c"
[gateway.keys]
{KEY_NAMES[0]} = {{key = "{ANN}"}}
{KEY_NAMES[1]} = {{key = "{BOB}"}}
"""
AGENTS = """
agents:
  mirror:
    template: "You said: {{ .Input }}."
  listing:
    template: "Inputs:{{ .Inputs }}"
  named:
    template: "As {{ .Input \\"key\\" \\"nobody\\" }} in {{ .Input \\"session\\" \\"nowhere\\" }}."
  asks_mirror:
    template: "Heard {{ .Get \\"mirror\\" }}"
  brain:
    engine: c:brain
    prompt: "The person wrote: {{ .Input }} Mirror: {{ .Get \\"mirror\\" }} Scribe: {{ .Get \\"scribe\\" }} Be brief."
  scribe:
    engine: c:scribe
    prompt: Write down what you are told.
  learner:
    engine: c:learner
    prompt: Answer in JSON.
    facts:
      colour: {type: string, description: the colour}
  knows:
    template: "Colour: {{ .Fact \\"learner.colour\\" \\"unknown\\" }}."
  starter:
    template: "{{ .Start \\"mirror\\" }} Done."
  clerk:
    template: "Dear {{ .AskUser \\"Your name?\\" }}, about {{ .Input }}: {{ .AskUser \\"Which city?\\" }} it is."
  office:
    template: "The office: {{ .Get \\"clerk\\" }}"
  counted:
    template: "{{ .Get \\"tally\\" }} {{ .AskUser \\"Again?\\" }}"
  tally:
    function: tally:count
  careful:
    engine: c:careful
    prompt: Use your tool.
    tools: [tally:erase]
"""
TALLY = """from rondel import tool


def count() -> str:
    "Counts how often it was asked."
    with open("tally.txt", "a") as file:
        file.write("x")
    return "counted"


@tool(approval="confirm")
def erase() -> str:
    "Erase everything."
    open("erased.txt", "w").close()
    return "erased"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directives")


@pytest.fixture(scope="module")
def web(upstream: Upstream, home: Path) -> Iterator[httpx2.Client]:
    files = {"agents/all.yaml": AGENTS, "tally.py": TALLY}
    with (
        Served(home, CONFIG + engines(upstream), files=files) as served,
        httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web,
    ):
        yield web


def conversation(dialect: str, *said: str) -> dict[str, Any]:
    """A body in which the person and the agent speak in turns; the person has the last word."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    body = {name: value for name, value in question(dialect).items() if name not in ("messages", "input")}
    return body | {"input" if dialect == "openai-responses" else "messages": messages}


def ask(
    web: httpx2.Client, dialect: str, streams: bool, agent: str, *said: str, key: str = ANN, session: str = ""
) -> str:
    body = {"model": f"agent:{agent}", **conversation(dialect, *said), "stream": streams, **MARKS[dialect]}
    headers = {"x-api-key": key, "x-session-id": session or SESSION, "x-rondel-project": PROJECT}
    got = web.post(PATHS[dialect], json=body, headers=headers)
    assert got.status_code == 200, got.text
    echoed = got.text if dialect != "openai-responses" else ""  # its answers repeat what was sent along
    assert not any(canary in echoed for canary in CANARIES), got.text
    if streams:
        read = read_stream(dialect, got.content)
        assert read.ends == ("end",), got.text
        return read.text
    answer = got.json()
    if dialect == "anthropic":
        return "".join(block["text"] for block in answer["content"])
    if dialect == "openai-chat":
        return answer["choices"][0]["message"]["content"]
    items = [item for item in answer["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


MARKS: dict[str, dict[str, Any]] = {
    "anthropic": {"metadata": {"user_id": f"user_1_session_{SESSION}"}},
    "openai-chat": {"user": SESSION, "prompt_cache_key": SESSION, "safety_identifier": SESSION},
    "openai-responses": {"prompt_cache_key": SESSION, "metadata": {"session": SESSION}, "safety_identifier": SESSION},
}
"""What programs send along to say who they are."""

everywhere = pytest.mark.parametrize(
    ("dialect", "streams"),
    [(dialect, streams) for dialect in DIALECTS for streams in (False, True)],
    ids=[f"{SHORT[dialect]}-{how}" for dialect in DIALECTS for how in ("whole", "streamed")],
)


@everywhere
def test_an_agent_gets_the_persons_words(dialect: str, streams: bool, web: httpx2.Client) -> None:
    """Trust 5: `.Input` is the newest message of the person, and `.Get` hands it on."""
    assert ask(web, dialect, streams, "mirror", "Two apples") == "You said: Two apples."
    assert ask(web, dialect, streams, "mirror", "One", "You said: One.", "Two") == "You said: Two."
    assert ask(web, dialect, streams, "asks_mirror", "Two apples") == "Heard You said: Two apples."


@everywhere
def test_who_the_caller_is_is_no_input(dialect: str, streams: bool, web: httpx2.Client) -> None:
    """Trust 5: a template cannot read it."""
    assert ask(web, dialect, streams, "named", "Hi") == "As nobody in nowhere."
    assert ask(web, dialect, streams, "listing", "Hi").split() == ["Inputs:```yaml", "```"]


@everywhere
def test_no_model_sees_who_the_caller_is(dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 5: neither the agent's own model nor that of an agent that works for it."""
    upstream.plays(played("openai-chat", says("Noted."), True), name="scribe")
    upstream.plays(played("openai-chat", says("Two it is."), True), name="brain")
    assert ask(web, dialect, streams, "brain", "Two apples") == "Two it is."
    brain, scribe = upstream.visit("brain").body, upstream.visit("scribe").body
    told = json.dumps(brain)
    assert "The person wrote: Two apples Mirror: You said: Two apples. Scribe: Noted. Be brief." in told
    assert "tools" not in brain, "what only the author's words may call is not offered to a model"
    assert [message["content"] for message in scribe["messages"]] == ["Write down what you are told.", "Two apples"]
    for visit in (upstream.visit("brain"), upstream.visit("scribe")):
        sent = json.dumps([visit.body, visit.headers, visit.target])
        assert not any(canary in sent for canary in CANARIES), sent


@everywhere
def test_what_an_agent_learned_is_for_the_same_caller_only(
    dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client
) -> None:
    """Trust 5: facts last in a session of one key; no other key and no other session sees them."""
    session = f"learning-{dialect}-{streams}"
    upstream.plays(played("openai-chat", says('{"colour": "teal"}'), True), name="learner")
    assert ask(web, dialect, streams, "knows", "Hi", session=session) == "Colour: unknown."
    assert "teal" in ask(web, dialect, streams, "learner", "Which colour?", session=session)
    assert ask(web, dialect, streams, "knows", "Hi", session=session) == "Colour: teal."
    assert ask(web, dialect, streams, "knows", "Hi", session=session, key=BOB) == "Colour: unknown."
    assert ask(web, dialect, streams, "knows", "Hi", session=f"{session}-2") == "Colour: unknown."


@everywhere
def test_starting_another_agent_is_not_the_callers_to_see(dialect: str, streams: bool, web: httpx2.Client) -> None:
    """Trust 5: the caller names the agent with each request, so that none is changed for anybody else."""
    assert ask(web, dialect, streams, "starter", "Hi") == "New Starting Agent: mirror Done."
    assert ask(web, dialect, streams, "named", "Hi", key=BOB) == "As nobody in nowhere."


@everywhere
def test_a_question_is_the_answer_and_the_next_request_answers_it(dialect: str, streams: bool, web: httpx2.Client):
    """Trust 5: what was asked is not asked again, and `.Input` stays what the person wanted."""
    gap = "\n\n" if dialect == "openai-chat" else ""
    for agent, begins, before in (("clerk", "Dear ", ""), ("office", "The office: ", "The office: ")):
        said = ["a room"]
        for answer, asked in (("Ann", f"{begins}{gap}Your name?"), ("Rome", "Which city?")):
            said += [ask(web, dialect, streams, agent, *said), answer]
            assert said[-2] == asked
        assert ask(web, dialect, streams, agent, *said) == f"{before}Dear Ann, about a room: Rome it is."


def test_work_that_was_done_before_a_question_is_not_done_again(web: httpx2.Client, home: Path) -> None:
    """Trust 5"""
    asked = ask(web, "anthropic", False, "counted", "Go")
    assert ask(web, "anthropic", False, "counted", "Go", asked, "yes").endswith("counted yes")
    assert (home / "tally.txt").read_text() == "x"


@everywhere
def test_a_caller_cannot_approve_a_call(
    dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client, home: Path
) -> None:
    """Trust 5: whoever has a key may answer questions, but gives no permission: "yes" begins a new turn."""
    upstream.plays(
        played("openai-chat", calls(Call("e1", "erase", {})), True),
        played("openai-chat", says("I did not."), True),
        name="careful",
    )
    asked = ask(web, dialect, streams, "careful", "Erase it")
    assert "erase" in asked
    assert ask(web, dialect, streams, "careful", "Erase it", asked, "yes") == "I did not."
    assert not (home / "erased.txt").exists()
