"""Agents in files: read, checked with file and line, and bound to the tools and plugins that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel.agent import Agent
from rondel.app.app import App
from rondel.limits import Limits
from rondel.plugins.approval import ApprovalGate
from rondel.project.agents import load_agents
from rondel.project.config import load
from rondel.prompt import Node
from rondel.tool import Tool
from rondel.values import Options, OutputSchema

from .files import agents_in, own_modules, said_of, sentence, write  # noqa: F401


def test_a_yaml_file_holds_several_agents(tmp_path: Path) -> None:
    write(
        tmp_path / "agents" / "weather.yaml",
        """
        agents:
          weather:
            description: The weather in a city today
            prompt: You know the weather in ${TOWN:-Bonn}.
            engine: anthropic:claude-sonnet-5-5
            tools: [ask_user, almanac, current_time]
            plugins: [log, {approval: {default: {mode: confirm, deny: [rm]}, tools: {ask_user: {mode: auto}}}}]
            limits: {calls: 2}
            options: {temperature: 0, stop: [END]}
            inputs: {city: {description: the city, required: true}, days: {type: integer}}
            output: {type: object, properties: {mild: {type: boolean}}}
          almanac: {prompt: ""}
        """,
    )
    agents = agents_in(tmp_path, toml="[limits]\nrounds = 3\n[options]\ntop_k = 5")
    weather = agents["weather"]
    assert list(agents) == ["weather", "almanac"]
    assert weather.prompt == "You know the weather in Bonn."
    assert (weather.engine, weather.description) == ("anthropic:claude-sonnet-5-5", "The weather in a city today")
    assert [t.name if isinstance(t, Tool) else t for t in weather.tools] == ["ask_user", "almanac", "current_time"]
    assert isinstance(weather.plugins[1], ApprovalGate)
    assert weather.limits == Limits(rounds=3, calls=2)
    assert weather.options == Options(temperature=0.0, stop=("END",), top_k=5)
    assert weather.inputs == {
        "city": {"type": "string", "description": "the city", "required": True},
        "days": {"type": "integer"},
    }
    assert weather.as_tool().schema["required"] == ["city"]
    assert weather.output == OutputSchema({"type": "object", "properties": {"mild": {"type": "boolean"}}}, "weather")
    assert agents["almanac"].engine is None


def test_a_markdown_file_is_one_agent_and_its_text_is_the_prompt(tmp_path: Path) -> None:
    write(tmp_path / "agents" / "notes.md", "---\ndescription: Notes\n---\n# You write notes.\n\nBrief: `${x.y}`\n")
    write(tmp_path / "agents" / "other.md", "---\nname: critic\n---\n")
    write(tmp_path / "agents" / "README.md", "How these agents work.")
    write(tmp_path / "agents" / ".draft.yaml", "not: [yaml")
    write(tmp_path / "agents" / "helper.py", "not read")
    agents = agents_in(tmp_path)
    assert agents["notes"].prompt == "# You write notes.\n\nBrief: `${x.y}`"
    assert agents["notes"].description == "Notes"
    assert list(agents) == ["notes", "critic"]


def test_a_prompt_may_be_a_tree_with_the_place_of_the_conversation(tmp_path: Path) -> None:
    """P01: id, caption, enabled, role, tags, text and children are read, and the source leads back to the file."""
    write(
        tmp_path / "agents" / "a.yaml",
        """
        agents:
          a:
            prompt:
              - id: system
                role: system
                text: "Be "
                caption: The rules
                tags: [base]
                children:
                  - {id: tone, text: kind.}
                  - {id: off, text: never, enabled: false}
              - id: history
              - {id: last, role: user, text: Go on.}
        """,
    )
    (agent,) = agents_in(tmp_path).values()
    system, history, last = agent.nodes
    assert system == Node(
        "system",
        "Be ",
        "system",
        (
            Node("tone", "kind.", source=("prompts", "system", "children", "tone")),
            Node("off", "never", enabled=False, source=("prompts", "system", "children", "off")),
        ),
        "The rules",
        tags=("base",),
        source=("prompts", "system"),
    )
    assert (history.id, last.role) == ("history", "user")


def test_plugins_of_the_configuration_are_on_for_every_agent_unless_it_has_its_own(tmp_path: Path) -> None:
    write(
        tmp_path / "agents" / "a.yaml",
        "agents:\n  a: {prompt: x}\n  b: {prompt: x, plugins: [{trim: {share: 0.25}}, repair]}",
    )
    agents = agents_in(tmp_path, toml='plugins = ["log", {name = "trim", share = 0.5}]')
    shares = {
        name: [(p.name, vars(p).get("_share")) for p in a.plugins if not isinstance(p, str)]
        for name, a in agents.items()
    }
    assert shares == {"a": [("log", None), ("trim", 0.5)], "b": [("log", None), ("trim", 0.25), ("repair", None)]}


async def test_an_agent_from_a_file_answers(tmp_path: Path) -> None:
    write(
        tmp_path / "agents" / "a.yaml",
        "agents: {parrot: {prompt: x, engine: echo, tools: [ask_user, other]}, other: {prompt: x, engine: echo}}",
    )
    agents = agents_in(tmp_path)
    async with App(*agents.values()) as app:
        turn = await app.conversation(agent="parrot").send("Good morning")
        assert (await turn.result()).output == "Good morning"


def test_without_a_file_or_a_folder_there_are_no_agents(tmp_path: Path) -> None:
    assert load_agents(load(tmp_path, {"HOME": str(tmp_path)}), {}) == []
    assert agents_in(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents:\n  a:\n    promt: x", "a.yaml:3: 'agents.a.promt' is not known; did you mean 'prompt'?"),
        ("agents:\n  a:\n    prompt: 3", "a.yaml:3: 'agents.a.prompt' must be a text or a list, not 3"),
        ("agents:\n  a:\n    prompt: x\n    prompt: y", "a.yaml:4: 'prompt' is given twice: on line 3 and here"),
        ("agents:\n  a: {}\n  a: {}", "a.yaml:3: 'a' is given twice: on line 2 and here"),
        ("agents:\n  a b: {}", "a.yaml:2: 'a b' is not a valid agent name"),
        ("agents:\n  finish: {}", "a.yaml:2: 'finish' is the name of a built-in tool; choose another name"),
        ("agent:\n  a: {}", "a.yaml:1: 'agent' is not known here; put agents below the key 'agents'"),
        ("agents: [a]", "a.yaml:1: 'agents[0]' must be a table of keys and values, not 'a'"),
        ("agents: {}", "a.yaml:1: has no agents; write them as"),
        ("", "a.yaml: has no agents; write them as"),
        ("agents:\n  a: x", "a.yaml:2: 'agents.a' must be a table of keys and values, not 'x'"),
        (
            "agents:\n  a:\n    prompt:\n    - {id: x, role: sytem}",
            "a.yaml:4: 'agents.a.prompt[0].role' must be one of 'system', 'user', 'assistant', not 'sytem'; "
            "did you mean 'system'?",
        ),
        ("agents:\n  a:\n    prompt:\n    - {text: x}", "a.yaml:4: in 'agents.a.prompt[0]', 'id' is missing"),
        (
            "agents:\n  a:\n    prompt:\n    - id: x\n    - id: y\n      children:\n      - id: x",
            "a.yaml:7: two pieces of the prompt have the id 'x': on line 4 and here",
        ),
        (
            "agents:\n  a:\n    prompt:\n    - id: x\n      children:\n      - id: history",
            "a.yaml:6: 'prompt[0].children[0]': the conversation's node must be at the top level of the prompt",
        ),
        ("agents:\n  a:\n    engine: opnai:x", "a.yaml:3: there is no engine 'opnai:x'; did you mean 'openai'?"),
        ("agents:\n  a:\n    tools:\n    - ask_usr", "a.yaml:4: there is no tool 'ask_usr'; did you mean 'ask_user'?"),
        ("agents:\n  a:\n    tools: [hlper]\n  helper:", "a.yaml:3: there is no tool 'hlper'; did you mean 'helper'?"),
        ("agents:\n  a:\n    tools: [finish, finish]", "a.yaml:3: agent 'a' has two tools named 'finish'"),
        ("agents:\n  a:\n    plugins:\n    - trimm", "a.yaml:4: there is no plugin 'trimm'; did you mean 'trim'?"),
        (
            "agents:\n  a:\n    plugins:\n    - trim:\n        shre: 1",
            "a.yaml:5: the plugin 'trim' has no parameter 'shre'; did you mean 'share'?",
        ),
        (
            "agents:\n  a:\n    plugins:\n    - approval:\n        default:\n          mode: ask",
            "a.yaml:6: 'default.mode' must be one of 'auto', 'confirm', not 'ask'",
        ),
        (
            "agents:\n  a:\n    plugins: [{log: {x: 1}}]",
            "a.yaml:3: the plugin 'log' has no parameter 'x'; it takes none",
        ),
        ("agents:\n  a:\n    limits:\n      round: 1", "a.yaml:4: 'agents.a.limits.round' is not known; did you mean"),
        ("agents:\n  a:\n    options: {temperature: hot}", "a.yaml:3: 'agents.a.options.temperature' must be a number"),
        ("agents:\n  a:\n    inputs: {city: Bonn}", "a.yaml:3: 'agents.a.inputs.city' must be a table"),
        ("agents:\n  a:\n    description: ${NOBODY}", "a.yaml:3: the variable NOBODY is not set"),
        ("agents:\n  a:\n    model: echo", "a.yaml:3: 'agents.a.model' is not known; write it as 'engine'"),
        (
            "agents:\n  a:\n    temperature: 1",
            "a.yaml:3: 'agents.a.temperature' is not known; write it below 'options'",
        ),
        (
            "agents:\n  a:\n    description: fine: really",
            "a.yaml:3: this is not valid YAML: mapping values are not allowed here; put a text with a colon in quotes",
        ),
        ("agents:\n  a: {tools: [x", "a.yaml:2: this is not valid YAML: while parsing a flow sequence"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line_and_the_nearest_word(tmp_path: Path, text: str, said: str) -> None:
    assert said_of(tmp_path, text).startswith(said)


def test_a_function_of_the_project_that_is_named_as_a_tool_is_found(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text('def roll_dice() -> int:\n    "Roll."\n    return 4\n')
    said = said_of(tmp_path, "agents:\n  a:\n    tools: [roll_dice]")
    assert said == "a.yaml:3: there is no tool 'roll_dice'; write 'tools:roll_dice' for the one in tools.py"


def test_a_markdown_agent_says_its_mistakes_with_lines_of_the_whole_file(tmp_path: Path) -> None:
    assert said_of(tmp_path, "---\ntols: []\n---\nx", "a.md").startswith("a.md:2: 'tols' is not known; did you mean")
    assert said_of(tmp_path, "---\nprompt: x\n---\ny", "a.md").startswith("a.md:2: 'prompt' is given twice")
    assert said_of(tmp_path, "---\nname: a\n---\n\nHi ${NOBODY}", "a.md").startswith("a.md:5: the variable NOBODY")
    assert said_of(tmp_path, "Just text", "a.md").startswith("a.md: has no front matter; start it with")


def test_two_files_with_the_same_agent_name_both_places(tmp_path: Path) -> None:
    write(tmp_path / "agents" / "a.yaml", "agents:\n  helper: {}")
    said = said_of(tmp_path, "agents:\n\n  helper: {}", "b.yaml")
    assert said.startswith("b.yaml:3: there is another agent 'helper' at ")
    assert said.endswith("a.yaml:2; rename one")


def test_a_default_agent_that_does_not_exist_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "agents" / "a.yaml", "agents: {helper: {}}")
    said = sentence(lambda: agents_in(tmp_path, toml='\nagent = "helpr"'))
    assert said == "rondel.toml:1: there is no agent 'helpr'; did you mean 'helper'?"
    said = sentence(lambda: agents_in(tmp_path, RONDEL_AGENT="x"))
    assert said.startswith("the variable $RONDEL_AGENT: there is no agent 'x'")


# --- import paths -----------------------------------------------------------------------------------------------------

MODULE = '''
import rondel.plugin
from rondel.agent import Agent
from rondel.tool import tool

def lookup(city: str) -> str:
    """Look up a city."""
    return city

made = tool(name="made")(lambda: 1)
inner = Agent("inner")
class Box:
    lookup = staticmethod(lookup)
def greedy(*words: str) -> str: return ""
class Terse(rondel.plugin.Plugin):
    def __init__(self, words: int, *, extra: "Unknown | None" = None) -> None: self.words = words
number = 3
'''


def with_tool(folder: Path, module: str, tool: str, kind: str = "tools") -> Agent:
    write(folder / "weather_of_test.py", module)
    write(folder / "agents" / "a.yaml", f"agents:\n  a:\n    {kind}: ['{tool}']\n    prompt: x")
    return agents_in(folder)["a"]


def test_functions_tools_and_agents_of_the_project_are_tools(tmp_path: Path) -> None:
    agent = with_tool(tmp_path, MODULE, "weather_of_test:lookup', 'weather_of_test:made', 'weather_of_test:inner")
    assert [tool.name for tool in agent.tools if isinstance(tool, Tool)] == ["lookup", "made", "inner"]
    (tool,) = with_tool(tmp_path, MODULE, "weather_of_test:Box.lookup").tools
    assert isinstance(tool, Tool)
    assert tool.description == "Look up a city."


@pytest.mark.parametrize(
    ("module", "tool", "said"),
    [
        (MODULE, "weather_of_tst:lookup", "there is no module 'weather_of_tst'; did you mean 'weather_of_test'?"),
        (MODULE, "weather_of_test:lokup", "'weather_of_test' has no 'lokup'; did you mean 'lookup'?"),
        (MODULE, "weather_of_test:number", "'weather_of_test:number' is not a tool but an int; name a function"),
        (MODULE, "weather_of_test:Box", "'weather_of_test:Box' is not a tool but a class (Box)"),
        (
            MODULE,
            "weather_of_test:greedy",
            "'weather_of_test:greedy' cannot be a tool: tool 'greedy': parameter 'words'",
        ),
        (MODULE, "weather_of_test:", "'weather_of_test:' is not an import path; write it as module:attribute"),
        ("import nowhere_at_all", "weather_of_test:x", "cannot be imported: there is no module 'nowhere_at_all'"),
        ("def x(:", "weather_of_test:x", "the module 'weather_of_test' cannot be imported: invalid syntax ("),
        ("\n\n1 / 0", "weather_of_test:x", "cannot be imported: ZeroDivisionError: division by zero ("),
        (
            "from rondel.agent import Agent\nAgent('a b')",
            "weather_of_test:x",
            "RondelError: 'a b' is not a valid agent name",
        ),
        ("raise SystemExit('bye')", "weather_of_test:x", "cannot be imported: SystemExit: bye ("),
    ],
)
def test_an_import_that_fails_is_one_sentence_with_the_agent_file_and_line(
    tmp_path: Path, module: str, tool: str, said: str
) -> None:
    text = sentence(lambda: with_tool(tmp_path, module, tool))
    assert text.startswith("a.yaml:3: ")
    assert said in text


def test_a_module_of_the_project_that_another_one_hides_is_told(tmp_path: Path) -> None:
    write(tmp_path / "json.py", "def x(): ...")
    write(tmp_path / "agents" / "a.yaml", "agents:\n  a:\n    tools: ['json:x']")
    assert "another module of that name is already loaded" in sentence(lambda: agents_in(tmp_path))


def test_a_plugin_of_the_project_is_made_with_its_parameters(tmp_path: Path) -> None:
    write(tmp_path / "weather_of_test.py", MODULE)
    path = write(
        tmp_path / "agents" / "a.yaml",
        "agents:\n  a:\n    plugins:\n    - weather_of_test:Terse: {words: 3}\n    prompt: x",
    )
    (plugin,) = agents_in(tmp_path)["a"].plugins
    assert plugin.words == 3  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    write(path, "agents:\n  a:\n    plugins:\n    - weather_of_test:Terse")
    said = sentence(lambda: agents_in(tmp_path))
    assert said == "a.yaml:4: the plugin 'weather_of_test:Terse' needs the parameter 'words'"
    write(path, "agents:\n  a:\n    plugins: ['weather_of_test:number']")
    assert "is not a plugin: 3 is not a subclass of rondel.Plugin" in sentence(lambda: agents_in(tmp_path))
