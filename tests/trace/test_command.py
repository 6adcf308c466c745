"""`rondel trace` as a person types it, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rondel.cli.main import main

OTEL = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@pytest.fixture(autouse=True)
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder of its own, and a conversation of two turns in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RONDEL_STORE", str(tmp_path / "talk.db"))
    for name in (*OTEL, "XDG_CONFIG_HOME", "RONDEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "rondel", "<b>one</b>", "--engine", "echo"]) == 0
    assert main(["run", "rondel", "two", "--engine", "echo", "--conversation", "last"]) == 0
    capfd.readouterr()


def test_it_is_a_tree_markdown_json_or_a_page(capfd: pytest.CaptureFixture[str]):
    """O01: the forms of a trace on the command line."""
    assert main(["trace", "last"]) == 0
    assert "rondel <b>one</b>" in capfd.readouterr().out
    assert main(["trace", "last", "--markdown"]) == 0
    assert capfd.readouterr().out.startswith("# Agent Trace: rondel\n")
    assert main(["trace", "last", "--json"]) == 0
    assert [turn["input"] for turn in json.loads(capfd.readouterr().out)["children"]] == ["<b>one</b>", "two"]
    assert main(["trace", "last", "--html"]) == 0
    page = capfd.readouterr().out
    assert page.startswith("<!doctype html>")
    assert "&lt;b&gt;one&lt;/b&gt;" in page
    assert "<b>" not in page


def test_one_turn_is_chosen_and_a_wrong_one_is_named(capfd: pytest.CaptureFixture[str]):
    assert main(["trace", "last", "--turn", "2", "--json"]) == 0
    assert [turn["input"] for turn in json.loads(capfd.readouterr().out)["children"]] == ["two"]
    assert main(["trace", "last", "--turn", "7"]) == 1
    assert "it has 2; give a number from 1 to 2, or last" in capfd.readouterr().err


def test_it_is_written_to_a_file_that_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["trace", "last", "--html", "-o", "trace.html"]) == 0
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "The trace is in trace.html.\n")
    assert (tmp_path / "trace.html").read_text().startswith("<!doctype html>")
    assert main(["trace", "last", "-o", "trace.md", "--short"]) == 0
    assert (tmp_path / "trace.md").read_text().startswith("# Agent Trace: rondel\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--json", "--html"], "use only one of --json, --markdown, --html and --watch"),
        (["--watch", "--turn", "1"], "--watch shows everything as it happens and takes no other option"),
        (["-o", "no/such/folder.md"], "cannot be written to 'no/such/folder.md': No such file or directory"),
        (["-o", "."], "cannot be written to '.': Is a directory"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(
    arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
):
    assert main(["trace", "last", *arguments]) == 2
    assert sentence in capfd.readouterr().err


def test_a_trace_that_may_be_shared_needs_the_secrets_that_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("RONDEL_TRUST", str(tmp_path))
    monkeypatch.delenv("WORK_KEY", raising=False)
    (tmp_path / "rondel.toml").write_text('[gateway.keys.work]\nkey = "${WORK_KEY}"\n')
    assert main(["trace", "last"]) == 0
    assert main(["trace", "last", "--html"]) == 2
    assert "the variable WORK_KEY is not set; set it\n" in capfd.readouterr().err
