"""`rondel.toml`: found, read, checked, and explained without a secret."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel.errors import ConfigError
from rondel.limits import Limits
from rondel.plugins.trim import Trim
from rondel.project.config import (
    _File,  # pyright: ignore[reportPrivateUsage]
    explain,
    load,
    plugins_of,
)
from rondel.project.config.shown import secrets_in
from rondel.project.settings import Config, GatewaySettings, LedgerSettings, PluginSettings
from rondel.values import Options

from .files import sentence, write

FULL = """
engine = "fast"
agent = "helper"
plugins = ["log", {name = "trim", share = 0.5}]

[engines.fast]
base_url = "http://user:hunter2@127.0.0.1:9/v1?sig=hunter2"
dialect = "openai-chat"
model = "${MODEL:-tiny}"
key = "${WORK_KEY}"
headers = {Authorization = "Bearer hunter2", X-Team = "hunter2"}
body = {service_tier = "flex", api_key = "hunter2"}
idle_s = 5
fallback = ["anthropic:claude-sonnet-5-5", "echo"]
retry = {attempts = 2}
facts = {window_tokens = 32768, tools = false}

[store]
path = "talks.db"
durability = "full"

[limits]
rounds = 7

[options]
temperature = 1
stop = ["END"]
"""


def project(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    write(tmp_path / "rondel.toml", text, mode)
    return tmp_path


def said_of(tmp_path: Path, text: str, **env: str) -> str:
    return sentence(lambda: load(project(tmp_path, text), {"HOME": str(tmp_path), **env}))


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    config = load(project(tmp_path, FULL), {"WORK_KEY": "hunter2", "HOME": "/home/x"})
    assert (config.engine, config.agent, config.project) == ("fast", "helper", str(tmp_path))
    fast = config.engines["fast"]
    assert (fast.model, fast.key, fast.idle_s, fast.retry.attempts) == ("tiny", "hunter2", 5.0, 2)
    assert fast.fallback == ("anthropic:claude-sonnet-5-5", "echo")
    assert (fast.facts.window_tokens, fast.facts.tools, fast.facts.images) == (32768, False, None)
    assert (config.store.path, config.store.durability) == (str(tmp_path / "talks.db"), "full")
    assert config.limits == Limits(rounds=7)
    assert config.options == Options(temperature=1.0, stop=("END",))
    assert [type(plugin).__name__ for plugin in plugins_of(config)] == ["Log", "Trim"]


def test_without_a_file_everything_is_default(tmp_path: Path) -> None:
    config = load(tmp_path, {"HOME": str(tmp_path)})
    assert (config.engine, config.engines, config.path, config.project) == ("", {}, "", "")
    assert config.store.path == str(tmp_path / ".local/share/rondel/rondel.db")
    assert {source for _, _, source in explain(config)} == {"default"}


def test_the_file_is_found_in_the_parents_up_to_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deep = home / "a" / "b"
    deep.mkdir(parents=True)
    write(tmp_path / "rondel.toml", 'engine = "openai"')
    env = {"HOME": str(home)}
    assert load(deep, env).engine == ""
    write(home / "rondel.toml", 'engine = "groq"')
    assert load(deep, env).engine == "groq"
    write(home / "a" / "rondel.toml", 'engine = "echo"')
    assert load(deep, env).engine == "echo"
    assert load(tmp_path, env).engine == "openai"


def test_the_user_file_is_taken_when_no_project_has_one(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    write(tmp_path / "xdg" / "rondel" / "rondel.toml", 'engine = "echo"')
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert load(tmp_path / "work", env).project == str(tmp_path / "xdg" / "rondel")
    write(tmp_path / ".config" / "rondel" / "rondel.toml", 'engine = "local"')
    assert load(tmp_path / "work", {"HOME": str(tmp_path)}).engine == "local"


def test_a_file_that_somebody_else_put_into_a_parent_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "rondel.toml", 'engine = "echo"', mode=0o644)
    (tmp_path / "work").mkdir()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    config = load(tmp_path / "work", {"HOME": str(tmp_path)})
    assert config.engine == ""
    assert config.warnings[0].endswith("belongs to another user and was skipped; copy it, or set RONDEL_CONFIG to it")
    assert load(tmp_path, {"HOME": str(tmp_path)}).engine == "echo"


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert sentence(lambda: load(env={})) == "the current folder no longer exists; change to one that does"


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "other.toml", 'engine = "echo"')
    assert load(tmp_path, {"RONDEL_CONFIG": str(path)}).engine == "echo"
    said = sentence(lambda: load(tmp_path, {"RONDEL_CONFIG": "/nowhere/x.toml"}))
    assert "RONDEL_CONFIG names '/nowhere/x.toml', which is not a file" in said


def test_variables_win_over_the_file_and_are_named_as_the_source(tmp_path: Path) -> None:
    env = {"RONDEL_ENGINE": "echo", "RONDEL_STORE": ":memory:", "HOME": "/home/x"}
    config = load(project(tmp_path, 'engine = "local"\n[store]\npath = "~/talks.db"'), env)
    rows = {key: (value, source) for key, value, source in explain(config)}
    assert rows["engine"] == ("echo", "$RONDEL_ENGINE")
    assert rows["store.path"] == (":memory:", "$RONDEL_STORE")
    assert load(tmp_path, {"HOME": "/home/x"}).store.path == "/home/x/talks.db"
    said = sentence(lambda: load(tmp_path, {"RONDEL_ENGINE": "antropic:x"}))
    assert said == "the variable RONDEL_ENGINE: there is no engine 'antropic:x'; did you mean 'anthropic'?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('engine = "echo"\nengin = 1', "rondel.toml:2: 'engin' is not known; did you mean 'engine'?"),
        ("[limits]\n\nround = 3", "rondel.toml:3: 'limits.round' is not known; did you mean 'rounds'?"),
        ("[options]\noutput = {}", "rondel.toml:2: 'options.output' is not known; available: "),
        ('[limits]\nrounds = "many"', "rondel.toml:2: 'limits.rounds' must be a whole number, not 'many'"),
        ("[limits]\nrounds = true", "rondel.toml:2: 'limits.rounds' must be a whole number, not True"),
        ("[limits]\nrounds = -1", "rondel.toml:2: 'limits.rounds' is -1; a limit is 0 or more"),
        ("[limits]\ncall_s = nan", "rondel.toml:2: 'limits.call_s' is nan; a limit is 0 or more"),
        ("limits = 3", "rondel.toml:1: 'limits' must be a table of keys and values, not 3"),
        ("engine = 3", "rondel.toml:1: 'engine' must be a text, not 3"),
        ('[options]\nstop = "x"', "rondel.toml:2: 'options.stop' must be a list, not 'x'"),
        ('[options]\nstop = [\n"x",\n1]', "rondel.toml:4: 'options.stop[1]' must be a text, not 1"),
        (
            '[options]\nthinking = "hihg"',
            "rondel.toml:2: 'options.thinking' must be one of 'off', 'minimal', 'low', 'medium', 'high', not 'hihg'; "
            "did you mean 'high'?",
        ),
        ('[store]\ndurability = "ful"', "rondel.toml:2: 'store.durability' must be one of 'normal', 'full', not 'ful'"),
        ('engine = "antropic:x"', "rondel.toml:1: there is no engine 'antropic:x'; did you mean 'anthropic'?"),
        (
            'engine = "local:smollm2"',
            "rondel.toml:1: there is no embedded model 'smollm2'; did you mean 'smollm2-135m'?",
        ),
        ("[engines.a]\nmodel = 'x'", "rondel.toml:1: the engine 'a' has neither a provider nor a base_url"),
        ("[engines.'a:b']\nmodel = 'x'", "rondel.toml:1: 'a:b' is not a valid engine name"),
        ("[engines.Agent]\nprovider = 'ollama'", "rondel.toml:1: 'Agent' is reserved: `agent:<name>` names an agent"),
        ("[engines.a]\nprovider = 'opnai'", "rondel.toml:2: there is no provider 'opnai'; did you mean 'openai'?"),
        ("[engines.a]\nbase_url = 'x'", "rondel.toml:2: 'x' is not a web address"),
        ("[engines.openai]\ndialect = 'openai'", "rondel.toml:2: there is no dialect 'openai'; did you mean 'openai-"),
        ("[engines.openai]\nidle_s = 0", "rondel.toml:2: 'engines.openai.idle_s' is 0.0; it must be more than 0"),
        ("[engines.openai]\nretry.attempts = 0", "rondel.toml:2: 'engines.openai.retry.attempts' is 0; it must be 1"),
        ("[engines.openai]\nkey = 12345", "rondel.toml:2: 'engines.openai.key' must be a text, not what it is"),
        (
            "[gateway.keys.x]\nkey = 'k'\nbudget.tokens = 1\nbudget.window = 'daily'",
            "rondel.toml:4: 'gateway.keys.x.budget.window' must be one of 'day', 'week', 'month', 'lifetime', "
            "not 'daily'",
        ),
        ("[gateway.keys.x]\nkey = 12345", "rondel.toml:2: 'gateway.keys.x.key' must be a text, not what it is"),
        ("[engines.openai]\nheaders.x = 1", "rondel.toml:2: 'engines.openai.headers.x' must be a text, not what it is"),
        ("[engines.openai]\nfallback = [\n'openai']", "rondel.toml:3: the engine 'openai' cannot be its own fallback"),
        ("[engines.openai]\nfallback = ['grok']", "rondel.toml:2: there is no engine 'grok'; did you mean 'groq'?"),
        ("[engines.openai]\nurl = ''", "rondel.toml:2: 'engines.openai.url' is not known; "),
        ("plugins = ['log',\n'trimm']", "rondel.toml:2: there is no plugin 'trimm'; did you mean 'trim'?"),
        ("plugins = [{}]", "rondel.toml:1: 'plugins[0]' names no plugin; write its name"),
        (
            "[engines.x]\nbase_url = 'http://['",
            "rondel.toml:2: 'http://[' is not a web address; write http://host:port",
        ),
        (
            "[engines.x]\nbase_url = 'http://h:p'",
            "rondel.toml:2: 'http://h:p' is not a web address; write http://host:",
        ),
        ("[telemetry]\nendpoint = 'http://['", "rondel.toml:2: 'http://[' is not a web address; write the collector's"),
        (
            "[knowledge.x]\nurls = ['http://[']",
            "rondel.toml:2: 'http://[' is not a web address; write http://host/path",
        ),
        ("plugins = [1]", "rondel.toml:1: 'plugins[0]' must be a text or a table of keys and values, not 1"),
        ("a = 1\na = 2", "rondel.toml:2: 'a' is set twice; remove one of them"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line_and_the_nearest_word(tmp_path: Path, text: str, said: str) -> None:
    assert said_of(tmp_path, text).startswith(said)


BESIDE = {
    "engines.x": "base_url = 'http://127.0.0.1:9'",
    "engines.x.prices.x": "input = 1\noutput = 1",
    "ledger.estimated_price": "input = 1\noutput = 1",
    "gateway.keys.x": "key = 'secret'",
    "mcp.x": "url = 'http://127.0.0.1:9'",
}
"""What a table needs besides the number that is tried."""
PROVIDERS_OWN = {"temperature", "top_p", "top_k", "seed"}  # what these may be is for the model's server to say


def numbers_of(kind: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every number that the file may have: the header of its table, and its key."""
    for name, hint in typing.get_type_hints(kind).items():
        inner = {"limits": Limits, "options": Options, "ledger": LedgerSettings, "gateway": GatewaySettings}
        yield from _numbers(hint if path else inner.get(name, hint), path, name)


def _numbers(hint: Any, path: str, name: str) -> Iterator[tuple[str, str]]:
    at = f"{path}.{name}".lstrip(".")
    if hint in (int, float):
        yield f"[{path}]", name
    elif isinstance(hint, type) and issubclass(hint, PluginSettings):
        pass  # a plugin checks its own
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if path == "ledger" and name == "limits":
            yield from ((f"[[{at}]]", key) for _, key in numbers_of(hint, at))
        else:
            yield from numbers_of(hint, at)
    elif str not in (inner := typing.get_args(hint)) or typing.get_origin(hint) is dict:
        named = f"{name}.x" if typing.get_origin(hint) is dict else name
        for one in inner:
            yield from _numbers(one, path, named)


@pytest.mark.parametrize(("table", "key"), [n for n in numbers_of(_File) if n[1] not in PROVIDERS_OWN])
def test_every_number_of_the_file_has_a_range(tmp_path: Path, table: str, key: str) -> None:
    """A new one gets its range where it is declared: `PositiveCount`, `Amount`."""
    beside = "\n".join(line for line in BESIDE.get(table.strip("[]"), "").splitlines() if not line.startswith(key))
    outer = table.strip("[]").rpartition(".")[0] if table.startswith("[engines.x.") else ""
    text = f"[engines.x]\n{BESIDE['engines.x']}\n" if outer else ""
    said = said_of(tmp_path, f"{text}{table}\n{beside}\n{key} = -1")
    assert f"{key}' is -1" in said or f"a limit's {key} is -1" in said


def test_a_wrong_parameter_of_a_plugin_has_its_own_line(tmp_path: Path) -> None:
    config = load(project(tmp_path, "[[plugins]]\nname = 'trim'\nshar = 0.5"), {})
    said = sentence(lambda: plugins_of(config))
    assert said.startswith("rondel.toml:3: the plugin 'trim' has no parameter 'shar'; did you mean 'share'?")
    config = load(project(tmp_path, "[[plugins]]\nname = 'trim'\n\nshare = 'half'"), {})
    assert sentence(lambda: plugins_of(config)) == "rondel.toml:4: 'share' must be a number, not 'half'"


def test_an_unset_variable_is_named_with_its_line(tmp_path: Path) -> None:
    said = said_of(tmp_path, '[engines.openai]\nmodel = "x"\nkey = "${WORK_KEI}"', WORK_KEY="secret-value")
    assert said == ("rondel.toml:3: the variable WORK_KEI is not set; set it; did you mean 'WORK_KEY'?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engine = echo", 'rondel.toml:1: this is not valid TOML: invalid value; a text needs quotes: engine = "echo"'),
        ('[engines.x]\nurl = "http://x"', "rondel.toml:2: 'engines.x.url' is not known; did you mean 'base_url'?"),
        ('engine = "echo"\nengine = "x"', "rondel.toml:2: 'engine' is set twice; remove one of them"),
    ],
)
def test_a_common_mistake_has_the_hint_that_mends_it(tmp_path: Path, text: str, expected: str) -> None:
    assert said_of(tmp_path, text) == expected


def test_a_role_in_a_limit_may_be_a_number(tmp_path: Path) -> None:
    text = "[[ledger.limits]]\nscope = {role = 123456789012345678}\ntokens = 5\n"
    assert load(project(tmp_path, text), {}).ledger.limits[0].scope == {"role": "123456789012345678"}


def test_a_variable_may_stand_for_a_number_or_a_truth(tmp_path: Path) -> None:
    text = '[limits]\nrounds = "${N:-9}"\n[options]\nparallel_calls = "${P}"\nuser = "${N:-9}"'
    config = load(project(tmp_path, text), {"P": "false"})
    assert (config.limits.rounds, config.options.parallel_calls, config.options.user) == (9, False, "9")
    assert said_of(tmp_path, text, P="maybe").startswith(
        "rondel.toml:4: 'options.parallel_calls' must be true or false"
    )


def test_no_secret_is_in_the_explanation_the_repr_or_the_warnings(tmp_path: Path) -> None:
    config = load(project(tmp_path, FULL, mode=0o644), {"WORK_KEY": "hunter2", "HOME": "/home/x"})
    rows = explain(config)
    shown = {key: value for key, value, _ in rows}
    assert "hunter2" not in repr((rows, config, config.warnings, str(config.plugins)))
    assert shown["engines.fast.key"] == shown["engines.fast.headers.X-Team"] == "***"
    assert shown["engines.fast.body.api_key"] == "***"
    assert shown["engines.fast.body.service_tier"] == "flex"
    assert shown["engines.fast.base_url"] == "http://127.0.0.1:9/v1?***"


def test_a_secret_in_a_parameter_of_a_plugin_is_not_shown(tmp_path: Path) -> None:
    text = 'plugins = [{name = "trim", api_token = "hunter2", where = "${BOT_TOKEN}"}]'
    config = load(project(tmp_path, text, mode=0o644), {"BOT_TOKEN": "hunter2"})
    assert "hunter2" not in repr((explain(config), config, config.warnings))
    assert len(config.warnings) == 1


def test_each_value_says_where_it_came_from(tmp_path: Path) -> None:
    config = load(project(tmp_path, FULL), {"WORK_KEY": "k", "HOME": "/home/x"})
    path = str(tmp_path / "rondel.toml")
    sources = {key: source for key, _, source in explain(config)}
    assert sources["engine"] == f"{path}:1"
    assert sources["plugins[1].share"] == f"{path}:3"
    assert sources["engines.fast.model"] == f"{path}:8"
    assert sources["engines.fast.key"] == f"{path}:9, $WORK_KEY"
    assert sources["engines.fast.fallback"] == f"{path}:13"
    assert sources["limits.rounds"] == f"{path}:22"
    assert sources["limits.calls"] == "default"
    assert config.source("limits.rounds").where.line == 22


def test_a_literal_key_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    text = '[engines.openai]\nkey = "sk-written-out-here"'
    (warning,) = load(project(tmp_path, text, mode=0o644), {}).warnings
    assert "rondel.toml:2: 'engines.openai.key' is written out" in warning
    assert "chmod 600 rondel.toml" in warning
    assert load(project(tmp_path, text, mode=0o600), {}).warnings == ()
    assert load(project(tmp_path, '[engines.openai]\nkey = "${K}"', mode=0o644), {"K": "x"}).warnings == ()
    mistakes: list[ConfigError] = []
    assert load(tmp_path, {}, mistakes=mistakes).warnings == ()  # that K is not set is the only mistake
    assert len(mistakes) == 1
    assert load(project(tmp_path, '[engines.openai]\nkey = "${K:-x}"', mode=0o644), {}).warnings != ()


def test_the_name_of_a_key_in_a_limit_is_not_a_secret(tmp_path: Path) -> None:
    text = '[[ledger.limits]]\nscope = {key = "workshop"}\ntokens = 1\n'
    config = load(project(tmp_path, text, mode=0o644), {})
    assert config.warnings == ()
    assert ("ledger.limits[0].scope.key", "workshop") in [(key, value) for key, value, _ in explain(config)]
    assert "workshop" not in secrets_in(config, {})


def test_expanded_values_are_never_written_back(tmp_path: Path) -> None:
    load(project(tmp_path, FULL), {"WORK_KEY": "hunter2hunter2"})
    assert "hunter2hunter2" not in (tmp_path / "rondel.toml").read_text()


def test_a_made_plugin_has_its_parameters(tmp_path: Path) -> None:
    config = load(project(tmp_path, 'plugins = [{trim = {share = 0.25, window_tokens = 100}}, "limits"]'), {})
    trim, limits = plugins_of(config)
    assert isinstance(trim, Trim)
    assert (trim.name, limits.name) == ("trim", "limits")


def test_every_table_of_the_file_is_explained(tmp_path: Path) -> None:
    """A new one must be added to `leaves`, also because secrets are found there."""
    text = "plugins = ['log']\n[engines.openai]\nmodel = 'x'\n[images]\nengine = 'openai:x'\n[mcp.b]\ncommand = 'b'\n"
    text += "[discord]\nstream = false\n[knowledge.a]\nfolders = ['a']\n"
    config = load(project(tmp_path, text), {})
    shown = {key.partition(".")[0].partition("[")[0] for key, _, _ in explain(config)}
    assert shown == set(Config.__struct_fields__) - {"path", "project", "warnings", "exposed", "sources"}


def test_a_plugin_that_is_switched_off_is_explained(tmp_path: Path) -> None:
    config = load(project(tmp_path, "plugins = ['log', {name = 'trim', enabled = false}]"), {})
    rows = {key: value for key, value, _ in explain(config) if key.startswith("plugins")}
    assert rows == {"plugins[0]": "log", "plugins[1]": "trim", "plugins[1].enabled": "false"}


def test_a_config_made_in_code_explains_itself() -> None:
    rows = {key: (value, source) for key, value, source in explain(Config(engine="echo"))}
    assert rows["engine"] == ("echo", "default")


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ('[engines.openai]\nkey = "$WORK_KEY"', 2, "WORK_KEY"),
        ('[engines.openai]\nheaders = {Authorization = "Bearer $WORK_KEY"}', 2, "WORK_KEY"),
        ('[engines.openai]\nbase_url = "http://$HOST:8000/v1"', 2, "HOST"),
        ('[engines.openai]\nbase_url = "http://me:$PASS@h/v1"', 2, "PASS"),
        ('[gateway.keys]\nann = {key = "$ANN"}', 2, "ANN"),
        ('[telemetry]\nendpoint = "$WHERE"', 2, "WHERE"),
        ('[telemetry]\nendpoint = "http://x"\nheaders = {x = "$X_1"}', 3, "X_1"),
        ('[store]\npath = "$HOME/talks.db"', 2, "HOME"),
        ('plugins = [{name = "telemetry", headers = {x = "$TOKEN"}}]', 1, "TOKEN"),
        ('[engines.openai]\nmodel = "$MODEL"', 2, "MODEL"),
        ('[engines.openai]\nbody = {a = [{b = "$TIER"}]}', 2, "TIER"),
        ('[gateway]\nroutes = {default = "$ROUTE"}', 2, "ROUTE"),
    ],
)
def test_a_variable_without_braces_is_refused_with_what_to_write(tmp_path: Path, text: str, line: int, name: str):
    """Trust 8, C02: `key = "$VAR"` was sent as it stands. Where the row replaces `$UPPER`, Rondel says what to write:
    a key may well have a `$` in it."""
    said = said_of(tmp_path, text, WORK_KEY="x", ANN="y", HOST="z")
    assert said.startswith(f"rondel.toml:{line}: '${name}' is taken literally; write ${{{name}}}")


def test_a_dollar_that_is_part_of_a_key_stays(tmp_path: Path):
    """Trust 8: only what looks like a variable is refused; `${X:-$NAME}` is that text itself."""
    text = '[engines.a]\nbase_url = "http://h"\nkey = "pa$Word $HOME x"\nheaders = {x = "$5", y = "${NONE:-$WORD}"}'
    engine = load(project(tmp_path, text), {}).engines["a"]
    assert (engine.key, engine.headers) == ("pa$Word $HOME x", {"x": "$5", "y": "$WORD"})
