"""The agents behind the gateway, by name and in order, and one of somebody else in ten lines."""

from __future__ import annotations

import pytest

from rondel import Plugin, Prompt, Reply, RondelError
from rondel.gateway.bridge.registry import Registry
from rondel.machine.turn import Turn
from rondel.plugins.image_agent import ImageAgent
from rondel.plugins.memory import MemoryAgent
from rondel.testing import Scripted, call
from rondel.tool import tool
from rondel.values import user
from tests.gateway.foreign import Caller, behind


@tool
def dice() -> str:
    "Throw a die."
    return "4"


class Dice(Plugin):
    tools = (dice,)

    def applies(self, turn: Turn) -> bool:
        return turn.caller is not None and turn.caller.person.id == "ann"

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        return prompt.instruct("Throw the die when chance decides.")

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return reply.with_text(reply.text.upper())


async def test_an_agent_of_somebody_else_is_ten_lines_and_each_of_them_is_called():
    """I10: name, tools, whether it takes part, the request's and the reply's handler, which is really called."""
    model = Scripted(call("dice"), "it is a four", "hello")
    async with behind(model, Dice()) as app:
        turn = await Caller(app, key="ann").asks(user("Shall I go?"))
        assert turn.result().output == "IT IS A FOUR"
        turn = await Caller(app, key="bob").asks(user("Shall I go?"))
        assert turn.result().output == "hello"
    instructions = [[message.text for message in prompt.instructions] for prompt in model.prompts]
    assert instructions[0] == instructions[1] == ["You are a coding agent.", "Throw the die when chance decides."]
    assert instructions[2] == ["You are a coding agent."]


def test_agents_are_registered_found_listed_and_their_tools_known():
    """I10: the manager registers, gets, gives all and all their tools."""
    registry = Registry([ImageAgent("eyes:big")])
    memory = registry.register(MemoryAgent())
    registry.register(Dice())
    assert registry.names == ("image", "memory", "dice")
    assert registry.get("memory") is memory
    assert registry.get("nobody") is None
    assert [plugin.name for plugin in registry] == ["image", "memory", "dice"]
    assert [one.name for one in registry.tools] == ["analyzeImage", "remember", "recall", "forget", "dice"]


def test_a_name_or_a_tool_that_is_taken_is_refused():
    """I10: two agents cannot inject the same tool."""

    class Casino(Plugin):
        tools = (dice,)

    registry = Registry([Dice()])
    with pytest.raises(RondelError, match="there are two agents named 'dice' behind the gateway"):
        registry.register(Dice())
    with pytest.raises(RondelError, match="the agents 'dice' and 'casino' both inject a tool named 'dice'"):
        registry.register(Casino())
    assert registry.names == ("dice",)
