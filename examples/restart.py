"""A conversation that outlives its program: the second app reads what the first one kept."""

import asyncio
import tempfile
from pathlib import Path

from rondel import Agent, App
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted


async def say(text: str, path: Path, answer: str) -> None:
    model = Scripted(answer)
    async with App(Agent("helper", engine=model), store=SqliteStore(path)) as app:
        turn = await app.conversation("holiday").send(text)
        print(f"{await turn.result()} (heard {len(model.prompts[0].messages)} messages)")


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(say("I am off to Lisbon.", Path(folder, "talks.db"), "Have fun."))
    asyncio.run(say("Where am I going?", Path(folder, "talks.db"), "To Lisbon."))
