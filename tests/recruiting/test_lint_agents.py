"""The linter between agents: everything that is wrong, each with its line, and circles with their path."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from rondel.project.lint import lint


def problems(folder: Path, text: str, toml: str = "") -> list[str]:
    """`line: severity: message` of everything that is wrong with one file of agents."""
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "rondel.toml").write_text(toml)
    (folder / "agents" / "a.yaml").write_text(textwrap.dedent(text).lstrip("\n"))
    report = lint([folder], {"HOME": str(folder)})
    return [f"{problem.line}: {problem.severity}: {problem.message}" for problem in report.problems]


def test_agents_that_are_right_have_no_problem(tmp_path: Path):
    """S08"""
    text = """
        agents:
          boss:
            prompt: |
              You decide. {{ .Get "filler" }} {{ .Fact "boss.mood" }} {{ .Fact "mood.old" "none" }}
              {{ .Defer "clerk" }} {{ .Inputs "clerk" }} {{ .Start "clerk" }} {{ .Get "time.now" "UTC" }} {{ other }}
            listeners: [clerk, math.evaluate]
            facts: {mood: {scope: local}}
            inputs: {city: {}}
          filler: {template: 'In {{ .Input "city" }}.'}
          clerk: {prompt: You help., description: Helps, inputs: {what: {}}, job: [filler]}
    """
    assert problems(tmp_path, text) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "template: '{{ .Get \"bb\" }}'",
            "3: error: agent 'a' gets 'bb', and there is no such agent; did you mean 'b'?",
        ),
        (
            "template: '{{ .Get \"time.nwo\" }}'",
            "3: error: agent 'a' gets 'time.nwo', and there is no such agent; did you",
        ),
        ("prompt: '{{ .Defer \"x\" }}'", "3: error: agent 'a' offers 'x', and there is no such agent; available: a, b"),
        ("prompt: '{{ .Start \"x\" }}'", "3: error: agent 'a' starts 'x', and there is no such agent"),
        ("prompt: '{{ .Inputs \"x\" }}'", "3: error: agent 'a' asks about 'x', and there is no such agent"),
        ("prompt: '{{ .Fact \"x.y\" }}'", "3: error: the fact 'x.y' belongs to no agent; available: a, b"),
        ("prompt: '{{ .Fact \"b.nme\" }}'", "3: error: agent 'b' learns no fact 'nme'; did you mean 'name'?"),
        ("prompt: '{{ .Fact \"b.mood\" }}'", "3: error: the fact 'b.mood' is local: only agent 'b' sees it"),
        ("prompt: x\n    listeners: [x]", "4: error: agent 'a' cannot listen to 'x' (there is no such agent"),
        (
            "prompt: x\n    listeners: [b]",
            "4: error: agent 'a' cannot listen to 'b' (it has no description and inputs)",
        ),
        ("prompt: x\n    job: [x]", "4: error: there is no agent 'x'"),
        ("prompt: x\n    recruits: [x]\n    expands_output: true", "4: error: there is no agent 'x'"),
        ("alias: x", "3: error: there is no agent 'x'"),
        ("alias: a", "3: error: agent 'a' is an alias of itself"),
        ("template: '{{ .Get \"a\" }}'", "3: error: agent 'a' gets itself; name another agent"),
        ("prompt: x\n    job: [a]", "4: error: agent 'a' runs itself; name another agent"),
        (
            "prompt: x\n    template: y",
            "4: error: agent 'a' must have exactly one of prompt, template, alias, function; it",
        ),
        (
            "description: y",
            "2: error: agent 'a' must have exactly one of prompt, template, alias, function; it has none",
        ),
        (
            "prompt: x\n    facts: {f: {scope: all}}",
            "4: error: 'agents.a.facts.f.scope' must be one of 'global', 'local'",
        ),
        (
            'template: "{{ .Get }}"',
            "3: error: column 16: {{ .Get }} takes an agent and, if you like, its input; it has no",
        ),
        ('template: "{{ .AskUser "', "3: error: column 16: {{ .AskUser is cut off; end it with }}"),
        ("template: [x]", "3: error: 'agents.a.template' must be a text"),
        (
            "template: '{{ .Gte \"b\" }}'",
            "3: warning: column 16: {{ .Gte }} is not a directive and stays as it is; did you",
        ),
        (
            "template: x\n    listeners: [time.now]",
            "4: warning: agent 'a' is a template: it asks no model, so its listeners",
        ),
        ("template: x\n    tools: [calculate]", "4: warning: agent 'a' is a template: it asks no model, so its tools"),
        (
            "prompt: x\n    expands_output: true",
            "4: warning: agent 'a' expands its output but may not recruit any agent",
        ),
        (
            "prompt: x\n    recruits: [b]",
            "4: warning: agent 'a' has 'recruits', which only works with 'expands_output: true'",
        ),
        ("prompt: '{{ .Input \"city\" }}'", "3: warning: agent 'a' uses the input 'city', which it does not declare"),
        (
            "prompt: '{{ .Input \"cty\" }}'\n    inputs: {city: {}}",
            "3: warning: agent 'a' uses the input 'cty', which it does not declare; did you mean 'city'?",
        ),
        (
            "prompt: '{{ .Get \"text.replace\" }}'",
            "3: warning: agent 'a' gets 'text.replace' without text, find, which it needs; declare them, or write an",
        ),
        ("template: x", "2: warning: no agent names the template 'a', and it is not the project's agent"),
    ],
)
def test_each_thing_that_is_wrong_is_told_with_its_line(tmp_path: Path, body: str, said: str):
    """S08"""
    text = f"agents:\n  a:\n    {body}\n  b: {{prompt: hi, facts: {{name: {{}}, mood: {{scope: local}}}}}}\n"
    found = problems(tmp_path, text)
    assert any(one.startswith(said) for one in found), found


def test_circles_are_shown_with_their_path_each_once(tmp_path: Path):
    """S08: over directives, aliases, jobs and listeners alike."""
    text = """
        agents:
          a:
            template: |
              First
              {{ .Get "b" }}
          b: {alias: c}
          c: {prompt: x, job: [a, d], description: x, inputs: {x: {}}}
          d:
            prompt: x
            listeners:
              - c
          e: {template: '{{ .Get "a" }} {{ .Get "f" }}'}
          f: {prompt: '{{ .Defer "e" }}'}
          g: {prompt: '{{ .Get "a" }}'}
    """
    assert problems(tmp_path, text) == [
        "5: error: agents work for each other in a cycle: a -> b -> c -> a",
        "7: error: agents work for each other in a cycle: c -> d -> c",
        "12: error: agents work for each other in a cycle: e -> f -> e",
    ]


def test_everything_is_told_in_one_run(tmp_path: Path):
    """S08"""
    text = """
        agents:
          a:
            prompt: x
            template: '{{ .Get "a" }} {{ .Get "nobody" }}'
          b: {prompt: 'ok', job: [zebra]}
          c: {template: '{{ .Get'}
    """
    found = problems(tmp_path, text)
    assert [line.split(": ")[0] for line in found] == ["4", "4", "4", "5", "6", "6"]
    assert sum(": warning: " in line for line in found) == 1


@pytest.mark.parametrize(
    ("style", "line", "column"),
    [
        ("template: |\n      one\n      two {{ .Get }}", 5, 11),
        ("template: >-\n      one\n      two {{ .Get }}", 5, 11),
        ('template: "one {{ .Input }}\\n two {{ .Get }}"', 3, 39),
        ('template: "one\n      two {{ .Get }}"', 4, 11),
        ("template: one {{ .Input }} {{ .Get }}", 3, 32),
    ],
)
def test_a_directive_is_found_in_whatever_form_a_text_is_written(tmp_path: Path, style: str, line: int, column: int):
    """S08: syntax errors have a line and a column."""
    found = problems(tmp_path, f"agents:\n  a:\n    {style}\n")
    assert found[0].startswith(f"{line}: error: column {column}: {{{{ .Get }}}} takes an agent")


def test_the_projects_own_agent_is_used(tmp_path: Path):
    text = "agents:\n  a: {template: x}\n  b: {prompt: hi}\n"
    assert problems(tmp_path, text, toml='agent = "a"\n') == []
    assert problems(tmp_path, "agents:\n  a: {template: x}\n") == []


@pytest.mark.slow
def test_a_chain_of_thousands_of_agents_is_followed(tmp_path: Path):
    lines = [f"  a{n}: {{template: '{{{{ .Get \"a{n + 1}\" }}}}'}}" for n in range(2_000)]
    found = problems(tmp_path, "\n".join(("agents:", *lines, "  a2000: {template: '{{ .Get \"a0\" }}'}", "")))
    assert len(found) == 1
    assert found[0].startswith("2: error: agents work for each other in a cycle: a0 -> a1 -> a2 ")


def test_a_name_that_is_given_twice_hides_nothing_else(tmp_path: Path):
    text = """
        agents:
          one: {prompt: Hello, tools: [calculatte]}
          one: {prompt: Bye}
          two: {promt: Hello}
        ---
        agents:
          one: {prompt: Hi, tools: [curent_time]}
    """
    assert problems(tmp_path, text)[:5] == [
        "2: error: there is no tool 'calculatte'; did you mean 'calculate'?",
        "3: error: 'one' is given twice: on line 2 and here",
        "4: error: 'agents.two.promt' is not known; did you mean 'prompt'?",
        "4: warning: the prompt of 'two' is empty: its model gets only the messages",
        f"7: error: there is another agent 'one' at {tmp_path}/agents/a.yaml:2; rename one",
    ]
    assert problems(tmp_path, text)[5:] == ["7: error: there is no tool 'curent_time'; did you mean 'current_time'?"]
