"""`rondel stop`: stop what is running in a conversation, also in another process."""

from __future__ import annotations

import asyncio

import click

from ..agent import Agent
from ..app.app import App
from ..engine import UnavailableEngine
from ..project.folder import BUILTIN, open_store
from ..surfaces.commands import find_conversation
from ..surfaces.views import short_id
from ._options import conversation_id
from ._output import tell
from ._project import load_project


@click.command()
@conversation_id
def stop(id: str) -> None:
    """Stop what is running in a conversation, also in another terminal."""
    tell(asyncio.run(_stop(id)))


async def _stop(id: str) -> str:
    project = load_project()
    agents = [*project.agents, *([] if project.find(BUILTIN) else [Agent(BUILTIN)])]
    async with App(
        *agents, engine=_no_engine("none"), make_engine=_no_engine, store=open_store(project.config), recover=False
    ) as app:
        conversation = app.conversation(await find_conversation(app.store, id))
        stopped = await conversation.stop()
        id = short_id(conversation.id)
        return f"Stopped {id}." if stopped else f"Nothing is running in {id}."


def _no_engine(name: str) -> UnavailableEngine:
    """Return an engine that refuses calls: the process that runs the turn stops it, and open questions are closed
    here."""
    return UnavailableEngine(name, "`rondel stop` calls no model")
