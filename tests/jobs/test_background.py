"""Tools and agents in the background: answered at once, done by a durable job, told to the next turn exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel import Agent, RondelError, tool
from rondel.errors import EngineOverloaded
from rondel.events import Digest, DurableEvent, JobFinished, JobMode, TurnStarted
from rondel.jobs.background import JOBS_AT_ONCE, JOBS_OPEN_MAX, read_jobs
from rondel.question import NO, YES
from rondel.stores.memory import MemoryStore
from rondel.testing import VirtualClock, call, calls
from rondel.tool import Approval, CallContext
from rondel.tools.ask_user import ask_user
from rondel.tools.background import cancel_job, list_jobs
from rondel.values import Person
from tests.jobs.workbench import WAIT_S, Bench, app_of, changed, digests_in, helper, jobs_of, tell, tell_and_drain

# --- at once, and then the next turn ----------------------------------------------------------------------------------


async def test_a_tool_in_the_background_answers_at_once_and_the_next_turn_hears_of_its_result():
    """B01: background returns at once and gives a digest to the next turn."""
    bench = Bench()
    agent, engine = helper(call("slow", topic="tea"), "it has begun", "I know", "still", tools=[bench.tool])
    async with app_of(agent) as app:
        assert await tell(app, "look up tea") == "it has begun"
        (job,) = await jobs_of(app)
        assert job.id in engine.prompts[1].messages[-1].parts[0].text  # pyright: ignore
        await bench.began.wait()
        await bench.finish(app)
        assert await tell(app, "and?") == "I know"
        assert len(digests_in(engine)) == 1
        assert f"job {job.id} is over" in digests_in(engine)[0]
        assert "slow completed: all about tea" in digests_in(engine)[0]
        assert await tell(app, "and now?") == "still"
        assert len(digests_in(engine)) == 1, "it is in the history, once"


async def test_a_digest_has_its_fields_and_one_line_of_at_most_120_characters():
    """B02: id, name, success, summary, detail, time; line "name completed: summary" of at most 120 characters."""
    clock = VirtualClock()
    long = "a long story. " * 40

    @tool(background=True)
    def story() -> str:
        return long

    agent, _ = helper(call("story"), "ok", tools=[story])
    async with app_of(agent, clock=clock) as app:
        await tell(app, "go")
        clock.advance(5)
        await app.drain()
        (digest,) = [e.event.digest for e in await app.conversation("c").entries() if isinstance(e.event, JobFinished)]
        assert (digest.name, digest.success, digest.detail) == ("story", True, long)
        assert digest.id == (await jobs_of(app))[0].id
        assert clock.now() - 5 <= digest.at <= clock.now()
        assert digest.line.startswith("story completed: a long story.")
        assert len(digest.line) == 120
        assert digest.line.endswith("…")
        assert len(digest.summary) == 200


def test_a_line_of_a_digest_is_one_line_and_says_what_failed():
    assert Digest("j", "fetch", False, "no\nway\t out").line == "fetch failed: no way out"


async def test_digests_stay_in_their_conversation():
    """B02: per channel."""
    bench = Bench(go=True)
    agent, engine = helper(call("slow", topic="tea"), "begun", "hello", tools=[bench.tool])
    async with app_of(agent) as app:
        await tell(app, "go", "c")
        await app.drain()
        await tell(app, "hi", "other")
        assert digests_in(engine) == []


async def test_a_digest_is_not_lost_when_the_turn_that_took_it_fails():
    """B01: never lost when that turn fails: what was taken from the inbox stays in the history."""
    bench = Bench(go=True)
    agent, engine = helper(
        call("slow", topic="tea"), "begun", EngineOverloaded("too busy"), "now I know", tools=[bench.tool]
    )
    async with app_of(agent) as app:
        await tell_and_drain(app)
        assert "too busy" in await tell(app, "and?")
        assert await tell(app, "again?") == "now I know"
        assert len(digests_in(engine)) == 1


async def test_a_digest_alone_asks_no_model():
    bench = Bench()
    agent, engine = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent) as app:
        await bench.begin(app)
        await bench.finish(app)
        assert await app.conversation("c").resume() is None
    engine.check_done()
    assert len(engine.prompts) == 2


async def test_a_job_that_ends_within_its_turn_is_heard_in_that_turn_when_a_round_is_asked_anyway():
    bench = Bench(go=True)

    @tool
    async def wait_for_it(context: CallContext) -> str:
        """Wait until the job is over."""
        while not (await context.turn.services.background.jobs("c"))[0].is_over:
            await asyncio.sleep(0)
        return "waited"

    agent, engine = helper(call("slow", topic="tea"), call("wait_for_it"), "all", tools=[bench.tool, wait_for_it])
    async with app_of(agent) as app:
        assert await tell(app, "go") == "all"
        assert len(digests_in(engine)) == 1


async def test_inline_runs_a_turn_with_the_result():
    """B01: inline mode runs a follow-up turn with the result."""
    bench = Bench(background="inline", go=True)
    agent, engine = helper(call("slow", topic="tea"), "begun", "here it is", "later", tools=[bench.tool])
    async with app_of(agent) as app:
        assert await tell(app, "go") == "begun"
        await app.drain()
        transcript = await app.conversation("c").transcript()
        assert transcript.output == "here it is"
        assert len(digests_in(engine)) == 1
        await tell(app, "thanks")
        assert len(digests_in(engine)) == 1


async def test_an_agent_says_which_of_its_tools_work_in_the_background():
    plain, inline = Bench(name="plain", background=False), Bench(name="told", background=False)
    plain.go.set()
    inline.go.set()
    agent, engine = helper(
        calls(call("plain", topic="a"), call("told", topic="b")),
        "begun",
        "told",
        tools=[plain.tool, inline.tool],
        background={"plain": "background", "told": "inline"},
    )
    async with app_of(agent) as app:
        assert await tell(app, "go") == "begun"
        await app.drain()
        assert {job.name: job.mode for job in await jobs_of(app)} == {"plain": "background", "told": "inline"}
    engine.check_done()


def test_an_unknown_name_or_mode_in_the_background_is_one_sentence():
    bench = Bench()
    wrong = Agent("a", engine="echo", tools=[bench.tool], background=["slov"])
    with pytest.raises(RondelError, match=r"'slov' in `background` but has no such tool; did you mean 'slow'\?"):
        app_of(wrong).background.prepare(wrong, {"slow": bench.tool}, lambda name: bench.tool)
    with pytest.raises(RondelError, match="background='inlin' is unknown; did you mean 'inline'"):
        tool(name="x", background="inlin")(lambda: "")  # pyright: ignore


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_tool_that_raises_gives_a_digest_that_says_so():
    @tool(background=True)
    def broken() -> str:
        raise ValueError("no luck")

    agent, engine = helper(call("broken"), "begun", "oh", tools=[broken])
    async with app_of(agent) as app:
        await tell_and_drain(app)
        assert [job.status for job in await jobs_of(app)] == ["failed"]
        await tell(app, "and?")
        assert "broken failed: 'broken' failed: ValueError: no luck" in digests_in(engine)[0]


async def test_work_that_needs_an_answer_fails_and_says_what_it_asked():
    inner, _ = helper(call("ask_user", question="Which city?"), name="planner", tools=[ask_user])
    agent, engine = helper(call("planner", input="plan"), "begun", "ask", tools=[inner.as_tool(background=True)])
    async with app_of(agent) as app:
        await tell_and_drain(app)
        await tell(app, "and?")
        assert "planner failed: it needs an answer to continue" in digests_in(engine)[0]
        assert "Which city?" in digests_in(engine)[0]
        assert await app.conversation("c").questions() == []


async def test_a_person_is_asked_before_the_job_is_started_and_only_then():
    bench = Bench(approval=Approval(mode="confirm"), go=True)
    agent, _ = helper(call("slow", topic="a"), "begun", call("slow", topic="b"), "not begun", tools=[bench.tool])
    async with app_of(agent) as app:
        conversation = app.conversation("c")
        for said, answer, runs in (("go", YES, 1), ("go on", NO, 1)):
            await (await conversation.send(said)).result()
            (question,) = await conversation.questions()
            await (await conversation.answer(question.id, answer)).result()
            await app.drain()
            assert bench.runs == runs
        assert len(await jobs_of(app)) == 1


# --- who, where, how many ---------------------------------------------------------------------------------------------


async def test_an_agent_works_in_the_background_and_its_answer_is_the_digest():
    writer, _ = helper("a poem", name="writer")
    agent, engine = helper(call("writer", input="write"), "begun", "nice", tools=[writer.as_tool(background=True)])
    async with app_of(agent) as app:
        await tell_and_drain(app)
        await tell(app, "and?")
        assert "writer completed: a poem" in digests_in(engine)[0]


async def test_the_job_of_an_agent_that_works_for_another_belongs_to_the_conversation_that_people_see():
    bench = Bench(go=True)
    inner, inner_engine = helper(call("slow", topic="tea"), "on its way", name="inner", tools=[bench.tool])
    agent, engine = helper(call("inner", input="go"), "begun", "aha", tools=[inner])
    async with app_of(agent) as app:
        await tell_and_drain(app)
        assert [job.name for job in await jobs_of(app)] == ["slow"]
        await tell(app, "and?")
        assert len(digests_in(engine)) == 1
        assert digests_in(inner_engine) == []


async def test_two_calls_with_the_same_id_are_two_jobs():
    bench = Bench(go=True)
    agent, _ = helper(call("slow", topic="a"), call("slow", topic="b"), "begun", tools=[bench.tool])
    async with app_of(agent) as app:
        await tell_and_drain(app)
        assert [job.summary for job in await jobs_of(app)] == ["all about a", "all about b"]


async def test_more_jobs_than_may_run_at_once_are_queued():
    bench = Bench()
    many = [call("slow", id=f"call-{n}", topic=str(n)) for n in range(JOBS_AT_ONCE + 2)]
    agent, _ = helper(calls(*many), "begun", tools=[bench.tool])
    async with app_of(agent) as app:
        watcher = await app.conversation("c").watch()
        await tell(app, "go")
        await changed(watcher, lambda event: event.text == "looking", times=JOBS_AT_ONCE)
        statuses = [job.status for job in await jobs_of(app)]
        assert (statuses.count("running"), statuses.count("queued")) == (JOBS_AT_ONCE, 2)
        watcher.close()
        await bench.finish(app)
        assert {job.status for job in await jobs_of(app)} == {"done"}
        assert bench.runs == JOBS_AT_ONCE + 2


async def test_a_model_that_starts_too_many_jobs_is_told_so():
    bench = Bench()
    rounds = [
        calls(*[call("slow", id=f"r{r}-{n}", topic="x") for n in range(16)]) for r in range(JOBS_OPEN_MAX // 16 + 1)
    ]
    agent, engine = helper(*rounds, "enough", tools=[bench.tool])
    async with app_of(agent) as app:
        assert await tell(app, "go") == "enough"
        assert len(await jobs_of(app)) == JOBS_OPEN_MAX
        results = engine.prompts[-1].messages[-1].parts
        assert all("64 jobs of this conversation are queued or running" in part.text for part in results)  # pyright: ignore
        await bench.finish(app)


# --- progress, list, cancel -------------------------------------------------------------------------------------------


async def test_whoever_watches_sees_how_far_a_job_is():
    bench = Bench()
    agent, _ = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent) as app:
        with await app.conversation("c").watch() as watcher:
            await tell(app, "go")
            event = await changed(watcher, lambda event: event.text == "looking")
            assert (event.status, event.progress) == ("running", 0.25)
            assert [(job.status, job.progress, job.text) for job in await jobs_of(app)] == [
                ("running", 0.25, "looking")
            ]
            bench.go.set()
            assert (await changed(watcher, lambda event: event.status == "done")).progress == 1.0


async def test_a_running_job_is_cancelled_and_the_next_turn_hears_of_it():
    bench = Bench()
    agent, engine = helper(call("slow", topic="tea"), "begun", "ok", tools=[bench.tool])
    async with app_of(agent) as app:
        await bench.begin(app)
        (job,) = await jobs_of(app)
        assert await app.background.cancel("c", job.id)
        await app.drain()
        assert [job.status for job in await jobs_of(app)] == ["cancelled"]
        assert not await app.background.cancel("c", job.id), "it is over"
        await tell(app, "and?")
        assert "slow failed: it was cancelled" in digests_in(engine)[0]


async def test_a_queued_job_is_cancelled_and_never_runs():
    bench = Bench()
    many = [call("slow", id=f"call-{n}", topic=str(n)) for n in range(JOBS_AT_ONCE + 1)]
    agent, _ = helper(calls(*many), "begun", tools=[bench.tool])
    async with app_of(agent) as app:
        watcher = await app.conversation("c").watch()
        await tell(app, "go")
        await changed(watcher, lambda event: event.text == "looking", times=JOBS_AT_ONCE)
        watcher.close()
        (queued,) = [job for job in await jobs_of(app) if job.status == "queued"]
        assert await app.background.cancel("c", queued.id)
        await bench.finish(app)
        statuses = {job.id: job.status for job in await jobs_of(app)}
        assert statuses.pop(queued.id) == "cancelled"
        assert set(statuses.values()) == {"done"}
        assert bench.runs == JOBS_AT_ONCE


async def test_a_job_at_work_in_another_process_is_cancelled_from_here():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench()
    agent, _ = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
        async with app_of(agent, store=store.beside(), clock=clock, recover=False) as other:
            (job,) = await jobs_of(other)
            assert await other.background.cancel("c", job.id)
        clock.advance(10)
        await app.drain()
        assert [job.status for job in await jobs_of(app)] == ["cancelled"]


async def test_a_job_that_ends_while_another_process_talks_waits_with_its_digest():
    """Trust 2: it is not written into the other one's turn, which would fail; the next turn hears of it, once."""
    clock, go = VirtualClock(), asyncio.Event()
    store = MemoryStore(clock=clock)
    bench = Bench()
    agent, engine = helper(call("slow", topic="tea"), "begun", "heard of it", "nothing new", tools=[bench.tool])

    @tool(idempotent=True, timeout_s=0)
    async def linger() -> str:
        began.set()
        await go.wait()
        return "long ago"

    began = asyncio.Event()
    talker, _ = helper(call("linger"), "that took some time", tools=[linger])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
        async with app_of(talker, store=store.beside(), clock=clock, recover=False) as other:
            view = await other.conversation("c").send("meanwhile")
            await began.wait()
            bench.go.set()
            for _ in range(100):
                await asyncio.sleep(0)
            assert [job.status for job in await jobs_of(other)] == ["queued"], "nothing is written yet"
            go.set()
            assert (await view.result()).output == "that took some time"
            await app.drain()
        assert [job.status for job in await jobs_of(app)] == ["done"]
        await tell(app, "and?")
        await tell(app, "and now?")
        assert len(digests_in(engine)) == 1


async def test_an_agent_lists_and_cancels_its_jobs_with_tools():
    bench = Bench()
    agent, engine = helper(
        call("slow", topic="tea"),
        "begun",
        call("list_jobs"),
        lambda prompt: call("cancel_job", job_id=prompt.messages[-1].parts[0].text.split()[0]),  # pyright: ignore
        "cancelled",
        call("cancel_job", job_id="j_none"),
        "no such job",
        tools=[bench.tool, list_jobs, cancel_job],
    )
    async with app_of(agent) as app:
        await bench.begin(app)
        assert await tell(app, "cancel it") == "cancelled"
        assert "slow: running 25% (looking)" in engine.prompts[3].messages[-1].parts[0].text  # pyright: ignore
        await app.drain()
        assert [job.status for job in await jobs_of(app)] == ["cancelled"]
        await tell(app, "cancel another")
        said = engine.prompts[-1].messages[-1].parts[0].text  # pyright: ignore
        assert said == "there is no job 'j_none' in this conversation; list_jobs lists them"


async def test_jobs_of_all_conversations_are_listed_newest_first_and_kept_after_their_end():
    clock = VirtualClock()
    bench = Bench(go=True)
    agent, _ = helper(call("slow", topic="a"), "x", call("slow", topic="b"), "y", tools=[bench.tool])
    async with app_of(agent, clock=clock) as app:
        await tell(app, "go", "one")
        clock.advance(60)
        await tell(app, "go", "two")
        await app.drain()
        infos = await read_jobs(app.store)
        assert [(info.conversation, info.status, info.summary) for info in infos] == [
            ("two", "done", "all about b"),
            ("one", "done", "all about a"),
        ]
        clock.advance(40 * 86_400)
        assert await read_jobs(app.store) == [], "not for ever"


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idempotent", "said", "runs"), [(False, "interrupted", 1), (True, "all about tea", 2)])
async def test_a_job_that_a_restart_cut_off_runs_again_only_if_it_may(idempotent: bool, said: str, runs: int):
    """B01: the work survives a restart: what may not run twice is answered `interrupted`, the rest runs again."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench(idempotent=idempotent)
    agent, engine = helper(call("slow", topic="tea"), "begun", "and so on", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    bench.go.set()
    async with app_of(agent, store=store.reopen(), clock=clock) as app:
        await app.drain()
        await tell(app, "and?")
    assert bench.runs == runs
    assert len(digests_in(engine)) == 1
    assert said in digests_in(engine)[0]


async def test_an_agent_in_the_background_goes_on_where_a_restart_cut_it_off():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench(name="inner_tool", background=False, idempotent=True)
    counted: list[str] = []

    @tool
    def once() -> str:
        counted.append("once")
        return "counted"

    worker, _ = helper(call("once"), call("inner_tool", topic="x"), "finished", name="worker", tools=[once, bench.tool])
    agent, engine = helper(call("worker", input="work"), "begun", "well", tools=[worker.as_tool(background=True)])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    bench.go.set()
    async with app_of(agent, store=store.reopen(), clock=clock) as app:
        await app.drain()
        await tell(app, "and?")
    assert counted == ["once"]
    assert "worker completed: finished" in digests_in(engine)[0]


async def test_the_next_turn_takes_up_the_jobs_that_nobody_works_on():
    """On the command line nothing is taken up by itself; the conversation that is talked in takes up its own."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench(idempotent=True)
    agent, engine = helper(call("slow", topic="tea"), "begun", "hm", "aha", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    bench.go.set()
    async with app_of(agent, store=store.reopen(), clock=clock, recover=False) as app:
        await tell(app, "back again")
        await app.drain()
        await tell(app, "and?")
    assert bench.runs == 2
    assert "all about tea" in digests_in(engine)[0]


async def test_whoever_watches_after_a_restart_sees_how_far_a_job_is():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench(idempotent=True)
    agent, _ = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    bench.began.clear()
    async with app_of(agent, store=store.reopen(), clock=clock) as app:
        await bench.began.wait()
        assert [(job.status, job.text) for job in await jobs_of(app)] == [("running", "looking")]
        (listed,) = await read_jobs(app.store)
        assert listed.status in ("queued", "running")
        await bench.finish(app)
        assert [info.status for info in await read_jobs(app.store)] == ["done"]


async def test_a_job_that_was_submitted_but_not_told_before_a_crash_is_taken_up_by_the_call():
    clock = VirtualClock()
    disk = MemoryStore(clock=clock)

    async def is_submitted() -> bool:
        return any(job.id.startswith("j_") for job in await disk.orphaned_jobs())

    class Forgetful(MemoryStore):
        """Keeps jobs; of the conversation, only what came before the first of them."""

        def __init__(self) -> None:
            self.__dict__.update(disk.__dict__)

        async def append(self, conversation: str, seq: int, events: tuple[DurableEvent, ...], **more: Any) -> None:
            if await is_submitted():
                await asyncio.Event().wait()
            await disk.append(conversation, seq, events, **more)

    bench = Bench(go=True)
    agent, _ = helper(call("slow", topic="tea"), "never", tools=[bench.tool])
    async with app_of(agent, store=Forgetful(), clock=clock) as app:
        await app.conversation("c").send("go")
        async with asyncio.timeout(WAIT_S):
            while not await is_submitted():
                await asyncio.sleep(0)
    agent, engine = helper("begun", "I see", tools=[bench.tool])
    async with app_of(agent, store=disk.reopen(), clock=clock, recover=False) as app:
        view = await app.conversation("c").resume()
        assert view is not None
        await view.result()
        await app.drain()
        await tell(app, "and?")
    assert len(digests_in(engine)) == 1
    assert bench.runs == 1


async def test_a_tool_that_is_gone_after_a_restart_fails_its_job():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench()
    agent, _ = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    async with app_of(Agent("helper", engine="echo"), store=store.reopen(), clock=clock) as app:
        await app.drain()
        (job,) = await jobs_of(app)
        assert (job.status, job.summary) == (
            "failed",
            "agent 'helper' no longer has the tool 'slow', so the job cannot run",
        )


async def test_the_job_of_a_conversation_that_was_deleted_is_dropped():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    bench = Bench(idempotent=True)
    agent, _ = helper(call("slow", topic="tea"), "begun", tools=[bench.tool])
    async with app_of(agent, store=store, clock=clock) as app:
        await bench.begin(app)
    store = store.reopen()
    await store.delete("c")
    async with app_of(agent, store=store, clock=clock) as app:
        await app.drain()
        assert await read_jobs(store) == []
        assert await store.info("c") is None
    assert bench.runs == 1


async def test_a_stop_of_the_turn_does_not_stop_its_jobs():
    bench = Bench()

    @tool
    async def for_ever() -> str:
        await asyncio.Event().wait()
        return ""

    agent, engine = helper(call("slow", topic="tea"), call("for_ever"), "hm", tools=[bench.tool, for_ever])
    async with app_of(agent) as app:
        view = await app.conversation("c").send("go")
        async with asyncio.timeout(WAIT_S):
            await bench.began.wait()
            while app.turns.running("c") is None or len(engine.prompts) < 2:
                await asyncio.sleep(0)
            await view.stop()
            await view.result()
        await bench.finish(app)
        assert [job.status for job in await jobs_of(app)] == ["done"]
        assert len([e for e in await app.conversation("c").entries() if isinstance(e.event, TurnStarted)]) == 1


@pytest.mark.parametrize(("mode", "chats"), [("background", 2), ("inline", 3)])
async def test_whoever_ordered_a_job_is_charged_for_it(mode: JobMode, chats: int):
    """L05: what an agent spends in the background counts for the person who asked, and so does the turn that its end
    starts; handing it on costs nothing."""
    worker, _ = helper("done", name="worker")
    tools = [worker.as_tool(background=mode)]
    agent, _ = helper(call("worker", input="tea"), "it has begun", "it is done", tools=tools)
    async with app_of(agent, worker) as app:
        turn = await app.conversation("talk").send("look up tea", person=Person("ada"))
        await turn.result()
        await app.drain()
        rows = await app.ledger.top(by="person+kind", window="lifetime")
        assert {tuple(row.value.split("\x1f")): row.totals.calls for row in rows} == {
            ("chat", "ada"): chats,
            ("agent", "ada"): 1,
        }
