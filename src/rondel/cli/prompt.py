"""`rondel prompt`: how an agent's prompt is made, step by step, and what a model would get. No model is called."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import click
import msgspec

from ..agent import Agent
from ..app.app import App
from ..contracts.endpoint import facts_of
from ..engine import Engine, UnavailableEngine, close
from ..errors import ConfigError
from ..events import DurableEvent, Event, PluginFailed, Trimmed, Warned
from ..machine.transcript import Transcript
from ..machine.turn import Turn
from ..plugin import Plugin
from ..project.config import engine_problem
from ..project.engines import make_engine, pick
from ..project.folder import Project, builtin_agent, open_store, with_plugins
from ..project.knowledge import make_knowledge
from ..project.settings import EngineSettings
from ..surfaces.commands import find_conversation
from ..surfaces.terminal.assembly import assembly_view
from ..trace.assembly import Assembly, assembly_of
from ..values import ModelFacts, user
from ._message import read_stdin
from ._options import as_json, engine, names_of, string
from ._output import show, show_json, tell
from ._project import look_at_project


@click.command()
@click.argument("agent", help="the agent; rondel is the built-in one")
@click.argument("text", help="the message to preview; - reads it from stdin")
@string(
    "--conversation",
    help="with the history and the settings of this conversation: its id, part of its id, or last",
    complete=lambda: names_of("conversations"),
)
@engine
@as_json
def prompt(agent: str, text: str, conversation: str, engine: str, as_json: bool) -> None:
    """Preview an agent's prompt without calling a model."""
    text = read_stdin().decode("utf-8", errors="replace") if text == "-" else text
    if not text.strip():
        raise ConfigError("the message is empty; give a text, or - to read it from stdin")
    project, left_out = look_at_project()
    if left_out:
        tell(f"rondel: {left_out}")
    before = asyncio.run(_read(project, conversation)) if conversation else ()
    settings = Transcript(before).settings
    assembly = asyncio.run(_assemble(project, agent, text, before, engine))
    if as_json:
        show_json({**_as_json(assembly), "settings": settings})
        return
    show(assembly_view(assembly))
    for key, value in settings.items():
        tell(f"This conversation sets {key} = {msgspec.json.encode(value, enc_hook=str).decode()}")


async def _read(project: Project, wanted: str) -> tuple[DurableEvent, ...]:
    async with aclosing(open_store(project.config)) as store:
        return tuple(entry.event for entry in await store.read(await find_conversation(store, wanted)))


async def _assemble(project: Project, wanted: str, text: str, before: Sequence[DurableEvent], asked: str) -> Assembly:
    name = project.agent_name(wanted)
    found = project.find(name)
    if asked and (problem := engine_problem(asked, project.config.engines)):
        raise ConfigError(problem)
    engine = await _stand_in(found, project, asked or Transcript(before).engine)
    agent = found or builtin_agent(engine)
    if project.config.is_trusted:
        agent = with_plugins([agent], project.config)[0]
    listener = _Listener()
    chosen = msgspec.structs.replace(agent, engine=engine, plugins=(*agent.plugins, listener))
    # The other agents may be among its tools. Their plugins are left out: they would open resources for nothing.
    others = [msgspec.structs.replace(a, engine=engine, plugins=()) for a in project.agents if a.name != name]
    knowledge = make_knowledge(project.config) if project.config.is_trusted else None
    async with App(chosen, *others, make_engine=_uncalled, recover=False, knowledge=knowledge) as app:
        return await _steps(app, chosen, text, listener, before)


async def _steps(app: App, agent: Agent, text: str, listener: _Listener, before: Sequence[DurableEvent]) -> Assembly:
    transcript, message = Transcript(before), user(text, id="message")
    resolved = app.registry.resolve(agent.name, settings=transcript.settings)
    steps = app.preview(agent.name, message, before)
    return await assembly_of(agent.name, resolved, (*transcript.history(), message), steps, listener.take)


class _Listener(Plugin):
    name = "listener"

    def __init__(self) -> None:
        self._notes: list[str] = []

    def on_event(self, turn: Turn, event: Event) -> None:
        if isinstance(event, PluginFailed):
            self._notes.append(f"failed: {event.message}")
        elif isinstance(event, Warned):
            self._notes.append(event.message)
        elif isinstance(event, Trimmed):
            self._notes.append(f"left out {event.messages} messages for a window of {event.window_tokens:,} tokens")

    def take(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes


# --- the engine, which is not called ----------------------------------------------------------------------------------


def _uncalled(name: str, facts: ModelFacts | None = None) -> Engine:
    return UnavailableEngine(name, "a preview of a prompt calls no model", facts)


async def _stand_in(agent: Agent | None, project: Project, chosen: str = "") -> Engine:
    """Return the name and facts of the engine that would be called; if it cannot be created, its model's facts."""
    config = project.config
    name = chosen or (agent.engine if agent is not None and isinstance(agent.engine, str) else "")
    try:
        engine: Engine = make_engine(name, config) if name else (await pick(config)).engine
    except ConfigError:
        name = name or config.engine
        head, _, model = name.partition(":")
        settings = config.engines.get(head, EngineSettings())
        return _uncalled(name or "no engine", facts_of(settings.provider or head, model or settings.model))
    await close(engine)
    return _uncalled(engine.name, engine.facts)


# --- for programs -----------------------------------------------------------------------------------------------------


def _as_json(assembly: Assembly) -> dict[str, Any]:
    return {
        "agent": assembly.agent,
        "engine": assembly.engine,
        "written": [msgspec.structs.asdict(piece) for piece in assembly.written],
        "steps": [msgspec.structs.asdict(step) for step in assembly.steps],
        "messages": [
            {
                "role": item.message.role,
                "text": item.message.text,
                "tokens": item.tokens,
                "source": item.source,
                "pieces": [msgspec.structs.asdict(piece) for piece in item.pieces],
            }
            for item in assembly.messages
        ],
        "tools": [tool.name for tool in assembly.tools],
        "tokens": msgspec.structs.asdict(assembly.tokens),
    }
