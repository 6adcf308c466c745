"""A program as users write it; test_wheel.py checks it with pyright in strict mode against the installed wheel."""

from __future__ import annotations

import asyncio

import rondel
from rondel import (
    Agent,
    App,
    CallFinished,
    Handoff,
    Limits,
    Plugin,
    Prompt,
    Reply,
    Turn,
    TurnFailed,
    TurnFinished,
    tool,
)
from rondel.plugins import Trim
from rondel.testing import Scripted, call


@tool(approval="confirm", timeout_s=5)
async def book(hotel: str, nights: int = 1) -> str:
    """Book a room."""
    return f"booked {hotel} for {nights}"


@tool
def escalate(reason: str) -> Handoff:
    """Hand over to the boss."""
    return Handoff("boss", reason)


class Terse(Plugin):
    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        return prompt.instruct("Answer in one sentence.")

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return reply.with_text(reply.text.partition(". ")[0])


boss = Agent("boss", engine=rondel.engine_at("http://127.0.0.1:8000/v1", "my-model", key="secret", attempts=2))
guide = Agent(
    "guide",
    "You plan holidays.",
    engine=Scripted(call("book", hotel="Lisboa"), "Have fun."),
    tools=[book, escalate, "calculate", rondel.current_time],
    plugins=[Terse(), Trim(share=0.5), "clock"],
    handoffs=[boss],
    limits=Limits(rounds=10),
)


def once() -> str:
    try:
        result = rondel.run(guide, "Book something.", store="talks.db", conversation="trip")
    except TurnFailed as failed:
        return f"{failed.result.outcome}: {failed.result.error}"
    return f"{result.output} ({result.usage.tokens_out} tokens)"


async def chat() -> None:
    async with App(guide) as app:
        conversation = app.conversation("trip", agent="guide")
        async for text in conversation.stream_text("Book something."):
            print(text, end="")
        view = await conversation.send(["And now?", rondel.Media("image", "image/png", b"")])
        async for event in view:
            match event:
                case CallFinished(result=found):
                    print(found.text)
                case TurnFinished(outcome=rondel.Outcome.WAITING):
                    for question in await conversation.questions():
                        await conversation.answer(question.id, "yes", by="ann")
                case _:
                    pass
        result = await view.result(check=False)
        print(result.output, result.outcome)


async def folder() -> None:
    project = rondel.Project.load("trip", trust=True)
    async with project.open(engine="echo") as app:
        print((await app.conversation().ask("Hi.")).output)


if __name__ == "__main__":
    print(once())
    asyncio.run(chat())
    asyncio.run(folder())
