"""What the gateway keeps for its callers: responses to go on from, whatever model made them, also after a restart; and
the project's own agents as models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from .asked import asked
from .callers import LOOK, Callers, heard_response, question
from .served import SHORT, Served, engines
from .speech import DIALECTS, Answer, Call, Say, calls, played, says
from .upstream import Upstream

CONFIG = """
[gateway]
plugins = ["lender:Lender"]
[gateway.routes]
default = "c"
[gateway.keys]
ann = {key = "ann-key-long-enough"}
bob = {key = "bob-key-long-enough"}
narrow = {key = "narrow-key-long-enough", models = ["a:*"]}
"""
HELPER = """---
description: Helps with sums
engine: c:agent-brain
tools: [lender:add]
---
You are a helper. Be brief.
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def keeping(upstream: Upstream, home: Path) -> Iterator[Served]:
    lender = Path(__file__).with_name("lender.py").read_text(encoding="utf-8")
    files = {"lender.py": lender, "agents/helper.md": HELPER}
    with Served(home, CONFIG + engines(upstream), files=files) as served:
        yield served


@pytest.fixture(scope="module")
def ann(keeping: Served) -> Iterator[Callers]:
    with Callers(keeping.base_url, "ann-key-long-enough") as callers:
        yield callers


def respond(callers: Callers, model: str, text: str | list[Any], *, streams: bool = False, **more: Any) -> Any:
    fields: dict[str, Any] = {"input": text, **more}
    if not streams:
        return callers.openai.responses.create(model=model, **fields)
    with callers.openai.responses.stream(model=model, **fields) as events:
        return events.get_final_response()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["openai-chat", "anthropic"])
def test_a_response_of_any_model_can_be_gone_on_from(model: str, streams: bool, upstream: Upstream, ann: Callers):
    """The chain is read back: three turns, each with what is new only, and the instructions of the last."""
    name = upstream.plays(*(played(model, says(f"Answer {n}."), True) for n in range(3)))
    id = f"{SHORT[model]}:{name}"
    first = respond(ann, id, "One?", streams=streams, instructions="Old words.")
    second = respond(ann, id, "Two?", streams=streams, previous_response_id=first.id)
    third = respond(ann, id, "Three?", streams=streams, previous_response_id=second.id, instructions="New words.")
    assert third.output_text == "Answer 2."
    assert third.previous_response_id == second.id
    body = upstream.visits(name, 3)[2].body
    got = asked(model, body)
    assert got.texts == ("One?", "Two?", "Three?")
    assert got.system == "New words."
    said = json.dumps(body)
    assert said.index("One?") < said.index("Answer 0.") < said.index("Two?") < said.index("Answer 1.")


@pytest.mark.parametrize("model", ["openai-chat", "anthropic"])
def test_the_result_of_a_call_alone_goes_on_from_it(model: str, upstream: Upstream, ann: Callers) -> None:
    name = upstream.plays(
        played(model, calls(Call("c1", "look", {"at": "a"}), saying="Let me look."), True),
        played(model, says("I see a."), True),
    )
    tools = [{"type": "function", "name": "look", "parameters": LOOK, "strict": True}]
    first = respond(ann, f"{SHORT[model]}:{name}", "What is at a?", tools=tools)
    output = [{"type": "function_call_output", "call_id": "c1", "output": "seen a"}]
    second = respond(ann, f"{SHORT[model]}:{name}", output, tools=tools, previous_response_id=first.id)
    assert second.output_text == "I see a."
    got = asked(model, upstream.visits(name, 2)[1].body)
    assert (got.calls, got.results) == ((("c1", "look", {"at": "a"}),), (("c1", "seen a"),))


def test_a_response_is_its_callers_own_and_only_what_was_stored_is_there(
    upstream: Upstream, keeping: Served, ann: Callers
) -> None:
    name = upstream.plays(*(played("openai-chat", says("Hello"), True) for _ in range(2)))
    kept = respond(ann, f"c:{name}", "Hi")
    unkept = respond(ann, f"c:{name}", "Hi", store=False)
    with Callers(keeping.base_url, "bob-key-long-enough") as bob:
        for who, id in ((bob, kept.id), (ann, unkept.id), (ann, "resp_nobody")):
            with pytest.raises(openai.APIStatusError, match="no stored response") as raised:
                respond(who, f"c:{name}", "And?", previous_response_id=id)
            assert raised.value.status_code in (400, 404)
            assert raised.value.code == "previous_response_not_found"


def test_an_upstream_of_the_same_dialect_keeps_its_own_responses(upstream: Upstream, ann: Callers) -> None:
    name = upstream.plays(*(played("openai-responses", says("Hello"), False) for _ in range(2)))
    first = respond(ann, f"r:{name}", "Hi")
    respond(ann, f"r:{name}", "And?", previous_response_id=first.id)
    body = upstream.visits(name, 2)[1].body
    assert (body["previous_response_id"], body["input"]) == ("resp_up", "And?")


def test_a_response_with_injected_calls_is_gone_on_from_here_in_the_same_dialect_too(upstream: Upstream, ann: Callers):
    """The upstream does not know the id that the caller has."""
    name = upstream.plays(
        played("openai-responses", calls(Call("l1", "add", {"a": 2, "b": 3})), True),
        played("openai-responses", says("It is 5."), True),
        played("openai-responses", says("Still 5."), True),
    )
    first = respond(ann, f"r:{name}", "[inject] 2 + 3?")
    assert respond(ann, f"r:{name}", "Sure?", previous_response_id=first.id).output_text == "Still 5."
    body = upstream.visits(name, 3)[2].body
    assert "previous_response_id" not in body
    assert asked("openai-responses", body).texts == ("[inject] 2 + 3?", "Sure?")


def test_a_response_and_a_join_survive_a_restart(upstream: Upstream, tmp_path: Path) -> None:
    lender = {"lender.py": Path(__file__).with_name("lender.py").read_text(encoding="utf-8")}
    name = upstream.plays(
        played("anthropic", says("Remembered."), True),
        played(
            "anthropic",
            Answer((Say("Both."), Call("lr", "add", {"a": 2, "b": 3}), Call("or", "look", {"at": "a"}))),
            True,
        ),
        played("anthropic", says("Yes."), True),
        played("anthropic", says("Done."), True),
    )
    model = f"a:{name}"
    with Served(tmp_path, CONFIG + engines(upstream), files=lender) as served, _ann(served) as ann:
        first = respond(ann, model, "Remember me")
        mixed = heard_response(respond(ann, model, "[inject] Go", **_tools()))
        assert [call[0] for call in mixed.calls] == ["or"]
    with Served(tmp_path, CONFIG + engines(upstream), files=lender) as served, _ann(served) as ann:
        assert respond(ann, model, "Do you?", previous_response_id=first.id).output_text == "Yes."
        results = {"type": "function_call_output", "call_id": "or", "output": "seen a"}
        call = {"type": "function_call", "call_id": "or", "name": "look", "arguments": '{"at": "a"}'}
        said = {"role": "assistant", "content": "Both."}
        items = [{"role": "user", "content": "[inject] Go"}, said, call, results]
        assert respond(ann, model, items, **_tools()).output_text == "Done."
    visits = upstream.visits(name, 4)
    assert asked("anthropic", visits[2].body).texts == ("Remember me", "Do you?")
    assert dict(asked("anthropic", visits[3].body).results) == {"lr": "5", "or": "seen a"}


def _ann(served: Served) -> Callers:
    return Callers(served.base_url, "ann-key-long-enough")


def _tools() -> dict[str, Any]:
    return {"tools": [{"type": "function", "name": "look", "parameters": LOOK, "strict": True}]}


def test_what_was_answered_inside_is_put_back_for_its_own_caller_and_its_own_call_only(
    upstream: Upstream, keeping: Served, ann: Callers
) -> None:
    """Some servers number their calls from one: the same id is no proof that it is the same call."""
    mixed = Answer((Call("call-0", "add", {"a": 2, "b": 3}), Call("call-1", "look", {"at": "a"})))
    name = upstream.plays(played("openai-chat", mixed, True))
    ann.ask("anthropic", f"c:{name}", question("anthropic", "[inject] Hi", tools=True))
    with Callers(keeping.base_url, "bob-key-long-enough") as bob:
        for who, at in ((bob, "a"), (ann, "b")):
            later = upstream.plays(played("openai-chat", says("Done."), True))
            fields = question("anthropic", "[inject] Hi", tools=True)
            call = {"type": "tool_use", "id": "call-1", "name": "look", "input": {"at": at}}
            result = {"type": "tool_result", "tool_use_id": "call-1", "content": "seen"}
            fields["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
            who.ask("anthropic", f"c:{later}", fields)
            assert asked("openai-chat", upstream.visit(later).body).results == (("call-1", "seen"),)


# --- agents of the project --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("caller", DIALECTS)
def test_an_agent_of_the_project_is_a_model(caller: str, streams: bool, upstream: Upstream, ann: Callers) -> None:
    """Its prompt, its tools and its engine; the caller's own instructions and tools beside them."""
    upstream.plays(
        played("openai-chat", calls(Call("l1", "add", {"a": 2, "b": 3}), saying="Let me see. "), True),
        played("openai-chat", Answer((Say("It is 5."), Call("c1", "look", {"at": "a"}))), True),
        name="agent-brain",
    )
    fields = question(caller, "2 + 3?", system="Say it in French.", tools=True)
    heard = ann.ask(caller, "agent:helper", fields, streams=streams)
    gap = "\n\n" if caller == "openai-chat" else ""
    assert heard.text == f"Let me see. {gap}It is 5."
    assert heard.calls == (("c1", "look", {"at": "a"}),)
    first = asked("openai-chat", upstream.visits("agent-brain", 2)[0].body)
    assert "You are a helper." in first.system
    assert "Say it in French." in first.system
    assert set(first.tools) == {"add", "look"}


def test_an_agent_is_listed_and_only_for_keys_that_may_use_it(upstream: Upstream, keeping: Served) -> None:
    """C04: a key with models of its own may use no agent that they do not name."""
    with Callers(keeping.base_url, "ann-key-long-enough") as ann:
        assert "agent:helper" in [model.id for model in ann.openai.models.list()]
        upstream.plays(played("openai-chat", says("Hello"), False), name="default-model")
        got = ann.openai.chat.completions.with_raw_response.create(model="agent:helpr", **question("openai-chat"))
        assert "'helpr'" in got.headers["x-rondel-warning"]
    upstream.plays(name="agent-brain")
    with Callers(keeping.base_url, "narrow-key-long-enough") as narrow:
        assert "agent:helper" not in [model.id for model in narrow.openai.models.list()]
        for caller in DIALECTS:
            with pytest.raises(Exception, match="may not use"):
                narrow.ask(caller, "agent:helper", question(caller))
    assert upstream.count("agent-brain") == 0
