"""Background work: jobs, digests, the notice, typing, and what others may know."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel import Agent, RondelError, tool
from rondel.contracts.ledger import Rule
from rondel.surfaces.discord.pace import TYPING_REQUESTS_MAX
from rondel.surfaces.discord.summary import first_sentences
from rondel.testing import Pause, Scripted, VirtualClock, call
from rondel.testing.discord.world import EPHEMERAL

from .harness import World, loopback


class Work:
    """A tool that works until it is released."""

    def __init__(self, result: str = "42 rows") -> None:
        self.started, self.go = asyncio.Event(), asyncio.Event()
        self.result = result

    def tool(self, **more: Any) -> Any:
        @tool(name="report", **more)
        async def report() -> str:
            "Make a report."
            self.started.set()
            await self.go.wait()
            return self.result

        return report


async def settle(world: World) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)


async def test_a_slow_call_is_noticed_once_after_three_seconds():
    """B03: after 3 s one notice; B04: typing at once and every 7 s while something runs, and not after it."""
    clock, work = VirtualClock(), Work()
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[work.tool(timeout_s=0)])]
        async with world.running(call("report"), "Done.", agents=agents, clock=clock):
            await world.say("just talking", world.bob)
            await world.say("@bot report")
            await work.started.wait()
            await world.discord.until(lambda: world.discord.typed)
            assert world.discord.typed == [world.general.id]
            while clock.sleepers < 2:  # the typing and the notice
                await asyncio.sleep(0)
            clock.advance(2.9)
            await settle(world)
            assert world.discord.bot_messages(world.general) == []
            clock.advance(0.2)
            (notice,) = await world.discord.said(world.general)
            assert notice["content"] == (
                "Hang tight, I'm working on the report command. I'll report back once it's ready."
            )
            for count in (2, 3):
                clock.advance(3.8 if count == 2 else 6.9)  # 6.9 s since the last one
                await settle(world)
                assert len(world.discord.typed) == count - 1
                clock.advance(0.1)
                await world.discord.until(lambda count=count: len(world.discord.typed) == count)
                while clock.sleepers < 1:
                    await asyncio.sleep(0)
            work.go.set()
            assert (await world.answers(2))[-1] == "Done."
            clock.advance(60)
            await settle(world)
            assert len(world.discord.typed) == 3
            assert len(world.discord.bot_messages(world.general)) == 2


async def test_the_notice_can_be_switched_off_and_is_worded_by_visibility():
    """B03: wording by visibility; off switch. B05: private tasks are "a private request for X" to others."""
    clock = VirtualClock()
    async with loopback() as world:
        first, second = Work(), Work()
        off = [Agent("helper", engine=world.engine, tools=[first.tool(timeout_s=0)])]
        async with world.running(call("report"), "Done.", agents=off, clock=clock, notice_s=0):
            await world.say("@bot report")
            await first.started.wait()
            clock.advance(30)
            await settle(world)
            assert world.discord.bot_messages(world.general) == []
            first.go.set()
            await world.answers()
        on = [Agent("helper", engine=world.engine, tools=[second.tool(timeout_s=0)])]
        async with world.running(call("report"), "Secret.", "Hello.", agents=on, clock=clock) as bot:
            made = await world.discord.command(world.ann, world.general, "ai chat", message="report", private=True)
            await second.started.wait()
            while not any(one._notice for one in bot.deliveries.values()) or clock.sleepers < 1:
                await asyncio.sleep(0.001)
            clock.advance(3.5)
            await world.discord.until(lambda: "private request" in made.text)
            assert "I'm working on a private request for Ann." in made.text
            assert bot.task_lines(world.general.id, world.bob.id) == ["Working on a private request for Ann."]
            (task,) = bot.active_tasks(world.general.id)
            assert (task.is_private, task.person.name, task.state) == (True, "Ann", "working")
            await world.say("@bot what are you doing?", world.bob)
            while not any("private request for Ann" in str(prompt.messages) for prompt in world.engine.prompts):
                await asyncio.sleep(0.001)
            assert "report" not in world.engine.prompts[-1].messages[0].text
            second.go.set()
            await world.idle()
            assert bot.active_tasks() == []


async def test_of_several_slow_calls_in_one_answer_one_is_noticed():
    """B03: one notice."""
    clock, works = VirtualClock(), [Work(), Work()]
    async with loopback() as world:

        @tool(timeout_s=0)
        async def report(number: int) -> str:
            "Make a report."
            works[number].started.set()
            await works[number].go.wait()
            return "42 rows"

        agents = [Agent("helper", engine=world.engine, tools=[report])]
        steps = [call("report", "c1", number=0), call("report", "c2", number=1), "Done."]
        async with world.running(*steps, agents=agents, clock=clock) as bot:
            await world.say("@bot report twice")
            for number, work in enumerate(works):
                await work.started.wait()
                (delivery,) = bot.deliveries.values()
                while not delivery.fold.running:
                    await asyncio.sleep(0)
                await settle(world)
                clock.advance(3.1)
                (notice,) = await world.discord.said(world.general)
                await settle(world)
                assert notice["content"].startswith("Hang tight"), number
                work.go.set()
            assert (await world.answers(2))[1:] == ["Done."]


async def test_active_tasks_are_a_snapshot_of_each_channel():
    """A12: snapshot of running work per channel; B05: one's own work is named."""
    async with loopback() as world:
        pause = Pause("Thinking ")
        async with world.running(pause, "Second.") as bot:
            assert bot.active_tasks() == []
            assert not bot.is_ready  # no engine has answered yet
            await world.say("@bot think")
            await pause.reached.wait()
            (task,) = bot.active_tasks(world.general.id)
            assert (task.person.id, task.is_private) == (str(world.ann.id), False)
            assert bot.active_tasks(1) == []
            assert bot.task_lines(world.general.id, world.ann.id) == ["Your request is still running."]
            assert bot.task_lines(world.general.id, world.bob.id) == ["Working on a request for Ann."]
            pause.release()
            await world.answers()
            assert bot.is_ready


@pytest.mark.parametrize("mode", ["background", "inline"])
async def test_a_background_job_reports_once_and_the_model_hears_of_it(mode: str):
    """B01, B02: a digest for the next turn, or a follow-up turn with the result; delivered once and not lost."""
    work = Work()
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[work.tool(background=mode)])]
        steps = [call("report"), "I started it.", "The report has 42 rows."]
        async with world.running(*steps, agents=agents, whitelist=[world.general.id]):
            await world.say("report please")
            await work.started.wait()
            (first,) = await world.discord.said(world.general)
            await world.discord.until(lambda: first["content"] == "I started it.")
            work.go.set()
            if mode == "background":
                assert (await world.answers(2))[-1] == "**report** is done: 42 rows"
                await world.say("and?")
                assert (await world.answers(3))[-1] == "The report has 42 rows."
            else:
                assert (await world.answers(2))[-1] == "The report has 42 rows."
            assert "report completed: 42 rows" in str(world.engine.prompts[-1].messages)


async def test_a_job_that_ends_after_a_restart_is_reported_once():
    """B01: never lost."""
    work = Work()
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[work.tool(background=True, idempotent=True)])]
        async with world.running(call("report"), "I started it.", agents=agents, drain_s=0):
            await world.say("@bot report please")
            await work.started.wait()
            (first,) = await world.discord.said(world.general)
            await world.discord.until(lambda: first["content"] == "I started it.")
        work.go.set()
        async with world.running(agents=agents):
            assert await world.answers(2) == ["I started it.", "**report** is done: 42 rows"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_report_of_a_private_request_stays_private(restarts: bool):
    """B05: beside the private answer; after a restart, all of the answer comes as a direct message."""
    work = Work()
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[work.tool(background=True, idempotent=True)])]
        private = world.discord.dm(world.ann)
        async with world.running(call("report"), "I started it.", agents=agents, drain_s=0):
            made = await world.discord.command(world.ann, world.general, "ai chat", message="report", private=True)
            await work.started.wait()
            await world.discord.until(lambda: made.text == "I started it.")
            if not restarts:
                work.go.set()
                await world.discord.until(lambda: made.text == "I started it.\n**report** is done: 42 rows")
                await world.idle()
                assert all(message["flags"] & EPHEMERAL for message in made.answers)
                assert world.discord.bot_messages(private) == []
        if restarts:
            work.go.set()
            async with world.running(agents=agents):
                assert await world.answers(2, channel=private) == ["I started it.", "**report** is done: 42 rows"]
                assert made.text == ""
        assert world.discord.bot_messages(world.general) == []


LONG = ("row " * 100).strip()


@pytest.mark.parametrize(
    ("raw", "steps", "rules", "expected", "charged"),
    [
        (LONG, ["It has rows. Many of them. And more."], [], "It has rows. Many of them.", ["summary"]),
        (LONG, [" "], [], LONG, ["summary"]),
        (LONG, [RondelError("broken")], [], LONG, ["summary"]),
        (LONG, [], [Rule({"kind": "summary"}, tokens=1, mode="block")], LONG, []),
        ("42 rows", [], [], "42 rows", []),  # short enough as it is
    ],
    ids=["summed up", "nothing said", "error", "limit", "short"],
)
async def test_a_long_result_is_summed_up_by_a_cheap_model_or_shown_as_it_is(
    raw: str, steps: list[Any], rules: list[Rule], expected: str, charged: list[str]
):
    """B09, L05: at most two sentences, falls back to the raw text on a limit or an error; the person is charged."""
    cheap, work = Scripted(*steps, name="cheap:model"), Work(raw)
    work.go.set()
    async with loopback() as world:
        agents = [
            Agent("helper", engine=world.engine, tools=[work.tool(background=True)]),
            Agent("b", engine=cheap),
        ]
        given: dict[str, Any] = {"agents": agents, "rules": rules, "make_engine": lambda _: cheap}
        async with world.running(call("report"), "Started.", summary_engine="cheap:model", **given):
            await world.say("@bot report")
            assert (await world.answers(2))[-1] == f"**report** is done: {expected}"
            assert len(cheap.prompts) == len(steps)
            rows = await world.app.ledger.top(by="person+kind", window="lifetime")
            assert sorted(row.value.split("\x1f") for row in rows) == [
                [kind, str(world.ann.id)] for kind in ("chat", *charged)
            ]
    assert first_sentences("One. Two! Three?") == "One. Two!"


async def test_in_a_rush_answers_do_not_wait_for_typing_indicators():
    """B04: a few at once; who has an answer before it is their turn needs none."""
    async with loopback() as world:
        rooms = [world.discord.channel(world.guild, f"room-{number}") for number in range(12)]
        pauses = [Pause("Done.") for _ in rooms]
        world.discord.fail("POST", "/typing", 500, times=100)  # each is tried again for seconds
        async with world.running(*pauses, whitelist=[room.id for room in rooms]):
            for room in rooms:
                await world.say("hi", channel=room)
            await world.discord.until(lambda: len(world.discord.sent("POST", "/typing")) == TYPING_REQUESTS_MAX)
            for pause in pauses:
                await pause.reached.wait()
                pause.release()
            for room in rooms:
                assert await world.answers(channel=room) == ["Done."]
            assert len(world.discord.sent("POST", "/typing")) == TYPING_REQUESTS_MAX


@pytest.mark.parametrize("mode", ["background", "inline"])
@pytest.mark.parametrize("how", ["/ai stop", "delete"])
async def test_a_stop_and_a_deletion_reach_a_background_job_which_then_says_nothing(how: str, mode: str):
    work = Work()
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[work.tool(background=mode, timeout_s=0)])]
        async with world.running(call("report"), "It is on its way.", "Here it is.", agents=agents) as bot:
            asked = await world.say("@bot report")
            await work.started.wait()
            await world.discord.said(world.general)
            (delivery,) = bot.deliveries.values()
            while delivery.fold.turn_state != "over":
                await asyncio.sleep(0.001)
            if how == "delete":
                await world.discord.delete(asked)
            else:
                made = await world.discord.command(world.ann, world.general, "ai stop")
                assert (await world.discord.answered(made)).text == "Stopped."
            await world.idle()
            work.go.set()
            await settle(world)
            (told,) = world.discord.bot_messages(world.general)
            assert told["content"] == "It is on its way."
            (job,) = await world.app.background.jobs(delivery.pending.conversation)
            assert job.status == "cancelled"
            made = await world.discord.command(world.ann, world.general, "ai jobs")
            assert "Your request" not in (await world.discord.answered(made)).text
