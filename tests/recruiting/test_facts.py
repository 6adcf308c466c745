"""What agents learn: kept once as `agent.fact`, seen by whom it may be seen, with the value before it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App
from rondel.agent import Fact
from rondel.events import Event, FactsLearned, Learned, PluginFailed, TurnFinished
from rondel.machine.transcript import Transcript
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.templates.facts import learned, recall, recalled_text, tagged
from rondel.testing import Scripted, call, say
from rondel.values import Usage
from tests.cli.conftest import Place
from tests.helpers import events_of, of, play
from tests.machine.test_crash import CountingStore, PowerCut, Scenario, until_dead

NAME = Fact("the person's name", tags=("person",))
AGE = Fact("how old the person is", type="integer", tags=("person",))
MOOD = Fact("how the person feels", scope="local")


def knowing(*learned: FactsLearned) -> Transcript:
    return Transcript(learned)


def talk(app_agents: tuple[Agent, ...], *said: tuple[str, str]) -> tuple[list[list[Event]], Transcript]:
    async def scene(app: App) -> tuple[list[list[Event]], Transcript]:
        events: list[list[Event]] = []
        for agent, text in said:
            events.append(await events_of(await app.conversation("c", agent=agent).send(text)))
        return events, await app.conversation("c").transcript()

    return play(scene, *app_agents)


# --- what is learned --------------------------------------------------------------------------------------------------


def test_facts_are_read_out_of_what_was_asked_and_answered():
    """S03: with one question for all of them, after the answer."""
    model = Scripted("Nice to meet you, Ann.", say('{"name": "Ann", "age": 41}', usage=Usage(30, 9)))
    guide = Agent("guide", "You are kind.", engine=model, facts={"name": NAME, "age": AGE})
    ((events,), transcript) = talk((guide,), ("guide", "I am Ann, 41."))
    (kept,) = of(FactsLearned, events)
    assert kept.facts == (Learned("guide.name", "Ann", tags=("person",)), Learned("guide.age", 41, tags=("person",)))
    asked = model.prompts[1]
    assert asked.messages[-1].text == "Asked: I am Ann, 41.\n\nAnswered: Nice to meet you, Ann."
    assert kept.usage == Usage(30, 9)
    assert of(TurnFinished, events)[0].usage == Usage(30, 9)
    assert recall(transcript, "guide.name", agent="other") == "Ann"


def test_an_answer_that_is_json_says_its_facts_itself():
    """S03: no model is asked for what is structured already."""

    def profile(input: str) -> dict[str, Any]:
        return {"name": "Ann", "age": "41", "more": [1]}

    agent = Agent("profile", function=profile, facts={"name": NAME, "age": AGE, "mood": MOOD})
    ((events,), _) = talk((agent,), ("profile", "Ann"))
    (kept,) = of(FactsLearned, events)
    assert [(fact.name, fact.value) for fact in kept.facts] == [("profile.name", "Ann"), ("profile.age", 41)]
    assert kept.usage == Usage()


def test_what_is_nothing_blank_or_of_another_type_is_no_fact():
    """S03"""
    agent = Agent("a", "x", facts={"name": NAME, "age": AGE, "mood": MOOD, "list": Fact(type="array")})
    assert learned(agent, {"name": None, "age": "old", "mood": "  ", "list": []}) == ()
    assert learned(agent, {"name": " Ann ", "age": 0, "nobody": 1}) == (
        Learned("a.name", "Ann", tags=("person",)),
        Learned("a.age", 0, tags=("person",)),
    )


def test_an_agent_that_works_for_another_teaches_the_whole_conversation():
    """S03: the fact is where people are, and the next agent's words have it."""
    scout = Agent("scout", engine=Scripted("It rains.", '{"weather": "rain"}'), facts={"weather": Fact("the weather")})
    boss = Agent("boss", "You decide.", engine=Scripted(call("scout", input="Look."), "Take a coat."), tools=[scout])
    herald = Agent("herald", template='Hear: {{ .Fact "scout.weather" }}, {{ .Fact "scout.wind" "no wind" }}.')
    events, transcript = talk((boss, scout, herald), ("boss", "What now?"), ("herald", "Tell."))
    assert recall(transcript, "scout.weather", agent="herald") == "rain"
    assert transcript.output == "Hear: rain, no wind."
    assert len(of(FactsLearned, events[0])) == 1


def test_a_fact_is_data_and_nothing_in_it_is_expanded():
    """S03, S07"""
    model = Scripted("Noted.", '{"name": "{{ .Get \\"spy\\" }}"}')
    guide = Agent("guide", "x", engine=model, facts={"name": NAME})
    herald = Agent("herald", template='Hello {{ .Fact "guide.name" }}')
    spy = Agent("spy", template="SECRET")
    _, transcript = talk((guide, herald, spy), ("guide", "My name is {{ .Get spy }}"), ("herald", "Go."))
    assert transcript.output == 'Hello {{ .Get "spy" }}'


def test_a_model_that_gives_no_facts_does_not_spoil_the_answer():
    guide = Agent("guide", "x", engine=Scripted("Fine.", "no", "no"), facts={"name": NAME})
    ((events,), transcript) = talk((guide,), ("guide", "Hi."))
    assert transcript.output == "Fine."
    assert "twice and gave none" in of(PluginFailed, events)[0].message
    assert of(TurnFinished, events)[0].outcome == "done"


# --- who sees what ----------------------------------------------------------------------------------------------------


def test_the_newest_value_counts_and_the_one_before_it_is_old():
    """S03"""
    transcript = knowing(
        FactsLearned("t1", "a", (Learned("a.city", "Bonn"),)),
        FactsLearned("t2", "a", (Learned("a.city", "Köln"),)),
        FactsLearned("t3", "a", (Learned("a.city", "Köln"),)),
    )
    assert recall(transcript, "a.city", agent="b") == "Köln"
    assert recall(transcript, "a.city.old", agent="b") == "Bonn"
    assert recalled_text(transcript, "a.street.old", "unknown", agent="b") == "unknown"


def test_a_local_fact_is_seen_by_its_own_agent_only():
    """S03"""
    transcript = knowing(
        FactsLearned("t1", "a", (Learned("a.mood", "low", local=True, tags=("x",)), Learned("a.city", "Bonn"))),
        FactsLearned("t2", "a", (Learned("a.mood", "high", local=True, tags=("x",)),)),
    )
    assert recall(transcript, "mood", agent="a") == recall(transcript, "a.mood", agent="a") == "high"
    assert recall(transcript, "mood.old", agent="a") == "low"
    for name in ("a.mood", "a.mood.old", "mood"):
        assert recall(transcript, name, agent="b") is None
    assert tagged(transcript, "x", agent="a") == {"a.mood": "high"}
    assert tagged(transcript, "x", agent="b") == {}


def test_facts_of_a_tag_are_found_together():
    """S03"""
    facts = (Learned("a.name", "Ann", tags=("person",)), Learned("a.age", 41, tags=("person",)), Learned("a.x", 1))
    assert tagged(knowing(FactsLearned("t", "a", facts)), "person", agent="b") == {"a.name": "Ann", "a.age": 41}


def test_what_is_no_text_is_told_as_json():
    transcript = knowing(FactsLearned("t", "a", (Learned("a.list", ["x", 1]), Learned("a.yes", True))))
    assert recalled_text(transcript, "a.list", agent="b") == '["x",1]'
    assert recalled_text(transcript, "a.yes", agent="b") == "true"


# --- once, whatever happens -------------------------------------------------------------------------------------------


def test_facts_outlive_the_program(tmp_path: Path):
    """S03"""
    file = tmp_path / "store.db"
    guide = Agent("guide", "x", engine=Scripted("Hello.", '{"name": "Ann"}'), facts={"name": NAME})
    herald = Agent("herald", template='{{ .Fact "guide.name" }} is here.')

    async def said(agent: str, text: str) -> str:
        async with asyncio.timeout(10), App(guide, herald, store=SqliteStore(file)) as app:
            return (await (await app.conversation("c", agent=agent).send(text)).result()).output

    assert asyncio.run(said("guide", "I am Ann.")) == "Hello."
    assert asyncio.run(said("herald", "Who?")) == "Ann is here."


def scouting() -> Scenario:
    scout = Agent("scout", engine=Said("It rains."), facts={"weather": Fact("the weather")})
    boss = Agent("boss", "You decide.", engine=Said("Take a coat.", call("scout", input="Look.")), tools=[scout])
    return Scenario(boss, scout)


async def facts_kept(disk: MemoryStore) -> list[tuple[Learned, ...]]:
    return [entry.event.facts for entry in await disk.read("c") if isinstance(entry.event, FactsLearned)]


@pytest.mark.parametrize("written", [True, False])
async def test_a_fact_is_learned_once_wherever_the_program_ends(written: bool):
    """S03: the power is cut before and after every append; then the program goes on."""

    async def cut_at(at: int) -> list[tuple[Learned, ...]]:
        disk = MemoryStore()
        dying = PowerCut(disk, at, written=written)
        await until_dead(scouting().drive(dying), dying)
        disk = disk.reopen()
        await scouting().drive(disk)
        return await facts_kept(disk.reopen())

    store = CountingStore()
    await scouting().drive(store)
    once = [(Learned("scout.weather", "rain"),)]
    assert await facts_kept(store) == once
    for at in range(1, store.appends + 1):
        assert await cut_at(at) == once, f"cut at append {at}"


class Said:
    """Answers by what it is asked: a crash must not change what is said."""

    def __init__(self, text: str, first: Any = None) -> None:
        self.name, self.facts = "said", Scripted().facts
        self._text, self._first = text, first

    async def stream(self, prompt: Any) -> Any:
        if prompt.options.output is not None:
            steps = Scripted('{"weather": "rain"}')
        elif self._first is not None and prompt.messages[-1].role == "user":
            steps = Scripted(self._first)
        else:
            steps = Scripted(self._text)
        async for delta in steps.stream(prompt):
            yield delta


def test_the_facts_of_a_conversation_are_shown(place: Place):
    """S03"""
    place.write("rondel.toml", "")
    words = '{"name": "{{ .Input }}", "mood": "low\\u001b[2J"}'
    facts = "{name: {tags: [person]}, mood: {scope: local}}"
    place.write("agents/a.yaml", f"agents:\n  a:\n    template: '{words}'\n    facts: {facts}\n")
    assert place.rondel("run", "a", "Ann").code == 0
    assert "No agent has learned" not in place.rondel("facts").err
    assert place.rondel("run", "a", "Bea", "--conversation", "last").code == 0
    shown = place.rondel("facts", "last").out
    assert [line.split() for line in shown.splitlines()][1] == ["a.name", "Bea", "Ann", "person"]
    assert "a.mood (local)" in shown
    assert "\x1b" not in shown
    assert json.loads(place.rondel("facts", "--json").out)[0] == {
        "name": "a.name",
        "value": "Bea",
        "old": "Ann",
        "scope": "global",
        "tags": ["person"],
    }
