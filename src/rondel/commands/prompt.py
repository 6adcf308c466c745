"""`rondel prompt`: how a prompt comes about, step by step, and what a model would be told. Nobody is asked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ..agent import Agent
from ..app import App
from ..assembly import Step
from ..endpoint import facts_of
from ..engine import Engine
from ..errors import ConfigError, EngineDenied
from ..events import Event, PluginFailed, Trimmed, Warned
from ..lineage import changes, pieces, told
from ..pick import make_engine, pick
from ..plugin import Plugin
from ..prompt import Prompt
from ..settings import EngineSettings
from ..surfaces.terminal.assembly import Assembly, StepView, assembly_view
from ..tokens import breakdown
from ..turn import Turn
from ..values import Delta, ModelFacts, user
from ._output import show, show_json
from ._project import Project, builtin_agent, load_project, with_plugins


def prompt(agent: str, text: str, *, as_json: bool) -> None:
    text = sys.stdin.read() if text == "-" else text
    if not text.strip():
        raise ConfigError("the message is empty; give a text, or - to read it from stdin")
    assembly = asyncio.run(_assemble(load_project(), agent, text))
    if as_json:
        show_json(_as_json(assembly))
    else:
        show(assembly_view(assembly))


async def _assemble(project: Project, wanted: str, text: str) -> Assembly:
    name = project.agent_name(wanted)
    found = project.find(name)
    engine = await _stand_in(found, project)
    agent = with_plugins([found or builtin_agent(engine)], project.config)[0]
    listener = _Listener()
    chosen = msgspec.structs.replace(agent, engine=engine, plugins=(*agent.plugins, listener))
    # The others may be among its tools. What their plugins would open is of no use here.
    others = [msgspec.structs.replace(a, engine=engine, plugins=()) for a in project.agents if a.name != name]
    async with App(chosen, *others, make_engine=_Unasked, recover=False) as app:
        return await _steps(app, chosen, text, listener)


async def _steps(app: App, agent: Agent, text: str, listener: _Listener) -> Assembly:
    crew, message = app.crew(agent.name), user(text, id="message")
    written = latest = Prompt(crew.nodes, crew.specs, crew.options).with_history((message,))
    views: list[StepView] = []
    async for step in app.preview(agent.name, message):
        views.append(_view(step, latest, listener.take()))
        latest = step.prompt
    return Assembly(
        agent.name,
        crew.engine.name,
        tuple(pieces(written)),
        written.tools,
        tuple(views),
        told(latest),
        latest.tools,
        breakdown(latest, crew.engine.facts.window_tokens),
    )


def _view(step: Step, before: Prompt, notes: tuple[str, ...]) -> StepView:
    tokens = breakdown(step.prompt).total
    return StepView(
        step.step,
        step.progress,
        step.plugin,
        step.source,
        changes(before, step.prompt),
        tokens,
        len(step.messages),
        notes,
    )


class _Listener(Plugin):
    """Hears what plugins report while they edit."""

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


# --- the engine, which is not asked -----------------------------------------------------------------------------------


class _Unasked:
    """Has the name and the facts of an engine, and cannot be asked."""

    def __init__(self, name: str, facts: ModelFacts | None = None) -> None:
        self.name, self.facts = name, facts or ModelFacts()

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        raise EngineDenied("nobody is asked while a prompt is only looked at")
        yield  # an async generator, as every engine's stream is


async def _stand_in(agent: Agent | None, project: Project) -> _Unasked:
    """What is known of the engine that would be asked. One that cannot be had has the facts of its model at least."""
    config = project.config
    name = agent.engine if agent is not None and isinstance(agent.engine, str) else ""
    try:
        engine: Engine = make_engine(name, config) if name else (await pick(config)).engine
    except ConfigError:
        name = name or config.engine
        head, _, model = name.partition(":")
        settings = config.engines.get(head, EngineSettings())
        return _Unasked(name or "no engine", facts_of(settings.provider or head, model or settings.model))
    stand_in = _Unasked(engine.name, engine.facts)
    if close := getattr(engine, "aclose", None):
        await close()
    return stand_in


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
