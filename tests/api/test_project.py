"""`Project.load` gives the app of a folder, and runs nothing of a folder that is not trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rondel import ConfigError, NotTrusted, Project, TurnFailed
from rondel.testing import MemoryStore, Scripted, call
from tests.docs.runner import forget_modules

FILES = {
    "rondel.toml": 'engine = "echo"\nagent = "helper"\n[store]\npath = "talks.db"\n[limits]\nrounds = 1\n',
    "agents/helper.md": "---\ntools: [dice_of_mine:roll]\n---\nYou help.\n",
    "agents/greeter.md": "---\ndescription: Greets\n---\nYou greet.\n",
    "dice_of_mine.py": 'from pathlib import Path\nPath(__file__).with_name("ran").touch()\ndef roll() -> int:\n'
    '    "Roll."\n    return 4\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("RONDEL_ENGINE", "RONDEL_CONFIG", "RONDEL_TRUST", "RONDEL_STORE", "RONDEL_AGENT"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "trip"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    yield project
    forget_modules(tmp_path)


async def test_a_folder_is_an_app_with_its_agents_settings_and_store(folder: Path):
    project = Project.load(folder, trust=True)
    assert project.names == ("greeter", "helper", "rondel")
    async with project.open() as app:
        assert (await app.conversation("c").ask("Hello.")).output == "Hello."
        assert app.conversation("c").agent == "helper"
        assert (await app.conversation(agent="greeter").ask("Hi.")).output == "Hi."
        assert app.registry.agent("helper").limits.rounds == 1
    assert (folder / "talks.db").exists()
    async with project.open() as app:
        assert [message.text for message in (await app.conversation("c").transcript()).messages] == ["Hello."] * 2


async def test_another_agent_and_another_engine_may_be_given(folder: Path):
    project = Project.load(folder, trust=True)
    async with project.open("greeter", engine=Scripted("Good day.")) as app:
        assert (await app.conversation().ask("Hi.")).output == "Good day."
    async with project.open(engine=Scripted(call("roll"), call("roll"))) as app:
        with pytest.raises(TurnFailed, match="used its only round"):
            await app.conversation().ask("Roll!")


async def test_a_test_keeps_its_conversations_out_of_the_project_s_store(folder: Path):
    async with Project.load(folder, trust=True).open(engine=Scripted("Good day."), store=MemoryStore()) as app:
        assert (await app.conversation().ask("Hi.")).output == "Good day."
    assert not (folder / "talks.db").exists()


def test_a_folder_that_is_not_trusted_is_refused_in_one_sentence_and_runs_nothing(folder: Path):
    with pytest.raises(NotTrusted, match=r"is not trusted; review its files, then load it with trust=True, or run"):
        Project.load(folder)
    assert not (folder / "ran").exists()


def test_a_folder_that_the_user_trusts_needs_no_word(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RONDEL_TRUST", str(folder))
    assert Project.load(str(folder)).names[0] == "greeter"


def test_trust_in_code_is_not_remembered(folder: Path):
    Project.load(folder, trust=True)
    with pytest.raises(NotTrusted):
        Project.load(folder)


def test_a_folder_without_a_project_is_one_sentence(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"is not a project: it has no rondel\.toml; `rondel init` makes one"):
        Project.load(tmp_path, trust=True)


async def test_an_agent_that_is_not_there_is_named_with_the_nearest(folder: Path):
    with pytest.raises(ConfigError, match="there is no agent 'greter'; did you mean 'greeter'"):
        async with Project.load(folder, trust=True).open("greter"):
            pass
