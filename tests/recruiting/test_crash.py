"""Crash at every append of sentences with directives: the transcript is the program counter for them, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rondel import Agent, Prompt, Reply
from rondel.testing import call
from tests.machine.test_crash import Scenario, by_history, crashed_run, look, plain_run, rounds_of, survives


def template() -> Scenario:
    outer = Agent("a", template='One {{ .Get "inner" }} two {{ .Get "missing" }} three {{ .Get "model" "x" }}.')
    inner = Agent("inner", template='({{ .Input }} {{ .Get "deep" }})')

    def answer(prompt: Prompt) -> Reply | str:
        return "seen" if rounds_of(prompt) else call("look", "l1", where="inside")

    model = Agent("model", engine=by_history(answer), tools=[look])
    return Scenario(outer, inner, model, Agent("deep", template="deep"))


def questions() -> Scenario:
    outer = Agent("a", template='Hello {{ .AskUser "Name?" }}, {{ .Get "inner" }}.')
    return Scenario(outer, Agent("inner", template='{{ .AskUser "Which?" }} it is'), answers="blue")


def interrupted_model() -> Scenario:
    said = by_history(lambda prompt: 'So: {{ .Get "inner" }} {{ .AskUser "Well?" }} done.')
    outer = Agent("a", 'Know {{ .Get "inner" }}.', engine=said, expands_output=True, recruits=["inner"])
    return Scenario(outer, Agent("inner", template="deep"), says=("one", "two"), answers="yes")


def function() -> Scenario:
    pure = Agent("a", function=lambda: 'F {{ .Get "inner" }}.', expands_output=True, recruits=["inner"])
    return Scenario(pure, Agent("inner", template="deep"))


@pytest.mark.parametrize("make", [template, questions, interrupted_model], ids=lambda make: make.__name__)
@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_crash_at_any_append_leaves_the_same_sentence(make: Callable[[], Scenario], written: bool):
    """T09, Q02: nothing is lost, nothing is said twice, and no answer is asked for again."""
    last = (await survives(make, written=written))[-1]
    assert last.role == "assistant"
    assert "{{" not in last.text


@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_function_that_a_crash_interrupted_is_not_run_again(written: bool):
    """A function may have had its effect: the agent says that it was interrupted, or what the function gave."""
    async with asyncio.timeout(60):
        expected, appends = await plain_run(function())
        for at in range(1, appends + 1):
            messages = await crashed_run(function(), at, written=written)
            assert messages == expected or "interrupted" in messages[-1].text, f"crash at append {at} of {appends}"
