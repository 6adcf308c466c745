"""`rondel chat` and `rondel resume`: talk to an agent in the terminal."""

from __future__ import annotations

import asyncio

import click

from ..contracts.store import ConversationInfo
from ..errors import ConfigError, RondelError
from ..files.private import state_folder
from ..machine.conversation import Conversation
from ..surfaces.commands import find_conversation, model_line, open_conversation
from ..surfaces.terminal.chat import Terminal
from ..surfaces.views import short_id
from ._options import agent, chat_options, conversation_id, engine
from ._output import path_hint, tell
from ._project import Opened, load_project, models_of, open_app


@click.command()
@agent
@chat_options
def chat(agent: str, engine: str, new: bool, newest: bool, conversation: str, cost: bool) -> None:
    """Talk to an agent in the terminal."""
    if new + newest + bool(conversation) > 1:
        raise ConfigError("use only one of --new, --continue and --conversation")
    asyncio.run(_chat(agent, engine, "last" if newest else conversation, cost=cost))


@click.command()
@conversation_id
@engine
def resume(id: str, engine: str) -> None:
    """Continue an interrupted conversation, then chat."""
    asyncio.run(_chat("", engine, id, resumes=True))


async def _chat(agent: str, engine: str, wanted: str, *, resumes: bool = False, cost: bool = False) -> None:
    project = load_project()
    async with open_app(project, agent, engine) as opened:
        newest = await opened.app.store.conversations(limit=1)
        conversation = await _conversation(opened, agent, engine, wanted, newest)
        interrupted = newest[0] if newest and not wanted and newest[0].state == "interrupted" else None
        if interrupted is not None and not opened.app.registry.knows_agent(interrupted.agent):
            interrupted = None  # it belongs to another project
        terminal = Terminal(
            opened.app,
            opening=opening(opened, conversation, interrupted, project.config.warnings),
            model_line=opened.model_line,
            models=models_of(project.config),
            history=state_folder() / "history",
        )
        if cost:
            terminal.screen.costs = True
            await opened.app.ledger.ready()
        terminal.session.recent = await opened.app.store.conversations(limit=20)
        if wanted:
            await opened.app.background.take_up(conversation.id)
            await opened.app.timetable.take_up(conversation.id)
        await terminal.run(conversation, resumes=resumes)
        await _tell_what_is_open(terminal.session.conversation)


async def _tell_what_is_open(conversation: Conversation) -> None:
    jobs = [job.name for job in await conversation.app.background.jobs(conversation.id) if not job.is_over]
    id = short_id(conversation.id)
    questions = await conversation.questions()
    if questions:
        tell(f"A question is open; `rondel resume {id}` asks it again.")
    if jobs:
        names = ", ".join(jobs)
        tell(f"Unfinished background jobs: {names}. `rondel jobs run` or `rondel resume {id}` continues them.")
    elif not questions and (await conversation.transcript()).messages:
        tell(f"To continue this conversation: rondel resume {id}")


async def _conversation(
    opened: Opened, agent: str, engine: str, wanted: str, newest: list[ConversationInfo]
) -> Conversation:
    if not wanted:
        return opened.app.conversation(agent=opened.agent)
    if wanted == "last" and not newest:
        raise RondelError("there is no conversation to continue yet; `rondel` starts one")
    knows_agent = None if agent else opened.app.registry.knows_agent
    id = await find_conversation(opened.app.store, wanted, knows_agent=knows_agent)
    conversation = await open_conversation(opened.app, id, agent)
    if engine:
        await conversation.use_engine(engine)
    return conversation


def opening(
    opened: Opened, conversation: Conversation, interrupted: ConversationInfo | None, warnings: tuple[str, ...]
) -> list[str]:
    """Return the first lines: which model answers and why, what would be better, and what was interrupted."""
    line = model_line(conversation, conversation.engine.name, conversation.chosen_engine, opened.model_line)
    lines = [*warnings, line]
    if line == opened.model_line:
        lines += [f"{hint[0].upper()}{hint[1:]}." for hint in opened.hints[:2]]
    if interrupted is not None:
        title = f" ({interrupted.title})" if interrupted.title else ""
        id = short_id(interrupted.id)
        lines.append(f"The last conversation{title} was interrupted; `rondel resume {id}` continues it.")
    lines += path_hint()
    lines.append("/help lists the commands. Ctrl-C stops a turn, Ctrl-D quits.")
    return lines
