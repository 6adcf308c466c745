"""Watch a turn while it works: every event, as it happens. `python examples/stream.py`"""

import asyncio

from rondel import Agent, AnswerText, App, CallFinished, TurnFinished, tool
from rondel.testing import Scripted, call


@tool
async def weather(city: str) -> str:
    "The weather in a city."
    return f"mild in {city}"


model = Scripted(call("weather", city="Lisbon"), "Take a light coat.")


async def main() -> None:
    async with App(Agent("helper", engine=model, tools=[weather])) as app:
        turn = await app.conversation().send("What should I wear in Lisbon?")
        answer = AnswerText()
        async for event in turn:
            match event:
                case CallFinished(result=result):
                    print(f"[{result.name}: {result.text}]")  # [weather: mild in Lisbon]
                case TurnFinished(outcome=outcome):
                    print(f"\n({outcome})")  # (done)
                case _:  # the answer's text; thinking and the arguments of calls stream, too, and are not printed
                    print(answer.feed(event), end="", flush=True)


asyncio.run(main())
