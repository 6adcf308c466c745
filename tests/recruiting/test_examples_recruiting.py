"""The examples that recruit: with a scripted answer for each agent, over restarts, and with the embedded model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel import Agent, App
from rondel.engines.local.weights import DEFAULT
from rondel.events import CallFinished, Event, FactsLearned, Outcome, TurnFinished
from rondel.knowledge.base import KnowledgeBase
from rondel.knowledge.bases import Knowledge
from rondel.knowledge.settings import KnowledgeSettings
from rondel.project.agents import load_agents
from rondel.project.config import load
from rondel.project.engines import make_engine
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite.knowledge import SqliteKnowledge
from rondel.testing import Scripted, VirtualClock, load_scripts
from rondel.values import AgentResult
from tests.helpers import events_of, of, play, pull_weights, result_of

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
MAY_2026 = 1_777_638_600.0
DAY_S = 86_400.0
WAIT_S = 300.0


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    yield
    sys.modules.pop("stations", None)


def team_of(project: str, engines: dict[str, Scripted] | None = None) -> list[Agent]:
    config = load(EXAMPLES / project, {"HOME": str(EXAMPLES)})
    engines = engines or {}
    return [msgspec.structs.replace(agent, engine=engines.get(agent.name)) for agent in load_agents(config, {})]


def scripts_of(project: str) -> dict[str, Scripted]:
    return load_scripts(EXAMPLES / project / "script.yaml")


def talk(agents: list[Agent], *said: tuple[str, str], **settings: Any) -> list[tuple[str, list[Event]]]:
    """What each agent answers in one conversation, with all events of its turn."""

    async def scene(app: App) -> list[tuple[str, list[Event]]]:
        heard: list[tuple[str, list[Event]]] = []
        for agent, text in said:
            turn = await app.conversation("c", agent=agent).send(text)
            events = await events_of(turn)
            heard.append(((await turn.result()).output, events))
        return heard

    return play(scene, *agents, engine=Scripted(), clock=VirtualClock(MAY_2026), **settings)


# --- weather ----------------------------------------------------------------------------------------------------------


def test_a_lookup_that_does_not_know_gives_the_almanacs_words_in_their_place():
    """F10: the model reads both, and never learns that there are two agents."""
    scripts = scripts_of("weather")
    ((said, events),) = talk(team_of("weather", scripts), ("what_to_wear", "What should I wear in Paris today?"))
    assert said == "A light coat will do in Paris."
    (finished,) = of(CallFinished, events)
    assert finished.result.text == "Weather unknown in Paris. In May it is usually mild there."
    assert [spec.name for spec in scripts["what_to_wear"].prompts[0].tools] == ["weather_lookup"]


def test_the_weather_is_looked_up_before_a_model_is_asked():
    scripts = scripts_of("weather")
    ((said, _),) = talk(team_of("weather", scripts), ("dress_for", "Sydney"))
    assert said == "Take a light coat."
    told = scripts["dress_for"].prompts[0].messages[0].text
    assert told.splitlines()[1] == "Weather unknown in Sydney. In May it is usually fresh there."


@pytest.mark.parametrize(
    ("city", "said"),
    [
        ("Lisbon", "In Lisbon it is 21 °C and sunny."),
        ('{{ .Get "what_to_wear" }}', 'Weather unknown in {{ .Get "what_to_wear" }}. In May it is usually mild there.'),
    ],
)
def test_the_lookup_needs_no_model_and_expands_nothing_that_a_person_wrote(city: str, said: str):
    """S07"""
    ((output, _),) = talk(team_of("weather"), ("weather_lookup", city))
    assert output == said


# --- research ---------------------------------------------------------------------------------------------------------


def test_a_model_recruits_a_checker_in_the_middle_of_its_answer():
    scripts = scripts_of("research")
    agents = team_of("research", scripts)
    store = SqliteKnowledge()
    notes = KnowledgeBase(
        "knowledge", KnowledgeSettings(folders=("knowledge",)), store, project=str(EXAMPLES / "research")
    )
    answer, report, findings = talk(
        agents,
        ("lead", "How do swarms choose a home?"),
        ("report", "How do bees spend the winter?"),
        ("findings", "What do we know?"),
        knowledge=Knowledge([notes], store),
    )
    assert answer[0] == "Scouts dance until most agree (confirmed). It takes up to three days."
    assert report[0].strip() == (
        "# How do bees spend the winter?\n\nThey keep warm in a ball.\n\n"
        "The notes: confirmed. Written on Friday, 1 May 2026."
    )
    assert findings[0] == "Found: a ball around the queen (before: the scouts' dances decide)"
    for script in scripts.values():
        script.check_done()
    told = scripts["reader"].prompts[0].messages[0].text
    assert "Each dances for the place that it has found" in told
    assert told.rstrip().endswith("Question: How do swarms choose a home?")
    offered = [spec.name for spec in scripts["lead"].prompts[0].tools]
    assert offered == ["reader", "knowledge_search", "checker"]


# --- onboarding -------------------------------------------------------------------------------------------------------


def test_three_questions_are_answered_over_two_days_with_restarts_between_them(tmp_path: Path):
    """T09, S03: no question is asked twice, and no model before the last answer."""
    clock, scripts = VirtualClock(MAY_2026), scripts_of("onboarding")

    async def day(answers: dict[str, str], *, first: bool = False) -> AgentResult | None:
        """One run of the program: it begins, hears some answers, and ends."""
        store = SqliteStore(tmp_path / "store.db")
        async with asyncio.timeout(20), App(*team_of("onboarding", scripts), store=store, clock=clock) as app:
            conversation = app.conversation("c", agent="welcome")
            if first:
                await (await conversation.send("I am new here.")).result()
            result = None
            for question in await conversation.questions():
                if (text := answers.get(question.text)) is not None:
                    result = await (await conversation.answer(question.id, text, by="ann")).result()
            await app.drain()
            return result

    async def badge() -> tuple[str, list[Event]]:
        store = SqliteStore(tmp_path / "store.db")
        async with asyncio.timeout(20), App(*team_of("onboarding", scripts), store=store, clock=clock) as app:
            turn = await app.conversation("c", agent="badge").send("Print it.")
            output = (await turn.result()).output
            return output, [entry.event for entry in await app.conversation("c").entries()]

    asyncio.run(day({}, first=True))
    assert scripts["welcome"].prompts == []
    clock.advance(DAY_S / 2)
    asyncio.run(day({"What is your name?": "Ann"}))
    clock.advance(DAY_S)
    asyncio.run(day({"Which team do you join?": "kitchen"}))
    assert scripts["welcome"].prompts == []
    clock.advance(DAY_S / 2)
    result = asyncio.run(day({"When is your first day?": "Monday"}))
    assert result is not None
    assert result.output == "Welcome to the kitchen, Ann! We see you on Monday."
    prompt, facts = scripts["welcome"].prompts
    assert prompt.messages[0].text.splitlines()[1:] == ["Name: Ann", "Team: kitchen", "First day: Monday"]
    assert "The person was asked: Which team do you join?\nThe person said: kitchen" in facts.messages[-1].text
    said, entries = asyncio.run(badge())
    assert said == "Ann · kitchen"
    assert len(of(FactsLearned, entries)) == 1
    outcomes = [event.outcome for event in of(TurnFinished, entries)]
    assert outcomes == [Outcome.WAITING] * 3 + [Outcome.DONE] * 2


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    ("project", "agent", "said"),
    [("weather", "dress_for", "Paris"), ("research", "report", "How do bees spend the winter?")],
)
def test_an_example_that_recruits_works_with_the_embedded_model(project: str, agent: str, said: str):
    pull_weights()
    engine = make_engine(f"local:{DEFAULT.name}")
    agents = [
        msgspec.structs.replace(
            one, options=msgspec.structs.replace(one.options, tokens_max=16, temperature=0.0), facts={}
        )
        for one in team_of(project)
    ]

    result = play(result_of(said, agent=agent), *agents, engine=engine, timeout_s=WAIT_S)
    assert result.error == ""
    assert result.output.strip()
