"""What a message costs in the Discord bot, against a bare discord.py bot that echoes. Each bot is a process of its own;
the loopback Discord is in this one, so that only the bots' CPU is measured."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from bench.measure import ROUNDS, Ratio, compared, shown

MESSAGES, CONVERSATIONS = 30, 1_000
AROUND = 8  # messages around a mention that both bots read
GUILDS = 1_500  # fewer measure where the allocator happens to be: with 300 the same bot varied by 30 %
CPU_LIMIT = 2.0
MEMORY_LIMIT = 1.5
FIRST_TEXT_S = 0.25


# --- the bots, each in a process --------------------------------------------------------------------------------------


async def bot(kind: str, port: int, pem: str, folder: str) -> None:
    import discord

    from rondel.surfaces.discord.mounting import CONNECTIONS_MAX
    from rondel.testing.discord import connector_to

    # As many connections as each opens by itself: discord.py has no limit.
    is_bare, is_mentioned = kind.startswith("bare"), kind.endswith("mentioned")
    connector = connector_to(port, Path(pem).read_bytes(), limit=0 if is_bare else CONNECTIONS_MAX)
    options: dict[str, Any] = {"connector": connector, "guild_ready_timeout": 0.5, "shard_count": 1}
    if is_bare:
        client: discord.Client = discord.AutoShardedClient(
            intents=discord.Intents.all(), chunk_guilds_at_startup=False, **options
        )

        @client.event
        async def on_message(message: discord.Message) -> None:
            if message.author != client.user:
                if is_mentioned:
                    _ = [said async for said in message.channel.history(limit=AROUND, before=message)]
                await message.reply(message.content, mention_author=False)

    else:
        from rondel import Agent, App
        from rondel.discord import RondelClient, attach
        from rondel.stores.sqlite import SqliteStore
        from rondel.testing import Echo

        client = RondelClient(**options)
        app = App(Agent("echo", engine=Echo()), store=SqliteStore(Path(folder) / "bench.db"))
        bot = attach(client, app, slash=[], context_messages=AROUND)
        if not is_mentioned:
            bot.gate.is_open = lambda place: True  # type: ignore[method-assign]
    _answer_parent(asyncio.get_running_loop(), client)
    await client.start("MTIzNDU2Nzg5.loopback.token")


def _answer_parent(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    """For each line on stdin print the CPU seconds and the bytes of memory so far; the end of stdin ends the bot."""

    def listen() -> None:
        for _ in sys.stdin:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            print(time.process_time(), pages * 4096, flush=True)
        asyncio.run_coroutine_threadsafe(client.close(), loop)

    threading.Thread(target=listen, daemon=True).start()


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, kind: str, world: Any, folder: str) -> Child:
        pem = Path(folder, "ca.pem")
        pem.write_bytes(world.authority_pem)
        arguments = ("-m", "bench.discord", kind, str(world.port), str(pem), folder)
        pipe = asyncio.subprocess.PIPE
        seen = world.gateway.identified
        child = cls(await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe))
        while world.gateway.identified == seen:
            if child._process.returncode is not None:
                raise RuntimeError(f"the bot {kind!r} ended before it had connected")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)  # it reads its guilds
        return child

    async def used(self) -> tuple[float, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        cpu, memory = (await self._process.stdout.readline()).split()
        return float(cpu), int(memory)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# --- what is measured -------------------------------------------------------------------------------------------------


class Bench:
    """A bot in a process, in a Discord with a channel for each message of a round."""

    def __init__(self, child: Child, world: Any, person: Any, channels: list[Any], mention: str) -> None:
        self._child, self._world, self._person, self._channels = child, world, person, channels
        self._mention = mention
        self._rounds = 0
        self.costs: list[float] = []
        self.waits: list[float] = []

    async def round(self) -> None:
        """Say something in every channel, one after the other, and wait for each answer."""
        before = (await self._child.used())[0]
        self._rounds += 1
        for channel in self._channels:
            start = time.perf_counter()
            await self._world.say(self._person, channel, f"{self._mention}hello number {self._rounds}, how are you?")
            await self._world.said(channel, self._rounds)
            self.waits.append(time.perf_counter() - start)
        self.costs.append(((await self._child.used())[0] - before) / len(self._channels))


@contextlib.asynccontextmanager
async def started(kind: str) -> AsyncGenerator[Bench]:
    from rondel.testing.discord import LoopbackDiscord

    with tempfile.TemporaryDirectory() as folder:
        async with LoopbackDiscord() as world:
            ann = world.person("ann")
            guild = world.guild("Bench", ann)
            channels = [world.channel(guild, f"room-{number}") for number in range(MESSAGES)]
            for channel in channels:
                for number in range(2 * AROUND):  # what is said there among people
                    world.world.message(channel, ann, {"content": f"line {number} of a talk"})
            child = await Child.start(kind, world, folder)
            yield Bench(child, world, ann, channels, "@bot " if kind.endswith("mentioned") else "")
            await child.end()


async def messages(how: str = "") -> tuple[Bench, Bench]:
    """Measure our bot and a bare one in turns, so that whatever else the machine does meets both."""
    async with started(f"ours{how}") as ours, started(f"bare{how}") as bare:
        for number in range(ROUNDS + 1):
            await ours.round()
            await bare.round()
            if not number:  # the first round warms up
                ours.costs.clear()
                bare.costs.clear()
    return ours, bare


async def memory(kind: str) -> float:
    """Return the bytes for each idle guild."""
    from rondel.testing.discord import LoopbackDiscord

    held: list[int] = []
    for count in (1, GUILDS + 1):
        with tempfile.TemporaryDirectory() as folder:
            async with LoopbackDiscord() as world:
                ann = world.person("ann")
                for number in range(count):
                    world.channel(world.guild(f"Guild {number}", ann), "general")
                child = await Child.start(kind, world, folder)
                held.append((await child.used())[1])
                await child.end()
    return max(held[1] - held[0], 1) / GUILDS


async def conversations() -> tuple[float, float]:
    """Return the CPU seconds and the bytes for each of a thousand conversations in one process."""
    from rondel.testing.discord import LoopbackDiscord

    with tempfile.TemporaryDirectory() as folder:
        async with LoopbackDiscord() as world:
            ann = world.person("ann")
            guild = world.guild("Bench", ann)
            channels = [world.channel(guild, f"room-{number}") for number in range(CONVERSATIONS)]
            child = await Child.start("ours", world, folder)
            cpu, held = await child.used()
            for channel in channels:
                await world.say(ann, channel, "hello")
            for channel in channels:
                await world.said(channel, within_s=120)
            after_cpu, after_held = await child.used()
            await child.end()
    return (after_cpu - cpu) / CONVERSATIONS, (after_held - held) / CONVERSATIONS


def run() -> list[Ratio]:
    measured = asyncio.run(messages())
    ours, theirs = (one.costs for one in measured)
    bare = statistics.median(theirs)
    asked = [one.costs for one in asyncio.run(messages("-mentioned"))]
    first, first_bare = (statistics.median(one.waits) for one in measured)
    guild, guild_bare = asyncio.run(memory("ours")), asyncio.run(memory("bare"))
    cpu, held = asyncio.run(conversations())
    return [
        compared("CPU for a message answered, against a bare echo", ours, theirs, CPU_LIMIT),
        compared("CPU for a mention, against a bare bot that reads what was said, too", *asked, CPU_LIMIT),
        Ratio(
            "time to the first visible text without a model's",
            first / FIRST_TEXT_S,
            1.0,
            shown(first),
            f"{shown(FIRST_TEXT_S)} (a bare echo: {shown(first_bare)})",
        ),
        Ratio(
            "memory for an idle guild, against a bare bot",
            guild / guild_bare,
            MEMORY_LIMIT,
            f"{guild / 1e3:,.1f} kB",
            f"{guild_bare / 1e3:,.1f} kB",
        ),
        Ratio(
            f"CPU for each of {CONVERSATIONS:,} conversations at once, against a bare echo",
            cpu / bare,
            2 * CPU_LIMIT,
            f"{shown(cpu)}, {held / 1e3:,.1f} kB",
            shown(bare),
        ),
    ]


if __name__ == "__main__":
    running = bot(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
    if sys.argv[1].startswith("bare"):
        asyncio.run(running)
    else:
        from rondel.cli.main import GARBAGE_MAX
        from rondel.gateway.server.serving import run_fast

        # As `rondel discord` and `rondel serve` run it: on uvloop, and with few garbage collections.
        gc.set_threshold(GARBAGE_MAX)
        run_fast(running)
