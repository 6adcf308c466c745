"""Two bots on one store: neither touches what the other does."""

from __future__ import annotations

import asyncio

from rondel import Prompt
from rondel.discord import DiscordBot
from rondel.testing import Pause, say
from rondel.values import Reply

from .harness import World, loopback


def into_same_channel(world: World, other: World) -> None:
    """Let the channel of one Discord be that of the other, as if both bots were in it."""
    channels = world.discord.world.channels
    channels[other.general.id] = channels.pop(world.general.id)
    world.general.id = other.general.id


def answer(prompt: Prompt) -> Reply:
    return say("It begins and ends." if prompt.messages[-1].text.endswith("go") else "Hello.")


async def recovered(bot: DiscordBot) -> None:
    while not bot.has_recovered:
        await asyncio.sleep(0.001)


async def test_a_bot_leaves_the_answers_of_another_one_alone():
    """A04: neither lost nor given by the wrong bot, whether it is in the same channel or not."""
    for is_shared in (False, True):
        async with loopback() as first, loopback() as second:
            if is_shared:
                into_same_channel(second, first)
            async with first.running(Pause("It begins "), drain_s=0):
                await first.say("@bot go")
                await first.discord.said(first.general)
            second.store = first.store
            # The process that starts next may finish the turn that was cut off; only the first bot posts its answer.
            async with second.running(answer, answer) as bot:
                await recovered(bot)
                await second.say("@bot hi")
                assert await second.answers() == ["Hello."]
            first.store = second.store
            async with first.running(answer) as bot:
                await recovered(bot)
                assert await first.answers() == ["It begins and ends."]


async def test_bots_in_one_channel_have_conversations_of_their_own():
    async with loopback() as first, loopback() as second:
        into_same_channel(second, first)
        async with first.running("Hi, Ann.", conversation="channel"):
            await first.say("@bot I am Ann")
            await first.answers()
        second.store = first.store
        async with second.running("Who are you?", conversation="channel"):
            await second.say("@bot who am I")
            await second.answers()
            (asked,) = second.engine.prompts
            assert "I am Ann" not in " ".join(message.text for message in asked.messages)
