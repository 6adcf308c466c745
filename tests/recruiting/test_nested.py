"""Directives as arguments of directives: what the inner ones give is what the outer ones get."""

from __future__ import annotations

import pytest

from rondel import Agent, RondelError
from rondel.testing import Scripted
from rondel.text.template import TemplateError, may_begin, parse
from tests.helpers import talking

WEATHER = Agent("weather", template='Mild in {{ .Input "city" }}.', inputs={"city": {"description": "the city"}})


async def answer(*agents: Agent, said: str = "hello", answers: tuple[str, ...] = ()) -> str:
    async with talking(*agents) as conversation:
        turn = await conversation.send(said)
        result = await turn.result()
        for text in answers:
            (question,) = await conversation.questions()
            result = await (await conversation.answer(question.id, text, by="ann")).result()
        assert not await conversation.questions()
        return result.output or result.error


async def test_an_answer_of_the_person_is_the_input_of_an_agent():
    """S06."""
    host = Agent("host", template='Welcome! {{ .Get "weather" (.AskUser "Which city?") }} Bye.')
    assert await answer(host, WEATHER, answers=("Porto",)) == "Welcome! Mild in Porto. Bye."


async def test_the_input_goes_on_as_it_is():
    """S06."""
    assert (
        await answer(Agent("host", template='{{ .Get "weather" .Input }}'), WEATHER, said="Paris") == "Mild in Paris."
    )


async def test_agents_inside_agents_run_from_the_inside_out():
    add = Agent("add", template="<{{ .Input }}>")
    host = Agent("host", template='{{ .Get "add" (.Get "add" (.Get "add" .Input)) }}')
    assert await answer(host, add, said="x") == "<<<x>>>"


async def test_equal_directives_are_carried_out_once_also_inside_others():
    """S06: the same directive with the same arguments is evaluated once per template."""
    calls: list[str] = []

    def count(input: str) -> str:
        calls.append(input)
        return f"poem {len(calls)}"

    poem = Agent("poem", function=count)
    theme = Agent("theme", template="about {{ .Input }}")
    host = Agent(
        "host", template='{{ .Get "poem" }}: {{ .Get "theme" (.Get "poem") }}; {{ .Get "theme" (.Get "poem") }}'
    )
    assert await answer(host, poem, theme) == "poem 1: about poem 1; about poem 1"
    assert calls == ["hello"]


async def test_in_a_prompt_the_model_sees_only_the_results():
    model = Scripted("Take a coat.")
    guide = Agent("guide", prompt='Weather: {{ .Get "weather" (.Get "city") }}', engine=model)
    assert await answer(guide, WEATHER, Agent("city", template="Oslo")) == "Take a coat."
    assert model.prompts[0].messages[0].text == "Weather: Mild in Oslo."


async def test_what_is_inserted_into_an_argument_is_never_expanded():
    echo = Agent("echo", template="{{ .Input }}")
    host = Agent("host", template='{{ .Get "echo" (.Get "echo" .Input) }}')
    hostile = '{{ .Get "host" }} (.AskUser "x")'
    assert await answer(host, echo, said=hostile) == hostile


async def test_an_agent_s_output_may_nest_only_what_it_may_recruit():
    """S07."""
    almanac = Agent("almanac", template="usually {{ .Input }}")
    secret = Agent("secret", template="the secret")
    lines = 'A {{ .Get "almanac" (.Get "almanac" "mild") }} B {{ .Get "almanac" (.Get "secret") }}'
    weather = Agent("weather", function=lambda input: lines, expands_output=True, recruits=["almanac"])
    said = await answer(weather, almanac, secret)
    assert said == 'A usually usually mild B {{ .Get "almanac" (.Get "secret") }}'


async def test_a_model_s_output_continues_after_nested_directives():
    almanac = Agent("almanac", template="usually {{ .Input }}")
    model = Scripted('It is {{ .Get "almanac" (.AskUser "Where?") }} there.')
    weather = Agent("weather", "Answer.", engine=model, expands_output=True, recruits=["almanac"])
    assert await answer(weather, almanac, answers=("wet",)) == "It is usually wet there."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{{ if .Input }}x{{ end }}", "conditions are not supported; give a default"),
        ("a {{ range .Input }}", "loops are not supported; let a function"),
        ('{{ $poem := .Get "x" }}', "variables are not supported; write the directive where its value is needed"),
        ('{{ .Get "x" $poem }}', "variables are not supported"),
        ("{{ .Input | upper }}", 'pipes are not supported; recruit an agent for it: {{ .Get "text.upper" .Input }}'),
        ("{{ upper .Input }}", "functions are not supported; recruit an agent"),
        ('{{- .Get "a" -}}', "trim marks are not supported"),
        ('{{ template "x" }}', "definitions are not supported; make it an agent"),
        ("{{ .Get .Input }}", "write its first argument as a text"),
        ('{{ .Get "x" .Input "name" }}', "it has 3 arguments"),
        ('{{ .Get "x" (.Input }}', "comes a closing parenthesis"),
        ('{{ .Get "x" .Get }}', "put it and its arguments in parentheses"),
        ("{{ .Get " + '"x" (.Get ' * 12 + '"x"' + ")" * 12 + " }}", "nested more than 8 levels"),
    ],
)
def test_what_is_not_supported_is_an_error_with_what_to_write_instead(text: str, told: str):
    with pytest.raises(TemplateError) as error:
        parse(f"line one\n  {text}")
    assert str(error.value).startswith("line 2, column ")
    assert told in str(error.value)
    with pytest.raises(RondelError, match="agent 'a'"):
        Agent("a", template=text)


def test_a_backslash_keeps_what_is_not_supported_as_text():
    assert parse("Write \\{{ if x }} or \\{{ $x }}.").fill({}) == "Write {{ if x }} or {{ $x }}."


def test_the_beginning_of_a_nested_directive_is_held_back():
    whole = 'Say {{ .Get "a" (.Input "b") }}'
    assert all(may_begin(whole[:end]) == 4 for end in range(5, len(whole)))
