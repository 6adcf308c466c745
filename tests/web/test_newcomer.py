"""`rondel serve` before there is a model: it starts, says so, and uses a model as soon as it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel.cli import _gateway
from rondel.cli._gateway import NO_ENGINE, open_gateway, open_page
from rondel.cli._project import load_project
from rondel.cli.serve import opening
from rondel.engines.local.weights import RECOMMENDED, path_of
from rondel.errors import ConfigError
from rondel.gateway.server.serving import bind


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GROQ_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


async def test_it_starts_without_a_model_and_uses_one_that_was_downloaded_without_a_restart():
    pytest.importorskip("xllamacpp")
    listening = bind("127.0.0.1", 0)
    async with open_gateway(load_project(), "127.0.0.1", listening, print, has_page=True) as running:
        assert running.default.name == "local:smollm2-135m"
        assert any("The page offers to download one." in line for line in opening(running))
        assert not running.app.registry.resolve("rondel").tools
        async with open_page(running):
            pass
        path = path_of(RECOMMENDED)
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(RECOMMENDED.size_bytes)  # the model itself is not needed for the choice
        await running.updates.choose_again()
        assert running.default.name == f"local:{RECOMMENDED.name}"
        resolved = running.app.registry.resolve("rondel")
        assert (resolved.engine.name, "calculate" in resolved.tools) == (f"local:{RECOMMENDED.name}", True)
        assert not any("No model" in line for line in opening(running))
    listening.close()


async def test_it_starts_where_no_model_can_run_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    """`rondel code`, which needs a model at once, still stops with the sentence."""

    async def none(*_: object, **__: object) -> None:
        raise ConfigError("there is no engine: set a key")

    monkeypatch.setattr(_gateway, "pick", none)
    listening = bind("127.0.0.1", 0)
    async with open_gateway(load_project(), "127.0.0.1", listening, print, has_page=True) as running:
        assert running.default.name == NO_ENGINE
        assert any("No model can answer yet: there is no engine: set a key." in line for line in opening(running))
    with pytest.raises(ConfigError, match="there is no engine"):
        async with open_gateway(load_project(), "127.0.0.1", listening, print):
            pass
    listening.close()
