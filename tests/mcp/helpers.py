"""What the tests of MCP share: agents with real servers, and turns with questions."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rondel import Agent, App
from rondel.events import Event, Outcome, TurnFinished
from rondel.mcp.plugin import McpServers
from rondel.mcp.spec import ServerSpec
from rondel.question import Question
from rondel.testing import Scripted, Step
from rondel.values import ModelFacts

HERE = Path(__file__).parent
LOGINS = "/nonexistent/rondel-logins"


def raw(name: str = "raw", mode: str = "", *more: object, **fields: Any) -> ServerSpec:
    """The small server in plain Python. Its tools run without asking, unless a test wants otherwise."""
    args = (str(HERE / "raw.py"), mode, *map(str, more))
    return ServerSpec(name, command=sys.executable, args=args, **{"approval": "auto", **fields})


def sdk(name: str = "sdk", *args: str, **fields: Any) -> ServerSpec:
    """The SDK's own server."""
    given = (str(HERE / "everything.py"), *args)
    return ServerSpec(name, command=sys.executable, args=given, **{"approval": "auto", "connect_s": 60.0, **fields})


def plugin_of(*specs: ServerSpec, **settings: Any) -> McpServers:
    return McpServers.of(specs, logins=LOGINS, **settings)


def agent_with(*specs: ServerSpec, steps: Sequence[Step], window: int | None = 200_000, **settings: Any) -> Agent:
    model = Scripted(*steps, facts=ModelFacts(window_tokens=window))
    return Agent("helper", engine=model, plugins=[plugin_of(*specs)], **settings)


def model_of(agent: Agent) -> Scripted:
    assert isinstance(agent.engine, Scripted)
    return agent.engine


def links_of(agent: Agent) -> list[Any]:
    (plugin,) = (plugin for plugin in agent.plugins if isinstance(plugin, McpServers))
    return plugin.links


def results(agent: Agent) -> list[str]:
    """What each call of the last prompt's conversation returned."""
    from rondel.values import ToolResult

    return [
        part.text
        for message in model_of(agent).prompts[-1].messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


async def tell(app: App, text: str = "go", conversation: str = "c") -> list[Event]:
    return [event async for event in await app.conversation(conversation).send(text)]


async def answer(app: App, text: str, conversation: str = "c") -> Question:
    """Answer the open question, and wait for the turn. Returns the question."""
    chat = app.conversation(conversation)
    (question,) = await chat.questions()
    view = await chat.answer(question.id, text)
    async for _ in view:
        pass
    return question


def outcome(events: list[Event]) -> Outcome:
    return next(event.outcome for event in reversed(events) if isinstance(event, TurnFinished))


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    import asyncio

    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


def with_fields(spec: ServerSpec, **fields: Any) -> ServerSpec:
    return msgspec.structs.replace(spec, **fields)
