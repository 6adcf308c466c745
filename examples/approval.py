"""A call that waits for a person. The turn waits, for seconds or for days, and resumes with the answer."""

import asyncio

from rondel import Agent, App, tool
from rondel.testing import Scripted, call

sent: list[str] = []


@tool(approval="confirm")
async def send_mail(to: str, text: str) -> str:
    "Send a mail."
    sent.append(to)
    return "sent"


model = Scripted(call("send_mail", to="ann@example.org", text="Hello!"), "Done.")


async def main() -> None:
    async with App(Agent("helper", engine=model, tools=[send_mail])) as app:
        conversation = app.conversation()
        waiting = await conversation.ask("Greet Ann.")
        print(waiting.error)  # waiting for an answer: Allow send_mail to run ...
        assert not sent
        question = (await conversation.questions())[0]
        turn = await conversation.answer(question.id, "yes", by="bob")
        print(await turn.result())  # Done.
        assert sent == ["ann@example.org"]


asyncio.run(main())
