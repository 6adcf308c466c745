"""What it costs to assemble a prompt: twelve plugins over a long conversation, against encoding the result as JSON.

Assembling is the prompt down the plugins, and the tree flattened. Encoding is the dialect's body of it and its JSON,
whole, without the cache that the HTTP engine has. `cold` is the first round of a process: plugins remember nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec

import rondel
from bench.measure import ROUNDS as SAMPLES_TAKEN
from bench.measure import Ratio, compare
from rondel.dialects import DIALECTS
from rondel.events import CallFinished, MessageAdded, Outcome, RoundFinished, TurnFinished, TurnStarted
from rondel.machine.journal import Journal
from rondel.machine.turn import Turn
from rondel.plugin import Plugin
from rondel.plugins.attachments import Attachments
from rondel.plugins.clock import Clock
from rondel.plugins.duration import Duration
from rondel.plugins.history import History
from rondel.plugins.position import Position
from rondel.plugins.todo import Todo
from rondel.prompt import Node, Prompt
from rondel.values import (
    Delta,
    Message,
    ModelFacts,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    user,
)

TREE = (
    Node("system", "You are a helper.", "system", (Node("tone", " Be kind."), Node("rules", " Be brief."))),
    Node("example", "An example of a question.", "user"),
)
MESSAGES = 1_000


def own_plugins(messages: int) -> list[Plugin]:
    """Ten of an agent's own; with those of every agent that edit prompts (limits, trim), twelve. Of so many messages,
    half of the results have expired."""
    return [
        Position(target="tone", text=" Warmly.", id="warmly"),
        Position(target="rules", position="after", text=" Cite sources.", id="cite"),
        Position(target="system", position="child", text=" Use Markdown.", id="markdown"),
        Position(target="history", text="The talk so far:", id="so-far"),
        Position(target="history", position="after", text="Answer now.", id="now"),
        Attachments(),
        Duration(results=messages // 4, errors=2),
        History(),
        Todo(),
        Clock(zone="UTC"),
    ]


class Silent:
    """An engine that says one word."""

    name = "silent"
    facts = ModelFacts(window_tokens=10_000_000)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        yield ReplyStarted("silent")
        yield PartStarted(0, Text(""))
        yield PartDelta(0, "Yes.")
        yield PartFinished(0, Text("Yes."))
        yield ReplyFinished()


async def filled(app: rondel.App, id: str, messages: int) -> Journal:
    """A kept conversation of so many messages: a question, a call, its result, an answer, and so on."""
    journal = await app.journals.open(id)
    for n in range(messages // 4):
        call = ToolCall(f"call-{n}", "search", {"query": f"what is the answer to question {n}?", "limit": 5})
        result = ToolResult(call.id, (Text(f"found for {n}: " + "a fact, " * 20),), "search")
        await journal.append(
            TurnStarted(f"t{n}", "bench"),
            MessageAdded(user(f"question {n}: " + "word " * 15, id=f"m{n}")),
            RoundFinished(Message("assistant", (call,))),
            CallFinished(result),
            RoundFinished(assistant("".join(f"word{k} " for k in range(30)))),
            TurnFinished(f"t{n}", Outcome.DONE),
            wait=False,
        )
    await journal.append(TurnStarted("now", "bench"), MessageAdded(user("And now?", id="now")))
    return journal


async def opened(stack: AsyncExitStack, messages: int) -> Turn:
    """A turn that is about to ask, in an app of its own."""
    agent = rondel.Agent("bench", TREE, Silent(), plugins=own_plugins(messages))
    app = await stack.enter_async_context(rondel.App(agent))
    turn = Turn(app, await filled(app, "long", messages), id="now", agent="bench")
    edits = turn.plugins.editors
    assert len(edits) == 12, [plugin.name for plugin, _ in edits]
    return turn


async def assembled(turn: Turn) -> Prompt:
    prompt = await turn.plugins.prompt(turn, turn.prompt())
    assert len(prompt.messages) > MESSAGES // 2
    return prompt


def encoded(prompt: Prompt) -> bytes:
    return msgspec.json.encode(DIALECTS["openai-chat"]().write_prompt(prompt, model="bench"))


async def against_encoding(*, cold: bool) -> Ratio:
    async with AsyncExitStack() as stack:
        times = 5
        turns = iter([await opened(stack, MESSAGES) for _ in range(times * (SAMPLES_TAKEN + 1))] if cold else ())
        warm = await opened(stack, MESSAGES)
        prompt = await assembled(warm)

        async def ours() -> None:
            for _ in range(times):
                await assembled(next(turns) if cold else warm)

        async def theirs() -> None:
            for _ in range(times):
                encoded(prompt)

        what = f"assembling {MESSAGES:,} messages with 12 plugins{', cold' if cold else ''}, against encoding them"
        return await compare(what, ours, theirs, limit=3, per=times)


async def growth() -> Ratio:
    """Ten times the messages, ten times the work, and no more."""
    async with AsyncExitStack() as stack:
        long, short = await opened(stack, 10 * MESSAGES), await opened(stack, MESSAGES)

        async def ours() -> None:
            await assembled(long)

        async def theirs() -> None:
            await assembled(short)

        what = f"assembling {10 * MESSAGES:,} messages against {MESSAGES:,}"
        return await compare(what, ours, theirs, limit=13, rounds=15)


# --- a plugin that does nothing ---------------------------------------------------------------------------------------


class Idle(Plugin):
    """Overrides nothing."""


IDLE = 25
ROUNDS = 20
SAMPLES = 60


async def rounds_of(app: rondel.App) -> None:
    """So many rounds, each a turn of its own, in a new conversation."""
    conversation = app.conversation()
    for _ in range(ROUNDS):
        await (await conversation.send("And now?")).result()


async def idle() -> Ratio:
    """Many of them at once, and their share: what one adds is less than what the machine's mood does."""
    async with AsyncExitStack() as stack:

        async def app_with(plugins: int) -> rondel.App:
            agent = rondel.Agent("bench", TREE, Silent(), plugins=[Idle() for _ in range(plugins)])
            return await stack.enter_async_context(rondel.App(agent))

        many, none = await app_with(IDLE), await app_with(0)
        all_of_them = await compare(
            "", lambda: rounds_of(many), lambda: rounds_of(none), limit=0, per=ROUNDS, rounds=SAMPLES
        )
    what = f"a round with a plugin that does nothing (of {IDLE} at once), against one without"
    share = 1 + (all_of_them.ratio - 1) / IDLE
    return Ratio(what, share, 1.01, all_of_them.ours, all_of_them.theirs)


def run() -> list[Ratio]:
    return [
        asyncio.run(against_encoding(cold=False)),
        asyncio.run(against_encoding(cold=True)),
        asyncio.run(growth()),
        asyncio.run(idle()),
    ]
