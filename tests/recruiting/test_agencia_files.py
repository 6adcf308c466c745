"""Files as Agencia's users write them: several documents, libraries, lists, jobs without a body."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel import App
from rondel.errors import ConfigError
from rondel.project.agents import load_agents
from rondel.project.lint import lint
from rondel.project.settings import Config
from rondel.testing import Scripted, say
from rondel.values import Message


def config_with(folder: Path, text: str) -> Config:
    agents = folder / "agents"
    agents.mkdir()
    agents.joinpath("spec.yaml").write_text(text)
    folder.joinpath("rondel.toml").write_text("")
    return Config(project=str(folder))


def echo(prompt: object) -> Message:
    return say(f"[{prompt.messages[0].text.strip()}]").message  # type: ignore[attr-defined]


async def ask(config: Config, agent: str, said: str) -> str:
    agents = load_agents(config)
    async with App(*agents, engine=Scripted(*[echo] * 9)) as app:
        return (await (await app.conversation(agent=agent).send(said)).result()).output


SEVERAL = """\
agents:
  # greetings
  welcome:
    prompt: |
      Welcome {{ .Input }} warmly.
  mood:
    template: How do you feel, {{.Input}}?
  opening:
    template: |
      {{ .Get "welcome" }}

      {{ .Get "mood" }}
---
agents:
  verse:
    prompt: "A verse about {{ .Input }}"
  topic:
    prompt: "The topic of {{ .Input }}"
  study:
    template: '{{ .Get "verse" }} is {{ .Get "topic" (.Get "verse") }}'
---
"""


async def test_a_file_may_have_several_documents(tmp_path: Path):
    """S01, S06."""
    config = config_with(tmp_path, SEVERAL)
    assert await ask(config, "opening", "Ann") == "[Welcome Ann warmly.]\n\nHow do you feel, Ann?\n"
    assert await ask(config, "study", "rain") == "[A verse about rain] is [The topic of [A verse about rain]]"


LISTED = """\
agents:
  - hail: >-
      Hail {{ .Input }},
      and be brief.
---
agents:
  - again: >-
      You wrote "{{ .Input }}".
  - both: >-
      {{ .Get "hail" }}

      {{ .Get "again" }}
---
agents:
  - loud: {template: "{{ .Input }}!"}
"""


async def test_agents_may_be_in_a_list_where_a_text_is_a_prompt(tmp_path: Path):
    """S01."""
    config = config_with(tmp_path, LISTED)
    assert await ask(config, "again", "no") == '[You wrote "no".]'
    assert await ask(config, "both", "Bo") == '[[Hail Bo, and be brief.]\n[You wrote "Bo".]]'
    assert await ask(config, "loud", "Ho") == "Ho!"
    assert not [problem for problem in lint([tmp_path]).problems if problem.severity == "error"]


TRIAGE = """\
agents:
  complaint:
    prompt: |
      In short: {{ .Input }}
  urgent:
    prompt: |
      Is this urgent?

      {{ .Get "complaint" }}
  desk:
    template: |
      {{ .Get "complaint" }}
      {{ .Get "urgent" }}
---
agents:
  spanish:
    prompt: "In Spanish: {{ .Input }}"
  tone:
    prompt: "The tone of: {{ .Input }}"
  both_languages:
    template: |
      Said: {{ .Input }}
      Spanish: {{ .Get "spanish" }}
      Tone: {{ .Get "tone" }}
---
agents:
  points:
    prompt: "The points of {{ .Input }}"
  questions:
    prompt: 'Questions about {{ .Get "points" }}'
  talk:
    template: |
      {{ .Get "points" }}
      {{ .Get "questions" }}
"""


async def test_prompts_and_templates_build_on_what_other_agents_say(tmp_path: Path):
    """S06."""
    config = config_with(tmp_path, TRIAGE)
    assert await ask(config, "desk", "rain") == ("[In short: rain]\n[Is this urgent?\n\n[In short: rain]]\n")
    assert await ask(config, "both_languages", "hi") == (
        "Said: hi\nSpanish: [In Spanish: hi]\nTone: [The tone of: hi]\n"
    )
    assert await ask(config, "talk", "tea") == "[The points of tea]\n[Questions about [The points of tea]]\n"


async def test_a_library_in_a_file_is_named_with_a_dot(tmp_path: Path):
    """S09."""
    text = """\
agents:
  intro:
    template: 'First: {{ .Get "desk.greet" }}'
  main:
    description: Talks
    prompt: Hello
    listeners: [desk.greet]
libraries:
  desk:
    agents:
      greet:
        description: Greets
        inputs: {who: {description: the name}}
        template: Hi from the desk
"""
    config = config_with(tmp_path, text)
    assert await ask(config, "intro", "x") == "First: Hi from the desk"
    async with App(*load_agents(config), engine=Scripted("Yes.")) as app:
        assert "desk_greet" in app.registry.resolve("main").tools
    assert not [problem for problem in lint([tmp_path]).problems if problem.severity == "error"]


async def test_a_list_is_a_type_of_inputs_and_facts(tmp_path: Path):
    """S02, S03."""
    text = """\
agents:
  main:
    inputs: {names: {description: who, type: list}}
    facts: {seen: {description: what was said, type: list}}
    prompt: 'Known: {{ .Fact "seen" }}'
"""
    (agent,) = load_agents(config_with(tmp_path, text))
    assert agent.inputs["names"]["type"] == "array"
    assert agent.facts["seen"].type == "array"


async def test_a_job_without_a_body_says_that_it_runs(tmp_path: Path):
    """S10."""
    text = """\
agents:
  checkout:
    description: Lends a {{ book }}
    job: [find, lend]
  find: {template: found}
  lend: {template: lent}
"""
    config = config_with(tmp_path, text)
    agents = load_agents(config)
    async with App(*agents) as app:
        conversation = app.conversation(agent="checkout")
        result = await (await conversation.send("go")).result()
        assert result.output == "Running job: checkout. Lends a {{ book }}"
        await app.drain()
        (job,) = await app.background.jobs(conversation.id)
        assert job.status == "done"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('agents:\n  a:\n    template: |\n      {{ $p := .Get "b" }}\n  b: {template: x}\n', "spec.yaml:4: column 7: "),
        ("agents:\n  a: {template: x}\n---\nagents:\n  a: {template: y}\n", "spec.yaml:5: there is another agent 'a'"),
        ("agents:\n  a: {template: x}\n---\nagent: {}\n", "spec.yaml:4: 'agent' is not known here"),
        ("libraries:\n  time:\n    agents: {a: {template: x}}\n", "spec.yaml:2: 'time' is a library that comes with"),
        ("libraries:\n  l:\n    agnts: {}\n", "spec.yaml:3: 'agnts' is not known here"),
        ("libraries: {l: {agents: {'a.b': {template: x}}}}\n", "'a.b' is not a valid agent name"),
        ("---\n---\n", "has no agents"),
        ("agents:\n  - a: >-\n      {{ if .Input }}x{{ end }}\n", "spec.yaml:3: column 7: "),
        ("agents:\n  - a: x\n  - a: y\n", "spec.yaml:3: there is another agent 'a' at"),
        ("agents:\n  - just a text\n", "spec.yaml:2: 'agents[0]' must be a table"),
        ("agents:\n  - a: {function: markdown.Strip}\n", "spec.yaml:2: 'markdown.Strip' is not a function"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_by_loading_and_by_lint(tmp_path: Path, text: str, said: str):
    """S08."""
    config = config_with(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load_agents(config)
    assert said in str(error.value)
    told = [str(problem) for problem in lint([tmp_path]).problems if problem.severity == "error"]
    assert any(said.rpartition(": ")[2][:20] in one for one in told)
