"""`rondel chat` and `rondel resume`: talk to an agent in the terminal."""

from __future__ import annotations

import asyncio

import msgspec

from ..conversation import Conversation
from ..errors import RondelError
from ..pick import make_engine
from ..store import ConversationInfo
from ..surfaces.terminal import Terminal
from ..surfaces.terminal.slash import Models, find_conversation, open_conversation, who_answers
from ..surfaces.terminal.views import short_id
from ._output import tell
from ._project import Opened, load_project, offered_models, open_app, state_folder
from ._weights import pull_with_bar


class Choice(msgspec.Struct, frozen=True):
    """Which conversation to talk in: a new one unless something else is said."""

    agent: str = ""
    engine: str = ""
    conversation: str = ""
    go_on: bool = False
    cost: bool = False


def chat(choice: Choice) -> None:
    asyncio.run(_chat(choice))


async def _chat(choice: Choice) -> None:
    project = load_project()
    async with open_app(project, choice.agent, choice.engine) as opened:
        newest = await opened.app.store.conversations(limit=1)
        conversation = await _conversation(opened, choice, newest)
        if opened.picked is not None and opened.picked.needs_pull is not None:
            await pull_with_bar(opened.picked.needs_pull)
        terminal = Terminal(
            opened.app,
            opening=opening(opened, conversation, choice, newest, project.config.warnings),
            model_line=opened.model_line,
            models=Models(offered_models(project.config), lambda name: make_engine(name, project.config)),
            history=state_folder() / "history",
        )
        if choice.cost:
            terminal.screen.costs = True
            await opened.app.ledger.ready()
        terminal.recent = await opened.app.store.conversations(limit=20)
        if choice.conversation:
            await opened.app.background.take_up(conversation.id)
            await opened.app.timetable.take_up(conversation.id)
        await terminal.run(conversation, go_on=choice.go_on)
        await _say_what_is_left(terminal.conversation)


async def _say_what_is_left(conversation: Conversation) -> None:
    left = [job.name for job in await conversation.app.background.jobs(conversation.id) if not job.is_over]
    id = short_id(conversation.id)
    if await conversation.questions():
        tell(f"A question is open: `rondel resume {id}` asks it again.")
    if left:
        tell(f"Not finished in the background: {', '.join(left)}. `rondel jobs run` or `rondel resume {id}` goes on.")


async def _conversation(opened: Opened, choice: Choice, newest: list[ConversationInfo]) -> Conversation:
    if not choice.conversation:
        return opened.app.conversation(agent=opened.agent)
    if choice.conversation == "last" and not newest:
        raise RondelError("there is no conversation to go on with yet; `rondel` starts one")
    id = await find_conversation(opened.app.store, choice.conversation)
    conversation = await open_conversation(opened.app, id, choice.agent)
    if choice.engine:
        await conversation.use_engine(choice.engine)
    return conversation


def opening(
    opened: Opened,
    conversation: Conversation,
    choice: Choice,
    newest: list[ConversationInfo],
    warnings: tuple[str, ...],
) -> list[str]:
    """What is said first: which model answers and why, what would be better, and what was left undone."""
    line = who_answers(conversation, conversation.engine, conversation.chosen_engine, opened.model_line)
    lines = [*warnings, f"{line}."]
    if line == opened.model_line:
        lines += [f"{hint[0].upper()}{hint[1:]}." for hint in opened.hints[:2]]
    if newest and newest[0].state == "working" and not choice.conversation:
        title = f" ({newest[0].title})" if newest[0].title else ""
        lines.append(f"The last conversation{title} was cut off; `rondel resume {short_id(newest[0].id)}` goes on.")
    lines.append("/help lists the commands; Ctrl-C stops a turn, Ctrl-D quits.")
    return lines
