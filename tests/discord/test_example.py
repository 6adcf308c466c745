"""The example bot, in a loopback Discord."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from rondel.project.folder import Project, assemble
from rondel.testing import Scripted, call, say
from rondel.values import Usage

from .harness import loopback

EXAMPLE = Path(__file__).parents[2] / "examples" / "community"


async def test_the_community_helper_answers_from_its_handbook_runs_a_command_and_keeps_to_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "community"
    shutil.copytree(EXAMPLE, folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "events", raising=False)
    async with loopback() as world:
        guests = world.discord.role(world.guild, "guests", world.bob)
        text = (folder / "rondel.toml").read_text().replace("100000000000000001", str(guests.id))
        (folder / "rondel.toml").write_text(text)
        project = Project.load(folder, trust=True)
        engine = Scripted(
            say("Feed it daily.", usage=Usage(19_000, 1_500)),
            call("event_next"),
            "On Sunday.",
        )
        found = await assemble(project, "", engine, is_public=True)
        settings = project.config.discord
        assert settings is not None
        async with world.running(app=found.app, settings=settings):
            await world.say("@bot how often do I feed my starter?", world.bob)
            assert await world.answers() == ["Feed it daily."]
            assert "Feed your starter once a day" in str(engine.prompts[0].messages)
            await world.say("@bot and in the fridge?", world.bob)
            refused = "Guests have used up their tokens for today. Members have more."
            assert (await world.answers(2))[-1] == refused
            await world.say("@bot when do we meet?")
            shown = await world.answers(4)
            assert shown[-1] == "On Sunday."
            assert world.discord.bot_messages(world.general)[2]["embeds"][0]["title"] == "Coming up"
            assert "Bake-along" in str(engine.prompts[-1].messages)
