"""Spec files: agents of four kinds with listeners, aliases, facts and jobs; a mistake is a sentence with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel import Agent, App
from rondel.agent import Fact
from rondel.events import CallFinished, Event
from rondel.testing import Scripted, call
from tests.config.files import agents_in, own_modules, said_of, sentence, write  # noqa: F401
from tests.helpers import events_of, of, play

FILLED_KINDS = ("template", "alias", "function")
HOUSE = """
    # agents/weather.yaml
    agents:
      weather_lookup:
        description: The weather in a city today
        inputs: {city: {description: the city, required: true}}
        function: myapp.weather:lookup
        expands_output: true
        recruits: [almanac_weather]
      almanac_weather:
        template: "In {{ .Input \\"city\\" }} it is usually mild at this time of the year."
      what_to_wear:
        prompt: What should one wear there? {{ .Input }}
        listeners: [weather_lookup]
"""


def with_engines(agents: dict[str, Agent], **engines: Scripted) -> list[Agent]:
    return [msgspec.structs.replace(agent, engine=engines.get(agent.name)) for agent in agents.values()]


def answer(agents: list[Agent], name: str, text: str) -> tuple[str, list[Event]]:
    async def scene(app: App) -> tuple[str, list[Event]]:
        turn = await app.conversation(agent=name).send(text)
        events = await events_of(turn)
        return (await turn.result()).output, events

    return play(scene, *agents)


def test_the_example_of_the_house_loads_and_runs_as_it_stands(tmp_path: Path):
    """S01, F10: a function that does not know recruits an agent in the middle of its sentence."""
    write(tmp_path / "myapp" / "__init__.py", "")
    write(
        tmp_path / "myapp" / "weather.py",
        "def lookup(city: str) -> str:\n    return 'Weather unknown. {{ .Get \"almanac_weather\" }}'\n",
    )
    agents = agents_in(tmp_path, HOUSE)
    assert list(agents) == ["weather_lookup", "almanac_weather", "what_to_wear"]
    model = Scripted(call("weather_lookup", city="Paris"), "A light coat.")
    said, events = answer(with_engines(agents, what_to_wear=model), "what_to_wear", "Paris today?")
    assert said == "A light coat."
    (finished,) = of(CallFinished, events)
    assert finished.result.text == "Weather unknown. In Paris it is usually mild at this time of the year."
    assert model.prompts[0].messages[0].text == "What should one wear there? Paris today?"


def test_an_agent_of_each_kind_is_read_with_all_its_keys(tmp_path: Path):
    """S01"""
    agents = agents_in(
        tmp_path,
        """
        agents:
          asker:
            prompt: You ask. {{ .Get "filler" }}
            listeners: [filler, time.now]
            facts: {name: {description: the name, tags: [person]}, mood: {type: integer, scope: local}}
            job: [filler]
            limits: {rounds: 2}
            schedules: [{every: 2h, say: What is new}]
          filler:
            description: Fills in
            inputs: {x: {type: integer, required: true}, y: {enum: [a, b]}}
            template: "{{ .Input \\"x\\" }}"
          other: {alias: filler, description: Another}
          upper: {alias: text.upper}
        """,
    )
    asker, filler = agents["asker"], agents["filler"]
    assert asker.facts == {"name": Fact("the name", tags=("person",)), "mood": Fact(type="integer", scope="local")}
    assert (tuple(asker.listeners), tuple(asker.job)) == (("filler", "time.now"), ("filler",))
    assert asker.limits.rounds == 2
    assert asker.schedules[0].every_s == 7200
    assert filler.template == '{{ .Input "x" }}'
    assert filler.inputs == {"x": {"type": "integer", "required": True}, "y": {"enum": ["a", "b"]}}
    assert agents["other"].alias == "filler"
    assert list(agents) == ["asker", "filler", "other", "upper", "time.now", "text.upper"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "agents:\n  x:\n    template: a\n    prompt: b",
            "a.yaml:4: agent 'x' must have exactly one of prompt, template, alias, function; it has prompt",
        ),
        (
            "agents:\n  x:\n    description: a",
            "a.yaml:2: agent 'x' must have exactly one of prompt, template, alias, function; it has none",
        ),
        ("agents:\n  x: {template: a, listners: []}", "a.yaml:2: 'agents.x.listners' is not known; did you mean"),
        ("agents:\n  x: {prompt: a}\n  x: {prompt: b}", "a.yaml:3: 'x' is given twice: on line 2 and here"),
        ("agents:\n  time.now: {prompt: a}", "a.yaml:2: 'time.now' is not a valid agent name"),
        ("agents:\n  x:\n    alias: x", "a.yaml:3: agent 'x' is an alias of itself; name another agent"),
        ("agents:\n  x:\n    alias: yy\n  y: {prompt: a}", "a.yaml:3: there is no agent 'yy'; did you mean 'y'?"),
        ("agents:\n  x:\n    alias: time.nwo", "a.yaml:3: there is no agent 'time.nwo'; did you mean 'time.now'?"),
        (
            "agents:\n  x:\n    alias: y\n  y: {alias: z}\n  z: {alias: x}",
            "a.yaml:3: agent 'x' is an alias that leads back to itself: x -> y -> z -> x; name another agent",
        ),
        ("agents:\n  x:\n    prompt: a\n    job: [y]", "a.yaml:4: there is no agent 'y'; available: x"),
        (
            "agents:\n  x:\n    template: a\n    recruits:\n    - xx",
            "a.yaml:5: there is no agent 'xx'; did you mean 'x'?",
        ),
        (
            "agents:\n  x:\n    prompt: a\n    facts: {f: {scope: everywhere}}",
            "a.yaml:4: 'agents.x.facts.f.scope' must be one of 'global', 'local', not 'everywhere'",
        ),
        (
            "agents:\n  x:\n    prompt: a\n    facts: {f: {type: text}}",
            "a.yaml:4: 'text' is not a type; available: array",
        ),
        (
            "agents:\n  x:\n    prompt: a\n    inputs: {f: {type: strng}}",
            "a.yaml:4: 'strng' is not a type; did you mean",
        ),
        (
            "agents:\n  x:\n    prompt: a\n    inputs: {f: {required: yes}}",
            "a.yaml:4: 'required' of input 'f' must be true",
        ),
        ("agents:\n  x:\n    prompt: a\n    schedules:\n    - {evry: 1h}", "a.yaml:5: a schedule has no key 'evry'"),
        ("agents:\n  x:\n    function: nothing", "a.yaml:3: 'nothing' is not a function; write it as module:attribute"),
        ("agents:\n  x:\n    function: json:decoder", "a.yaml:3: 'json:decoder' is not a function but 'module'"),
        (
            'agents:\n  x:\n    template: |\n      Hello\n      and {{ .Get "y }} and',
            "a.yaml:5: column 11: '{{ .Get \"y }}' is not a directive",
        ),
        ('agents:\n  x:\n    template: "a {{ .Get"', "a.yaml:3: column 18: {{ .Get is cut off; end it with }}"),
        *(
            (f"agents:\n  x:\n    description: d\n    {kind}: {empty}", f"a.yaml:4: the {kind} of agent 'x' is empty; ")
            for kind in ("template", "alias", "function")
            for empty in ('""', "''", '"  "', "|\n      \n")
        ),
        *((f"agents:\n  x: {{{kind}: null}}", f"a.yaml:2: 'agents.x.{kind}' must be a text") for kind in FILLED_KINDS),
        (
            'agents:\n  x:\n    prompt:\n    - {id: a, text: "{{ .Options \\"which\\" }}"}',
            "a.yaml:4: column 22: {{ .Options }} takes a question and two or more options; it has 1 argument",
        ),
    ],
)
def test_what_is_wrong_in_a_spec_is_one_sentence_with_its_line(tmp_path: Path, text: str, said: str):
    """S01, S05, Trust 8: errors name the agent; a cycle is refused with its path; a kind that is empty is none."""
    assert said_of(tmp_path, text).startswith(said)


@pytest.mark.parametrize("kind", FILLED_KINDS)
def test_an_empty_kind_in_markdown_is_no_prompt_agent(tmp_path: Path, kind: str):
    """Trust 8: it asked a model."""
    write(tmp_path / "agents" / "x.md", f'---\n{kind}: ""\n---\n')
    assert sentence(lambda: agents_in(tmp_path)).startswith(f"x.md:2: the {kind} of agent 'x' is empty; ")


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("team.json", '{"agents": {"x": {"prompt": "You help."}}}'),
        ("team.json", '{\n\t"agents": {\n\t\t"x": {"prompt": "You \\u0068elp.", "limits": {"rounds": 2}}\n\t}\n}\n'),
        ("team.yml", "agents: {x: {prompt: You help.}}"),
        ("team.YAML", "agents: {x: {prompt: You help.}}"),
        ("x.MD", "---\n---\nYou help.\n"),
    ],
)
def test_agents_are_read_from_every_kind_of_file(tmp_path: Path, file: str, text: str):
    """Trust 8: agents/*.json was ignored, and so was a name in capitals."""
    write(tmp_path / "agents" / file, text)
    agents = agents_in(tmp_path)
    assert [str(agent.prompt).strip() for agent in agents.values()] == ["You help."]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            "x.toml",
            "x.toml: is not an agent's file: agents are in .yaml, .yml, .json or .md; rename it, or move it out of",
        ),
        ("x.txt", "x.txt: is not an agent's file"),
        ("x.markdown", "x.markdown: is not an agent's file"),
        ("x.yaml.old", "x.yaml.old: is not an agent's file"),
        ("x", "x: is not an agent's file"),
        ("deep/x.md", "deep: is a folder with agents, but only files directly in agents/ are read"),
        ("empty.json", "empty.json: has no agents"),
        ("empty.yaml", "empty.yaml: has no agents"),
        ("empty.md", "empty.md: has no front matter"),
        ("wrong.json", "wrong.json:1: 'prompt' is not known here; put agents below the key 'agents'"),
    ],
)
def test_a_file_that_is_not_read_is_refused_loudly(tmp_path: Path, file: str, said: str):
    """Trust 8: nothing in agents/ is ignored but what is clearly something else."""
    write(tmp_path / "agents" / file, '{"prompt": "x"}' if file.startswith("wrong") else "")
    assert sentence(lambda: agents_in(tmp_path)).startswith(said)


def test_a_character_that_json_escapes_in_halves_is_one(tmp_path: Path):
    """Trust 8: JSON is YAML, except for this and for tabs."""
    write(tmp_path / "agents" / "a.json", r'{"agents": {"x": {"prompt": "\ud83d\ude00 \\ud83d \u00e9"}}}')
    assert agents_in(tmp_path)["x"].prompt == "\U0001f600 \\ud83d \u00e9"


def test_what_is_clearly_no_agent_is_left_alone(tmp_path: Path):
    """Trust 8: notes for people, Python, and what editors and systems leave behind."""
    for file in ("README.md", "readme.txt", "LICENSE", ".keep", "x.md~", "tools.py", "__pycache__/a.pyc", "data/a.csv"):
        write(tmp_path / "agents" / file, "text")
    write(tmp_path / "agents" / "a.yaml", "agents: {x: {prompt: You help.}}")
    assert list(agents_in(tmp_path)) == ["x"]


def test_the_text_of_a_markdown_file_is_a_prompt_with_directives(tmp_path: Path):
    write(tmp_path / "agents" / "guide.md", '---\nlisteners: [time.now]\n---\nHello\n\n{{ .Fact "a" "b" "c" }}')
    said = sentence(lambda: agents_in(tmp_path))
    assert said.startswith("guide.md:6: column 1: {{ .Fact }} takes a fact as")
    write(tmp_path / "agents" / "guide.md", "---\nalias: time.now\n---\nHello")
    assert "must have exactly one of prompt, template, alias, function; it has prompt and alias" in sentence(
        lambda: agents_in(tmp_path)
    )


# --- listeners --------------------------------------------------------------------------------------------------------


def test_every_listener_that_a_model_could_not_be_told_about_is_named_at_once(tmp_path: Path):
    """S04"""
    said = said_of(
        tmp_path,
        """
        agents:
          boss:
            prompt: You decide.
            listeners: [mute, blind, zebra, good, both, time.now]
          mute: {template: a, inputs: {x: {}}}
          blind: {template: a, description: b}
          both: {template: a}
          good: {template: a, description: b, inputs: {x: {}}}
        """,
    )
    assert said == (
        "a.yaml:4: agent 'boss' cannot listen to 'mute' (it has no description), 'blind' (it has no inputs), "
        "'zebra' (there is no such agent; available: blind, boss, both, good, mute), "
        "'both' (it has no description and inputs); listeners need a description and inputs"
    )


def test_a_listener_is_a_tool_with_the_schema_of_its_inputs(tmp_path: Path):
    """S04"""
    agents = agents_in(
        tmp_path,
        """
        agents:
          boss: {prompt: You decide., listeners: [scout]}
          scout:
            description: Looks around
            inputs: {where: {description: the place, required: true}, far: {type: boolean}}
            template: 'Nothing in {{ .Input "where" }}.'
        """,
    )
    model = Scripted(call("scout", where="the wood", far="no"), "Go home.")
    _, events = answer(with_engines(agents, boss=model), "boss", "What now?")
    (spec,) = model.prompts[0].tools
    assert (spec.name, spec.description) == ("scout", "Looks around")
    assert spec.schema == {
        "type": "object",
        "properties": {"where": {"type": "string", "description": "the place"}, "far": {"type": "boolean"}},
        "required": ["where"],
    }
    assert of(CallFinished, events)[0].result.text == "Nothing in the wood."


def test_an_alias_of_a_listener_may_say_for_itself_what_it_is_good_for(tmp_path: Path):
    """S04, S05: its own description and inputs are used; what it does not say, its target says."""
    agents = agents_in(
        tmp_path,
        """
        agents:
          boss: {prompt: You decide., listeners: [scout, spy]}
          scout: {alias: second}
          second: {alias: looker, description: Second look}
          spy:
            alias: looker
            description: Spies
            inputs: {where: {description: the house, required: true}}
          looker: {description: Looks, inputs: {where: {description: a place}}, template: 'At {{ .Input "where" }}.'}
        """,
    )
    model = Scripted(call("scout", where="A"), call("spy", where="B"), "Good.")
    _, events = answer(with_engines(agents, boss=model), "boss", "Go.")
    told = {spec.name: (spec.description, spec.schema["properties"]["where"]) for spec in model.prompts[0].tools}
    assert told["spy"] == ("Spies", {"type": "string", "description": "the house"})
    assert told["scout"][1] == {"type": "string", "description": "a place"}
    assert [finished.result.text for finished in of(CallFinished, events)] == ["At A.", "At B."]


# --- functions --------------------------------------------------------------------------------------------------------

SHOP = '''
from rondel import tool
from rondel.tool import CallContext

def price(article: str, pieces: int = 1) -> dict:
    """The price of an article.

    Args:
        article: its name
    """
    return {"article": article, "euro": 3 * pieces}

async def clock(context: CallContext) -> str:
    return f"{context.turn.now():g}"

@tool
def marked(x: str) -> str:
    return x
'''


def test_a_function_says_itself_what_the_file_does_not(tmp_path: Path):
    """S01"""
    write(tmp_path / "shop_of_test.py", SHOP)
    agents = agents_in(
        tmp_path,
        """
        agents:
          price: {function: "shop_of_test:price"}
          cheap:
            function: shop_of_test:price
            description: Only the price
            inputs: {article: {description: the article}}
        """,
    )
    assert agents["price"].description == "The price of an article."
    assert agents["price"].inputs["article"] == {"type": "string", "description": "its name", "required": True}
    assert agents["price"].inputs["pieces"] == {"type": "integer", "default": 1}
    assert agents["cheap"].inputs == {"article": {"type": "string", "description": "the article", "required": True}}
    assert answer(list(agents.values()), "cheap", "tea")[0] == '{"article":"tea","euro":3}'


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('function: "shop_of_test:prce"', "'shop_of_test' has no 'prce'; did you mean 'price'?"),
        ('function: "shop_of_test:marked"', "'shop_of_test:marked' is a tool; name a plain function"),
        ('function: "shop_of_test:price", inputs: {artcle: {}}', "has no parameter 'artcle'; did you mean 'article'?"),
        ('function: "shop_of_test:price", inputs: {pieces: {}}', "needs 'article', which is not one of the inputs"),
    ],
)
def test_a_function_that_does_not_fit_is_told(tmp_path: Path, keys: str, said: str):
    write(tmp_path / "shop_of_test.py", SHOP)
    assert said in said_of(tmp_path, f"agents:\n  x: {{{keys}}}")


def test_a_function_may_ask_for_its_call(tmp_path: Path):
    write(tmp_path / "shop_of_test.py", SHOP)
    agents = agents_in(tmp_path, 'agents:\n  x: {function: "shop_of_test:clock"}\n')
    assert agents["x"].inputs == {}
    assert float(answer(list(agents.values()), "x", "?")[0]) > 0


@pytest.mark.slow
def test_a_file_may_have_thousands_of_agents(tmp_path: Path):
    lines: list[Any] = [f"  a{n}: {{template: '{{{{ .Get \"a{n + 1}\" }}}}'}}" for n in range(2_000)]
    agents = agents_in(tmp_path, "\n".join(("agents:", *lines, "  a2000: {template: x}", "")))
    assert len(agents) == 2_001
