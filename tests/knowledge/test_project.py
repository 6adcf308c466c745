"""Knowledge in a project: the settings, the commands, and the example."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import of, play, turn_after

from rondel import Agent, App
from rondel.cli.main import main
from rondel.errors import ConfigError
from rondel.events import RoundFinished
from rondel.project.agents import load_agents
from rondel.project.config import load
from rondel.project.embedders import default_embedder
from rondel.project.knowledge import bases_of, knowledge_path, make_knowledge, make_tool_embedder
from rondel.testing import Scripted, call
from rondel.values import Text

EXAMPLE = Path(__file__).parents[2] / "examples" / "handbook"


def config_of(folder: Path, text: str) -> Any:
    (folder / "rondel.toml").write_text(text)
    return load(folder, {"RONDEL_STORE": str(folder / "store.db")})


def test_documents_is_a_base_by_default_and_settings_make_others(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    config = config_of(tmp_path, '[knowledge.code]\nfolders = ["src"]\n')
    assert {name: base.folders for name, base in bases_of(config).items()} == {
        "code": ("src",),
        "documents": ("documents",),
    }
    assert knowledge_path(config) == str(tmp_path / "store.knowledge.db")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[knowledge.a]\n", r"rondel.toml:1: the knowledge base 'a' is empty: give it folders, files or urls"),
        ('[knowledge.a]\nfolder = ["x"]', "2: 'knowledge.a.folder' is not known; did you mean 'folders'"),
        ('[knowledge.a]\nfolders = "x"', "folders"),
        ('[knowledge."a b"]\nfolders = ["x"]', "'a b' is not a valid name"),
        ('[knowledge.a]\nurls = ["ftp://x"]', "'ftp://x' is not a web address"),
        (
            '[knowledge.a]\nfolders = ["x"]\nchunk_tokens = 1',
            "3: 'knowledge.a.chunk_tokens' is 1; it must be from 20 to 8000",
        ),
        ('[knowledge.a]\nfolders = ["x"]\nembedder = "anthropic:x"', "3: 'anthropic' has no embeddings"),
        ('[knowledge.a]\nfolders = ["x"]\nrerank = "nobody:x"', "there is no engine 'nobody:x'"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(tmp_path, table)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RONDEL_TRUST", str(folder))
    monkeypatch.setenv("RONDEL_STORE", str(folder / "store.db"))
    code = main(["knowledge", *words])
    return code, *capsys.readouterr()


def test_the_commands_sync_search_show_and_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Refunds\n\nMoney back in 14 days.")
    (tmp_path / "docs" / "b.md").write_bytes(b"\0")
    (tmp_path / "rondel.toml").write_text('[knowledge.docs]\nfolders = ["docs"]\nembedder = "none"\nrefresh_s = 0')
    said = lambda *words: run(tmp_path, monkeypatch, capsys, *words)  # noqa: E731
    _, out, err = said("sync", "--dry-run")
    assert (out, err.splitlines()) == (
        "",
        ["docs: would be: 1 added, 0 unchanged.", "  + docs/a.md", "  ! docs/b.md is not text"],
    )
    assert said("search", "money")[2].startswith("Nothing matches.")
    code, out, _ = said("sync", "--json")
    (report,) = json.loads(out)
    assert (code, report["added"], report["problems"]) == (0, ["docs/a.md"], {"docs/b.md": "is not text"})
    assert "[1] Refunds  docs/a.md:3\n    Money back in 14 days." in said("search", "money")[1]
    (found,) = json.loads(said("search", "money", "--json")[1])
    assert (found["address"], found["title"]) == ("docs/a.md:3", "Refunds")
    (base,) = json.loads(said("list", "--json")[1])
    assert (base["name"], base["documents"], base["chunks"], base["problems"]) == ("docs", 1, 1, 1)
    assert "! is not text" in said("show", "docs")[1]
    assert "Money back" in said("show", "docs", "docs/a.md")[1]
    assert "has no document 'x'" in said("show", "docs", "x")[2]
    assert said("remove", "docs")[0] == 0
    assert "nothing is stored" in said("remove", "docs")[2]
    assert "there is no knowledge base 'dcs'; did you mean 'docs'" in said("sync", "dcs")[2]


def test_a_document_that_commands_a_terminal_is_shown_whole_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "documents").mkdir()
    wicked = "# T\x1b]0;owned\x07itle\n\nMoney \x1b[31mred\x1b]8;;http://x\x07 behind it \x9b2J."
    name = "documents/a\x1b[2J\n.md"
    (tmp_path / name).write_text(wicked)
    (tmp_path / "rondel.toml").write_text('[knowledge.documents]\nfolders = ["documents"]\nembedder = "none"\n')
    for words in (
        ("sync",),
        ("search", "money"),
        ("show", "documents"),
        ("show", "documents", "documents/a\x1b[2J\n.md"),
    ):
        code, out, err = run(tmp_path, monkeypatch, capsys, *words)
        assert code == 0
        assert not {"\x1b", "\x07", "\x9b"} & set(out + err), words
        assert ("behind it" in out) == (words[0] == "search" or len(words) == 3)


def test_a_project_without_a_base_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rondel.toml").write_text("")
    code, _, err = run(tmp_path, monkeypatch, capsys, "list")
    assert code != 0
    assert "there is no knowledge base: put files into a folder documents/" in err


def test_the_example_answers_from_its_folder_and_cites_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.project.knowledge.default_embedder", lambda: "")
    config = load(EXAMPLE, {"RONDEL_STORE": str(tmp_path / "store.db")})
    engine = Scripted(call("search_knowledge", query="money back refund"), "Within 14 days [1].")
    events = play(turn_after("How long does a refund take?"), *load_agents(config), engine=engine,
                  knowledge=make_knowledge(config, env={}))  # fmt: skip
    (part,) = of(RoundFinished, events)[-1].message.parts
    assert isinstance(part, Text)
    assert part.citations[0].path.startswith("documents/")


def test_tools_of_mcp_servers_are_found_with_the_embedder_of_a_base_or_the_embedded_one(tmp_path: Path) -> None:
    """It is made when it is first needed, and nothing is downloaded."""
    embedded, config = default_embedder(), config_of(tmp_path, "")
    app = App(Agent("helper"), embedder=partial(make_tool_embedder, config))
    assert (app.embedder.name if app.embedder else "") == embedded
    engine = '[engines.mine]\nbase_url = "http://127.0.0.1:9/v1"\n'
    config = config_of(tmp_path, f'{engine}[knowledge.a]\nfolders = ["x"]\nembedder = "mine:small"\n')
    app = App(Agent("helper"), knowledge=make_knowledge(config), embedder=partial(make_tool_embedder, config))
    assert app.embedder is not None
    assert app.embedder.name == "mine:small"
