"""What a reply hook learns about MCP servers."""

from __future__ import annotations

from rondel import Agent
from rondel.discord import ReplyContext
from rondel.testing import call
from tests.mcp.helpers import plugin_of, raw

from .harness import loopback


async def test_a_reply_hook_sees_the_calls_to_mcp_servers_and_which_servers_are_down():
    """A07: sees MCP calls and degraded servers, in every turn and not only in the first."""
    seen: list[ReplyContext] = []
    async with loopback() as world:
        servers = plugin_of(raw("good"), raw("bad", "broken", retries=0))
        agents = [Agent("helper", engine=world.engine, plugins=[servers])]
        async with world.running(call("mcp-good-echo", text="hi"), "One.", "Two.", "Three.", agents=agents) as bot:
            bot.hooks.on("reply", lambda context: seen.append(context))
            await world.say("@bot first")
            await world.answers()
            await world.say("@bot second")
            await world.answers(2)
            await bot.chat_sync("third")
        assert [[one.name for one in context.mcp_calls] for context in seen] == [["mcp-good-echo"], [], []]
        assert [context.degraded_servers for context in seen] == [("bad",)] * 3
