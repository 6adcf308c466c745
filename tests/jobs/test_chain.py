"""An agent's `job`: other agents that run one after the other, in the background, when it has answered."""

from __future__ import annotations

from rondel import Agent
from rondel.errors import EngineDenied
from rondel.jobs.background import read_jobs
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, Scripted, VirtualClock, call
from tests.jobs.workbench import app_of, changed, digests_in, helper, jobs_of, tell, tell_and_drain


def asked(engine: Scripted) -> str:
    """What an agent was told last."""
    return engine.prompts[-1].messages[-1].text


async def test_the_agents_of_a_job_run_in_order_each_with_what_the_one_before_said():
    """S10: really run in order in the background with id, status, cancel."""
    a, a_engine = helper("said by a", name="a")
    b, b_engine = helper("said by b", name="b")
    c, c_engine = helper("said by c", name="c")
    boss, engine = helper("the plan", "I see", name="boss", job=["a", "b", "c"])
    async with app_of(boss, a, b, c) as app:
        assert await tell(app, "go") == "the plan"
        (job,) = await jobs_of(app)
        assert (job.name, job.steps, job.id[:2]) == ("boss", ("a", "b", "c"), "j_")
        await app.drain()
        assert [asked(e) for e in (a_engine, b_engine, c_engine)] == ["the plan", "said by a", "said by b"]
        assert [(job.status, job.summary) for job in await jobs_of(app)] == [("done", "said by c")]
        await tell(app, "and?")
        assert "boss completed: said by c" in digests_in(engine)[0]
        await app.drain()
        assert len(await jobs_of(app)) == 2, "each answer has its job"


async def test_a_failure_ends_the_chain_and_the_digest_names_who_failed():
    """S10: a failure ends the chain, with its name in the digest."""
    a, _ = helper("fine", name="a")
    b, _ = helper(EngineDenied("wrong key"), name="b")
    c, c_engine = helper("never", name="c")
    boss, engine = helper("the plan", "hm", name="boss", job=["a", "b", "c"])
    async with app_of(boss, a, b, c) as app:
        await tell_and_drain(app)
        await tell(app, "and?")
        assert "boss failed: agent 'b' failed: wrong key" in digests_in(engine)[0]
        assert c_engine.prompts == []


async def test_a_chain_is_cancelled_between_its_steps_and_tells_how_far_it_was():
    pause = Pause("working")
    a, _ = helper("fine", name="a")
    b, _ = helper(pause, name="b")
    c, c_engine = helper("never", name="c")
    boss, _ = helper("the plan", name="boss", job=["a", "b", "c"])
    async with app_of(boss, a, b, c) as app:
        with await app.conversation("c").watch() as watcher:
            await tell(app, "go")
            event = await changed(watcher, lambda event: event.progress is not None)
            assert round(event.progress or 0, 2) == 0.33
        await pause.reached.wait()
        (job,) = await jobs_of(app)
        assert await app.background.cancel("c", job.id)
        await app.drain()
        assert pause.closed
        assert [job.status for job in await jobs_of(app)] == ["cancelled"]
        assert c_engine.prompts == []


async def test_a_chain_goes_on_after_a_restart_where_it_was():
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    pause = Pause("cut off")
    a, a_engine = helper("said by a", name="a")
    b, b_engine = helper(pause, "said by b", name="b")
    boss, _ = helper("the plan", name="boss", job=["a", "b"])
    async with app_of(boss, a, b, store=store, clock=clock) as app:
        await tell(app, "go")
        await pause.reached.wait()
    async with app_of(boss, a, b, store=store.reopen(), clock=clock) as app:
        await app.drain()
        assert [(job.status, job.summary) for job in await jobs_of(app)] == [("done", "said by b")]
    assert (len(a_engine.prompts), len(b_engine.prompts)) == (1, 2)
    assert asked(b_engine) == "said by a"


async def test_an_agent_in_a_chain_reads_its_inputs_out_of_what_came_before():
    def heard(prompt: Prompt) -> str:
        return f"heard {prompt.messages[-1].text}"

    one = Agent("one", engine=Scripted(heard), inputs={"topic": {"description": "about what", "required": True}})
    two = Agent("two", engine=Scripted(heard), inputs={"city": {"required": True}, "day": {"required": True}})
    boss, _ = helper('{"city": "Rome", "day": "Monday"}', name="boss", job=["two", "one"])
    async with app_of(boss, one, two) as app:
        await tell_and_drain(app)
        (job,) = await jobs_of(app)
        assert job.status == "done"
        assert "Rome" in job.summary
        assert "Monday" in job.summary


async def test_templates_and_functions_take_their_turn_in_a_chain():
    def count(text: str) -> str:
        return f"{len(text)} characters"

    fields = {"text": {"required": True}}
    shout = Agent("shout", template='LOUD: {{ .Input "text" }}!', inputs=fields)
    counting = Agent("counting", function=count, inputs=fields)
    boss, _ = helper("hello", name="boss", job=["shout", "counting"])
    async with app_of(boss, shout, counting) as app:
        await tell_and_drain(app)
        assert [job.summary for job in await jobs_of(app)] == ["12 characters"]


async def test_agents_whose_jobs_start_each_other_come_to_an_end():
    """Nothing runs away: each start is one level deeper, and levels are limited."""
    ping = Agent("ping", engine=Scripted(*["ping"] * 20), job=["pong"])
    pong = Agent("pong", engine=Scripted(*["pong"] * 20), job=["ping"])
    async with app_of(ping, pong) as app:
        await tell_and_drain(app)
        jobs = await jobs_of(app)
        assert 2 <= len(jobs) <= 8
        assert jobs[-1].status == "failed"
        assert "levels deep" in jobs[-1].summary or "levels deep" in jobs[-1].detail


async def test_no_job_is_started_by_a_turn_that_failed():
    a, _ = helper("x", name="a")
    boss, _ = helper(EngineDenied("wrong key"), name="boss", job=["a"])
    async with app_of(boss, a) as app:
        await tell_and_drain(app)
        assert await read_jobs(app.store) == []


async def test_the_job_of_an_agent_that_works_for_another_is_started_too():
    after, after_engine = helper("filed", name="after")
    worker, _ = helper("worked", name="worker", job=["after"])
    boss, engine = helper(call("worker", input="work"), "done", "ok", name="boss", tools=["worker"])
    async with app_of(boss, worker, after) as app:
        assert await tell(app, "go") == "done"
        await app.drain()
        assert asked(after_engine) == "worked"
        await tell(app, "and?")
        assert "worker completed: filed" in digests_in(engine)[0]
