"""The example projects: they load without a mistake, do what they show by script, and talk to a real model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rondel import Agent, App
from rondel.agent_files import load_agents
from rondel.config import load
from rondel.events import Event, RoundFinished
from rondel.lint import lint
from rondel.lookup import TOOLS
from rondel.pick import make_engine
from rondel.testing import Scripted, VirtualClock, load_scripts
from rondel.weights import DEFAULT, pull
from tests.helpers import events_of, of, play

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("*/rondel.toml"))
MAY_2026 = 1_777_638_600.0
WAIT_S = 300.0


def agent_of(name: str) -> Agent:
    config = load(EXAMPLES / name, {"HOME": str(EXAMPLES)})
    (agent,) = load_agents(config, {})
    assert agent.name == config.agent
    return agent


def scripted(name: str, *said: str) -> tuple[list[list[Event]], Scripted]:
    """Every event of a conversation with the example's scripted model, turn by turn."""
    model = load_scripts(EXAMPLES / name / "script.yaml")[name]

    async def scene(app: App) -> list[list[Event]]:
        conversation = app.conversation()
        return [await events_of(await conversation.send(text)) for text in said]

    turns = play(scene, msgspec.structs.replace(agent_of(name), engine=model), clock=VirtualClock(MAY_2026))
    model.check_done()
    return turns, model


def answer(events: list[Event]) -> str:
    return of(RoundFinished, events)[-1].message.text


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda path: path.name)
def test_every_example_project_is_without_a_mistake_and_listed(folder: Path):
    assert lint([folder], {"HOME": str(folder)}).problems == ()
    assert f"({folder.name}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert (folder / "script.yaml").is_file()


def test_the_desk_puts_every_text_in_its_place():
    """P06, P07, P10: the conversation, the manners and the date stand where the file says."""
    (first, second), model = scripted("desk", "What is 17 times 3?", "Thank you.")
    assert answer(first) == "It is 51."
    assert answer(second) == "You are welcome."
    opening = model.prompts[0]
    assert [message.role for message in opening.messages] == ["system", "system", "user", "system", "system"]
    system, placeholder, question, date, reminder = (message.text for message in opening.messages)
    assert system.startswith("You are an assistant at a busy desk.")
    assert system.endswith("Be polite, whoever asks.")
    assert "library" not in system
    assert placeholder == "This is the beginning of the conversation."
    assert question == "What is 17 times 3?"
    assert date.startswith("It is ")
    assert reminder.startswith("Answer the newest message.")
    later = model.prompts[-1].messages
    assert "beginning of the conversation" not in " ".join(message.text for message in later)
    assert [spec.name for spec in opening.tools] == ["current_time", "calculate"]
    assert {"current_time", "calculate"} <= set(TOOLS)


def test_support_gets_passages_for_questions_and_none_for_small_talk():
    """P19: what fits is put before the conversation when the trigger holds."""
    _, model = scripted("support", "Can I return my kettle?", "Thanks a lot!")
    asked, thanked = model.prompts
    passages = asked.find("history")
    assert passages is not None
    found = passages.siblings[passages.index - 1]
    assert found.source == ("plugins", "handbook")  # type: ignore[union-attr]
    assert "within 30 days" in asked.messages[1].text
    assert asked.messages[0].text.endswith("offer to ask a colleague. Never promise a date.")
    assert not any("within 30 days" in message.text for message in thanked.messages if message.role == "user")


def test_the_writer_goes_on_until_the_end():
    """P20, P21: an unwanted answer is asked for again, and a part that is to be continued is."""
    (events,), model = scripted("writer", "A story with a fox.")
    assert answer(events).endswith("The end.")
    rounds = of(RoundFinished, events)
    assert [round.next for round in rounds] == ["again", "message", "message", "human"]
    told = [message.text for message in model.prompts[-1].history]
    assert told == [
        "A story with a fox.",
        "A fox found a red umbrella. To be continued.",
        "Go on with the next part.",
        "She flew with it over the hills. To be continued.",
        "Go on with the next part.",
    ]


@pytest.mark.weights
def test_an_example_talks_to_the_embedded_model():
    pull(DEFAULT)
    engine = make_engine(f"local:{DEFAULT.name}")
    agent = agent_of("support")
    short = msgspec.structs.replace(agent.options, tokens_max=24, temperature=0.0)

    async def scene(app: App) -> str:
        return (await (await app.conversation().send("Can I return my kettle?")).result()).output

    async def main() -> str:
        async with asyncio.timeout(WAIT_S), App(msgspec.structs.replace(agent, engine=engine, options=short)) as app:
            return await scene(app)

    assert asyncio.run(main()).strip()
