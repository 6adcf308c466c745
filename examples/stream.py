"""Watch a turn while it works: every event, as it happens. `python examples/stream.py`"""

import asyncio

from rondel import Agent, App, tool
from rondel.events import CallFinished, TurnFinished
from rondel.testing import Scripted, call
from rondel.values import PartDelta


@tool
async def weather(city: str) -> str:
    "The weather in a city."
    return f"mild in {city}"


model = Scripted(call("weather", city="Lisbon"), "Take a light coat.")


async def main() -> None:
    async with App(Agent("helper", engine=model, tools=[weather])) as app:
        turn = await app.conversation().send("What should I wear in Lisbon?")
        async for event in turn:
            match event:
                case PartDelta(text=text):
                    print(text, end="", flush=True)
                case CallFinished(result=result):
                    print(f"[{result.name}: {result.text}]")  # [weather: mild in Lisbon]
                case TurnFinished(outcome=outcome):
                    print(f"\n({outcome})")  # (done)
                case _:
                    pass


asyncio.run(main())
