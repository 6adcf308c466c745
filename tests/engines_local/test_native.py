"""Tools in the format of a model's own chat template: which model gets it, what is asked, and what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel.agent import Agent
from rondel.app.app import App
from rondel.engines.local import LocalEngine
from rondel.engines.local.answer import NativeReader
from rondel.engines.local.model_input import model_input
from rondel.engines.local.weights import Card, find, path_of, tool_format_of
from rondel.engines.local.weights.gguf import read_metadata
from rondel.engines.local.weights.reference import resolve
from rondel.errors import EngineError
from rondel.events import CallFinished, CallStarted
from rondel.limits import Limits
from rondel.prompt import Prompt
from rondel.testing import Scripted, call
from rondel.tool import tool
from rondel.values import (
    Message,
    Options,
    OutputSchema,
    Part,
    PartDelta,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    assistant,
    system,
    user,
)
from tests.helpers import pull_weights

from .gguf import gguf, with_template
from .test_local import reply_of, weights_path

__all__ = ["weights_path"]

WEATHER = ToolSpec(
    "weather",
    "Only for the weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
NATIVE = Card(small=False, tool_format="native")

CHATML = """{%- if tools %}<|im_start|>system
You can call functions: {% for tool in tools %}{{ tool | tojson }}{% endfor %}
Write a call as <tool_call>
{"name": ..., "arguments": ...}
</tool_call><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""As Qwen and Hermes write tools."""
LLAMA = """{%- if tools is not none %}<|start_header_id|>system<|end_header_id|>

Answer with {"name": function, "parameters": arguments} to call one of these:
{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|eot_id|>{% endif %}
{%- for m in messages %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>

{% for call in m.tool_calls or [] %}{"name": "{{ call.function.name }}", "parameters":
 {{- ' ' }}{{ call.function.arguments | tojson }}}{% else %}{{ m.content }}{% endfor %}<|eot_id|>{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
MISTRAL = """{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for m in messages %}{% if m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]
{%- elif m.tool_calls %}[TOOL_CALLS][{% for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}
{%- endfor %}]{{ eos_token }}
{%- elif m.role == 'assistant' %}{{ m.content + eos_token }}
{%- else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}"""
GRANITE = """{%- if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>
{% endif %}{%- for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>
{%- if m.tool_calls %}<|tool_call|>[{% for call in m.tool_calls %}{"name": "{{ call.function.name }}", "arguments":
 {{- ' ' }}{{ call.function.arguments | tojson }}}{% endfor %}]
{%- else %}{{ m.content }}{% endif %}<|end_of_text|>
{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""
GEMMA = """{%- for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}
{{ m.content }} Say what tools you would need.<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
"""It has no tools: the word only stands in a text."""


def called(city: str, result: str, *, failed: bool = False) -> tuple[Message, ...]:
    call = ToolCall(f"call_{city}", "weather", {"city": city})
    answer = Message("tool", (ToolResult(call.id, (Text(result),), call.name, is_error=failed),))
    return user(f"How warm is it in {city}?"), assistant(call), answer, assistant(f"{result}.")


def question(*messages: Message, card: Card = NATIVE, **options: Any) -> Any:
    return model_input(Prompt.of(*messages, tools=(WEATHER,), options=Options(**options)), card)


def read(
    *deltas: dict[str, Any], cut: bool = False, stop: Sequence[str] = (), garbled: bool = False
) -> tuple[Part, ...]:
    reader, builder = NativeReader({"weather"}, stop), ReplyBuilder()
    builder.add(ReplyStarted())
    for made in (*(reader.read(delta) for delta in deltas), reader.finish(cut=cut)):
        for delta in made:
            builder.add(delta)
    builder.add(ReplyFinished())
    parts = builder.reply().message.parts
    assert reader.called == any(isinstance(part, ToolCall) for part in parts)
    assert reader.garbled == garbled
    return parts


# --- which model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "chosen"),
    [(CHATML, "native"), (LLAMA, "native"), (MISTRAL, "native"), (GRANITE, "native"), (GEMMA, "examples")],
)
def test_a_template_with_tools_is_used_unless_something_else_was_measured(
    tmp_path: Path, template: str, chosen: str
) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(gguf(tokenizer__chat_template=template))
    assert tool_format_of(Card(), path)[0] == chosen
    assert tool_format_of(Card(tool_format="examples"), path)[0] == "examples"
    if chosen == "examples":
        with pytest.raises(EngineError, match=r"has no format for tools; write tool_format = \"examples\""):
            tool_format_of(Card(tool_format="native"), path)


def test_a_second_template_that_is_only_for_tools_counts(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(gguf(tokenizer__chat_template=GEMMA, **{"tokenizer__chat_template__tool_use": CHATML}))
    assert read_metadata(path).has_tools


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_the_runtime_gets_tools_calls_and_results_as_what_they_are() -> None:
    asked = question(system("Be kind."), *called("Rome", "20 degrees"), *called("Oslo", "no such city", failed=True))
    assert asked.schema is None
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["weather"]
    kind, said, call, result, _, _, other, failed, _ = asked.body["messages"]
    assert (kind["content"], said["content"]) == ("Be kind.", "How warm is it in Rome?")
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "20 degrees"}
    assert failed["content"] == "Error: no such city"
    ids = [each["tool_calls"][0]["id"] for each in (call, other)]
    assert len(set(ids)) == 2
    assert all(len(each) == 9 for each in ids)


def test_turns_alternate_when_somebody_says_two_things() -> None:
    asked = question(user("Hi."), user("Are you there?"), assistant("Yes."), assistant("I am."), user("Good."))
    said = [(message["role"], message["content"]) for message in asked.body["messages"]]
    assert said == [("user", "Hi.\nAre you there?"), ("assistant", "Yes.\nI am."), ("user", "Good.")]


@pytest.mark.parametrize("options", [{"tool_choice": "required"}, {"output": OutputSchema({"type": "object"})}])
def test_what_must_be_written_is_held_to_by_the_decoder(options: dict[str, Any]) -> None:
    asked = question(user("How warm is it in Rome?"), **options)
    assert asked.schema is not None
    assert "tools" not in asked.body


# --- what is read -----------------------------------------------------------------------------------------------------


def test_words_thoughts_and_calls_become_parts() -> None:
    thought, said, one, two = read(
        {"role": "assistant", "content": None},
        {"reasoning_content": "Hm"},
        {"reasoning_content": "m."},
        {"content": "One moment."},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "weather", "arguments": '{"ci'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Rome"}'}}]},
        {"tool_calls": [{"index": 1, "function": {"name": "weather", "arguments": '{"city": "Os'}}]},
        cut=True,
    )
    assert (thought, said) == (Thinking("Hmm."), Text("One moment."))
    assert isinstance(one, ToolCall)
    assert isinstance(two, ToolCall)
    assert (one.name, one.arguments) == ("weather", {"city": "Rome"})
    assert (two.name, two.broken) == ("weather", '{"city": "Os'), "an error that the model reads"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"city": "Rome"}}',
        '{"name": "weather", "parameters": {"city": "Rome"}}',
        '```json\n{\n  "name": "weather",\n  "arguments": {\n    "city": "Rome"\n  }\n}\n```',
        '```\n{"name": "weather", "arguments": {"city": "Rome"}}\n```\n',
        '{{"name": "weather", "arguments": {"city": "Rome"}}}',
        '```json\n{{"name": "weather", "arguments": {"city": "Rome"}}}\n```',
    ],
)
def test_a_reply_that_is_only_the_json_of_a_call_is_a_call(text: str) -> None:
    (call,) = read(*({"content": letter} for letter in text))
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("weather", {"city": "Rome"})


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"city": "Rome"}} I think.',
        '{"name": "weather", "arguments": {"city": "Ro',
        '{"name": "weather", "arguments": "Rome"}',
        '{"name": "weather", "arguments": {}, "run": true}',
        '{{"name": "weather"}',
        """{"name": "weather", "arguments": {'city': 'Rome'}}""",
    ],
)
def test_a_call_that_cannot_be_read_is_garbled(text: str) -> None:
    assert read(*({"content": letter} for letter in text), garbled=True) == (Text(text),)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "delete_everything", "arguments": {}}',
        '{"name": "Anna", "age": 31}',
        "{}",
        "```python\nprint(1)\n```",
        "```json",
        "[" * 5000,
        '{"name": ' + "[" * 5000,
        "<tool_call> is a tag.",
    ],
)
def test_everything_else_is_text(text: str) -> None:
    assert read(*({"content": letter} for letter in text)) == (Text(text),)


def test_words_are_shown_as_they_come_and_end_at_a_stop_sequence() -> None:
    reader = NativeReader({"weather"})
    assert reader.read({"content": "He"}), "not held back: it cannot become a call"
    assert read({"content": "One two"}, {"content": " three"}, stop=("two",)) == (Text("One "),)


# --- with a real model ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_calls_a_tool_in_the_format_of_its_template(weights_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "chatml.gguf"
    with_template(weights_path, path, CHATML)
    engine = LocalEngine(path, context_tokens=1024)
    turns = (*called("Rome", "20 degrees"), *called("Paris", "12 degrees"), *called("Oslo", "3 degrees"))
    reply = reply_of(engine, *turns, user("How warm is it in Turin?"), tools=(WEATHER,), tokens_max=60)
    (call,) = reply.message.parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments, reply.stop) == ("weather", {"city": "Turin"}, "calls")
    asyncio.run(engine.aclose())


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("template", [LLAMA, MISTRAL, GRANITE])
def test_the_templates_of_other_families_take_a_conversation_with_calls(
    weights_path: Path, tmp_path: Path, template: str
) -> None:
    path = tmp_path / "other.gguf"
    with_template(weights_path, path, template)
    engine = LocalEngine(path, context_tokens=1024)
    asked = (*called("Rome", "20 degrees"), user("And in Oslo?"))
    with_tools = reply_of(engine, *asked, tools=(WEATHER,), tokens_max=1)
    without = reply_of(engine, *asked, tokens_max=1)
    assert with_tools.usage.tokens_in > without.usage.tokens_in
    asyncio.run(engine.aclose())


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_that_says_nothing_in_its_own_format_is_asked_in_the_other(weights_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "silent.gguf"  # it only ever saw assistants that say nothing
    with_template(weights_path, path, CHATML.replace("{{ m.content }}", "{{ m.content if m.role == 'user' }}"))
    engine = LocalEngine(path, context_tokens=2048)
    turns = [said for number in range(6) for said in (user(f"{number}?"), assistant("Yes."))]
    reply = reply_of(engine, *turns, user("7?"), tools=(WEATHER,))
    assert reply.message.parts
    assert reply.usage.tokens_out > 1
    asyncio.run(engine.aclose())


@pytest.mark.slow
@pytest.mark.weights
def test_a_template_that_the_runtime_cannot_read_is_said(weights_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    with_template(weights_path, path, CHATML.replace("{% endfor %}", ""))
    with pytest.raises(EngineError, match=r"could not be loaded: .*template.*; use another file of this model$"):
        reply_of(LocalEngine(path), user("Hi"))


@pytest.mark.weights
def test_a_model_without_tools_cannot_be_asked_in_its_own_format(weights_path: Path) -> None:
    with pytest.raises(EngineError, match="has no format for tools"):
        reply_of(LocalEngine(weights_path, tool_format="native"), user("Hi"), tools=(WEATHER,))


# --- an agent with a model that no table knows ------------------------------------------------------------------------


@pytest.fixture
def unknown(weights_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    """A model whose template has a format for tools, from a file of the user's."""
    with_template(weights_path, tmp_path / "file.gguf", CHATML)
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    found = asyncio.run(resolve(str(tmp_path / "file.gguf"), "mine"))
    engine = LocalEngine(pull_weights(found), context_tokens=2048)
    assert engine.name == "local:mine"
    assert tool_format_of(find("mine").card, path_of(find("mine")))[0] == "native"
    yield engine
    asyncio.run(engine.aclose())


def talked(store: Path, *cities: str) -> None:
    """Three turns in which another model called the tool and said what it returned."""
    steps = [step for city in cities for step in (call("weather", city=city), f"It is {WARM[city]} in {city}.")]
    with_others = Agent("guide", engine=Scripted(*steps), tools=[weather])
    for city in cities:
        rondel.run(with_others, f"How warm is it in {city}?", store=store, conversation="trip")


@tool
def weather(city: str) -> str:
    """Only for the weather in a city."""
    return WARM[city]


WARM = {"Rome": "20 degrees", "Paris": "12 degrees", "Oslo": "3 degrees", "Turin": "9 degrees"}


@pytest.mark.slow
@pytest.mark.weights
async def test_an_agent_calls_gets_the_result_and_answers_in_the_format_of_the_template(
    unknown: LocalEngine, tmp_path: Path
) -> None:
    store = tmp_path / "talks.db"
    await asyncio.to_thread(talked, store, "Rome", "Paris", "Oslo")
    options = Options(temperature=0.0, tokens_max=60)
    agent = Agent("guide", engine=unknown, tools=[weather], options=options)
    async with App(agent, store=str(store)) as app:
        view = await app.conversation("trip").send("How warm is it in Turin?")
        events = [event async for event in view]
        result = await view.result()
    (called,) = (event for event in events if isinstance(event, CallStarted))
    assert (called.name, called.arguments) == ("weather", {"city": "Turin"})
    (returned,) = (event.result for event in events if isinstance(event, CallFinished))
    assert (returned.text, returned.is_error) == ("9 degrees", False)
    assert "9 degrees" in result.output
    pieces = [event.text for event in events if isinstance(event, PartDelta)]
    assert len(pieces) > 3, "the call and the answer are shown as they come"
    assert "".join(pieces).endswith(result.output)


@pytest.mark.slow
@pytest.mark.weights
async def test_a_call_that_is_cut_off_is_an_error_that_the_model_reads_and_runs_nothing(
    unknown: LocalEngine, tmp_path: Path
) -> None:
    store = tmp_path / "talks.db"
    await asyncio.to_thread(talked, store, "Rome", "Paris", "Oslo")
    options = Options(temperature=0.0, tokens_max=12)
    agent = Agent("guide", engine=unknown, tools=[weather], options=options, limits=Limits(rounds=2))
    async with App(agent, store=str(store)) as app:
        view = await app.conversation("trip").send("How warm is it in Turin?")
        events = [event async for event in view]
        result = await view.result(check=False)
    assert not any(isinstance(event, CallStarted) for event in events)
    (refused,) = (event.result for event in events if isinstance(event, CallFinished))
    assert refused.is_error
    assert refused.text.startswith("the arguments of 'weather' are not a JSON object")
    assert result.output, "it says something about that"
    assert not result.error


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_that_writes_calls_that_cannot_be_read_is_asked_in_the_other_format(
    weights_path: Path, tmp_path: Path
) -> None:
    unreadable = """{% if tools and m.role == 'assistant' %}{"name": "weather", {% endif %}{{ m.content }}"""
    path = tmp_path / "garbled.gguf"  # it only ever saw assistants that write such calls
    with_template(weights_path, path, CHATML.replace("{{ m.content }}", unreadable))
    engine = LocalEngine(path, context_tokens=2048)
    turns = [said for number in range(6) for said in (user(f"{number}?"), assistant("Yes."))]
    reply = reply_of(engine, *turns, user("7?"), tools=(WEATHER,))
    assert reply.message.parts == (Text("Yes."),)
    asyncio.run(engine.aclose())
