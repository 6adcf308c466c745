"""Tools that are injected to a model behind its caller's back: their calls are answered inside, and nobody notices.

The callers are the vendors' own SDKs, whose accumulators refuse a stream whose blocks are not numbered on, or that ends
twice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..dialects.judges import judge_stream
from .asked import asked
from .callers import PNG, Callers, Heard, question
from .raw import error_of, post_of, read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, STOPS, Answer, Call, Say, Spent, Think, calls, error, played, says
from .upstream import Upstream

PAIRS = [pytest.param(c, m, id=f"{c}-to-{m}") for c, m in itertools.product(DIALECTS, DIALECTS)]
STREAMS = [pytest.param(False, id="whole"), pytest.param(True, id="streamed")]
SESSIONS = [pytest.param("", id="no_session"), pytest.param("s-1", id="session")]
ROUNDS = 4
GAPS = {"anthropic": "", "openai-chat": "\n\n", "openai-responses": ""}
"""Between the texts of two rounds: where each is not a block or an item of its own, it is a paragraph."""
INJECTED = ("add", "never", "census")


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = (
        f'[gateway]\nplugins = ["lender:Lender"]\n[gateway.routes]\ndefault = "c"\n[limits]\nrounds = {ROUNDS}\n'
        + engines(upstream)
    )
    files = {"lender.py": Path(__file__).with_name("lender.py").read_text(encoding="utf-8")}
    with Served(tmp_path_factory.mktemp("turns"), config, files=files) as served:
        yield served


def injected(caller: str, session: str = "", **kinds: Any) -> dict[str, Any]:
    """A question that the lender takes part in."""
    fields = question(caller, "[inject] Hi", **kinds)
    return {**fields, "extra_headers": {"x-session-id": session}} if session else fields


def plays(upstream: Upstream, model: str, *answers: Answer) -> str:
    """A turn always streams upstream."""
    return upstream.plays(*(played(model, answer, True) for answer in answers))


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_a_injected_call_is_answered_inside_and_the_caller_never_sees_it(
    caller: str, model: str, streams: bool, session: str, upstream: Upstream, callers: Callers
) -> None:
    """I07, I08: no call is seen, the first text is kept, blocks are numbered on, usage adds up."""
    name = plays(
        upstream,
        model,
        Answer((Say("Let me see. "), Call("injected-1", "add", {"a": 2, "b": 3})), spent=Spent(10, 4, 0, 5)),
        Answer((Say("It is 5."),), spent=Spent(20, 6, 0, 7)),
    )
    heard = callers.ask(caller, f"{SHORT[model]}:{name}", injected(caller, session, tools=True), streams=streams)
    assert heard.text == f"Let me see. {GAPS[caller]}It is 5."
    assert heard.calls == ()
    assert heard.stop == STOPS[caller]["end"]
    assert heard[4:7] == (10 + 4 + 20 + 6, 4 + 6, 5 + 7)
    first, second = (asked(model, visit.body) for visit in upstream.visits(name, 2))
    assert set(first.tools) == {*INJECTED, "look"}
    assert second.calls == (("injected-1", "add", {"a": 2, "b": 3}),)
    assert second.results == (("injected-1", "5"),)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_several_injected_rounds_are_one_answer(dialect: str, streams: bool, upstream: Upstream, callers: Callers):
    """I08: more rounds, also of several calls at once."""
    name = plays(
        upstream,
        dialect,
        Answer((Think("Hm. "), Say("One. "), Call("l1", "add", {"a": 1, "b": 1}), Call("l2", "add", {"a": 2, "b": 2}))),
        Answer((Think("So. "), Say("Two. "), Call("l3", "add", {"a": 3, "b": 3}))),
        Answer((Say("Three."), Call("c1", "look", {"at": "a"}))),
    )
    heard = callers.ask(dialect, f"{SHORT[dialect]}:{name}", injected(dialect, tools=True), streams=streams)
    assert heard.text == "One. {0}Two. {0}Three.".format(GAPS[dialect])
    assert heard.thoughts == "Hm. So. "
    assert heard.calls == (("c1", "look", {"at": "a"}),)
    assert heard.stop == STOPS[dialect]["calls"]
    assert heard.tokens_out == 3 * 5
    third = asked(dialect, upstream.visits(name, 3)[2].body)
    assert third.results == (("l1", "2"), ("l2", "4"), ("l3", "6"))


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_rounds_have_a_limit_and_reaching_it_is_no_failure(
    dialect: str, streams: bool, upstream: Upstream, callers: Callers
) -> None:
    """I08: rounds go on up to the limit; then the answer is cut, as one that is too long."""
    rounds = [Answer((Say(f"{n} "), Call(f"l{n}", "add", {"a": n, "b": n}))) for n in range(ROUNDS)]
    name = plays(upstream, dialect, *rounds)
    heard = callers.ask(dialect, f"{SHORT[dialect]}:{name}", injected(dialect), streams=streams)
    assert heard.text == "0 {0}1 {0}2 {0}3 ".format(GAPS[dialect])
    assert heard.calls == ()
    assert heard.stop == STOPS[dialect]["length"]
    assert upstream.count(name) == ROUNDS


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_limit_that_is_reached_before_a_word_was_said_is_an_error_with_its_sentence(
    dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client
) -> None:
    """Trust 4: an empty answer would look finished; a client must not try the same again, either."""
    name = plays(upstream, dialect, *(calls(Call(f"l{n}", "add", {"a": n, "b": n})) for n in range(ROUNDS)))
    answer = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", text="[inject] Hi", streams=streams))
    assert answer.status_code == 400
    _, message = error_of(dialect, answer.json())
    assert message == f"the turn used its {ROUNDS} rounds; raise limits.rounds or ask for less"
    assert upstream.count(name) == ROUNDS


def goes_on(caller: str, text: str, heard: Heard) -> dict[str, Any]:
    """The caller's next request: what it heard, and the result of its own call."""
    (id, tool, arguments), said = heard.calls[0], heard.text
    fields = question(caller, text, tools=True)
    if caller == "anthropic":
        content: list[dict[str, Any]] = [{"type": "text", "text": said}] if said else []
        content.append({"type": "tool_use", "id": id, "name": tool, "input": arguments})
        result = {"type": "tool_result", "tool_use_id": id, "content": "seen a"}
        fields["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    elif caller == "openai-chat":
        call = {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        fields["messages"].append({"role": "assistant", "content": said or None, "tool_calls": [call]})
        fields["messages"].append({"role": "tool", "tool_call_id": id, "content": "seen a"})
    else:
        if said:
            fields["input"].append({"role": "assistant", "content": said})
        call = {"type": "function_call", "call_id": id, "name": tool, "arguments": json.dumps(arguments)}
        fields["input"] += [call, {"type": "function_call_output", "call_id": id, "output": "seen a"}]
    return fields


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_a_round_of_injected_and_own_calls_is_joined_up_again(
    caller: str, model: str, streams: bool, upstream: Upstream, callers: Callers
) -> None:
    """I07: the caller sees its own call only; with its next request the model sees both results."""
    unique = f"own-{caller}-{model}-{streams}"
    mixed = (Say("Both. "), Call(f"injected-{unique}", "add", {"a": 2, "b": 3}), Call(unique, "look", {"at": "a"}))
    name = plays(upstream, model, Answer(mixed), says("Done."))
    heard = callers.ask(caller, f"{SHORT[model]}:{name}", injected(caller, tools=True), streams=streams)
    assert heard.text == "Both. "
    assert heard.calls == ((unique, "look", {"at": "a"}),)
    assert heard.stop == STOPS[caller]["calls"]

    after = callers.ask(caller, f"{SHORT[model]}:{name}", goes_on(caller, "[inject] Hi", heard), streams=streams)
    assert after.text == "Done."
    body = upstream.visits(name, 2)[1].body
    second = asked(model, body)
    assert json.dumps(body).count("Both. ") == 1
    assert {call[0] for call in second.calls} == {f"injected-{unique}", unique}
    assert dict(second.results) == {f"injected-{unique}": "5", unique: "seen a"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_joined_up_again_survives_a_lender_that_no_longer_takes_part(
    dialect: str, upstream: Upstream, callers: Callers
) -> None:
    """The next request may have lost the words that the lender looks for: what it answered is put back all the same."""
    mixed = calls(Call(f"injected-z-{dialect}", "add", {"a": 2, "b": 3}), Call(f"own-z-{dialect}", "look", {"at": "a"}))
    name = plays(upstream, dialect, mixed)
    heard = callers.ask(dialect, f"{SHORT[dialect]}:{name}", injected(dialect, tools=True))
    later = upstream.plays(played(dialect, says("Done."), False), played(dialect, says("Done."), True))
    callers.ask(dialect, f"{SHORT[dialect]}:{later}", goes_on(dialect, "Hi", heard))
    second = asked(dialect, upstream.visits(later)[0].body)
    assert dict(second.results) == {f"injected-z-{dialect}": "5", f"own-z-{dialect}": "seen a"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_event_of_a_joined_stream_is_valid_and_it_ends_once(dialect: str, upstream: Upstream, web: httpx2.Client):
    """X04, I08: exactly one terminal event, and the vendors' types accept each event."""
    name = plays(
        upstream,
        dialect,
        Answer((Think("Hm."), Say("One. "), Call("l1", "add", {"a": 1, "b": 1})), interleaved=True),
        Answer((Say("Two."), Call("c1", "look", {"at": "a"}), Call("c2", "look", {"at": "b"})), interleaved=True),
    )
    got = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", text="[inject] Hi", tools=True))
    judge_stream(dialect, got.content)
    assert read_stream(dialect, got.content)[:2] == (f"One. {GAPS[dialect]}Two.", ("end",))
    assert '"add"' not in got.text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_second_round_that_fails_keeps_what_was_said_and_ends_with_an_error(
    dialect: str, upstream: Upstream, web: httpx2.Client
) -> None:
    first = played(dialect, Answer((Say("Let me see."), Call("l1", "add", {"a": 1, "b": 1}))), True)
    name = upstream.plays(first, error(dialect, 400, "invalid_request_error", "Too long."))
    got = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", text="[inject] Hi"))
    read = read_stream(dialect, got.content)
    assert (got.status_code, read.text, read.ends) == (200, "Let me see.", ("error",))
    assert "Too long;" in read.error


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_second_round_that_fails_is_an_error_to_who_wanted_a_whole_answer(
    dialect: str, upstream: Upstream, web: httpx2.Client
) -> None:
    first = played(dialect, Answer((Say("Let me see."), Call("l1", "add", {"a": 1, "b": 1}))), True)
    name = upstream.plays(first, error(dialect, 400, "invalid_request_error", "Too long."))
    got = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", text="[inject] Hi", streams=False))
    assert got.status_code == 400
    assert "Too long;" in error_of(dialect, got.json())[1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_wrong_arguments_of_a_injected_call_are_told_to_the_model_and_not_to_the_caller(
    dialect: str, upstream: Upstream, callers: Callers
) -> None:
    name = plays(upstream, dialect, calls(Call("l1", "add", {"a": "x"})), says("Sorry."))
    heard = callers.ask(dialect, f"{SHORT[dialect]}:{name}", injected(dialect), streams=True)
    assert (heard.text, heard.calls) == ("Sorry.", ())
    ((id, result),) = asked(dialect, upstream.visits(name, 2)[1].body).results
    assert id == "l1"
    assert result.removeprefix("Error: ") == "argument 'a': expected `int`, got `str`"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_of_the_callers_that_has_a_injected_one_s_name_is_the_callers(
    dialect: str, upstream: Upstream, callers: Callers
) -> None:
    name = plays(upstream, dialect, calls(Call("c1", "add", {"at": "a"})))
    fields = injected(dialect, tools=True)
    tool = fields["tools"][0]
    (tool.get("function") or tool)["name"] = "add"
    heard = callers.ask(dialect, f"{SHORT[dialect]}:{name}", fields, streams=True)
    assert heard.calls == (("c1", "add", {"at": "a"}),)
    assert sorted(asked(dialect, upstream.visit(name).body).tools) == ["add", "census", "never"]


@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_what_is_said_before_a_injected_call_is_seen_while_that_is_answered(
    caller: str, model: str, upstream: Upstream, web: httpx2.Client
) -> None:
    name = plays(upstream, model, calls(Call("l1", "never", {}), saying="One moment."))
    raw = b""
    with web.stream("POST", **post_of(caller, f"{SHORT[model]}:{name}", text="[inject] Hi")) as got:
        for piece in got.iter_raw():
            raw += piece
            if read_stream(caller, raw).text == "One moment.":
                break
    assert read_stream(caller, raw).ends == ()


@pytest.mark.parametrize("streams", STREAMS)
def test_rounds_are_no_attempts(streams: bool, upstream: Upstream, web: httpx2.Client) -> None:
    """R11: the headers say how many engines were asked until one answered."""
    name = plays(upstream, "anthropic", calls(Call("l1", "add", {"a": 1, "b": 1})), says("Two."))
    got = web.post(**post_of("anthropic", f"a:{name}", text="[inject] Hi", streams=streams))
    assert got.headers["x-rondel-attempts"] == "1"
    assert got.headers["x-rondel-model"] == f"a:{name}"


def test_a_request_that_no_lender_wants_to_see_is_relayed(upstream: Upstream, web: httpx2.Client) -> None:
    name = upstream.plays(played("anthropic", says("Hello"), False))
    got = web.post(**post_of("anthropic", f"a:{name}", streams=False))
    assert got.json()["id"] == "msg_up"
    assert "tools" not in upstream.visit(name).body


def test_a_request_whose_tools_alone_mention_what_a_lender_wants_is_relayed(
    upstream: Upstream, web: httpx2.Client
) -> None:
    name = upstream.plays(played("anthropic", says("Hello"), False))
    post = post_of("anthropic", f"a:{name}", streams=False)
    tools = [{"name": "draw", "description": "Draws [inject].", "input_schema": {"type": "object"}}]
    got = web.post(post["url"], json={**post["json"], "tools": tools})
    assert got.json()["id"] == "msg_up"
    assert upstream.visit(name).body["tools"] == tools


# --- the agents that come along ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helped(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = (
        '[gateway]\nplugins = ["memory"]\n[gateway.routes]\ndefault = "c"\nimage = "a:eyes"\n'
        '[gateway.fallback]\ndefault = ["a:eyes"]\n'
        '[gateway.keys]\nann = {key = "ann-key-long-enough"}\nbob = {key = "bob-key-long-enough"}\n' + engines(upstream)
    )
    with Served(tmp_path_factory.mktemp("helped"), config) as served:
        yield served


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("caller", DIALECTS)
def test_a_model_that_sees_looks_for_one_that_does_not(caller: str, streams: bool, upstream: Upstream, helped: Served):
    """I07: an older image is a placeholder to the model, and the vision route looks at it when it is asked to."""
    blind = plays(
        upstream,
        "openai-chat",
        calls(Call("l1", "analyzeImage", {"imageId": ["1"], "task": "Which colour?"}), saying="Let me look. "),
        says("It is black."),
    )
    upstream.plays(played("anthropic", says("Black."), True), name="eyes")
    fields = question(caller, "What is this?", image=True)
    fields |= {key: [*fields[key], *_more(caller)] for key in ("messages", "input") if key in fields}
    with Callers(helped.base_url, "ann-key-long-enough") as callers:
        heard = callers.ask(caller, f"c:{blind}", fields, streams=streams)
    assert heard.text == f"Let me look. {GAPS[caller]}It is black."
    assert heard.calls == ()
    first, second = (asked("openai-chat", visit.body) for visit in upstream.visits(blind, 2))
    assert first.images == ()
    assert "[Image #1]" in "".join(first.texts)
    assert "Black." in second.results[0][1]
    assert asked("anthropic", upstream.visits("eyes")[0].body).images == (PNG,)


@pytest.mark.parametrize("streams", STREAMS)
def test_a_new_image_in_a_tool_s_result_hands_the_whole_request_over(streams: bool, upstream: Upstream, helped: Served):
    """I02: over HTTP; the other model is not asked, and the image moves behind the result, whose text is "read image
    successfully"."""
    upstream.plays(played("anthropic", says("A dot."), True), name="eyes")
    seen = upstream.count("eyes")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    fields = {
        "max_tokens": 100,
        "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "What is it?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
            {"role": "user", "content": [result]},
        ],
    }
    with Callers(helped.base_url, "ann-key-long-enough") as callers:
        heard = callers.ask("anthropic", "c:blind", fields, streams=streams)
    assert (heard.text, heard.calls) == ("A dot.", ())
    (visit,) = upstream.visits("eyes", seen + 1)[seen:]
    given = asked("anthropic", visit.body)
    assert (given.images, given.texts) == ((PNG,), ("What is it?",))
    assert "Read" in given.tools
    assert "analyzeImage" not in given.tools
    assert given.results == (("t1", "read image successfully"),)


def test_the_headers_name_the_model_that_a_whole_request_was_handed_to(upstream: Upstream, helped: Served) -> None:
    """R11: also if that model is a fallback of the one that was asked for."""
    upstream.plays(played("anthropic", says("A dot."), False), name="eyes")
    with httpx2.Client(base_url=helped.base_url, headers={"x-api-key": "ann-key-long-enough"}) as web:
        got = web.post(**post_of("openai-chat", "c:blind", streams=False, image=True))
    assert (got.headers["x-rondel-model"], got.headers["x-rondel-attempts"]) == ("a:eyes", "1")


def _more(caller: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "A dot."}, {"role": "user", "content": "Its colour?"}]


def test_a_memory_lasts_and_is_its_keys_own(upstream: Upstream, helped: Served) -> None:
    """I07: remembered through one dialect, recalled through another; another key finds nothing."""
    remember = calls(Call("l1", "remember", {"text": "The cat is called Miez."}))
    recall = calls(Call("l2", "recall", {"query": "cat"}))
    name = plays(upstream, "openai-chat", remember, says("Noted."))
    with Callers(helped.base_url, "ann-key-long-enough") as ann, Callers(helped.base_url, "bob-key-long-enough") as bob:
        assert ann.ask("anthropic", f"c:{name}", question("anthropic", "Remember it"), streams=True).text == "Noted."
        for who, finds in ((ann, True), (bob, False)):
            name = plays(upstream, "anthropic", recall, says("Said."))
            assert who.ask("openai-responses", f"a:{name}", question("openai-responses", "Who?")).text == "Said."
            result = asked("anthropic", upstream.visits(name, 2)[1].body).results[0][1]
            assert ("Miez" in result) is finds
