"""What a provider signed of its model's thinking comes back to it, whatever dialect the caller speaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rondel.contracts.dialect import UNSIGNED
from rondel.gateway.bridge import signatures
from rondel.prompt import Prompt
from rondel.stores.memory.store import MemoryStore
from rondel.testing import VirtualClock
from rondel.values import Message, Text, Thinking, ToolCall, user

from .callers import Callers, question
from .served import SHORT, Served, engines
from .speech import Answer, Call, Say, Think, body, played, says
from .upstream import Upstream

THOUGHT = Answer((Think("Hm, a."), Say("I look."), Call("c1", "look", {"at": "a"})))
SIGNED = {"type": "thinking", "thinking": "Hm, a.", "signature": "c2lnbmVk"}
CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}}
KEYS = """
[gateway.keys]
ann = {key = "ann-key-long-enough"}
bob = {key = "bob-key-long-enough"}
[gateway.routes]
default = "c"
"""
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "seen a"}


def config(upstream: Upstream) -> str:
    """An engine of each dialect, and a second account of Anthropic's."""
    first = engines(upstream).split("[engines.")[1].replace("]", ']\nprovider = "anthropic"', 1)
    others = "".join(f"[engines.{name}{first[1:]}" for name in ("a2", "work", "home"))
    return KEYS + engines(upstream) + others.replace('[engines.a2]\nprovider = "anthropic"', "[engines.a2]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signed")


@pytest.fixture(scope="module")
def signed(upstream: Upstream, folder: Path) -> Iterator[Served]:
    with Served(folder, config(upstream)) as served:
        yield served


@pytest.fixture(scope="module")
def ann(signed: Served) -> Iterator[Callers]:
    with Callers(signed.base_url, "ann-key-long-enough") as callers:
        yield callers


def chat(callers: Callers, model: str, fields: dict[str, Any], *, streams: bool = False) -> dict[str, Any]:
    """The message of the answer as a program keeps it: nothing but what OpenAI's own API has."""
    if streams:
        with callers.openai.chat.completions.stream(model=model, **fields) as events:
            message = events.get_final_completion().choices[0].message
    else:
        message = cast(Any, callers.openai.chat.completions.create(model=model, **fields)).choices[0].message
    told = message.model_dump(exclude_none=True)
    return {name: told[name] for name in ("role", "content", "tool_calls") if name in told}


def collecting(said: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    fields = question("openai-chat", "Hi", tools=True)
    for call in said.get("tool_calls", ()):  # the SDK's stream adds what it parsed
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    return {**fields, "messages": [*fields["messages"], said, *(more or (RESULT,))]}


def assistant(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of the first reply in a request to Anthropic."""
    return next(message["content"] for message in body["messages"] if message["role"] == "assistant")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_chat_callers_thinking_comes_back_signed(streams: bool, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: Chat has no place for a signature; it is kept here and stands before the call again."""
    name = upstream.plays(played("anthropic", THOUGHT, streams), played("anthropic", says("There."), streams))
    said = chat(ann, f"a:{name}", question("openai-chat", "Hi", tools=True), streams=streams)
    chat(ann, f"a:{name}", collecting(said), streams=streams)
    again = upstream.visits(name, 2)[1].body
    assert assistant(again) == [SIGNED, {"type": "text", "text": "I look."}, CALL]
    assert again["messages"][2]["content"][0]["type"] == "tool_result"


def test_every_step_of_a_chat_callers_loop_keeps_its_thinking(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: also that of a reply which called nothing, and each reply has its own."""
    texts = [says("One."), Answer((Think("First."), Say("Two."))), Answer((Think("Second."), Say("Three."))), says("-")]
    name = upstream.plays(*(played("anthropic", text, False) for text in texts))
    fields = question("openai-chat", "Hi")
    for _ in texts:
        fields["messages"] += [chat(ann, f"a:{name}", fields), {"role": "user", "content": "More"}]
    last = upstream.visits(name, 4)[3].body["messages"]
    assert [message["content"] for message in last if message["role"] == "assistant"] == [
        "One.",
        [{**SIGNED, "thinking": "First."}, {"type": "text", "text": "Two."}],
        [{**SIGNED, "thinking": "Second."}, {"type": "text", "text": "Three."}],
    ]


def test_redacted_thinking_comes_back_too(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: what nobody may read is sent back as it came."""
    redacted = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [redacted, CALL]}
    answer |= {"stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    name = upstream.plays([body(answer)], played("anthropic", says("There."), False))
    chat(ann, f"a:{name}", collecting(chat(ann, f"a:{name}", question("openai-chat", "Hi", tools=True))))
    assert assistant(upstream.visits(name, 2)[1].body) == [redacted, CALL]


def test_a_chat_caller_of_a_responses_model_keeps_its_encrypted_reasoning(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: OpenAI's reasoning is lost in the same way, and kept in the same way."""
    name = upstream.plays(played("openai-responses", THOUGHT, False), played("openai-responses", says("-"), False))
    chat(ann, f"r:{name}", collecting(chat(ann, f"r:{name}", question("openai-chat", "Hi", tools=True))))
    items = upstream.visits(name, 2)[1].body["input"]
    reasoning = next(n for n, item in enumerate(items) if item.get("type") == "reasoning")
    assert items[reasoning]["encrypted_content"] == "ZW5j"
    assert reasoning < next(n for n, item in enumerate(items) if item.get("type") == "function_call")


def test_the_thinking_of_one_key_is_given_to_no_other(signed: Served, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: another key that sends the very same conversation is given nothing that was thought in it."""
    name = upstream.plays(*(played("anthropic", answer, False) for answer in (THOUGHT, says("-"), says("-"))))
    again = collecting(chat(ann, f"a:{name}", question("openai-chat", "Hi", tools=True)))
    with Callers(signed.base_url, "bob-key-long-enough") as bob:
        chat(bob, f"a:{name}", again)
    chat(ann, f"a:{name}", again)
    bobs, anns = (visit.body for visit in upstream.visits(name, 3)[1:])
    assert "c2lnbmVk" not in json.dumps(bobs)
    assert "c2lnbmVk" in json.dumps(anns)


def test_the_thinking_of_one_account_is_sent_to_no_other_of_the_same_provider(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: OpenAI refuses what it encrypted for another organization, so accounts are told apart, too."""
    name = upstream.plays(*(played("anthropic", answer, False) for answer in (THOUGHT, says("-"), says("-"))))
    again = collecting(chat(ann, f"work:{name}", question("openai-chat", "Hi", tools=True)))
    chat(ann, f"home:{name}", again)
    chat(ann, f"work:{name}", again)
    home, work = (json.dumps(visit.body) for visit in upstream.visits(name, 3)[1:])
    assert "c2lnbmVk" not in home
    assert "c2lnbmVk" in work


@pytest.mark.parametrize("other", ["a2", "c", "r"])
def test_the_thinking_of_one_provider_is_sent_to_no_other(other: str, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: neither the signature nor what was signed."""
    name = upstream.plays(played("anthropic", THOUGHT, False))
    again = collecting(chat(ann, f"a:{name}", question("openai-chat", "Hi", tools=True)))
    dialect = {"a2": "anthropic", "c": "openai-chat", "r": "openai-responses"}[other]
    theirs = upstream.plays(played(dialect, says("-"), False))
    chat(ann, f"{other}:{theirs}", again)
    told = json.dumps(upstream.visit(theirs).body)
    assert "c2lnbmVk" not in told
    assert "Hm, a." not in told
    assert "I look." in told


def test_a_call_that_the_caller_changed_is_not_the_one_that_was_thought_of(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: an id alone is not enough; some servers give the same ones again and again."""
    name = upstream.plays(played("anthropic", THOUGHT, False), played("anthropic", says("-"), False))
    again = collecting(chat(ann, f"a:{name}", question("openai-chat", "Hi", tools=True)))
    again["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"at": "b"}'
    chat(ann, f"a:{name}", again)
    assert "c2lnbmVk" not in json.dumps(upstream.visits(name, 2)[1].body)


def test_an_older_claude_whose_thinking_is_lost_is_not_asked_to_think(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: it refuses to go on from calls without their thinking; it thinks again when the user speaks."""
    name = upstream.plays(*(played("anthropic", says("-"), False) for _ in range(3)), name="claude-haiku-4-5")
    call = {"id": "c9", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {**RESULT, "tool_call_id": "c9"}
    middle = collecting(said, result)
    end = collecting(said, result, {"role": "assistant", "content": "There."}, {"role": "user", "content": "Thanks"})
    spoken = collecting(said, result, {"role": "user", "content": "And now?"})
    for fields in (middle, end, spoken):
        chat(ann, f"a:{name}", {**fields, "reasoning_effort": "low"})
    bodies = [visit.body for visit in upstream.visits(name, 3)]
    assert ["thinking" in body for body in bodies] == [False, True, False]


def test_an_older_claude_whose_thinking_is_kept_thinks_on(ann: Callers, upstream: Upstream) -> None:
    """Trust 20, 21: two rounds of a Chat caller with tools and an effort on a Claude that takes budgets."""
    thinks = {"type": "enabled", "budget_tokens": 2048}
    name = upstream.plays(
        played("anthropic", THOUGHT, True), played("anthropic", says("-"), True), name="claude-sonnet-4-5"
    )
    fields = {**question("openai-chat", "Hi", tools=True), "reasoning_effort": "low"}
    said = chat(ann, f"a:{name}", fields, streams=True)
    chat(ann, f"a:{name}", {**collecting(said), "reasoning_effort": "low"}, streams=True)
    first, second = (visit.body for visit in upstream.visits(name, 2))
    assert (first["thinking"], second["thinking"]) == (thinks, thinks)
    assert assistant(second)[0] == SIGNED


@pytest.mark.slow
def test_what_was_thought_survives_a_restart(upstream: Upstream, tmp_path: Path) -> None:
    """Trust 21: it is in the store, and the next process finds it there."""
    name = upstream.plays(played("anthropic", THOUGHT, False), played("anthropic", says("-"), False))
    again: dict[str, Any] = {}
    for turn in range(2):
        with Served(tmp_path, config(upstream)) as served, Callers(served.base_url, "ann-key-long-enough") as callers:
            if turn:
                chat(callers, f"a:{name}", again)
            else:
                again = collecting(chat(callers, f"a:{name}", question("openai-chat", "Hi", tools=True)))
    assert assistant(upstream.visits(name, 2)[1].body)[0] == SIGNED


# --- callers whose own dialect can carry it ---------------------------------------------------------------------------


def respond(callers: Callers, model: str, fields: dict[str, Any], *, streams: bool) -> list[dict[str, Any]]:
    if streams:
        with callers.openai.responses.stream(model=model, store=False, **fields) as events:
            output = events.get_final_response().output
    else:
        output = cast(Any, callers.openai.responses.create(model=model, store=False, **fields)).output
    items = [item.model_dump(exclude_none=True) for item in output]
    for item in items:
        item.pop("parsed_arguments", None)
    return items


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_responses_caller_carries_it_in_its_own_conversation(
    streams: bool, ann: Callers, upstream: Upstream, signed: Served
) -> None:
    """Trust 21: `encrypted_content` is for this; nothing is kept here, and any gateway could go on from it."""
    name = upstream.plays(*(played("anthropic", answer, streams) for answer in (THOUGHT, says("-"), says("-"))))
    fields = question("openai-responses", "Hi", tools=True)
    output = respond(ann, f"a:{name}", fields, streams=streams)
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen a"}
    again = {**fields, "input": [*fields["input"], *output, result]}
    respond(ann, f"a:{name}", again, streams=streams)
    with Callers(signed.base_url, "bob-key-long-enough") as bob:  # whose conversation it is, nobody needs to know
        respond(bob, f"a:{name}", again, streams=streams)
    for visit in upstream.visits(name, 3)[1:]:
        assert assistant(visit.body) == [SIGNED, {"type": "text", "text": "I look."}, CALL]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_anthropic_caller_carries_openais_reasoning(streams: bool, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: the same the other way round, in the signature of a thinking block."""
    name = upstream.plays(*(played("openai-responses", answer, streams) for answer in (THOUGHT, says("-"))))
    fields = question("anthropic", "Hi", tools=True)
    if streams:
        with ann.anthropic.messages.stream(model=f"r:{name}", **fields) as events:
            message = events.get_final_message()
    else:
        message = cast(Any, ann.anthropic.messages.create(model=f"r:{name}", **fields))
    said = [block.model_dump(exclude_none=True) for block in message.content]
    for block in said:
        block.pop("parsed_output", None)
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen a"}
    fields["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    cast(Any, ann.anthropic.messages.create(model=f"r:{name}", **fields))
    reasoning = [item for item in upstream.visits(name, 2)[1].body["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in reasoning] == ["ZW5j"]


@pytest.mark.parametrize("other", ["a2", "r"])
def test_what_a_caller_carries_is_sent_to_no_other_provider(other: str, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: neither to a second account nor to a provider of the caller's own dialect."""
    name = upstream.plays(played("anthropic", THOUGHT, False))
    fields = question("openai-responses", "Hi", tools=True)
    output = respond(ann, f"a:{name}", fields, streams=False)
    assert UNSIGNED in json.dumps(output)
    result = {"type": "function_call_output", "call_id": "c1", "output": "seen a"}
    dialect = next(dialect for dialect, short in SHORT.items() if short == other[0])
    theirs = upstream.plays(played(dialect, says("-"), False))
    respond(ann, f"{other}:{theirs}", {**fields, "input": [*fields["input"], *output, result]}, streams=False)
    told = json.dumps(upstream.visit(theirs).body)
    assert not any(word in told for word in (UNSIGNED, "c2lnbmVk", "Hm, a."))
    assert "I look." in told


@pytest.mark.parametrize(
    "carried", ["", ":", ":%%%", ":bm90IGpzb24=", ":W10=", ":eyJhbnRocm9waWMiOiAxfQ==", ":" + "WyJb" * 2_000]
)
def test_what_a_caller_made_up_is_only_unsigned(carried: str, ann: Callers, upstream: Upstream) -> None:
    """Trust 21: what comes back may be anything."""
    name = upstream.plays(played("anthropic", says("-"), False))
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": UNSIGNED + carried}
    fields: dict[str, Any] = {"input": [{"role": "user", "content": "Hi"}, item, {"role": "user", "content": "So?"}]}
    respond(ann, f"a:{name}", fields, streams=False)
    assert UNSIGNED not in json.dumps(upstream.visit(name).body)


def test_chat_answers_hold_no_signature(ann: Callers, upstream: Upstream) -> None:
    """Trust 21: what a Chat caller reads is as it was."""
    name = upstream.plays(played("anthropic", THOUGHT, False))
    create = cast(Any, ann.openai.chat.completions.with_raw_response.create)
    raw = create(model=f"a:{name}", **question("openai-chat", "Hi", tools=True))
    assert "c2lnbmVk" not in raw.text
    assert "signed" not in raw.text


# --- what is kept has its bounds --------------------------------------------------------------------------------------


def thought(text: str, call: str = "") -> Message:
    thinking = Thinking(text, opaque={"anthropic": {"signature": "s"}})
    return Message("assistant", (thinking, ToolCall(call, "look") if call else Text("said " + text)))


def without_thinking(message: Message) -> Message:
    return Message("assistant", message.parts[1:])


def test_what_is_kept_is_bounded_in_number_size_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust 21: so many, so long, and each of them not too big; the store holds no more than that either."""
    monkeypatch.setattr(signatures, "KEPT_MAX", 3)
    monkeypatch.setattr(signatures, "CACHE_BYTES_MAX", 300)
    asyncio.run(_fill_and_wait())


async def _fill_and_wait() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    kept = signatures.Signatures(store, clock)
    replies = [thought(f"t{n}", f"c{n}") for n in range(5)]
    for reply in replies:
        await kept.remember("ann", "openai-chat", "a", (reply,))
    await kept.remember("ann", "openai-chat", "a", (thought("x" * signatures.KEPT_BYTES_MAX, "big"),))
    assert len(await store.keys(signatures.NAMESPACE)) == 3
    asked = Prompt.of(*map(without_thinking, replies))
    for process in (kept, signatures.Signatures(store, clock)):
        restored = await process.restore("ann", "openai-chat", asked)
        assert [len(message.parts) for message in restored.messages] == [1, 1, 2, 2, 2]
        assert (await process.restore("bob", "openai-chat", asked)) is asked
    clock.advance(7 * 86_400 - 1)  # docs/security.md: seven days
    assert await signatures.Signatures(store, clock).restore("ann", "openai-chat", asked) is not asked
    clock.advance(2)
    assert await signatures.Signatures(store, clock).restore("ann", "openai-chat", asked) is asked


async def test_the_newest_is_found_although_another_process_kept_it() -> None:
    """Trust 21: several gateways may share a store."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    one, other = signatures.Signatures(store, clock), signatures.Signatures(store, clock)
    asked = Prompt.of(user("Hi"), without_thinking(thought("t", "c1")))
    assert await other.restore("ann", "openai-chat", asked) is asked
    await one.remember("ann", "openai-chat", "a", (thought("t", "c1"),))
    assert len((await other.restore("ann", "openai-chat", asked)).messages[1].parts) == 2
