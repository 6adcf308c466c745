"""A person at each front end: what they type, click or send, and what they see.

Each drives the real thing from outside: the terminal's chat, the API over HTTP, and Discord over its gateway.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Self

from rondel import Agent, App, Conversation
from rondel.surfaces.session import Session
from rondel.surfaces.terminal.chat import Terminal
from rondel.testing import MemoryStore
from rondel.testing.discord import Json, LoopbackDiscord, text_of
from rondel.values import Media
from tests.discord.harness import World
from tests.surfaces.memory import MemorySurface
from tests.web.served import Site, site

WAIT_S = 20.0


class Front(ABC):
    """One person in one conversation with an agent. `async with` is the life of the program that they use."""

    person: str  # their id in the transcript and in the ledger

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.store = MemoryStore()
        self._life = contextlib.AsyncExitStack()

    @abstractmethod
    def live(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Run the program on the store, and open the conversation that there is."""

    @property
    @abstractmethod
    def conversation(self) -> Conversation: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """All text that they see."""

    @abstractmethod
    async def say(self, text: str, *files: Media) -> None: ...

    @abstractmethod
    async def steer(self, text: str) -> None:
        """Change what is being answered."""

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def answer(self, text: str) -> None:
        """Answer the open question, with one of its options or in other words."""

    async def sees(self, text: str) -> None:
        while text not in self.text:
            await asyncio.sleep(0.002)

    async def restart(self) -> None:
        await self._life.aclose()
        self.store = self.store.reopen()
        await self._life.enter_async_context(self.live())

    async def __aenter__(self) -> Self:
        await self._life.enter_async_context(asyncio.timeout(WAIT_S))
        await self._life.enter_async_context(self.live())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._life.__aexit__(kind, error, trace)


class InTerminal(Front):
    _session: Session
    _shown: Callable[[], str]

    def open(self, app: App) -> tuple[Session, Callable[[], str]]:
        target = io.StringIO()
        return Terminal(app, source=io.StringIO(), target=target).session, target.getvalue

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async with App(self.agent, store=self.store) as app, asyncio.TaskGroup() as group:
            self._session, self._shown = self.open(app)
            self.person = self._session.person.id
            await self._session.start(group, app.conversation("c"))
            yield
            self._session.close()

    @property
    def conversation(self) -> Conversation:
        return self._session.conversation

    @property
    def text(self) -> str:
        return " ".join(self._shown().split())

    async def say(self, text: str, *files: Media) -> None:
        await self._session.idle.wait()
        for file in files:
            self._session.attach(file)
        await self._session.handle(text)

    async def steer(self, text: str) -> None:
        await self._session.handle(text)

    async def stop(self) -> None:
        await self._session.handle("/stop")

    async def answer(self, text: str) -> None:
        await self.say(text)


class InMemory(InTerminal):
    def open(self, app: App) -> tuple[Session, Callable[[], str]]:
        surface = MemorySurface(app)
        return surface.session, lambda: "\n".join(surface.lines)


class OnTheWeb(Front):
    person = "user"
    _site: Site
    _id = ""

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async with site(self.agent, store=self.store) as self._site, asyncio.TaskGroup() as group:
            self._id = self._id or await self._site.start()
            self._seen = list[str]()
            watching = group.create_task(self._watch())
            yield
            watching.cancel()

    async def _watch(self) -> None:
        async for _, data in self._site.events(self._id):
            self._seen += _texts(data)

    @property
    def conversation(self) -> Conversation:
        return self._site.app.conversation(self._id)

    @property
    def text(self) -> str:
        return "\n".join(self._seen)

    async def _post(self, path: str, **body: Any) -> None:
        await self._site.json("POST", f"/api/conversations/{self._id}/{path}", body)

    async def say(self, text: str, *files: Media) -> None:
        attachments = [{"name": file.name, "data": base64.b64encode(file.data).decode()} for file in files]
        await self._post("messages", text=text, attachments=attachments)

    async def steer(self, text: str) -> None:
        await self._post("messages", text=text, mode="steer")

    async def stop(self) -> None:
        await self._post("stop")

    async def answer(self, text: str) -> None:
        (question,) = await self._site.json("GET", f"/api/conversations/{self._id}/questions")
        await self._post(f"questions/{question['id']}", text=text)


class OnDiscord(Front):
    """Ann, in a direct message."""

    _world: World
    _said: Json

    async def __aenter__(self) -> Self:
        self._discord = contextlib.AsyncExitStack()  # it outlives the bot
        self._world = World(await self._discord.enter_async_context(LoopbackDiscord()))
        self._dm = self._world.discord.dm(self._world.ann)
        self.person = str(self._world.ann.id)
        return await super().__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        async with self._discord:
            await super().__aexit__(*raised)

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async with self._world.running(agents=[self.agent], store=self.store) as bot:
            while not bot.has_recovered:
                await asyncio.sleep(0.001)
            yield

    @property
    def conversation(self) -> Conversation:
        return self._world.app.conversation(f"discord-{self._world.bot.id}-c{self._dm.id}")

    @property
    def text(self) -> str:
        return "\n".join(map(text_of, self._world.discord.bot_messages(self._dm)))

    async def say(self, text: str, *files: Media) -> None:
        given = {file.name: (file.data, file.mime) for file in files}
        self._said = await self._world.say(text, channel=self._dm, files=given)

    async def steer(self, text: str) -> None:
        await self._world.discord.edit(self._said, text)

    async def stop(self) -> None:
        await self._world.discord.delete(self._said)

    async def answer(self, text: str) -> None:
        discord, ann = self._world.discord, self._world.ann
        card = discord.bot_messages(self._dm)[-1]
        try:
            await discord.click(ann, card, {"yes": "Yes", "no": "No"}.get(text, text))
        except LookupError:
            await discord.submit(await discord.click(ann, card, "Answer…"), text)


def _texts(value: Any) -> list[str]:
    """Return every text in an event."""
    if isinstance(value, str):
        return [value]
    parts: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
