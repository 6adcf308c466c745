"""Who may let a call run, and what happens when nobody does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App, Approval, CallContext, Hold, Outcome, Plugin, Question, tool
from rondel.events import CallFinished, CallHeld, CallStarted, TurnFinished
from rondel.plugins.approval import ApprovalGate
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, VirtualClock, call, calls, say
from rondel.values import ToolCall
from tests.helpers import talking

from ..helpers import events_after, events_of, of, play


class Shell:
    """A tool that remembers what it ran."""

    def __init__(self, approval: Approval | None = None) -> None:
        self.ran: list[str] = []

        @tool(approval=approval)
        async def shell(command: str) -> str:
            self.ran.append(command)
            return f"ran {command}"

        self.tool = shell


def shell_calls(*commands: str) -> Any:
    return calls(*(call("shell", f"call-{number}", command=command) for number, command in enumerate(commands)))


def run_calls(shell: Shell, *commands: str, gate: ApprovalGate | None = None) -> list[Any]:
    engine = Scripted(shell_calls(*commands), "done")
    agent = Agent("helper", engine=engine, tools=[shell.tool], plugins=[gate] if gate else [])

    return play(events_after("go"), agent)


def results(events: list[Any]) -> dict[str, str]:
    return {event.result.call_id: event.result.text for event in of(CallFinished, events)}


def test_deny_patterns_come_first_also_in_auto_mode():
    """T07: deny, then allow, then the mode; an error result names the rule."""
    for mode in ("auto", "confirm"):
        shell = Shell(Approval(mode=mode, allow=("rm *",), deny=("rm*-rf",)))
        events = run_calls(shell, "RM   -RF /", "rm a.txt")
        assert results(events) == {
            "call-0": "denied by the approval policy: the call matches the rule 'rm*-rf'",
            "call-1": "ran rm a.txt",
        }
        assert shell.ran == ["rm a.txt"]
        assert of(TurnFinished, events)[0].outcome is Outcome.DONE


def test_every_call_of_a_batch_is_judged_on_its_own_parameters():
    """T07: one is allowed, one is denied, one waits."""
    shell = Shell(Approval(allow=({"command": "ls *"},), deny=("sudo",)))
    events = run_calls(shell, "ls -l", "sudo ls", "make")
    assert shell.ran == ["ls -l"]
    assert sorted(results(events)) == ["call-0", "call-1"]
    assert [event.question.call_id for event in of(CallHeld, events)] == ["call-2"]
    assert of(TurnFinished, events)[0].state == "input-required"


def test_an_agent_can_say_more_than_its_tools_do():
    """T07: an override for a tool, and a default for all; the default's deny patterns hold everywhere."""
    shell = Shell()
    run_calls(shell, "ls", gate=ApprovalGate(default=Approval()))
    assert shell.ran == []
    run_calls(shell, "ls", gate=ApprovalGate({"shell": Approval(mode="auto")}, default=Approval()))
    assert shell.ran == ["ls"]
    events = run_calls(
        shell, "sudo ls", gate=ApprovalGate({"shell": Approval(mode="auto")}, default=Approval("auto", deny=("sudo",)))
    )
    assert shell.ran == ["ls"]
    assert "denied by the approval policy" in results(events)["call-0"]


def ask_about(
    shell: Shell, answer: str, *, by: str = "", commands: tuple[str, ...] = ("make",)
) -> tuple[list[Any], list[Question], str]:
    engine = Scripted(shell_calls(*commands), "done")

    async def scene(app: App) -> tuple[list[Any], list[Question], str]:
        conversation = app.conversation()
        first = await events_of(await conversation.send("go"))
        pending = await conversation.questions()
        assert [event.question for event in of(CallHeld, first)] == pending
        view = await conversation.answer(pending[0].id, answer, by=by)
        return await events_of(view), pending, first[-1].state

    return play(scene, Agent("helper", engine=engine, tools=[shell.tool]))


@pytest.mark.parametrize("answer", ["yes", "Y", " ok ", "true", "allow", "Yes."])
def test_a_yes_lets_the_call_run(answer: str):
    """T08: listeners are told, the list of what is pending is there, and the answer resumes the turn."""
    shell = Shell(Approval())
    events, (question,), state = ask_about(shell, answer)
    assert state == "input-required"
    assert (question.call_id, question.kind, question.options) == ("call-0", "approve", ("yes", "no", "always"))
    assert question.text == (
        'Allow shell to run with {"command":"make"}?\n'
        "(always: do not ask again when helper makes exactly this call in this conversation)"
    )
    assert question.default == "no"
    assert shell.ran == ["make"]
    assert results(events) == {"call-0": "ran make"}


@pytest.mark.parametrize(
    ("answer", "by", "told"),
    [
        ("no", "", "denied by the user"),
        ("N", "ann", "denied by ann"),
        ("no, use the other file", "ann", "denied by ann, who said: use the other file"),
        ("not now", "ann", "denied by ann, who said: not now"),
        ("yes but carefully", "ann", "denied by ann, who said: yes but carefully"),
        ("", "ann", "denied by ann"),
    ],
)
def test_anything_else_denies_it_and_the_model_hears_why(answer: str, by: str, told: str):
    """T08: a denial is an error result, and the turn goes on."""
    shell = Shell(Approval())
    events, _, _ = ask_about(shell, answer, by=by)
    assert shell.ran == []
    assert results(events) == {"call-0": told}
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE


async def test_nobody_answers_for_a_minute_and_it_is_denied():
    """T08: 60 s by default, then deny."""
    shell, clock = Shell(Approval()), VirtualClock()
    engine = Scripted(shell_calls("make"), "done")
    async with talking(Agent("helper", engine=engine, tools=[shell.tool]), clock=clock) as conversation:
        await events_of(await conversation.send("go"))
        (question,) = await conversation.questions()
        assert question.deadline == clock.now() + 60
        watcher = await conversation.watch()
        clock.advance(60)
        events: list[Any] = []
        async for _, event in watcher:
            events.append(event)
            if isinstance(event, TurnFinished):
                break
        assert await conversation.questions() == []
        events = events
    assert shell.ran == []
    assert results(events) == {"call-0": "denied: no answer within 60 s"}
    engine.check_done()


async def test_to_stop_is_to_deny():
    """T08: cancel denies; nothing is pending any more, and the conversation goes on."""
    shell = Shell(Approval())
    engine = Scripted(shell_calls("make"), "fine")
    async with talking(Agent("helper", engine=engine, tools=[shell.tool])) as conversation:
        await events_of(await conversation.send("go"))
        assert await conversation.stop()
        assert await conversation.questions() == []
        result = await (await conversation.send("and now?")).result()
        assert result.output == "fine"
        entries = [entry.event for entry in await conversation.entries()]
    assert shell.ran == []
    assert of(CallFinished, entries)[0].result.is_error
    assert not of(CallStarted, entries)


async def test_to_stop_at_the_very_moment_of_the_question_stops_once(caplog: pytest.LogCaptureFixture):
    """Trust 2: the job that asked is just ending, and must not hand the signal to itself again and again."""
    shell = Shell(Approval())
    async with talking(Agent("helper", engine=Scripted(shell_calls("make")), tools=[shell.tool])) as conversation:
        view = await conversation.send("go")
        async for event in view:
            if isinstance(event, TurnFinished):
                assert await conversation.stop()
        assert await conversation.questions() == []
    assert shell.ran == []
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_question_waits_over_a_restart(tmp_path: Path):
    """T08: what is pending is in the store, not in the process."""
    shell = Shell(Approval(timeout_s=0))

    async def before(app: App) -> str:
        conversation = app.conversation("c1")
        await events_of(await conversation.send("go"))
        await app.drain()
        return (await conversation.questions())[0].id

    async def after(app: App) -> str:
        conversation = app.conversation("c1")
        (question,) = await conversation.questions()
        assert question.deadline is None
        return (await (await conversation.answer(question.id, "yes")).result()).output

    play(
        before,
        Agent("helper", engine=Scripted(shell_calls("make")), tools=[shell.tool]),
        store=SqliteStore(tmp_path / "a.db"),
    )
    assert shell.ran == []
    output = play(
        after, Agent("helper", engine=Scripted("made"), tools=[shell.tool]), store=SqliteStore(tmp_path / "a.db")
    )
    assert (shell.ran, output) == (["make"], "made")


async def test_a_tool_that_asks_for_itself_is_not_asked_about_twice():
    """T08: an answer to the tool's own question is the tool's."""
    heard: list[str] = []

    @tool(approval="confirm", idempotent=True)
    async def deploy(context: CallContext) -> str | Hold:
        answer = context.answer
        if answer is None or answer.question_id != "where":
            return Hold(Question("where", "ask", "Where to?", call_id=context.call.id))
        heard.append(answer.text)
        return "deployed"

    async with talking(Agent("helper", engine=Scripted(call("deploy"), "ok"), tools=[deploy])) as conversation:
        await events_of(await conversation.send("go"))
        (question,) = await conversation.questions()
        await events_of(await conversation.answer(question.id, "yes"))
        assert (await (await conversation.answer("where", "Mars")).result()).output == "ok"
    assert heard == ["Mars"]


def test_a_gate_that_breaks_lets_nothing_through():
    """T07: a required plugin fails closed."""

    class BrokenGate(ApprovalGate):
        name = "approval"

        async def on_tool_call(self, turn: Any, call: ToolCall) -> Any:
            raise RuntimeError("broken")

    shell = Shell()
    events = run_calls(shell, "ls", gate=BrokenGate())
    assert shell.ran == []
    failure = of(TurnFinished, events)[0].failure
    assert failure is not None
    assert "approval" in failure.message
    assert issubclass(BrokenGate, Plugin)


@pytest.mark.parametrize("by", ["deadline", "stop", "edit"])
async def test_what_answers_in_place_of_a_person_allows_nothing_whatever_it_says(by: str):
    shell = Shell(Approval())
    engine = Scripted(call("shell", command="make"), "done")
    async with App(Agent("helper", engine=engine, tools=[shell.tool])) as app:
        conversation = app.conversation()
        await events_of(await conversation.send("go"))
        events = await events_of(await conversation.answer((await conversation.questions())[0].id, "yes", by=by))
    assert shell.ran == []
    assert results(events)["call-shell"].startswith("denied: ")


async def test_always_lets_the_same_call_run_for_the_rest_of_the_conversation_and_no_other():
    """T07: the journal remembers it, so it holds after a restart, and in no other conversation."""
    shell = Shell(Approval(deny=("sudo",)))
    commands = iter(("make", "make", "sudo make", "make", "make"))

    def answer(prompt: Any) -> Any:
        return say("done") if prompt.messages[-1].role == "tool" else call("shell", command=next(commands))

    engine = Scripted(*[answer] * 9)
    async with App(Agent("helper", engine=engine, tools=[shell.tool])) as app:
        conversation = app.conversation("c")
        await events_of(await conversation.send("go"))
        await events_of(await conversation.answer((await conversation.questions())[0].id, "always"))
        for text in ("again", "and again", "once more"):
            await events_of(await conversation.send(text))
        await events_of(await app.conversation("other").send("go"))
        asked = [question.text for question in await app.conversation("other").questions()]
    assert shell.ran == ["make", "make", "make"]
    assert len(asked) == 1
