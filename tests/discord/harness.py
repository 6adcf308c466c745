"""A bot with a scripted engine in a loopback Discord."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import discord

from rondel import Agent, App
from rondel.contracts.clock import Clock
from rondel.contracts.store import Store
from rondel.discord import DiscordBot, DiscordSettings, RondelClient, attach
from rondel.ledger.ledger import Ledger
from rondel.surfaces.discord.mounting import settings_of
from rondel.testing import MemoryStore, Scripted
from rondel.testing.discord import Channel, Guild, Json, LoopbackDiscord, User
from rondel.testing.discord.server import BotRequest

QUIET = {"parse": []}


def message_in(request: BotRequest) -> Json:
    """Return the message that a request posts or edits; empty if it does neither."""
    if request.path.endswith("/callback"):
        return request.body.get("data", {}) if request.body["type"] in (4, 7) else {}
    is_message = request.path.startswith(("/channels/", "/webhooks/")) and not request.path.endswith("/threads")
    return request.body if is_message and request.method in ("POST", "PATCH") else {}


class World:
    """A server with two people and a channel, and the bot in it."""

    def __init__(self, loopback: LoopbackDiscord) -> None:
        self.discord = loopback
        self.ann = loopback.person("ann_b", "Ann")
        self.bob = loopback.person("bob", "Bob")
        self.guild: Guild = loopback.guild("Community", self.ann, self.bob)
        self.general = loopback.channel(self.guild, "general")
        self.store = MemoryStore()
        self.engine = Scripted()
        self.bot: DiscordBot = None  # type: ignore[assignment]
        self.app: App = None  # type: ignore[assignment]
        self.has_own_client = False  # whose own commands and handlers may say what they want

    async def say(self, text: str, person: User | None = None, channel: Channel | None = None, **more: Any) -> Json:
        return await self.discord.say(person or self.ann, channel or self.general, text, **more)

    async def answers(self, count: int = 1, channel: Channel | None = None) -> list[str]:
        """Wait for so many messages of the bot, and until nothing is being answered."""
        await self.discord.said(channel or self.general, count)
        await self.idle()
        return [message["content"] for message in self.discord.bot_messages(channel or self.general)]

    async def idle(self) -> None:
        """Wait until every answer is delivered or waits for a person."""
        await self.discord.until(lambda: True)
        while any(one.fold.state != "waiting" for one in self.bot.deliveries.values()):
            await asyncio.sleep(0.001)

    async def recovered(self) -> None:
        """Wait until what an earlier life has left is answered."""
        while not self.bot.has_recovered or self.bot._beginning or self.bot.deliveries:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def running(
        self,
        *steps: Any,
        agents: Sequence[Agent] = (),
        store: Store | None = None,
        clock: Clock | None = None,
        client: discord.Client | None = None,
        rules: Any = (),
        make_engine: Any = None,
        app: App | None = None,
        images: Any = (),
        settings: DiscordSettings | None = None,
        hooks: Sequence[Any] = (),
        **given: Any,
    ) -> AsyncGenerator[DiscordBot]:
        """Run the bot. Its next life finds what is in the store. `hooks` are chat hooks."""
        self.engine.add(*steps)
        if store is None and app is None:
            self.store = self.store.reopen()
        store = store or self.store
        if app is None:
            ledger = Ledger(store.ledger_store, rules=rules, clock=clock)
            agents = agents or [Agent("helper", engine=self.engine)]
            app = App(*agents, store=store, clock=clock, ledger=ledger, make_engine=make_engine, images=images)
        self.app = app
        if "rules_of_discord" in given:
            given["rules"] = given.pop("rules_of_discord")
        self.has_own_client |= client is not None
        if client is None:
            extensions = settings.extensions if settings else ()
            connector = self.discord.connector()
            client = RondelClient(extensions=extensions, connector=connector, guild_ready_timeout=0.01, shard_count=1)
            client.allowed_mentions = None
        settings = settings or settings_of({"edit_s": 0.01, **given})
        self.bot = attach(client, self.app, settings)
        for hook in hooks:
            self.bot.hooks.on("chat", hook)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(client.start(self.discord.token))
            try:
                while not (client.is_ready() or running.done()):
                    await asyncio.sleep(0.001)
                yield self.bot
            finally:
                await client.close()


@contextlib.asynccontextmanager
async def loopback() -> AsyncGenerator[World]:
    """At the end, no message of the bot has notified anybody, by whatever path it was sent, and each request has said
    that it must not: the clients here have no default for that."""
    async with LoopbackDiscord() as discord:
        world = World(discord)
        yield world
        if not world.has_own_client:
            loud = [
                one for one in discord.requests if (body := message_in(one)) and body.get("allowed_mentions") != QUIET
            ]
            assert not loud
        bot, messages = str(discord.world.bot.id), discord.world.messages
        pinged = [id for id, people in discord.world.pings.items() if people and id in messages]
        assert not [id for id in pinged if messages[id]["author"]["id"] == bot]
