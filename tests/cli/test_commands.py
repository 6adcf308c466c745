"""The other commands, each as a person types it: what it prints, what it says when something is wrong, how it ends."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

import rondel.project.engines
from rondel import Agent, App, __version__
from rondel.cli._options import CommandGroup
from rondel.cli._project import Opened
from rondel.cli.chat import opening
from rondel.cli.program import COMMANDS, program
from rondel.contracts.store import ConversationInfo
from rondel.engines.local.weights import DEFAULT, path_of
from rondel.errors import install_extra
from rondel.testing import Echo
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.engines_local.gguf import gguf


def test_the_version_is_printed(place: Place):
    assert place.rondel("-V").out == place.rondel("--version").out == f"rondel {__version__}\n"


def test_help_lists_every_command(place: Place):
    shown = place.rondel("help")
    assert shown.code == 0
    for command in ("chat", "run", "conversations", "resume", "trace", "plugins", "doctor", "init", "config", "model"):
        assert f"\n  {command} " in shown.out
    assert place.rondel("--help").out == shown.out
    assert place.rondel("help", "run").out == place.rondel("run", "--help").out
    assert "did you mean 'run'" in place.rondel("help", "rnu").err.lower()


def test_the_list_of_commands_has_each_command_s_own_short_help():
    context = program.make_context("rondel", [], resilient_parsing=True)
    for name, help in COMMANDS.items():
        command = program.get_command(context, name)
        assert (command is not None and command.get_short_help_str(200)) == help


GROUPS = ("conversations", "discord", "jobs", "knowledge", "mcp", "model")


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_has_whole_sentences_and_the_options_that_work_without_a_command(place: Place, group: str):
    shown = place.rondel(group, "--help").out
    assert "..." not in shown.partition("Commands:")[2]
    context = program.make_context("rondel", [], resilient_parsing=True)
    commands = program.get_command(context, group)
    assert isinstance(commands, CommandGroup)
    for option in commands.commands[commands.default].params:
        if isinstance(option, click.Option):
            assert option.opts[0] in shown


def test_doctor_recommends_the_better_model_unless_the_other_one_was_chosen(place: Place):
    pytest.importorskip("xllamacpp")
    shown = " ".join(place.rondel("doctor").out.split())
    assert "no model is downloaded; `rondel model pull qwen2.5-coder-1.5b` (1.1 GB)" in shown
    place.write("rondel.toml", 'engine = "local:smollm2-135m"')
    shown = " ".join(place.rondel("doctor").out.split())
    assert "but it is not downloaded; `rondel model pull smollm2-135m` (98 MB)" in shown


def test_doctor_says_that_the_store_cannot_be_created(place: Place):
    place.env["RONDEL_STORE"] = os.environ["RONDEL_STORE"] = str(place.write("a-file", "") / "deeper" / "rondel.db")
    shown = " ".join(place.rondel("doctor").out.split())
    assert "✗ store" in shown
    assert "cannot be created" in shown
    assert "RONDEL_STORE" in shown


def test_init_prints_a_command_that_a_shell_understands_and_asks_for_no_trust_that_is_there(place: Place):
    place.distrusts()
    made = place.rondel("init", "my trip")
    assert "Next: `cd 'my trip' && rondel`" in made.err
    again = place.rondel("init", "my trip")
    assert "kept" in again.err
    assert "rondel trust" not in again.err


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ('{"dir_info": {"editable": true}, "url": "file:///rondel"}', "pip install -e '.[discord]'"),
        ('{"dir_info": {}, "url": "file:///rondel"}', "pip install '.[discord]'"),
        (None, "pip install '.[discord]'"),
    ],
)
def test_an_extra_keeps_an_editable_installation_editable(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, command: str
):
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return origin

    def installed(name: str) -> Installed:
        return Installed()

    monkeypatch.setattr(importlib.metadata, "distribution", installed)
    assert install_extra("discord") == f"{command} in a checkout"


@pytest.mark.parametrize(("mark", "tool"), [("pipx_metadata.json", "pipx"), ("uv-receipt.toml", "uv tool")])
def test_pip_is_not_recommended_where_another_tool_installed_rondel(
    place: Place, monkeypatch: pytest.MonkeyPatch, mark: str, tool: str
):
    """Their environments are their own: what pip installs in a checkout, Rondel does not find."""
    monkeypatch.setattr(rondel.project.engines, "has_runtime", lambda: False)
    before = place.rondel("hello").err
    assert install_extra("local") in before
    monkeypatch.setattr(sys, "prefix", str(place.folder))
    (place.folder / mark).touch()
    assert place.rondel("hello").err.removeprefix(before) == (
        f"Instead of `pip install`, use `{tool} install --force`, which made this installation, "
        "and name all extras that you need.\n"
    )
    assert f"`{tool} install --force`" in place.rondel("doctor").err


def test_the_way_to_ask_a_single_word_names_the_agent_that_would_answer(place: Place):
    place.write("rondel.toml", "")
    place.write("agents/host.md", "---\n---\nYou are a host.\n")
    said = place.rondel("version")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith('To ask it anyway: rondel run host "version"\n')
    assert place.rondel("run", "host", "version", "--engine", "echo").out == "version\n"
    assert place.rondel("--engine", "echo", "hello").out == "hello\n"
    assert place.rondel("--engine", "echo", "which version is this").out == "which version is this\n"


def test_a_preview_of_a_prompt_is_made_for_the_engine_that_is_asked_for(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    assert json.loads(place.rondel("prompt", "rondel", "hi", "--json").out)["engine"] == "echo"
    asked = place.rondel("prompt", "rondel", "hi", "-e", "anthropic:claude-x", "--json")
    assert json.loads(asked.out)["engine"] == "anthropic:claude-x"
    assert (
        "there is no engine 'opnai:x'; did you mean 'openai'?"
        in place.rondel("prompt", "rondel", "hi", "-e", "opnai:x").err
    )


def test_a_model_that_is_there_is_not_said_to_be_downloaded(place: Place):
    file = place.write("tiny.gguf", "")
    file.write_bytes(gguf())
    assert "Downloaded tiny to" in place.rondel("model", "pull", str(file)).err
    assert "tiny is already there: " in place.rondel("model", "pull", "tiny").err


@pytest.mark.parametrize(
    ("target", "said"),
    [(">&-", "rondel: stdout is closed; "), ("> /dev/full", "rondel: the output could not be written: ")],
)
def test_output_that_goes_nowhere_is_an_error_of_one_sentence(place: Place, target: str, said: str):
    command = f"{sys.executable} -m rondel run rondel hello --engine echo {target}"
    env = {**place.env, "PYTHONPATH": str(Path(rondel.__file__).parents[1])}
    done = subprocess.run(
        ["sh", "-c", command], cwd=place.project, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_the_text_of_help_itself_is_written_like_that_of_other_options(place: Place):
    for arguments in (["--help"], ["run", "--help"], ["jobs", "--help"], ["jobs", "list", "--help"]):
        assert "show this help\n" in place.rondel(*arguments).out


@pytest.mark.parametrize("command", ["usage", "conversations"])
def test_a_command_that_only_reads_needs_no_secret(place: Place, command: str):
    place.write("rondel.toml", 'engine = "echo"\n[gateway.keys.work]\nkey = "${WORK_KEY}"\n')
    assert place.rondel(command).code == 0
    asked = place.rondel("run", "rondel", "hello")
    assert (asked.code, asked.err) == (
        2,
        f"rondel: {place.project / 'rondel.toml'}:3: the variable WORK_KEY is not set; set it\n",
    )
    place.write("rondel.toml", 'engin = "echo"\n[gateway.keys.work]\nkey = "${WORK_KEY}"\n')
    assert "'engin' is not known; did you mean 'engine'?" in place.rondel(command).err


def test_a_file_behind_a_question_is_attached_with_an_option(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.write("my notes.md", "")
    said = place.rondel("--engine", "echo", "sum up", "my notes.md")
    assert (said.code, said.err) == (
        2,
        "rondel: got unexpected extra argument (my notes.md); attach it with -f 'my notes.md'\n",
    )


def test_a_conversation_of_another_project_is_not_continued_with_another_agent(place: Place):
    place.rondel("--engine", "echo", "mine")
    place.write("rondel.toml", "")
    place.write("agents/host.md", "---\ndescription: A host\n---\nYou are a host.\n")
    place.write("agents/cook.md", "---\ndescription: A cook\n---\nYou cook.\n")
    assert place.rondel("run", "host", "of the host", "--engine", "echo").code == 0
    (place.project / "agents/host.md").unlink()
    id = json.loads(place.rondel("conversations", "--json").out)[0]["id"]
    for arguments in (["resume", id], ["run", "--conversation", id, "again"], ["chat", "--conversation", id]):
        refused = place.rondel(*arguments, "--engine", "echo")
        assert (refused.code, refused.out) == (1, "")
        assert "with the agent 'host', which is not in this project; continue it in the folder of its" in refused.err
    last = place.rondel("--engine", "echo", "-c", "and on")
    assert last.out == "and on\n"
    assert last.err == "rondel: this conversation is with rondel, which answers\n"
    assert "mine" in place.rondel("trace", "last").out


def test_a_conversation_is_found_by_the_beginning_of_the_id_that_is_shown(place: Place):
    place.rondel("--engine", "echo", "hello")
    id = json.loads(place.rondel("conversations", "--json").out)[0]["id"]
    assert "hello" in place.rondel("trace", id[-10:-6]).out


def test_agents_in_a_folder_without_a_configuration_are_not_read_and_the_error_says_so(place: Place):
    """The pages of the documentation show files in agents/; without a rondel.toml beside them there is no project."""
    place.write("agents/host.md", "---\n---\nYou are a host.\n")
    said = place.rondel("run", "host", "hello", "--engine", "echo")
    assert said.code == 2
    assert "there is no agent 'host'" in said.err
    assert "agents/ is not read without a rondel.toml beside it; `rondel init` writes one" in said.err
    place.write("rondel.toml", "")
    assert place.rondel("run", "host", "hello", "--engine", "echo").out == "hello\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doktor"], "'doktor' is not a command; did you mean `rondel doctor`? To ask it anyway: rondel run rondel"),
        (["rnu"], "'rnu' is not a command; did you mean `rondel run`?"),
        (["rum"], "'rum' is not a command; did you mean `rondel run`?"),
        (["-e", "echo", "version"], "'version' is not a command; did you mean `rondel --version`?"),
        (["history"], "'history' is not a command; did you mean `rondel conversations`?"),
        (["what is it", "README.md"], "got unexpected extra argument (README.md); put text of several words in quotes"),
        (["what", "is", "it"], "got unexpected extra arguments (is it); put text of several words in quotes"),
        (["run", "rondel", "hi", "--engin", "echo"], "no such option '--engin'; did you mean '--engine'?"),
        (["model", "pul"], "there is no command 'pul'; did you mean 'pull'?"),
        (["serve", "--port", "80x"], "invalid value for '--port' / '-p': '80x' is not a number from 0 to 65535"),
        (["conversations", "list", "-n", "x"], "'x' is not a number, 1 or more"),
        (["jobs", "frobnicate"], "; see `rondel jobs --help`"),
        (["run", "rondel", "hi", "--bogus"], "no such option '--bogus'; see `rondel run --help`"),
        (["prompt", "rondel"], "missing argument 'TEXT'; see `rondel prompt --help`"),
        (["run", "rondel", "hi", "you"], "got unexpected extra argument (you); put text of several words in quotes"),
        (["jobs", "show"], "missing argument 'ID'; see `rondel jobs show --help`"),
        (["chat", "--new", "--continue"], "use only one of --new, --continue and --conversation"),
        (["conversations", "--limit", "many"], "invalid value for '--limit'"),
    ],
)
def test_wrong_usage_is_one_sentence_with_the_nearest_word_and_2(place: Place, arguments: list[str], said: str):
    done = place.rondel(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_a_broken_configuration_is_one_sentence_with_its_line(place: Place):
    place.write("rondel.toml", "engine = \n")
    for command in (["config"], ["run", "rondel", "hi"], ["conversations"], ["plugins"]):
        done = place.rondel(*command)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "rondel.toml:1: " in done.err
    assert place.rondel("doctor").code == 1


def test_debug_shows_the_traceback(place: Place):
    done = place.spawn("run", "nobody", "hi", RONDEL_DEBUG="1")
    assert "Traceback" in done.err
    assert done.code == 2


def test_conversations_are_listed_newest_first(place: Place):
    assert "No conversations yet" in place.rondel("conversations").out
    for text in ("the first", "the second", "the third"):
        place.rondel("run", "rondel", text, "--engine", "echo")
    shown = place.rondel("conversations", "--limit", "2").out
    assert shown.index("the third") < shown.index("the second")
    assert "the first" not in shown
    assert "\x1b" not in shown
    listed = json.loads(place.rondel("conversations", "--json").out)
    assert [info["title"] for info in listed] == ["the third", "the second", "the first"]
    assert {info["state"] for info in listed} == {"done"}


def test_a_trace_is_a_tree_json_or_markdown(place: Place, server: ModelServer):
    place.uses(server)
    server.calls("calculate", "k", expression="6*7")
    server.says("42")
    place.rondel("run", "rondel", "six times seven")
    tree = place.rondel("trace", "last").out
    assert "└── rondel six times seven" in tree
    assert 'calculate {"expression":"6*7"}' in tree
    assert "output: 42" in tree
    assert "instructions" not in place.rondel("trace", "last", "--short").out
    assert place.rondel("trace", "last", "--markdown").out.startswith("# Agent Trace: rondel")
    assert json.loads(place.rondel("trace", "last", "--json").out)["children"][0]["input"] == "six times seven"


def test_a_missing_conversation_is_named(place: Place):
    nothing = place.rondel("trace", "last")
    assert (nothing.code, "there are no conversations yet" in nothing.err) == (1, True)
    place.rondel("run", "rondel", "hi", "--engine", "echo")
    place.rondel("run", "rondel", "ho", "--engine", "echo")
    missing = place.rondel("trace", "zzz")
    assert (missing.code, "there is no conversation 'zzz'" in missing.err) == (1, True)
    many = place.rondel("trace", "c_")
    assert (many.code, "'c_' matches 2 conversations" in many.err) == (1, True)


def test_plugins_are_shown_in_their_order(place: Place):
    place.write("rondel.toml", 'plugins = ["mine:Terse"]\n')
    place.write(
        "mine.py",
        "import rondel\n\nclass Terse(rondel.Plugin):\n    async def on_prompt(self, turn, prompt):\n"
        '        return prompt.instruct("Be brief.")\n',
    )
    listed = json.loads(place.rondel("plugins", "--json").out)
    names = [plugin["name"] for plugin in listed["plugins"]]
    assert names.index("limits") < names.index("approval") < names.index("terse") < names.index("trim")
    by_name = {plugin["name"]: plugin for plugin in listed["plugins"]}
    assert by_name["approval"]["required"]
    assert by_name["terse"]["hooks"] == ["on_prompt"]
    shown = place.rondel("plugins").out
    assert "terse" in shown
    assert "Prompts and calls pass down" in shown


def test_the_doctor_says_what_answers_and_hides_keys(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    done = place.rondel("doctor", "--json")
    findings = json.loads(done.out)
    assert done.code == 0
    assert findings[-1]["what"] == "answers"
    assert "OPENAI_API_KEY is set" in findings[-1]["text"]
    assert "secret" not in done.out
    assert "rondel model pull" in place.rondel("doctor").out


def test_the_doctor_checks_the_keys_of_image_engines(place: Place):
    place.write(
        "rondel.toml",
        """
[images]
engine = "openai:gpt-image-1"
fallback = ["mine:flux"]

[engines.mine]
base_url = "http://127.0.0.1:9000/v1"
""",
    )
    findings = json.loads(place.rondel("doctor", "--json").out)
    missing, found = [finding for finding in findings if finding["what"] == "images"]
    assert (missing["verdict"], missing["text"]) == ("missing", "openai:gpt-image-1 has no key")
    assert missing["remedy"] == "set OPENAI_API_KEY, or `key` under [engines.openai]"
    assert (found["verdict"], found["text"]) == ("ok", "mine:flux at 127.0.0.1:9000")


def test_without_an_embedder_the_doctor_sync_and_search_say_once_that_only_words_are_searched(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    place.write("rondel.toml", '[knowledge.plain]\nfolders = ["plain"]\nembedder = "none"\n')
    place.write("plain/a.md", "Bread needs time.")

    def knowledge() -> list[tuple[str, str]]:
        findings = json.loads(place.rondel("doctor", "--json").out)
        return [(finding["verdict"], finding["text"]) for finding in findings if finding["what"] == "knowledge"]

    assert knowledge() == [("ok", "plain (plain): only words")]
    assert "Only words" not in place.rondel("knowledge", "sync").err
    place.write("documents/b.md", "Salt is for taste.")
    monkeypatch.setattr("rondel.engines.local.minilm.embedder.has_runtime", lambda: True)
    assert knowledge()[1] == ("ok", "documents (documents): words and meaning, with local:all-minilm-l6-v2")
    monkeypatch.setattr("rondel.engines.local.minilm.embedder.has_runtime", lambda: False)
    assert knowledge()[1] == ("missing", "documents (documents): only words, because no embedder is installed")
    for command in (("sync",), ("search", "salt")):
        said = place.rondel("knowledge", *command).err
        assert said.count("Only words are searched, because no embedder is installed; pip install '.[knowledge]'") == 1
    assert "Only words" not in place.rondel("knowledge", "search", "bread", "-b", "plain").err


def test_the_doctor_checks_the_engines_of_the_project_and_those_that_step_in_for_them(place: Place):
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as closed:
        up, down = (f"127.0.0.1:{server.getsockname()[1]}" for server in (listening, closed))
        closed.close()
        place.write(
            "rondel.toml",
            f"""
engine = "first"

[engines.first]
base_url = "http://{down}/v1"
model = "big"
fallback = ["second", "openai", "local:smollm2-135m", "echo"]

[engines.second]
base_url = "http://{up}/v1"
model = "big"
""",
        )
        findings = json.loads(place.rondel("doctor", "--json").out)
    assert [(one["verdict"], one["text"], one["remedy"]) for one in findings if one["what"] == "engine"] == [
        ("missing", f"nothing listens for first at {down}", "start its server"),
        ("ok", f"second at {up}", ""),
        ("missing", "openai has no key", "set OPENAI_API_KEY, or `key` under [engines.openai]"),
        (
            "missing",
            "local:smollm2-135m is not downloaded",
            f"`rondel model pull smollm2-135m` downloads {DEFAULT.size}",
        ),
    ]


def test_the_doctor_says_that_nothing_answers_if_all_that_would_are_missing(place: Place):
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as closed:
        up, down = (f"127.0.0.1:{server.getsockname()[1]}" for server in (listening, closed))
        closed.close()
        first = f'[engines.first]\nbase_url = "http://{down}/v1"\nmodel = "big"\n'
        second = f'[engines.second]\nbase_url = "http://{up}/v1"\nmodel = "big"\n'
        for fallback, code in ("", 1), ('"openai"', 1), ('"openai", "second"', 0), ('"echo"', 0):
            place.write("rondel.toml", f"{first}fallback = [{fallback}]\n{second}")
            done = place.rondel("doctor", "--json")
            last = json.loads(done.out)[-1]
            assert (done.code, last["verdict"]) == (code, "missing" if code else "ok"), fallback
            if code:
                assert last["text"].endswith(f"but nothing listens for first at {down}")
                assert last["remedy"] == "start its server"


def test_the_doctor_finds_a_damaged_store(place: Place):
    place.rondel("run", "rondel", "hi", "--engine", "echo")
    store = place.folder / "data" / "rondel" / "rondel.db"
    store.write_bytes(b"this is no database at all" * 100)
    findings = {finding["what"]: finding for finding in json.loads(place.rondel("doctor", "--json").out)}
    assert findings["store"]["verdict"] == "broken"
    listed = place.rondel("conversations")
    assert (listed.code, listed.err.count("\n")) == (1, 1)


def test_init_makes_a_project_that_works_and_changes_nothing_that_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    first = place.rondel("init", "new")
    assert (first.code, first.out) == (0, "")
    assert "cd new && rondel" in first.err
    monkeypatch.chdir(place.project / "new")
    assert place.rondel("run", "helper", "hi", "--engine", "echo").out == "hi\n"
    helper = place.project / "new" / "agents" / "helper.md"
    helper.write_text("---\n---\nMine.\n")
    again = place.rondel("init")
    assert (again.code, "kept" in again.err) == (0, True)
    assert helper.read_text() == "---\n---\nMine.\n"


def test_init_says_when_it_cannot_write(place: Place):
    place.write("blocked", "a file")
    done = place.rondel("init", "blocked")
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_config_shows_where_values_come_from_and_no_secret(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret-0123456789")
    place.write(
        "rondel.toml",
        'engine = "mine"\n[engines.mine]\nbase_url = "http://127.0.0.1:1"\nmodel = "m"\nkey = "${MY_KEY}"\n',
    )
    shown = place.rondel("config")
    assert shown.code == 0
    assert "secret" not in shown.out + shown.err
    rows = {row["key"]: row for row in json.loads(place.rondel("config", "--json").out)}
    assert rows["engine"]["source"].endswith("rondel.toml:1")
    assert rows["engines.mine.key"]["value"] == "***"
    assert rows["limits.rounds"]["source"] == "default"


def test_models_are_listed_and_removed(place: Place):
    assert "no" in place.rondel("model", "list").out
    path = path_of(DEFAULT)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(DEFAULT.size_bytes)  # a hole in the file system, no bytes
    assert json.loads(place.rondel("model", "list", "--json").out)[0]["present"]
    assert place.rondel("model", "remove", DEFAULT.name).code == 0
    assert not path.exists()
    gone = place.rondel("model", "remove", DEFAULT.name)
    assert (gone.code, "nothing to remove" in gone.err) == (1, True)
    unknown = place.rondel("model", "pull", "smolm2-135m")
    assert (unknown.code, "did you mean 'smollm2-135m'?" in unknown.err) == (2, True)


def test_a_model_says_how_it_calls_tools_and_why(place: Place):
    model = gguf(tokenizer__chat_template="{% for tool in tools %}{{ tool }}{% endfor %}")
    (place.project / "mine.gguf").write_bytes(model)
    assert place.rondel("model", "pull", "./mine.gguf").code == 0
    assert "native: its chat template has a format for tools" in place.rondel("model", "show", "mine").out
    assert "examples: this model was measured" in place.rondel("model", "show", "qwen2.5-coder-1.5b").out
    untried = json.loads(place.rondel("model", "show", "qwen3-4b", "--json").out)
    assert (untried["tool_format"], untried["tool_format_why"]) == (
        "",
        "its chat template decides, once it is downloaded",
    )


def test_a_piped_chat_is_plain_text_line_by_line(place: Place):
    done = place.spawn("--engine", "echo", stdin=b"**hello**\n/halp\n/tokens\nbye \xff\n")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\n**hello**\n" in done.out
    assert "did you mean '/help'?" in done.out
    assert "bye \ufffd" in done.out


def test_questions_of_a_piped_chat_are_answered_by_the_next_line(place: Place, server: ModelServer):
    place.uses(server)
    server.calls("ask_user", "q", question="Which colour?", options=["red", "blue"])
    server.says("Blue it is.")
    done = place.spawn("chat", stdin=b"paint\n2\n")
    assert "? Which colour?" in done.out
    assert "  2. blue" in done.out
    assert "Blue it is." in done.out


def test_a_question_from_before_is_answered_after_a_resume(place: Place, server: ModelServer):
    place.uses(server)
    server.calls("run_shell", "sh", command="echo it ran")
    server.says("It did.")
    assert place.rondel("run", "rondel", "run it").code == 3
    assert "waiting for you" in place.rondel("conversations").out
    done = place.spawn("resume", stdin=b"yes\n")
    assert '✓ run_shell(command="echo it ran")' in done.out
    assert "It did." in done.out
    assert place.rondel("resume", "nothing").code == 1


def test_the_first_lines_say_who_answers_why_and_what_would_be_better():
    app = App(Agent("a"), Agent("b"), engine=Echo())
    opened = Opened(app, "a", Echo(), "it is there", ("`rondel model pull big` gives more", "two", "three"))
    interrupted = ConversationInfo("c_0123456789abcdef", title="the plan", state="working")
    assert opening(opened, app.conversation(), interrupted, ("mind the file",)) == [
        "mind the file",
        "Using echo: it is there.",
        "`rondel model pull big` gives more.",
        "Two.",
        "The last conversation (the plan) was interrupted; `rondel resume 6789abcdef` continues it.",
        "/help lists the commands. Ctrl-C stops a turn, Ctrl-D quits.",
    ]
    other = opening(opened, app.conversation(agent="b"), None, ())
    assert other[0] == "b uses echo."


@pytest.mark.parametrize("stdin", [b"", None])
def test_a_chat_without_input_ends_at_once(place: Place, stdin: bytes | None):
    done = place.spawn("--engine", "echo", stdin=stdin)
    assert (done.code, done.err) == (0, "")


def test_colour_is_for_terminals_and_NO_COLOR_is_obeyed(place: Place):
    with place.terminal("conversations") as terminal:
        terminal.wait_for("No conversations yet")
        terminal.wait_end()
    place.rondel("run", "rondel", "hi", "--engine", "echo")
    with place.terminal("conversations", NO_COLOR="1") as terminal:
        terminal.wait_for("hi")
        terminal.wait_end()
        assert b"\x1b[32m" not in terminal.raw
    with place.terminal("conversations") as terminal:
        terminal.wait_for("hi")
        terminal.wait_end()
        assert b"\x1b[32m" in terminal.raw


def test_a_dumb_terminal_gets_plain_lines(place: Place):
    with place.terminal("--engine", "echo", TERM="dumb") as terminal:
        terminal.wait_for("Ctrl-D quits.\n›")
        terminal.type("**plain**", until="› **plain**\n\n**plain**\n›")
        terminal.press("\x03")
        assert terminal.wait_end() == 0
    assert b"\x1b" not in terminal.raw


def test_a_program_that_is_not_on_the_path_says_how_to_get_it_there(place: Place):
    program = Path(sys.executable).with_name("rondel")
    env = place.env | {"PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(program), "--engine", "echo"]
    shown = subprocess.run(command, cwd=place.project, env=env, input=b"", capture_output=True, timeout=60, check=True)
    hint = f'`rondel` is not on your PATH. In this shell: export PATH={program.parent}:"$PATH"'
    assert hint in " ".join(shown.stdout.decode().split())
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    shown = subprocess.run(command, cwd=place.project, env=env, input=b"", capture_output=True, timeout=60, check=True)
    assert b"on your PATH" not in shown.stdout


@pytest.mark.parametrize("group", ["conversations", "jobs", "knowledge", "mcp", "model"])
def test_a_group_without_a_command_lists_with_the_options_of_list(place: Place, group: str):
    place.write("documents/a.md", "# A\n")
    place.write("rondel.toml", 'engine = "echo"\n[knowledge.documents]\nfolders = ["documents"]\nembedder = "none"\n')
    assert place.rondel(group, "--json").out == place.rondel(group, "list", "--json").out != ""


def test_options_before_a_command_of_a_group_are_a_mistake(place: Place):
    said = place.rondel("model", "--json", "show", "smollm2-135m")
    assert (said.code, "options go after the command: rondel model show ..." in said.err) == (2, True)
