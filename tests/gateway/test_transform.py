"""Transforms: each by itself over values, in a chain, on bodies that are passed on, and from files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel.dialects import DIALECTS
from rondel.engine import Relays
from rondel.engines.transform import TRANSFORMS, Editor, Transform, Transformed, make_transform, transformed
from rondel.errors import ConfigError
from rondel.project.config import load
from rondel.project.engines import make_engine
from rondel.prompt import Prompt
from rondel.testing import Scripted, call, calls, say
from rondel.values import (
    Delta,
    Message,
    Options,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    assistant,
    deltas_of,
    system,
    user,
)

from .asking import ALL, request

dialects = pytest.mark.parametrize("dialect", ALL)
TOOLS = (ToolSpec("read", "Reads a file", {"type": "object", "properties": {"path": {"type": "string"}}}),)


def asked(prompt: Prompt, *entries: Any, reply: Any = "Hello", dialect: str = "anthropic") -> tuple[Prompt, Reply]:
    """What a model behind these transforms is asked, and what comes back through them."""
    engine = Scripted(reply)
    builder = ReplyBuilder()

    async def ask() -> None:
        wrapped = transformed(engine, [make_transform(entry) for entry in entries], dialect)
        async for delta in wrapped.stream(prompt):
            builder.add(delta)

    asyncio.run(ask())
    return engine.prompts[0], builder.reply()


def written(prompt: Prompt, *entries: Any, dialect: str) -> dict[str, Any]:
    """The body that such a model's server gets."""
    sent, _ = asked(prompt, *entries, dialect=dialect)
    return DIALECTS[dialect]().write_prompt(sent, model="m")


def passed_on(dialect: str, *entries: Any, path: str = "", **body: Any) -> dict[str, Any]:
    """The body of a request that is passed on unread."""
    relay = _Relay(dialect)
    engine = transformed(relay, [make_transform(entry) for entry in entries], dialect)
    assert isinstance(engine, Relays)
    assert engine.dialect == dialect
    asyncio.run(engine.relay(request(dialect, **body).fields, {}, path=path))
    return relay.sent


class _Relay(Scripted):
    """An engine that keeps what it is to pass on."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self.dialect, self.sent = dialect, dict[str, Any]()

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Any:
        self.sent = {name: msgspec.json.decode(raw) for name, raw in fields.items()}


def prompt(**options: Any) -> Prompt:
    return Prompt.of(user("Hi"), tools=TOOLS, options=Options(**options))


# --- how a model is asked ---------------------------------------------------------------------------------------------

CAPS = {"anthropic": "max_tokens", "openai-chat": "max_completion_tokens", "openai-responses": "max_output_tokens"}


@dialects
def test_maxtoken_is_a_cap(dialect: str):
    """X02: maxtoken."""
    cap, field = ["maxtoken", {"max_tokens": 1_000}], CAPS[dialect]
    for given, sent in ((5_000, 1_000), (50, 50), (None, 1_000)):
        assert written(prompt(tokens_max=given), cap, dialect=dialect)[field] == sent
        body = {} if given is None else {field: given}
        if given is not None or dialect != "anthropic":  # which demands the field
            assert passed_on(dialect, cap, **body)[field] == sent
    if dialect == "openai-chat":
        assert passed_on(dialect, cap, max_tokens=9_000)["max_tokens"] == 1_000


def test_thinking_stays_below_the_cap():
    cap = ["maxtoken", {"max_tokens": 4_000}]
    sent = written(prompt(tokens_max=9_000, thinking_tokens_max=8_000), cap, dialect="anthropic")
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (4_000, 2_000)
    body = {"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 8_000}}
    assert passed_on("anthropic", cap, **body)["thinking"]["budget_tokens"] == 2_000


def test_counting_tokens_is_not_edited():
    entries = (["maxtoken", {"max_tokens": 10}], ["customparams", {"x": 1}])
    sent = passed_on("anthropic", *entries, path="/v1/messages/count_tokens", max_tokens=50)
    assert (sent["max_tokens"], "x" in sent) == (50, False)
    assert passed_on("anthropic", *entries, path="/v1/messages?beta=true", max_tokens=50)["max_tokens"] == 10


def test_maxcompletiontokens_is_the_newer_name():
    """X02: maxcompletiontokens. Prompts are written so by the dialect itself."""
    assert "max_completion_tokens" in written(prompt(tokens_max=5), "maxcompletiontokens", dialect="openai-chat")
    sent = passed_on("openai-chat", "maxcompletiontokens", max_tokens=5)
    assert (sent.get("max_tokens"), sent["max_completion_tokens"]) == (None, 5)
    assert passed_on("anthropic", "maxcompletiontokens", max_tokens=5)["max_tokens"] == 5


@dialects
def test_sampling_wins_over_the_caller(dialect: str):
    """X02: sampling."""
    entry = {"name": "sampling", "temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1, "max_tokens": 10}
    sent = written(prompt(temperature=1.0, top_k=5, tokens_max=99), entry, dialect=dialect)
    assert (sent["temperature"], sent["top_p"], sent["repetition_penalty"], sent[CAPS[dialect]]) == (0.2, 0.9, 1.1, 10)
    assert sent.get("top_k") == (None if dialect == "openai-responses" else 5)
    relayed = passed_on(dialect, {**entry, "top_k": 7}, temperature=1.0, metadata={"a": "b"})
    assert (relayed["temperature"], relayed["repetition_penalty"], relayed["metadata"]) == (0.2, 1.1, {"a": "b"})
    assert relayed.get("top_k") == (None if dialect == "openai-responses" else 7)


@dialects
def test_customparams_are_merged_and_the_caller_wins(dialect: str):
    """X02: customparams go into tables, too; existing values stay."""
    more = {"provider": {"only": ["a"], "sort": "price"}, "temperature": 0.1, "verbosity": "low"}
    body = {"model": "m", "temperature": 0.9, "provider": {"sort": "speed"}}
    came = request(dialect, **{k: v for k, v in body.items() if k != "model"}).prompt
    expected = {"temperature": 0.9, "provider": {"sort": "speed", "only": ["a"]}, "verbosity": "low"}
    sent = written(came, ["customparams", more], dialect=dialect)
    assert {key: sent[key] for key in expected} == expected
    relayed = passed_on(dialect, ["customparams", more], temperature=0.9, provider={"sort": "speed"})
    assert {key: relayed[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("dialect", "params"),
    [
        ("openai-chat", {"reasoning_effort": "xhigh"}),
        ("openai-responses", {"reasoning": {"effort": "low", "summary": "auto"}}),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("anthropic", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
        ("anthropic", {"thinking": {"type": "disabled"}}),
    ],
)
def test_customparams_may_ask_for_thinking_in_the_words_of_the_dialect(dialect: str, params: dict[str, Any]):
    sent = written(Prompt.of(user("Hi")), ["customparams", params], dialect=dialect)
    assert {key: sent[key] for key in params} == params
    wished = Prompt.of(user("Hi"), options=Options(thinking="medium"))
    assert asked(wished, ["customparams", params], dialect=dialect)[0].options == wished.options


def test_streamoptions_asks_for_the_usage():
    """X02: streamoptions. Prompts always ask."""
    assert written(prompt(), "streamoptions", dialect="openai-chat")["stream_options"] == {"include_usage": True}
    sent = passed_on("openai-chat", "streamoptions", stream=True, stream_options={"other": 1})
    assert sent["stream_options"] == {"other": 1, "include_usage": True}
    assert "stream_options" not in passed_on("openai-chat", "streamoptions")
    assert "stream_options" not in passed_on("anthropic", "streamoptions", stream=True)


MARK = {"cache_control": {"type": "ephemeral"}}


@dialects
def test_cleancache_takes_every_mark_out(dialect: str):
    """X02: cleancache, in system blocks, messages, results, tools, and beside other opaque fields."""
    text = {"type": "text", "text": "long", **MARK}
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}, **MARK}
    bodies: dict[str, dict[str, Any]] = {
        "anthropic": {
            "system": [text],
            "tools": [{"name": "t", "input_schema": {"type": "object"}, **MARK}],
            "messages": [
                {"role": "user", "content": [text]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {}, **MARK}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [text], **MARK}]},
            ],
            **MARK,
        },
        "openai-chat": {"messages": [{"role": "user", "content": [text]}], "tools": [tool]},
        "openai-responses": {"input": [{"role": "user", "content": [{**text, "type": "input_text"}]}]},
    }
    came = request(dialect, service_tier="x", **bodies[dialect]).prompt
    assert "cache_control" in json.dumps(DIALECTS[dialect]().write_prompt(came, model="m"))
    sent = written(came, "cleancache", dialect=dialect)
    assert "cache_control" not in json.dumps(sent)
    assert sent["service_tier"] == "x"


def test_cleancache_leaves_a_prompt_without_marks_as_it_is():
    came = prompt()
    assert asked(came, "cleancache")[0] == came


# --- thinking ---------------------------------------------------------------------------------------------------------


@dialects
def test_reasoning_can_be_turned_off_and_what_is_thought_all_the_same_is_left_out(dialect: str):
    """X02: reasoning."""
    sent, reply = asked(
        prompt(thinking="high"), ["reasoning", {"enable": False}], reply=say("Hi", thinking="hm"), dialect=dialect
    )
    body = DIALECTS[dialect]().write_prompt(sent, model="m")
    off: dict[str, Any] = {
        "anthropic": {"thinking": {"type": "disabled"}},
        "openai-chat": {"enable_thinking": False, "thinking": {"type": "disabled"}},
        "openai-responses": {"reasoning": {"effort": "none"}},
    }[dialect]
    assert {key: body.get(key) for key in off} == off
    assert "reasoning_effort" not in body
    assert reply.message.parts == (Text("Hi"),)


def test_reasoning_that_is_on_passes_the_callers_wish_and_has_one_for_those_who_have_none():
    """X02: reasoning."""
    assert asked(prompt(), "reasoning")[0] == prompt()
    assert asked(prompt(), ["reasoning", {"effort": "low"}])[0].options.thinking == "low"
    assert asked(prompt(thinking="off"), ["reasoning", {"effort": "low"}])[0].options.thinking == "off"
    sent = written(prompt(thinking_tokens_max=500), "reasoning", dialect="openai-chat")
    assert (sent["enable_thinking"], sent["thinking"]) == (True, {"type": "enabled", "budget_tokens": 500})
    assert asked(prompt(), "reasoning", reply=say("Hi", thinking="hm"))[1].message.parts[0] == Thinking("hm")


def pieces(text: str, size: int) -> list[Delta]:
    parts = [PartDelta(0, text[at : at + size]) for at in range(0, len(text), size)]
    return [ReplyStarted("m"), PartStarted(0, Text("")), *parts, PartFinished(0, Text(text)), ReplyFinished()]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("<reasoning_content>a < b, so</reasoning_content>\n\nYes.", (Thinking("a < b, so"), Text("Yes."))),
        ("\n <reasoning_content>x</reasoning_content>Yes. ", (Thinking("x"), Text("Yes. "))),
        ("<reasoning_content>x</reasoning_content>", (Thinking("x"),)),
        ("<reasoning_content>never closed", (Thinking("never closed"),)),
        ("<reasoning_content></reasoning_content>Yes", (Thinking(), Text("Yes"))),
        ("No <reasoning_content>x</reasoning_content>", (Text("No <reasoning_content>x</reasoning_content>"),)),
        ("<reason", (Text("<reason"),)),
        ("  spaced", (Text("  spaced"),)),
    ],
)
def test_forcereasoning_reads_thoughts_between_tags_whatever_the_split(said: str, parts: tuple[Any, ...], size: int):
    """X02: forcereasoning."""
    _, reply = asked(prompt(), "forcereasoning", reply=pieces(said, size))
    assert reply.message.parts == parts
    assert reply.stop == "end"


def test_what_streams_through_forcereasoning_is_what_it_ends_with():
    said = "<reasoning_content>one</reasoning_content>\ntwo three"
    engine = Transformed(Scripted(pieces(said, 4)), [make_transform("forcereasoning")])

    async def collect() -> list[Delta]:
        return [delta async for delta in engine.stream(prompt())]

    seen: dict[int, str] = {}
    finished: dict[int, str] = {}
    for delta in asyncio.run(collect()):
        if isinstance(delta, PartDelta):
            seen[delta.index] = seen.get(delta.index, "") + delta.text
        elif isinstance(delta, PartFinished):
            assert isinstance(delta.part, (Text, Thinking))
            finished[delta.index] = delta.part.text
    assert seen == finished == {0: "one", 1: "two three"}


def test_forcereasoning_keeps_calls_and_numbers_parts_anew():
    said = assistant(Text("<reasoning_content>x</reasoning_content>Reading."), ToolCall("c", "read", {"path": "a"}))
    _, reply = asked(prompt(), "forcereasoning", reply=said)
    assert reply.message.parts == (Thinking("x"), Text("Reading."), ToolCall("c", "read", {"path": "a"}))
    assert reply.stop == "calls"


def test_forcereasoning_tells_the_model_and_shows_its_last_ten_thoughts():
    """X02: forcereasoning."""
    talk: list[Message] = []
    for number in range(12):
        talk += [user(f"q{number}"), assistant(Thinking(f"t{number}"), Text(f"a{number}"))]
    sent, _ = asked(Prompt.of(*talk, user("Hi"), options=Options(thinking="high")), "forcereasoning")
    texts = [message.text for message in sent.messages]
    assert "<reasoning_content>" in texts[0]
    assert sent.messages[0].role == "system"
    assert sent.options.thinking is None
    assert [n for n in range(12) if any(f">t{n}<" in text for text in texts)] == list(range(2, 12))
    assert not any(isinstance(part, Thinking) for message in sent.messages for part in message.parts)


def test_forcereasoning_moves_no_message():
    talk = (user("a"), assistant(Thinking("t"), Text("b")), system("in between"), assistant(Thinking(), Text("c")))
    sent, _ = asked(Prompt.of(*talk, user("d")), "forcereasoning")
    texts = [message.text for message in sent.messages if "Think before" not in message.text]
    assert texts == ["a", "<reasoning_content>t</reasoning_content>\nb", "in between", "c", "d"]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_tooluse_demands_a_call_and_the_exit_is_the_answer():
    """X02: tooluse."""
    sent, reply = asked(prompt(), "tooluse", reply=call("ExitTool", response="All done."))
    assert sent.options.tool_choice == "required"
    assert [spec.name for spec in sent.tools] == ["read", "ExitTool"]
    assert any("ExitTool" in message.text for message in sent.messages)
    assert (reply.message.parts, reply.stop) == ((Text("All done."),), "end")


def test_tooluse_does_not_think_where_that_is_refused():
    assert "thinking" not in written(prompt(thinking="high"), "tooluse", dialect="anthropic")
    assert written(prompt(thinking="high"), "tooluse", dialect="openai-chat")["reasoning_effort"] == "high"


def test_tooluse_leaves_other_calls_as_they_are():
    both = calls(call("read", path="a"), call("ExitTool", response="and done"))
    _, reply = asked(prompt(), "tooluse", reply=both)
    assert reply.message.parts == (ToolCall("call-read", "read", {"path": "a"}), Text("and done"))
    assert reply.stop == "calls"


def test_tooluse_reads_a_broken_exit_and_an_empty_one_says_nothing():
    broken = Reply(assistant(ToolCall("x", "ExitTool", broken='{"response": "cut o')), stop="calls")
    assert asked(prompt(), "tooluse", reply=broken)[1].text == "cut o"
    assert asked(prompt(), "tooluse", reply=call("ExitTool"))[1].message.parts == ()


@pytest.mark.parametrize("choice", ["none", "required", "tool:read"])
def test_tooluse_leaves_callers_alone_that_choose_themselves_or_have_no_tools(choice: str):
    for came in (prompt(tool_choice=choice), Prompt.of(user("Hi"))):
        assert asked(came, "tooluse")[0] == came


BROKEN = "{path: 'a.txt', lines: [1, 2,]"


async def test_enhancetool_repairs_arguments_and_streams_no_pieces_of_calls():
    """X02: enhancetool."""
    stream: list[Delta] = [
        ReplyStarted("m"),
        PartStarted(0, ToolCall("c", "read")),
        PartDelta(0, BROKEN),
        PartFinished(0, ToolCall("c", "read", broken=BROKEN)),
        PartStarted(1, ToolCall("d", "read")),
        PartFinished(1, ToolCall("d", "read", broken="%%%")),
        PartStarted(2, Text("")),
        PartDelta(2, "so"),
        PartFinished(2, Text("so")),
        ReplyFinished("calls"),
    ]
    engine = Transformed(Scripted(stream), [make_transform("enhancetool")])
    deltas = [delta async for delta in engine.stream(prompt())]
    assert [delta.text for delta in deltas if isinstance(delta, PartDelta)] == ["so"]
    builder = ReplyBuilder()
    for delta in deltas:
        builder.add(delta)
    first, second, _ = builder.reply().message.parts
    assert first == ToolCall("c", "read", {"path": "a.txt", "lines": [1, 2]})
    assert second == ToolCall("d", "read", {})


def test_enhancetool_does_not_close_a_call_that_was_cut_off():
    cut = Reply(assistant(ToolCall("c", "write", broken='{"text": "half')), stop="length")
    assert asked(prompt(), "enhancetool", reply=cut)[1].message.calls[0].broken == '{"text": "half'


# --- the chain --------------------------------------------------------------------------------------------------------


class Named(Transform, frozen=True):
    """Writes its letter behind whatever passes."""

    letter: str

    def on_prompt(self, prompt: Prompt, dialect: str) -> Prompt:
        return prompt.append(user(self.letter))

    def editor(self, prompt: Prompt) -> Editor:
        def edit(delta: Delta) -> list[Delta]:
            if not isinstance(delta, PartFinished) or not isinstance(delta.part, Text):
                return [delta]
            return [PartFinished(delta.index, Text(delta.part.text + self.letter))]

        return edit


async def test_prompts_pass_the_chain_in_order_and_replies_in_reverse():
    """X01: the engine's own, then the model's; replies in reverse."""
    engine = Scripted(list(deltas_of(say("said "))))
    wrapped = transformed(engine, [Named("a"), Named("b"), Named("c")])
    texts = [
        d.part.text
        async for d in wrapped.stream(Prompt.of())
        if isinstance(d, PartFinished) and isinstance(d.part, Text)
    ]
    assert "".join(texts) == "said cba"
    assert [message.text for message in engine.prompts[0].messages] == ["a", "b", "c"]


def test_without_transforms_an_engine_is_itself():
    """X01: nothing is wrapped that need not be."""
    engine = Scripted()
    assert transformed(engine, []) is engine


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_what_can_be_done_to_fields_leaves_an_engine_relayable(name: str):
    """X01: passing on unread stays possible with transforms that need only the top level of a body."""
    entry: Any = ["maxtoken", {"max_tokens": 5}] if name == "maxtoken" else name
    engine = transformed(_Relay("anthropic"), [make_transform(entry)], "anthropic")
    assert isinstance(engine, Transformed)
    expected = name in ("maxtoken", "maxcompletiontokens", "sampling", "streamoptions", "customparams")
    assert bool(engine.dialect) == expected
    assert transformed(Scripted(), [make_transform(entry)]).dialect == ""  # type: ignore[attr-defined]


# --- from files -------------------------------------------------------------------------------------------------------

FILE = """
[engines.near]
provider = "echo"
base_url = "http://127.0.0.1:9/v1"
model = "qwen-3"
transform = ["cleancache", ["maxtoken", {max_tokens = 100}], {name = "sampling", temperature = 0.5}]
model_transform = {"QWEN*" = ["enhancetool"], "llama*" = ["tooluse"]}
"""


def test_an_engine_of_a_file_has_its_transforms_then_its_models(tmp_path: Path):
    """X01: `"name"`, `["name", {...}]`, a table; the engine's own first, then those of its model."""
    (tmp_path / "rondel.toml").write_text(FILE)
    config = load(tmp_path, {"HOME": str(tmp_path)})
    for name, chain in (
        ("near", ("cleancache", "maxtoken", "sampling", "enhancetool")),
        ("near:llama-4", ("cleancache", "maxtoken", "sampling", "tooluse")),
        ("near:other", ("cleancache", "maxtoken", "sampling")),
    ):
        engine = make_engine(name, config, env={})
        assert isinstance(engine, Transformed)
        assert engine.transforms == chain


def test_a_transform_of_the_project_is_one_by_its_import_path(tmp_path: Path):
    (tmp_path / "shouts.py").write_text(
        "from rondel.engines.transform import Transform\n"
        "class Shout(Transform, frozen=True):\n"
        "    name = 'shout'\n"
        "    mark: str = '!'\n"
    )
    (tmp_path / "rondel.toml").write_text(
        '[engines.echo]\nprovider = "local"\ntransform = [["shouts:Shout", {mark = "?"}]]'
    )
    engine = make_engine("echo:smollm2-135m", load(tmp_path, {"HOME": str(tmp_path)}), env={})
    assert isinstance(engine, Transformed)
    assert engine.transforms == ("shout",)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('"maxtokens"', "there is no transform 'maxtokens'; did you mean 'maxtoken'?"),
        ('"maxtoken"', "in 'engines.echo.transform[0]', 'max_tokens' is missing"),
        (
            '["maxtoken", {max_token = 5}]',
            "'engines.echo.transform[0][1].max_token' is not known; did you mean 'max_tokens'?",
        ),
        (
            '["maxtoken", {max_tokens = "x"}]',
            "'engines.echo.transform[0][1].max_tokens' must be a whole number, not 'x'",
        ),
        (
            '["maxtoken", {max_tokens = 0}]',
            "the transform 'maxtoken' cannot be created: 'max_tokens' is 0; it must be at least 1",
        ),
        ('["reasoning", {effort = "hihg"}]', "'engines.echo.transform[0][1].effort' must be one of"),
        ("{max_tokens = 5}", "'engines.echo.transform[0]' names no transform; write"),
        ("[]", "'engines.echo.transform[0]' names no transform; write"),
        ('["a", {}, 1]', "'engines.echo.transform[0]' names no transform; write"),
        ("7", "'engines.echo.transform[0]' must be a text or a list or a table of keys and values, not 7"),
        ('"json:dumps"', "'json:dumps' is not a transform"),
    ],
)
def test_a_mistake_is_told_at_the_start_with_its_line(tmp_path: Path, entry: str, said: str):
    """X01: an unknown name is an error at the start."""
    (tmp_path / "rondel.toml").write_text(f'[engines.echo]\nprovider = "local"\ntransform = [\n{entry}]')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"HOME": str(tmp_path)})
    assert str(caught.value).startswith(f"{tmp_path}/rondel.toml:4: {said}")


# --- where instructions stand -----------------------------------------------------------------------------------------


@dialects
def test_systemfirst_leaves_one_instruction_at_the_beginning(dialect: str):
    """Coding agents give more of them, also in the middle, and templates of many open models refuse that."""
    history = (system("Be brief."), system("Work in /repo."), user("Hi"), system("It is late."), assistant("So?"))
    sent, _ = asked(Prompt.of(*history, user("Go on.")), "systemfirst", dialect=dialect)
    assert [message.role for message in sent.messages] == ["system", "user", "user", "assistant", "user"]
    assert sent.messages[0].text == "Be brief.\n\nWork in /repo."
    assert sent.messages[2].text == "<system>\nIt is late.\n</system>"
    assert len(DIALECTS[dialect]().write_prompt(sent, model="m")[DIALECTS[dialect]().messages_field]) >= 3


def test_systemfirst_leaves_a_prompt_alone_that_has_one_or_none():
    for given in (Prompt.of(user("Hi")), Prompt.of(system("Be brief."), user("Hi"))):
        assert asked(given, "systemfirst")[0] is given
