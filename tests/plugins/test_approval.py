"""Who may let a call run, and what happens when nobody does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App, Approval, CallContext, Hold, Outcome, Plugin, Question, tool
from rondel.events import CallFinished, CallHeld, CallStarted, TurnFinished
from rondel.plugins.approval import ApprovalGate
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, VirtualClock, call, calls, say
from rondel.values import ToolCall

from ..helpers import events_of, of, play


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

    async def scene(app: App) -> list[Any]:
        return await events_of(await app.conversation().send("go"))

    return play(scene, agent)


def results(events: list[Any]) -> dict[str, str]:
    return {event.result.call_id: event.result.text for event in of(CallFinished, events)}


def test_deny_patterns_come_first_also_in_auto_mode():
    """T07: deny, then allow, then the mode; an error result names the pattern."""
    for mode in ("auto", "confirm"):
        shell = Shell(Approval(mode=mode, allow=("rm",), deny=(r"rm\s+-rf",)))
        events = run_calls(shell, "RM -RF /", "rm a.txt")
        assert results(events) == {
            "call-0": r"denied by the approval policy: the call matches the pattern 'rm\\s+-rf'",
            "call-1": "ran rm a.txt",
        }
        assert shell.ran == ["rm a.txt"]
        assert of(TurnFinished, events)[0].outcome is Outcome.DONE


def test_every_call_of_a_batch_is_judged_on_its_own_parameters():
    """T07: one is allowed, one is denied, one waits."""
    shell = Shell(Approval(allow=('"command":"ls',), deny=("sudo",)))
    events = run_calls(shell, "ls -l", "sudo ls", "make")
    assert shell.ran == ["ls -l"]
    assert sorted(results(events)) == ["call-0", "call-1"]
    assert [event.question.call_id for event in of(CallHeld, events)] == ["call-2"]
    assert of(TurnFinished, events)[0].state == "input-required"


def test_patterns_see_the_call_as_canonical_json():
    """T07: `{"tool": …, "parameters": {…}}` with sorted keys and no spaces."""

    @tool(approval=Approval(deny=(r'^\{"tool":"copy","parameters":\{"a":1,"b":"汉"\}\}$',)))
    async def copy(b: str, a: int) -> str:
        return "copied"

    engine = Scripted(call("copy", b="汉", a=1), "done")

    async def scene(app: App) -> list[Any]:
        return await events_of(await app.conversation().send("go"))

    events = play(scene, Agent("helper", engine=engine, tools=[copy]))
    assert of(CallFinished, events)[0].result.is_error


def test_a_bad_pattern_is_ignored_with_one_warning(caplog: pytest.LogCaptureFixture):
    """T07: bad regex ignored with a warning."""
    shell = Shell(Approval(mode="auto", deny=("(", "rm")))
    with caplog.at_level(logging.WARNING, "rondel.approval"):
        events = run_calls(shell, "rm x", "ls", "pwd")
    assert shell.ran == ["ls", "pwd"]
    assert len(results(events)) == 3
    assert [record.name for record in caplog.records] == ["rondel.approval"]
    assert "'('" in caplog.records[0].getMessage()


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
    assert (question.id, question.kind, question.options) == ("approve:call-0", "approve", ("yes", "no", "always"))
    assert question.text == 'May shell run with {"command":"make"}?'
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


def test_nobody_answers_for_a_minute_and_it_is_denied():
    """T08: 60 s by default, then deny."""
    shell, clock = Shell(Approval()), VirtualClock()
    engine = Scripted(shell_calls("make"), "done")

    async def scene(app: App) -> list[Any]:
        conversation = app.conversation()
        await events_of(await conversation.send("go"))
        (question,) = await conversation.questions()
        assert question.deadline == clock.now() + 60
        watcher = await conversation.watch()
        clock.advance(60)
        events: list[Any] = []
        async for event in watcher:
            events.append(event)
            if isinstance(event, TurnFinished):
                break
        assert await conversation.questions() == []
        return events

    events = play(scene, Agent("helper", engine=engine, tools=[shell.tool]), clock=clock)
    assert shell.ran == []
    assert results(events) == {"call-0": "denied: nobody answered within 60 s"}
    engine.check_done()


def test_to_stop_is_to_deny():
    """T08: cancel denies; nothing is pending any more, and the conversation goes on."""
    shell = Shell(Approval())
    engine = Scripted(shell_calls("make"), "fine")

    async def scene(app: App) -> list[Any]:
        conversation = app.conversation()
        await events_of(await conversation.send("go"))
        assert await conversation.stop()
        assert await conversation.questions() == []
        result = await (await conversation.send("and now?")).result()
        assert result.output == "fine"
        return [entry.event for entry in await conversation.entries()]

    entries = play(scene, Agent("helper", engine=engine, tools=[shell.tool]))
    assert shell.ran == []
    assert of(CallFinished, entries)[0].result.is_error
    assert not of(CallStarted, entries)


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


def test_a_tool_that_asks_for_itself_is_not_asked_about_twice():
    """T08: an answer to the tool's own question is the tool's."""
    heard: list[str] = []

    @tool(approval="confirm", idempotent=True)
    async def deploy(context: CallContext) -> str | Hold:
        answer = context.answer
        if answer is None or answer.question_id != "where":
            return Hold(Question("where", "ask", "Where to?", call_id=context.call.id))
        heard.append(answer.text)
        return "deployed"

    async def scene(app: App) -> str:
        conversation = app.conversation()
        await events_of(await conversation.send("go"))
        await events_of(await conversation.answer("approve:call-deploy", "yes"))
        return (await (await conversation.answer("where", "Mars")).result()).output

    assert play(scene, Agent("helper", engine=Scripted(call("deploy"), "ok"), tools=[deploy])) == "ok"
    assert heard == ["Mars"]


def test_a_person_sees_on_one_line_what_is_asked():
    """T08: long arguments are cut and say so; nothing hides in them."""
    shell = Shell(Approval())
    _, (question,), _ = ask_about(shell, "no", commands=("a\n\x1b[2J\u202e" + "x" * 5_000,))
    assert question.text.isprintable()
    assert len(question.text) < 600
    assert "more characters)" in question.text
    assert "\\n\\u001b[2J\\u202e" in question.text


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


def test_always_lets_a_tool_run_for_the_rest_of_the_conversation_but_not_what_is_denied():
    """T07: the journal remembers it, so it holds after a restart, and in no other conversation."""
    shell = Shell(Approval(deny=("sudo",)))
    commands = iter(("make", "make test", "sudo make", "elsewhere"))

    def answer(prompt: Any) -> Any:
        return say("done") if prompt.messages[-1].role == "tool" else call("shell", command=next(commands))

    engine = Scripted(*[answer] * 7)

    async def scene(app: App) -> list[str]:
        conversation = app.conversation("c")
        await events_of(await conversation.send("go"))
        await events_of(await conversation.answer((await conversation.questions())[0].id, "always"))
        for text in ("again", "and again"):
            await events_of(await conversation.send(text))
        await events_of(await app.conversation("other").send("go"))
        return [question.text for question in await app.conversation("other").questions()]

    asked = play(scene, Agent("helper", engine=engine, tools=[shell.tool]))
    assert shell.ran == ["make", "make test"]
    assert len(asked) == 1
