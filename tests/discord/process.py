"""Runs `rondel`, or a bot of its own, in a process in which Discord's names lead to a loopback Discord:

python process.py PORT CA.PEM rondel serve --port 0
python process.py PORT CA.PEM bot STORE.DB
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path


def lead_to(port: int) -> None:
    """Let this process find the loopback Discord under Discord's names, and nothing else."""
    import aiohttp.connector

    from rondel.testing.discord.server import LoopbackResolver

    aiohttp.connector.DefaultResolver = lambda *_, **__: LoopbackResolver(port)  # type: ignore[assignment, misc]


def bot(store: str) -> None:
    """A bot that calls a tool, and then answers slowly and in two messages."""
    from rondel import Agent, App, Prompt, tool
    from rondel.discord import RondelClient, attach
    from rondel.stores.sqlite import SqliteStore
    from rondel.testing import Scripted, call, say
    from rondel.values import Delta, Reply, ToolResult

    @tool
    async def note() -> str:
        "Note something."
        return "noted"

    def answer(prompt: Prompt) -> Reply:
        asked = next(message.text for message in reversed(prompt.messages) if message.role == "user")
        if not any(isinstance(part, ToolResult) for part in prompt.messages[-1].parts):
            return call("note", saying="Let me see.")
        number = asked.rpartition(" ")[2]
        return say(f"Answer {number}. " + "word " * 420 + f"\n\nThe end of {number}.")

    class Slow(Scripted):
        async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
            index = 0
            async for delta in super().stream(prompt):
                yield delta
                index += 1
                if index % 40 == 0:
                    await asyncio.sleep(0.01)

    client = RondelClient(guild_ready_timeout=0.01, shard_count=1)
    app = App(Agent("helper", engine=Slow(*[answer] * 1_000), tools=[note]), store=SqliteStore(store))
    attach(client, app, edit_s=0.01, context_messages=0, slash=[])
    client.run("MTIzNDU2Nzg5.loopback.token", log_handler=None)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))  # the code that is tested, whatever is installed
    port, authority, what, *given = sys.argv[1:]
    os.environ["SSL_CERT_FILE"] = authority  # before aiohttp is imported: it reads this then
    lead_to(int(port))
    if what == "bot":
        return bot(*given)
    from rondel.cli.main import main as rondel

    sys.exit(rondel(given))


if __name__ == "__main__":
    main()
