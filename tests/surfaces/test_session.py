"""What a session does on every surface that has one. A new one needs a row in `SURFACES`."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from rondel import Agent, App, CallContext, Command, Hold, Plugin, Prompt, RondelError, tool
from rondel.contracts.command import Chat, Choices, Clip, Document, Draft, Outline, Output, Table
from rondel.contracts.surface import Surface
from rondel.events import QuestionAnswered
from rondel.question import Question
from rondel.surfaces.commands import COMMANDS, completions, run_command
from rondel.surfaces.session import Session, answer_text
from rondel.surfaces.terminal.chat import Terminal
from rondel.testing import Pause, Scripted, call, say
from rondel.tools.ask_user import ask_user
from rondel.tools.calculate import calculate
from rondel.values import Media
from tests.surfaces.memory import MemorySurface

WAIT_S = 20.0


class Driven:
    """A surface that is open, and all text that it has shown."""

    def __init__(self, surface: Surface, session: Session, text: Callable[[], str]) -> None:
        self.surface, self.session, self._text = surface, session, text

    @property
    def text(self) -> str:
        return " ".join(self._text().split())

    async def type(self, line: str) -> None:
        """Type a line and wait until nothing is running."""
        await self.session.handle(line)
        await self.session.idle.wait()


def memory(app: App) -> Driven:
    surface = MemorySurface(app)
    return Driven(surface, surface.session, lambda: "\n".join(surface.lines))


def terminal(app: App) -> Driven:
    target = io.StringIO()
    surface = Terminal(app, source=io.StringIO(), target=target)
    return Driven(surface, surface.session, target.getvalue)


SURFACES = {"memory": memory, "terminal": terminal}


async def count(chat: Chat, rest: str) -> Output:
    return f"{chat.person.id} typed {len(rest.split())} words"


@tool(background=True)
async def report() -> str:
    "Make a report."
    return "it has 42 rows"


@tool
async def ask_bob(context: CallContext) -> str | Hold:
    "Ask Bob, whoever is there."
    if (answer := context.answer) is None:
        return Hold(Question("b", "ask", "Bob, may I?", call_id=context.call.id, person="bob"))
    return f"{answer.by} says {answer.text}"


class Counting(Plugin):
    commands = [Command("words", "count words", count), Command("help", "never called", count)]


class Bench:
    """Opens the surface under test on an app with a scripted engine."""

    def __init__(self, make: Callable[[App], Driven]) -> None:
        self._make = make

    @contextlib.asynccontextmanager
    async def __call__(self, *steps: object) -> AsyncGenerator[Driven]:
        agent = Agent(
            "helper",
            engine=Scripted(*steps),  # type: ignore[arg-type]
            tools=[ask_user, ask_bob, calculate, report],
            plugins=[Counting()],
            description="Helps.",
        )
        async with App(agent) as app, asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            driven = self._make(app)
            await driven.session.start(group, app.conversation("c"))
            yield driven
            driven.session.close()


@pytest.fixture(params=SURFACES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(SURFACES[request.param])


async def test_a_question_is_asked_and_the_next_line_answers_it_in_the_person_s_name(bench: Bench):
    async with bench(call("ask_user", "q", question="Which colour?", options=["red", "blue"]), "Blue.") as chat:
        await chat.type("paint")
        assert "Which colour?" in chat.text
        assert chat.session.question is not None
        await chat.type("/tokens")  # a command is no answer
        await chat.type("2")
        assert chat.session.question is None
        assert chat.text.endswith("Blue.")
        entries = await chat.session.conversation.entries()
        (answer,) = [e.event.answer for e in entries if isinstance(e.event, QuestionAnswered)]
        assert (answer.text, answer.by) == ("blue", chat.surface.person.id)


async def test_an_answer_is_that_of_the_person_who_types_it_not_of_the_one_who_was_asked(bench: Bench):
    async with bench(call("ask_bob", "q"), "Thank you.") as chat:
        await chat.type("ask him")
        assert "Bob, may I?" in chat.text
        await chat.type("yes")
        assert chat.text.endswith("Thank you.")
        entries = await chat.session.conversation.entries()
        (answer,) = [e.event.answer for e in entries if isinstance(e.event, QuestionAnswered)]
        assert (answer.text, answer.by) == ("yes", chat.surface.person.id)


async def test_an_open_question_is_asked_again_when_its_conversation_is_opened(bench: Bench):
    async with bench(call("ask_user", "q", question="Who are you?"), "Hello.") as chat:
        await chat.type("hi")
        await chat.type("/new")
        await chat.type("/resume c")
        assert chat.text.count("Who are you?") == 2
        await chat.type("Ann")
        assert chat.text.endswith("Hello.")


async def test_stop_ends_the_turn_and_keeps_the_chat(bench: Bench):
    pause = Pause("I begin and never ")
    async with bench(pause, "Here I am.") as chat:
        await chat.session.handle("talk for ever")
        await pause.reached.wait()
        await chat.type("/stop")
        await chat.type("/stop")
        assert "Nothing is running." in chat.text
        await chat.type("and now?")
        assert chat.text.endswith("Here I am.")


async def test_what_the_person_says_in_another_process_is_shown(bench: Bench):
    async with bench("Noted.") as chat:
        await (await chat.session.app.conversation("c").send("typed elsewhere")).result()
        await chat.session.idle.wait()
        while "Noted." not in chat.text:
            await asyncio.sleep(0)
        assert "typed elsewhere" in chat.text


async def test_the_ledger_and_the_transcript_know_who_spoke(bench: Bench):
    pause = Pause("Let me think. ")
    async with bench(pause, "By train, then.") as chat:
        person = chat.surface.person
        await chat.session.handle("How do I get to Porto?")
        await pause.reached.wait()
        await chat.session.handle("I do not fly.")
        pause.release()
        await chat.session.idle.wait()
        transcript = await chat.session.conversation.transcript()
        assert person.id
        assert transcript.person == person
        said = [(message.author, message.text) for message in transcript.messages if message.role == "user"]
        assert said == [(person.id, "How do I get to Porto?"), (person.id, "I do not fly.")]
        totals = await chat.session.app.ledger.totals(by="person", value=person.id, window="day")
        assert totals.calls == 2
        assert f"{person.id}: " not in chat.text  # one's own messages are not shown a second time


async def test_what_the_same_person_says_in_another_process_is_shown_as_their_own_message(bench: Bench):
    async with bench("Noted.") as chat:
        person = chat.surface.person
        await (await chat.session.app.conversation("c").send("typed elsewhere", person=person)).result()
        await chat.session.idle.wait()
        while "Noted." not in chat.text:
            await asyncio.sleep(0)
        assert "typed elsewhere" in chat.text
        assert f"{person.id}: " not in chat.text


async def test_the_history_of_a_conversation_is_shown_when_it_is_opened(bench: Bench):
    async with bench("A long time ago.") as chat:
        await chat.type("when?")
        await chat.type("/new")
        before = chat.text.count("A long time ago.")
        await chat.type("/resume c")
        assert chat.text.count("A long time ago.") == before + 1
        assert chat.text.endswith("Nothing was interrupted; type a message to continue.")


async def test_what_a_model_reads_of_a_background_job_is_not_shown(bench: Bench):
    """B01: neither as it happens nor in the history."""
    told: list[str] = []

    def answer(prompt: Prompt) -> str:
        told.append(str(prompt.messages))
        return "As I said."

    async with bench(call("report"), "It has begun.", answer) as chat:
        await chat.type("report, please")
        await chat.session.app.drain()
        await chat.type("and?")
        assert "report completed: it has 42 rows" in told[0]
        await chat.type("/new")
        await chat.type("/resume c")
        assert chat.text.count("As I said.") == 2
        assert "Note of the system" not in chat.text


async def test_help_lists_shared_commands_the_surface_s_own_the_plugins_and_its_tips(bench: Bench):
    async with bench() as chat:
        await chat.type("/help")
        names = [f"/{command.name}" for command in (*COMMANDS, *chat.surface.commands)]
        for shown in (*names, "/words", *(tip for tip, _ in chat.surface.tips)):
            assert shown in chat.text
        assert "never called" not in chat.text  # a plugin cannot replace a shared command
        await chat.type("/words one two")
        assert f"{chat.surface.person.id} typed 2 words" in chat.text


async def test_every_shared_command_returns_plain_values_that_the_surface_shows(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # a surface may save a document
    async with bench(call("calculate", "k", expression="6*7"), say("42")) as chat:
        await chat.type("six times seven")
        kinds: dict[str, type] = {}
        for command in COMMANDS:
            if command.name in ("new", "resume", "stop", "retry", "undo"):
                continue  # other tests have them: they change something
            output = await run_command(chat.session, f"/{command.name}")
            assert output is not None
            chat.surface.show_output(output)
            assert msgspec.json.decode(msgspec.json.encode(output), type=Output) == output
            kinds[command.name] = type(output)
        assert {kinds[name] for name in ("help", "conversations", "tools", "plugins")} == {Table}
        assert (kinds["agent"], kinds["model"], kinds["trace"]) == (Choices, Choices, Outline)
        assert (kinds["copy"], kinds["export"], kinds["edit"]) == (Clip, Document, Draft)
        assert chat.text.count("calculate") >= 2  # among the tools, and in the trace


async def test_retry_undo_and_edit(bench: Bench):
    async with bench("Bad.", "Good.", "Better.") as chat:
        with pytest.raises(RondelError, match="nothing has been said"):
            await chat.type("/undo")
        await chat.type("How is Paris?")
        await chat.type("/retry")
        assert chat.text.endswith("Good.")
        assert await run_command(chat.session, "/edit") == Draft("/edit How is Paris?")
        await chat.type("/edit How is Porto?\nAnd Lisbon?")
        assert chat.text.endswith("Better.")
        assert await run_command(chat.session, "/copy") == Clip("Better.")
        messages = (await chat.session.conversation.transcript()).messages
        assert [message.text for message in messages] == ["How is Porto?\nAnd Lisbon?", "Better."]
        for wrong in ("/undo x", "/undo 0", "/undo 2", "/retry now", "/copy all", "/export pdf"):
            with pytest.raises(RondelError):
                await chat.type(wrong)
        await chat.type("/undo")
        assert "The last turn no longer counts: How is Porto? And Lisbon?" in chat.text
        assert not (await chat.session.conversation.transcript()).messages


async def test_while_it_works_nothing_can_be_retried(bench: Bench):
    pause = Pause("I begin and never ")
    async with bench(pause, "Again.") as chat:
        await chat.session.handle("talk")
        await pause.reached.wait()
        for line in ("/retry", "/edit other", "/undo"):
            with pytest.raises(RondelError, match="stop"):
                await chat.session.handle(line)
        await chat.type("/stop")
        await chat.type("/retry")
        assert chat.text.endswith("Again.")


async def test_what_is_attached_goes_with_the_next_message_only(bench: Bench):
    async with bench("Seen.", "Yes.") as chat:
        picture = Media("image", "image/png", b"png", name="a.png")
        chat.session.attach(picture)
        await chat.type("look")
        await chat.type("thanks")
        first, _, second, _ = (await chat.session.conversation.transcript()).messages
        assert picture in first.parts
        assert picture not in second.parts


async def test_a_conversation_is_exported_as_markdown_and_json(bench: Bench):
    async with bench(call("calculate", "k", expression="6*7"), say("It is **42**.")) as chat:
        await chat.type("six times seven")
        markdown = await run_command(chat.session, "/export")
        assert isinstance(markdown, Document)
        assert markdown.text.startswith("# six times seven\n")
        assert "It is **42**." in markdown.text
        assert '"expression": "6*7"' in markdown.text
        exported = await run_command(chat.session, "/export json")
        assert isinstance(exported, Document)
        assert msgspec.json.decode(exported.text)["messages"][0]["role"] == "user"


async def test_an_unknown_command_names_the_nearest_and_a_path_is_a_message(bench: Bench):
    async with bench("It is.", "A slash.", "Two lines.") as chat:
        with pytest.raises(RondelError, match="did you mean '/help'"):
            await chat.type("/halp")
        for typed, said in (("/etc/hosts is wrong", "It is."), ("/", "A slash."), ("/halp\nme", "Two lines.")):
            await chat.type(typed)
            assert chat.text.endswith(said)


async def test_commands_complete(bench: Bench):
    async with bench() as chat:
        assert list(completions(chat.session, "/to")) == [
            (f"/{c.name}", c.description) for c in COMMANDS if c.name.startswith("to")
        ]
        assert list(completions(chat.session, "/agent h")) == [("/agent helper", "Helps.")]
        assert list(completions(chat.session, "hello")) == []


async def test_a_surface_gets_the_events_that_it_shows_and_no_others():
    async with Bench(memory)("Hi.") as chat:
        await chat.type("hello")
        assert isinstance(chat.surface, MemorySurface)
        assert chat.surface.events
        assert all(isinstance(event, chat.surface.shows) for event in chat.surface.events)
        assert not chat.surface.working


def test_a_number_picks_an_option_and_a_letter_answers_an_approval():
    question = Question("q", "ask", "Which?", options=("red", "blue"))
    assert [answer_text(question, text) for text in ("2", "3", "y")] == ["blue", "3", "y"]
    approval = Question("q", "approve", "May it?", options=("yes", "no"))
    assert [answer_text(approval, text) for text in ("y", "n", "2")] == ["yes", "no", "no"]
