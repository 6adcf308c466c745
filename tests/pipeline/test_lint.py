"""`rondel lint`: all that is wrong with a project's files in one run, each on a line with its place."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Place

GOOD = "agents:\n  helper: {prompt: You help.}\n"


def lines_of(place: Place, *paths: str) -> list[str]:
    return place.rondel("lint", *paths).out.splitlines()


def test_all_mistakes_of_all_files_come_in_one_run_with_file_and_line(place: Place):
    place.write(
        "rondel.toml",
        'agent = "hlper"\nplugins = ["trimm", {name = "trim", shre = 1}]\n'
        "[engines.slow]\nprovider = 'nobody'\nidle_s = -1\nmodle = 'x'\n[limits]\nrounds = -1\n",
    )
    place.write(
        "agents/a.yaml",
        "agents:\n"
        "  helper:\n"
        "    promt: x\n"
        "    prompt:\n"
        "      - {id: tone, role: sytem}\n"
        "      - {id: rules, text: Be kind.}\n"
        "      - {id: rules, text: Be brief.}\n"
        "      - {id: 5}\n"
        "    tools: [ask_usr, 7, nobody]\n"
        "    engine: slow\n"
        "    limits: {rounds: '${NOBODY_SET_THIS}', calls: 2}\n"
        "    plugins:\n"
        "      - position: {target: tone, txt: x}\n"
        "      - trimmm\n"
        "  bad name: {}\n"
        "agent: {}\n",
    )
    place.write("agents/b.md", "---\ntols: []\n---\nYou are b.")
    place.write("agents/c.yaml", "agents: [\n")
    done = place.rondel("lint")
    assert done.code == 1
    places = [line.split(": ")[0] for line in done.out.splitlines()]
    assert [line for line in places if line.startswith("rondel.toml")] == [
        f"rondel.toml:{line}" for line in (1, 2, 2, 4, 5, 6, 8)
    ]
    assert [line for line in places if line.startswith("agents/a.yaml")] == [
        f"agents/a.yaml:{line}" for line in (3, 5, 7, 8, 9, 9, 9, 11, 13, 14, 15, 16)
    ]
    assert places[-2:] == ["agents/b.md:2", "agents/c.yaml:2"]
    assert all(": error: " in line for line in done.out.splitlines())
    assert done.err == "21 errors in 4 files.\n"


def test_what_follows_from_a_mistake_is_not_a_mistake_of_its_own(place: Place):
    place.write("rondel.toml", "[engines.slow]\nprovider = 'openai'\nmodel = 3\n")
    place.write("agents/a.yaml", "agents:\n  a: {prompt: x, engine: slow, limits: {rounds: '${UNSET}'}}\n")
    assert [line.split(": ")[0] for line in lines_of(place)] == ["rondel.toml:3", "agents/a.yaml:2"]
    place.write("rondel.toml", "[engines.slow\n")
    assert [line.split(": ")[0] for line in lines_of(place)] == ["rondel.toml:1", "agents/a.yaml:2"]


def test_all_wrong_parameters_of_a_plugin_are_told(place: Place):
    place.write("rondel.toml", "")
    place.write(
        "agents/a.yaml",
        "agents:\n  a:\n    prompt: x\n    plugins:\n"
        "      - respond:\n          nodes:\n"
        "            - id: frame\n"
        "              children: [{id: response, role: asistant}]\n"
        "            - {id: x, txt: y}\n"
        "          targt: x\n"
        "      - auto_reply: {trigger: {serch: x}, max: many}\n",
    )
    assert [line.split(": ")[0] for line in lines_of(place)] == [f"agents/a.yaml:{line}" for line in (8, 9, 10, 11, 11)]


def test_a_project_without_mistakes_is_told_so(place: Place):
    place.write("rondel.toml", 'agent = "helper"\n')
    place.write("agents/a.yaml", GOOD)
    done = place.rondel("lint")
    assert (done.code, done.out, done.err) == (0, "", "No problems in 2 files.\n")
    assert json.loads(place.rondel("lint", "--json").out) == []


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        (
            "position: {target: tne, text: x}",
            "8: warning: the plugin 'position' targets 'tne', which the prompt does not have",
        ),
        ("clock:\n          target: histry", "9: warning: the plugin 'clock' targets 'histry'"),
        (
            "position: {target: inner, text: x}",
            "8: warning: the plugin 'position' targets 'inner', but 'off' is not enabled, so it is not sent",
        ),
        ("position: {target: off, text: x, position: child}", "8: warning: the plugin 'position' targets 'off', but"),
        ("position: {target: off, text: x}", ""),
        ("position: {target: history, text: x, id: y}\n      - position: {target: y, text: z}", ""),
        ("position: {target: tone, text: x}\n      - position: {target: position-tone, text: z}", ""),
        ("respond: {nodes: [{id: response}], target: response}", ""),
        ("position: {target: tne, text: x}\n        enabled: false", ""),
    ],
)
def test_a_target_that_no_node_has_is_a_warning_with_its_line(place: Place, plugins: str, said: str):
    place.write("rondel.toml", "")
    place.write(
        "agents/a.yaml",
        "agents:\n  a:\n    prompt:\n"
        "      - {id: tone, text: Be kind.}\n"
        "      - {id: off, enabled: false, children: [{id: inner}]}\n"
        f"\n    plugins:\n      - {plugins}\n",
    )
    done = place.rondel("lint")
    assert done.code == 0
    assert done.out.startswith(f"agents/a.yaml:{said}" if said else "")
    assert done.err == ("1 warning in 2 files.\n" if said else "No problems in 2 files.\n")


def test_an_empty_prompt_and_a_secret_in_the_open_are_warnings(place: Place):
    place.write("rondel.toml", "[engines.openai]\nkey = 'hunter2'\n").chmod(0o644)
    place.write("agents/a.yaml", "agents:\n  a: {prompt: ''}\n  b: {prompt: [{id: x, text: ' '}]}\n")
    first, second, third = lines_of(place)
    assert first.startswith("rondel.toml:2: warning: 'engines.openai.key' is written out")
    assert second.startswith("agents/a.yaml:2: warning: the prompt of 'a' is empty")
    assert third.startswith("agents/a.yaml:3: warning: the prompt of 'b' is empty")
    assert "hunter2" not in first


def test_files_that_are_named_are_looked_at_alone(place: Place):
    place.write("rondel.toml", "engin = 'echo'\n")
    place.write("agents/a.yaml", "agents:\n  a: {promt: x, tools: [b]}\n")
    place.write("agents/b.yaml", "agents:\n  b: {promt: x}\n")
    place.write("drafts/c.yaml", "agents:\n  c: {promt: x, tools: [a]}\n")
    assert [line.split(": ")[0] for line in lines_of(place, "agents/a.yaml", "drafts/c.yaml", "rondel.toml")] == [
        "agents/a.yaml:2",
        "agents/a.yaml:2",
        "drafts/c.yaml:2",
        "drafts/c.yaml:2",
        "rondel.toml:1",
    ]
    assert lines_of(place, ".") == lines_of(place)


def test_the_problems_as_json(place: Place):
    place.write("rondel.toml", "")
    path = place.write("agents/a.yaml", "agents:\n  a:\n    promt: x\n")
    done = place.rondel("lint", "--json")
    assert done.code == 1
    assert json.loads(done.out)[1] == {
        "severity": "error",
        "message": "'agents.a.promt' is not known; did you mean 'prompt'?",
        "path": str(path),
        "line": 3,
    }


def test_what_cannot_be_looked_at_is_wrong_usage(place: Place):
    done = place.rondel("lint")
    assert (done.code, done.out) == (2, "")
    assert "there is no rondel.toml in" in done.err
    assert "there is no file or folder" in place.rondel("lint", "nowhere.yaml").err
    place.write("a.txt", "")
    assert "is neither an agent's file (.yaml, .json, .md) nor a rondel.toml" in place.rondel("lint", "a.txt").err
    place.write("alone.yaml", GOOD)
    assert place.rondel("lint", "alone.yaml").err == "No problems in 1 file.\n"


def test_a_default_agent_from_a_variable_is_checked_too(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.write("rondel.toml", "")
    place.write("agents/a.yaml", GOOD)
    monkeypatch.setenv("RONDEL_AGENT", "helpr")
    assert lines_of(place) == ["error: the variable $RONDEL_AGENT: there is no agent 'helpr'; did you mean 'helper'?"]


# --- what a start would refuse, or what would have no effect ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[discord]\nagent = "helper"\nextensions = ["event"]\n',
            "3: error: there is no extension 'event', neither beside rondel.toml nor installed; did you mean 'events'?",
        ),
        ('[discord]\nextensions = ["events", "cogs.fun", "json"]\n', ""),
        ('[discord]\nextensions = ["nowhere.at.all"]\n', "2: error: there is no extension 'nowhere.at.all', neither"),
        ('[discord]\nagent = "helpr"\n', "2: error: there is no agent 'helpr'; did you mean 'helper'?"),
        (
            '[discord]\n[[discord.rules]]\nagent = "helpr"\n',
            "3: error: there is no agent 'helpr'; did you mean 'helper'?",
        ),
        ('[discord.modes.x]\nagent = "helpr"\n', "2: error: there is no agent 'helpr'; did you mean 'helper'?"),
        ('[discord]\nagent = "rondel"\n', ""),
        (
            '[gateway.keys.ada]\nkey = "k"\nmodels = ["local", "small"]\n',
            "3: warning: the key 'ada' may use 'small', but no engine, model, agent or knowledge base has that name; ",
        ),
        ('[gateway.keys.ada]\nkey = "k"\nmodels = ["helper"]\n', "3: warning: the key 'ada' may use 'helper', but"),
        (
            '[gateway.keys.ada]\nkey = "k"\nmodels = ["agent:helpr"]\n',
            "3: warning: the key 'ada' may use 'agent:helpr'",
        ),
        ('[gateway.keys.ada]\nkey = "k"\nmodels = ["wrk:*"]\n', "3: warning: the key 'ada' may use 'wrk:*'"),
        (
            '[gateway.keys.ada]\nkey = "k"\n'
            'models = ["agent:*", "agent:helper", "openai:*", "gpt-5-mini", "claude-haiku*", "knowledge:*", "*"]\n',
            "",
        ),
        (
            '[engines.mine]\nbase_url = "http://127.0.0.1:9/v1"\n',
            "2: error: no model is set for the engine 'mine'; write mine:<model>, or `model` under [engines.mine]\n",
        ),
        ('engine = "mine:x"\n[engines.mine]\nbase_url = "http://127.0.0.1:9/v1"\n', ""),
        ('[engines.mine]\nbase_url = "http://127.0.0.1:9/v1"\nprovider = "ollama"\n', ""),
        ("[ledger.limits]\ntokens = 5\n", "1: error: 'ledger.limits' is a list: write [[ledger.limits]], with two bra"),
        ("[discord.rules]\nmode = 'x'\n", "1: error: 'discord.rules' is a list: write [[discord.rules]], with two bra"),
        ("[gateway.keys.ada]\nkey = 'k'\nbudget.window = 'day'\n", "3: error: the budget of 'ada' has no limit; give"),
        ('[engines.openai]\nkey = "${LINT_KEY}"\n', "2: error: the variable LINT_KEY is not set; set it\n"),
    ],
)
def test_what_a_start_would_refuse_is_a_problem_with_its_line(place: Place, text: str, said: str):
    place.write("rondel.toml", text).chmod(0o600)
    place.write("events.py", "")
    place.write("cogs/fun.py", "")
    place.write("handbook/a.md", "")
    place.write("knowledge/a.md", "")
    place.write("agents/a.yaml", GOOD)
    done = place.rondel("lint")
    assert done.out.startswith(f"rondel.toml:{said}" if said else "")
    assert done.out.count("\n") == bool(said)


def test_an_agent_whose_engine_has_no_model_is_an_error(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[engines.mine]\nbase_url = "http://127.0.0.1:9/v1"\n')
    place.write("agents/a.yaml", "agents:\n  helper: {prompt: You help., engine: mine}\n")
    (line,) = lines_of(place)
    assert line.startswith("rondel.toml:3: error: no model is set for the engine 'mine'")


def test_a_callers_key_that_others_can_read_is_an_error_as_for_the_gateway(place: Place):
    place.write("rondel.toml", '[gateway.keys.ada]\nkey = "hunter2-hunter2-hunter2"\n').chmod(0o644)
    done = place.rondel("lint")
    assert done.code == 1
    assert done.out.startswith("rondel.toml:2: error: 'gateway.keys.ada.key' is written out, and others can read")
    assert "hunter2" not in done.out


def test_a_variable_that_is_not_set_is_a_warning_where_the_project_is_not_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    text = '[engines.openai]\nkey = "${LINT_KEY}"\nbase_url = "${LINT_URL:-http://127.0.0.1:9}"\n'
    place.write("rondel.toml", text).chmod(0o600)
    said = "rondel.toml:2: warning: the variable LINT_KEY is not set; set it\n"
    place.distrusts()
    assert place.rondel("lint").out == said
    monkeypatch.setenv("LINT_KEY", "hunter2")
    assert place.rondel("lint").out == ""
