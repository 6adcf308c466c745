"""The example projects: they load without a mistake, do what they show by script, and talk to a real model."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rondel import Agent, App
from rondel.engines.local.weights import DEFAULT
from rondel.events import Event, RoundFinished
from rondel.project.agents import load_agents
from rondel.project.config import load
from rondel.project.engines import make_engine
from rondel.project.lint import lint
from rondel.testing import Scripted, VirtualClock, load_scripts
from tests.helpers import events_of, of, output_of, play, pull_weights

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("*/rondel.toml"))
MAY_2026 = 1_777_638_600.0
WAIT_S = 300.0


def agent_of(project: str, name: str = "") -> Agent:
    config = load(EXAMPLES / project, {"HOME": str(EXAMPLES)})
    return next(agent for agent in load_agents(config, {}) if agent.name == (name or config.agent))


def scripted(project: str, *said: str, name: str = "") -> tuple[list[list[Event]], Scripted]:
    """Every event of a conversation with the example's scripted model, turn by turn."""
    agent = agent_of(project, name)
    model = load_scripts(EXAMPLES / project / "script.yaml")[agent.name]

    async def scene(app: App) -> list[list[Event]]:
        conversation = app.conversation()
        return [await events_of(await conversation.send(text)) for text in said]

    turns = play(scene, msgspec.structs.replace(agent, engine=model), clock=VirtualClock(MAY_2026))
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
    (first, second), model = scripted("desk", "How do I get a card?", "Thank you.")
    assert answer(first) == "Bring a passport and five minutes."
    assert answer(second) == "You are welcome."
    opening = model.prompts[0]
    assert [message.role for message in opening.messages] == ["system", "system", "user", "system", "system"]
    system, placeholder, question, date, reminder = (message.text for message in opening.messages)
    assert system.startswith("You are an assistant at a busy desk.")
    assert system.endswith("Be polite, whoever asks.")
    assert "library" not in system
    assert placeholder == "This is the beginning of the conversation."
    assert question == "How do I get a card?"
    assert date.startswith("It is ")
    assert reminder.startswith("Answer the newest message.")
    later = model.prompts[-1].messages
    assert "beginning of the conversation" not in " ".join(message.text for message in later)


def test_the_clerk_works_it_out_with_tools_and_a_list():
    """T12: the list that the model wrote is in every round after it."""
    (events,), model = scripted("desk", "What is 17 times 3?", name="clerk")
    assert answer(events) == "It is 51, says the calculator."
    assert [spec.name for spec in model.prompts[0].tools] == ["current_time", "calculate", "write_todo"]
    assert "Name your sources. Use your tools" in model.prompts[0].messages[0].text
    assert "- [ ] multiply" in model.prompts[2].messages[-1].text


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


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    ("project", "said"), [("desk", "Hello!"), ("support", "Can I return my kettle?"), ("writer", "A story with a fox.")]
)
def test_an_example_talks_to_the_embedded_model(project: str, said: str):
    pull_weights()
    agent = agent_of(project)
    short = msgspec.structs.replace(agent.options, tokens_max=16, temperature=0.0)
    agent = msgspec.structs.replace(agent, engine=make_engine(f"local:{DEFAULT.name}"), options=short)

    assert play(output_of(said), agent, timeout_s=WAIT_S).strip()
