"""`[telemetry]` in rondel.toml, and the variable that does the same for all programs of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel.cli.main import main
from rondel.errors import ConfigError
from rondel.plugins.telemetry import Telemetry
from rondel.project.config import explain, load, plugins_of
from tests.trace.collector import collector

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


def written(folder: Path, text: str) -> Path:
    (folder / "rondel.toml").write_text(text)
    (folder / "rondel.toml").chmod(0o600)
    return folder


def test_an_endpoint_in_the_file_turns_the_plugin_on_for_all_agents(tmp_path: Path):
    config = load(written(tmp_path, '[telemetry]\nendpoint = "http://127.0.0.1:4318"\ncontent = true\n'), {})
    assert (config.telemetry.endpoint, config.telemetry.content) == ("http://127.0.0.1:4318", True)
    assert [type(plugin) for plugin in plugins_of(config)] == [Telemetry]
    assert plugins_of(load(written(tmp_path, ""), {})) == []


def test_the_variable_turns_it_on_unless_it_is_switched_off_and_the_file_wins(tmp_path: Path):
    folder, env = written(tmp_path, ""), {VARIABLE: "http://127.0.0.1:1"}
    config = load(folder, env)
    assert len(plugins_of(config)) == 1
    assert ("telemetry.endpoint", "http://127.0.0.1:1", f"${VARIABLE}") in explain(config)
    assert plugins_of(load(folder, env | {"OTEL_SDK_DISABLED": "true"})) == []
    assert plugins_of(load(folder, env | {"OTEL_TRACES_EXPORTER": "none"})) == []
    written(tmp_path, '[telemetry]\nendpoint = "http://127.0.0.1:2"\n')
    assert load(folder, env).telemetry.endpoint == "http://127.0.0.1:2"


def test_a_plugin_of_that_name_in_the_list_stands_for_it(tmp_path: Path):
    text = 'plugins = ["telemetry"]\n[telemetry]\nendpoint = "http://127.0.0.1:4318"\n'
    assert len(plugins_of(load(written(tmp_path, text), {}))) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('endpoint = "localhost:4318"', "rondel.toml:2: 'localhost:4318' is not a web address"),
        ("endpoint = 7", "rondel.toml:2: 'telemetry.endpoint' "),
        ('endpiont = "http://x"', "rondel.toml:2: .*did you mean 'endpoint'"),
        ('content = "yes"', "rondel.toml:2: 'telemetry.content' "),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        load(written(tmp_path, f"[telemetry]\n{text}\n"), {})


def test_no_header_is_shown_anywhere(tmp_path: Path):
    text = '[telemetry]\nendpoint = "http://ann:sesame@127.0.0.1:4318"\nheaders = {x-team = "hush-hush"}\n'
    config = load(written(tmp_path, text), {})
    for shown in (repr(config), str(explain(config)), repr(config.telemetry)):
        assert "hush-hush" not in shown
        assert "sesame" not in shown


def test_a_run_of_the_command_line_is_sent_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RONDEL_STORE", ":memory:")
    monkeypatch.delenv("RONDEL_CONFIG", raising=False)
    with collector() as received:
        monkeypatch.setenv(VARIABLE, received.endpoint)
        assert main(["run", "rondel", "hi", "--engine", "echo"]) == 0
    assert set(received.spans) == {"invoke_agent rondel", "chat echo"}
