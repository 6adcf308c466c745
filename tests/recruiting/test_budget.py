"""Nothing runs away: levels, circles, one budget for a whole tree of agents, time, and size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel import Agent, App, Limits, Prompt, tool
from rondel.events import CallFinished, LimitHit, Spent, TurnFinished
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, Scripted, VirtualClock, call, calls, say
from rondel.values import Usage
from tests.helpers import events_of, of, output_of, play, scripted, talking, turn_after


def ended(*agents: Agent, text: str = "go", **settings: Any) -> list[Any]:
    return play(turn_after(text, agent=agents[0].name), *agents, **settings)


def output(*agents: Agent, text: str = "go") -> str:
    return play(output_of(text, agent=agents[0].name), *agents)


# --- levels and circles -----------------------------------------------------------------------------------------------


def test_templates_that_recruit_each_other_in_a_circle_are_told_their_path():
    """F04: the error names the circle and the calls that led to it."""
    a = Agent("a", template='A({{ .Get "b" }})')
    b = Agent("b", template='B({{ .Get "a" "again" }})')
    assert output(a, b) == (
        "A(B([error calling a: agents recruit each other in a cycle: a -> b -> a\n"
        'Depth 1: called tool b with args {"input":"go"}]))'
    )


def test_an_agent_that_recruits_itself_is_told_so():
    """F04."""
    said = output(Agent("me", template='{{ .Get "me" }}'))
    assert said == "[error calling me: agents recruit each other in a cycle: me -> me]"


def test_agents_are_nested_six_deep_and_no_deeper():
    """F04: nested agents at most 6; the error names depth and trace."""
    chain = [Agent(f"n{n}", template=f'{n}{{{{ .Get "n{n + 1}" }}}}') for n in range(7)]
    said = output(*chain, Agent("n7", template="end"))
    assert said.startswith("012345[error calling n6: agents are nested 6 levels deep (limits.agent_levels is 6): ")
    assert "n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> n6" in said
    assert 'Depth 5: called tool n5 with args {"input":"go"}' in said
    assert output(*chain[2:], Agent("n7", template="end")) == "23456end"


def test_tools_are_nested_five_deep_and_the_error_has_the_calls():
    """F04: tool levels at most 5; "Depth d: called tool X with args ..."."""
    told: list[str] = []

    def answer(prompt: Prompt) -> Any:
        last = prompt.messages[-1]
        if last.role == "tool":
            told.append(last.parts[0].text)  # type: ignore[union-attr]
            return say("done")
        return call("mirror", input="deeper")

    mirror = Agent("mirror", engine=Scripted(*[answer] * 40), tools=["mirror"], description="Calls itself.")
    assert output(mirror) == "done"
    first, *lines = told[0].splitlines()
    assert "calls are nested 5 levels deep (limits.tool_levels=5)" in first
    assert lines == [f'Depth {n}: called tool mirror with args {{"input":"deeper"}}' for n in range(1, 6)]


# --- one budget -------------------------------------------------------------------------------------------------------


def tree(limits: Limits, *, rounds: int = 10, usage: Usage | None = None) -> tuple[Agent, Agent]:
    """A boss who lets a worker work round after round."""

    def boss(prompt: Prompt) -> Any:
        return call("worker", f"w{len(prompt.messages)}", input="work")

    worker = Agent("worker", engine=Scripted(*[say("worked", usage=usage)] * 100))
    return Agent("boss", engine=Scripted(*[boss] * 100), tools=["worker"], limits=limits), worker


@pytest.mark.parametrize(
    ("limits", "name", "told"),
    [
        (Limits(tree_rounds=5), "limits.tree_rounds", "used their 5 rounds; raise limits.tree_rounds of 'boss'"),
        (Limits(tree_calls=3), "limits.tree_calls", "used their 3 calls; raise limits.tree_calls of 'boss'"),
        (Limits(tree_tokens=100), "limits.tree_tokens", "used their 100 tokens; raise limits.tree_tokens of 'boss'"),
    ],
)
def test_a_tree_of_agents_shares_one_budget_and_its_end_has_a_name(limits: Limits, name: str, told: str):
    """F04."""
    events = ended(*tree(limits, usage=Usage(30, 10)))
    (hit,) = of(LimitHit, events)
    assert (hit.name, told in hit.message) == (name, True)
    assert of(TurnFinished, events)[-1].reason == hit.message


def test_the_time_of_a_tree_is_a_budget_too():
    clock = VirtualClock()

    @tool
    async def wait() -> str:
        clock.advance(40)
        return "waited"

    agent, _ = scripted(*[call("wait")] * 5, tools=[wait], limits=Limits(tree_s=100))
    (hit,) = of(LimitHit, ended(agent, clock=clock))
    assert (hit.name, "used their 100 seconds" in hit.message) == ("limits.tree_s", True)


def test_a_worker_that_finds_the_budget_used_up_tells_who_asked_it():
    """The inner agent ends by the limit's name; the outer one reads it and ends by it as well."""
    worker = Agent(
        "worker", engine=Scripted(call("look", "l1"), call("look", "l2"), call("look", "l3")), tools=["look"]
    )

    @tool
    async def look() -> str:
        return "seen"

    boss = Agent(
        "boss", engine=Scripted(call("worker", input="x"), "never"), tools=["worker"], limits=Limits(tree_rounds=3)
    )
    events = ended(boss, worker, tools=[look])
    told = of(CallFinished, events)[-1].result
    assert told.is_error
    assert told.text.startswith("agent 'worker' stopped: agent 'boss' and those that work for it used their 3 rounds")
    assert of(LimitHit, events)[-1].name == "limits.tree_rounds"


def test_the_budget_survives_a_restart_because_it_is_folded_from_the_transcripts():
    """What a tree used before it waited for a person counts when it goes on in another process."""

    @tool(idempotent=True)
    async def look() -> str:
        return "seen"

    def inner(prompt: Prompt) -> Any:
        rounds = sum(m.role == "assistant" for m in prompt.messages)
        return calls(call("look", f"l{rounds}"))

    def agents() -> tuple[Agent, ...]:
        asks, asking = Scripted(call("asker", input="x")), 'Name: {{ .Get "helper" }} {{ .AskUser "Name?" }}'
        return (
            Agent("boss", engine=asks, tools=["asker", "looker"], limits=Limits(tree_rounds=12)),
            Agent("asker", template=asking),
            Agent("helper", engine=Scripted(*[call("look", f"h{n}") for n in range(6)], "done"), tools=[look]),
            Agent("looker", engine=Scripted(*[inner] * 40), tools=[look]),
        )

    disk = MemoryStore()

    async def first() -> None:
        async with App(*agents(), store=disk) as app:
            await (await app.conversation("c").send("go")).result()

    async def then() -> tuple[Spent, str]:
        boss, *others = agents()
        engine = Scripted(*[call("looker", f"k{n}", input="y") for n in range(9)])
        boss = Agent("boss", engine=engine, tools=boss.tools, limits=boss.limits)
        async with App(boss, *others, store=disk.reopen()) as app:
            conversation = app.conversation("c")
            (question,) = await conversation.questions()
            view = await conversation.answer(question.id, "Ann")
            events = await events_of(view)
            return (await conversation.transcript()).turn_spent, of(LimitHit, events)[-1].name

    asyncio.run(first())
    spent, hit = asyncio.run(then())
    # 1 of the boss and 7 of the helper before the restart, 1 of the boss and 3 of the looker behind it
    assert (hit, spent.rounds) == ("limits.tree_rounds", 12)


async def test_a_turn_knows_what_the_agents_below_it_used():
    boss, worker = tree(Limits())
    boss = Agent(
        "boss", engine=Scripted(call("worker", "w", input="x"), say("ok", usage=Usage(1, 1))), tools=["worker"]
    )
    worker = Agent("worker", engine=Scripted(say("worked", usage=Usage(20, 3))))
    async with talking(boss, worker) as conversation:
        events = await events_of(await conversation.send("go"))
        spent = (await conversation.transcript()).turn_spent
    assert of(CallFinished, events)[0].spent == Spent(rounds=1, calls=0, tokens=23)
    assert spent == Spent(rounds=3, calls=1, tokens=25)


# --- size -------------------------------------------------------------------------------------------------------------


def test_an_agent_that_returns_ten_megabytes_is_cut_with_a_sentence():
    said = output(Agent("outer", template='{{ .Get "flood" }}|end'), Agent("flood", function=lambda: "x" * 10_000_000))
    assert said.endswith("[... cut: the result had 10,000,000 characters, the first 32,000 are shown]|end")
    assert len(said) < 33_000


def test_an_agent_that_recruits_a_thousand_others_works():
    names = [f"t{n}" for n in range(1_000)]
    many = Agent("many", template=" ".join(f'{{{{ .Get "{name}" }}}}' for name in names))
    assert output(many, *(Agent(name, template=name) for name in names)) == " ".join(names)


def test_an_agent_that_recruits_more_than_the_tree_may_call_ends_by_the_limits_name():
    names = [f"t{n}" for n in range(30)]
    template = " ".join(f'{{{{ .Get "{name}" }}}}' for name in names)
    many = Agent("many", template=template, limits=Limits(tree_calls=20))
    events = ended(many, *(Agent(name, template=name) for name in names))
    assert [hit.name for hit in of(LimitHit, events)] == ["limits.tree_calls"]


def test_what_an_agent_says_may_make_no_more_calls_than_a_model():
    """An author may write a thousand directives; what a model says is held to its calls a round."""
    said = " ".join(f'{{{{ .Get "echo" "{n}" }}}}' for n in range(4))
    agent, _ = scripted(say(said), expands_output=True, recruits=["echo"], limits=Limits(calls=2))
    told = output(agent, Agent("echo", template="({{ .Input }})"))
    assert told.startswith("(0) (1) [error calling echo: not run: a round may have 2 calls (limits.calls)")


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_sub_agent_has_a_time_limit_of_its_own():
    """T11: 120 seconds unless it says otherwise; the error goes back, and its request is closed."""
    assert Limits().agent_s == 120
    pause = Pause("thinking")
    slow = Agent("slow", engine=Scripted(pause), limits=Limits(agent_s=0.02))
    boss, engine = scripted(call("slow", "s1", input="x"), "Without it, then.", tools=[slow])
    async with App(boss) as app:
        conversation = app.conversation("c")
        result = await (await conversation.send("go")).result()
        last = (await app.store.read("c/s1"))[-1].event
        said = result.output
    assert said == "Without it, then."
    assert pause.closed
    told = "agent 'slow' gave no answer within 0.02 s (limits.agent_s); ask it for less"
    assert engine.prompts[1].messages[-1].parts[0].text == told
    assert (last.outcome, last.failure.message) == ("failed", told)


async def test_a_sub_agent_is_cancelled_with_its_parent():
    """T11."""
    pause = Pause("thinking")
    boss, _ = scripted(call("slow", input="x"), tools=[Agent("slow", engine=Scripted(pause))])
    async with talking(boss) as conversation:
        view = await conversation.send("go")
        await pause.reached.wait()
        await conversation.stop()
        await view.result()
    assert pause.closed


def test_a_sub_agent_has_a_history_of_its_own():
    """T11: it sees its task and nothing of what its parent was told."""
    inner, engine = scripted("deep", name="inner", prompt="You dig.")
    boss, outer = scripted(call("inner", input="dig here"), "ok", tools=[inner])
    assert output(boss, text="a secret") == "ok"
    assert [m.text for m in engine.prompts[0].messages] == ["You dig.", "dig here"]
    assert [m.role for m in outer.prompts[1].messages] == ["user", "assistant", "tool"]


async def test_control_passes_to_another_agent_and_returns_with_the_next_message():
    """T11: `agent:<id>` passes control; the next turn begins where the conversation began."""
    import msgspec

    from rondel import Plugin, Reply
    from rondel.machine.turn import Turn

    class Pass(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="agent:expert") if "expert" in reply.text else reply

    desk = Agent("desk", engine=Scripted("Ask the expert.", "Desk again."), plugins=[Pass()])
    expert = Agent("expert", template='The expert says: {{ .Get "book" }}')
    async with talking(desk, expert, Agent("book", template="42")) as conversation:
        found = [(await (await conversation.send(text)).result()).output for text in ("one", "two")]
    assert found == ["The expert says: 42", "Desk again."]
