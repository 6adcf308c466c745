"""The bot as a process of its own: beside `rondel serve`, and killed in the middle of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Place, place

from .harness import World, loopback

__all__ = ["place"]

PROCESS = Path(__file__).parent / "process.py"


@contextlib.asynccontextmanager
async def process(
    world: World, folder: Path, *given: str, **options: Any
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run something in a process that finds this loopback Discord; it is connected when this returns."""
    authority = folder / "authority.pem"
    authority.write_bytes(world.discord.authority_pem)
    before = world.discord.gateway.identified
    command = (sys.executable, str(PROCESS), str(world.discord.port), str(authority), *given)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, **options)
    try:
        async with asyncio.timeout(60):
            while world.discord.gateway.identified == before:
                if child.returncode is not None:
                    raise AssertionError((await child.communicate())[1].decode())
                await asyncio.sleep(0.01)
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.communicate()


async def test_the_bot_runs_beside_the_gateway_waits_for_discord_and_stops_with_it(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[gateway]\n[discord]\nagent = "helper"\n')
    place.write("agents/helper.yaml", "agents:\n  helper:\n    prompt: You help.\n")
    async with loopback() as world:
        world.discord.fail("GET", "/users/@me", 503)  # an outage at the start
        where = {"cwd": place.project, "env": place.env | {"DISCORD_TOKEN": world.discord.token}}
        async with process(world, place.folder, "rondel", "serve", "--port", "0", **where) as child:
            await world.say("@bot hello from Discord")
            (answer,) = await world.discord.said(world.general)
            assert answer["content"] == "Ann: hello from Discord"
            told = ""
            async with asyncio.timeout(60):
                while "is connected, in 1 server" not in told:
                    told += (await child.stderr.readline()).decode()
            address = told.partition("Listening on http://")[2].split()[0].rstrip(".")
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
            child.send_signal(signal.SIGTERM)
            told += (await child.communicate())[1].decode()
        assert child.returncode == 0, told
        assert "Discord cannot be reached" in told
        assert "Stopping the bot" in told


async def test_the_bot_runs_by_itself(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    place.write("agents/helper.yaml", "agents:\n  helper:\n    prompt: You help.\n")
    async with loopback() as world:
        where = {"cwd": place.project, "env": place.env | {"DISCORD_TOKEN": world.discord.token}}
        async with process(world, place.folder, "rondel", "discord", **where) as child:
            await world.say("@bot hello")
            (answer,) = await world.discord.said(world.general)
            assert answer["content"] == "Ann: hello"
            child.send_signal(signal.SIGTERM)
            told = (await child.communicate())[1].decode()
        assert child.returncode == 0, told


async def test_a_trace_that_the_program_sends_has_no_secret_of_its_environment(place: Place):
    """A11: also not the bot's own token, and what the configuration has."""
    place.write(
        "rondel.toml", 'engine = "echo"\n[engines.lab]\nbase_url = "http://127.0.0.1:9"\nkey = "lab-4711-4711"\n'
    )
    place.write("agents/helper.yaml", "agents:\n  helper:\n    prompt: You help.\n")
    async with loopback() as world:
        given = {"DISCORD_TOKEN": world.discord.token, "ANTHROPIC_API_KEY": "sk-canary-0123456789"}
        where = {"cwd": place.project, "env": place.env | given}
        async with process(world, place.folder, "rondel", "discord", **where):
            await world.say(f"@bot keep sk-canary-0123456789, lab-4711-4711 and {world.discord.token} safe")
            (answer,) = await world.discord.said(world.general)
            await world.discord.until(lambda: "safe" in answer["content"])
            trace = await world.discord.command(world.ann, world.general, "ai trace")
            await world.discord.until(lambda: trace.answers and trace.answers[0]["attachments"])
            page = world.discord.data_of(trace.answers[0]["attachments"][0]).decode()
        assert set(re.findall("keep .*? safe", page)) == {"keep ***, *** and *** safe"}
        assert "canary" not in page


async def test_doctor_says_what_is_wrong_with_a_bot_and_what_to_click(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[discord]\n')
    async with loopback() as world:
        world.discord.gateway.privileged = 0
        world.guild.everyone.permissions &= ~(1 << 15)
        authority = place.folder / "authority.pem"
        authority.write_bytes(world.discord.authority_pem)
        command = (sys.executable, str(PROCESS), str(world.discord.port), str(authority), "rondel", "doctor")
        child = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            cwd=place.project,
            env=place.env | {"DISCORD_TOKEN": world.discord.token, "COLUMNS": "400"},
        )
        told = " ".join((await child.communicate())[0].decode().split())
        assert child.returncode == 0, told  # a model can answer
        for expected in (
            "the token is that of rondel",
            "the intent Message Content is off",
            "Privileged Gateway Intents",
            "Community: the bot lacks Attach Files",
            "give its role these permissions in Server Settings, Roles",
        ):
            assert expected in told
        assert world.discord.token not in told


async def kill_and_restart(folder: Path, at: int, *, answered: bool) -> None:
    """Ask, kill the bot with SIGKILL at its request number `at`, before or after Discord has done it; then start it
    again, and look at what people see."""
    async with loopback() as world:
        store = str(folder / "bot.db")
        async with process(world, folder, "bot", store) as child:
            requests = 0

            def on_request(method: str, path: str, is_done: bool) -> None:
                nonlocal requests
                if is_done == answered and "/channels/" in path:
                    requests += 1
                    if requests == at:
                        child.kill()

            world.discord.on_request = on_request
            await world.say("@bot number 7")
            while child.returncode is None and not ended(world):
                await asyncio.sleep(0.01)
        world.discord.on_request = None
        async with process(world, folder, "bot", store):
            async with asyncio.timeout(60):
                while not ended(world):
                    await asyncio.sleep(0.01)
            await world.say("@bot number 8")  # answered in order, so nothing else is on its way after it
            async with asyncio.timeout(60):
                while not ended(world, 8):
                    await asyncio.sleep(0.01)
        shown = [message["content"] for message in world.discord.bot_messages(world.general)]
        text = "\n".join(shown)
        assert len(shown) == 4, (at, answered, shown)
        for number in (7, 8):
            assert text.count(f"Answer {number}.") == text.count(f"The end of {number}.") == 1
        assert text.count("Let me see.") == 2
        assert text.count("word") == 2 * 420


def ended(world: World, number: int = 7) -> bool:
    return any(f"The end of {number}." in one["content"] for one in world.discord.bot_messages(world.general))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_kill_9_in_mid_answer_loses_no_answer_and_posts_none_twice(tmp_path: Path, seed: int):
    """A04: a real process, a store on disk, and SIGKILL at a random request."""
    chance = random.Random(seed)
    await kill_and_restart(tmp_path, chance.randint(1, 9), answered=chance.random() < 0.5)
