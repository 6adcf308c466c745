"""`rondel run`: one answer of one agent on stdout; everything else goes to stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from ..agent import Agent
from ..charge import Charge
from ..errors import ConfigError, near_word
from ..events import (
    CallFinished,
    CallProgressed,
    CallStarted,
    Entry,
    HandedOff,
    Nested,
    Outcome,
    PluginFailed,
    RoundFinished,
    SpendingWarned,
    Trimmed,
    TurnFinished,
)
from ..ledger.spending import cost_line
from ..libraries import agent_names, is_library_name
from ..machine.conversation import Conversation, TurnView
from ..machine.transcript import Transcript
from ..project.folder import BUILTIN, Project
from ..surfaces.commands import find_conversation, open_conversation
from ..surfaces.terminal.console import SafeConsole
from ..surfaces.terminal.device import USER
from ..surfaces.terminal.screen import SHOWN, Screen, charge_in
from ..surfaces.terminal.signals import signals
from ..surfaces.views import short_id
from ..text.citations import sources_line, with_markers
from ..values import AgentResult, Notice
from ._message import Input, read_input
from ._options import TYPO, F, a_file, complete_agent, conversation, cost, engine, flag
from ._output import console, tell, write_json
from ._project import Opened, load_project, open_app

EXIT_CODES = {Outcome.DONE: 0, Outcome.FAILED: 1, Outcome.WAITING: 3, Outcome.LIMITED: 4, Outcome.STOPPED: 130}

_WATCHED = (CallStarted, CallFinished, CallProgressed, Nested, Notice, HandedOff, Trimmed)
_ALWAYS_SAID = (PluginFailed, SpendingWarned)
_SAID = (Outcome.DONE, Outcome.LIMITED, Outcome.STOPPED)  # the outcomes with an answer, or the beginning of one
REFRESH_S = 0.125


class RunOptions(msgspec.Struct, frozen=True):
    agent: str
    text: str
    engine: str
    conversation: str
    input: tuple[str, ...]
    file: tuple[str, ...]
    as_json: bool
    cost: bool


def _options(command: F) -> F:
    for option in reversed(
        (
            click.option("--input", "-i", multiple=True, help="one of the agent's inputs: name=value"),
            engine,
            flag("--json", "as_json", help="print each event as a line of JSON"),
            click.option(
                "--file", "-f", multiple=True, help="attach an image or a file; - is stdin", shell_complete=a_file
            ),
            conversation,
            cost,
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument(
    "agent",
    default="",
    help="an agent of this project or of a library (time.now), or rondel (built in)",
    shell_complete=complete_agent,
)
@click.argument("text", default="", help="the message; - reads it from stdin; agents without a model may need none")
@_options
def run(**options: Any) -> int:
    """Ask an agent once and print the answer.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 waiting for an answer, 4 limit reached, 77 project not trusted,
    130 stopped.
    """
    project = load_project()
    return _answer(_sorted_out(RunOptions(**options), project), project)


@click.command()
@click.argument("text", help="the question; - reads it from stdin")
@_options
def question(**options: Any) -> int:
    """`rondel "question"`: the default agent's answer on stdout."""
    return _answer(RunOptions(agent="", **options), load_project())


def _sorted_out(options: RunOptions, project: Project) -> RunOptions:
    """Find out whether a single argument is an agent or a question for the default agent."""
    word = options.agent
    if options.text:
        if word not in project.names and word.split() != [word]:
            raise ConfigError(f"the agent comes first: `rondel run AGENT TEXT`; known: {', '.join(project.names)}")
        return options
    if project.knows(word) or near_word(word, (*project.names, *agent_names()), TYPO):
        return options
    if not word and not options.input and not options.file and (sys.stdin is None or sys.stdin.isatty()):  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigError(f"there is no question: `rondel run TEXT`, or `rondel run AGENT TEXT`; {_known(project)}")
    return msgspec.structs.replace(options, agent="", text=word)


def _known(project: Project) -> str:
    own = ", ".join(name for name in project.names if not is_library_name(name))
    return f"known: {own}; in libraries: {', '.join(agent_names())}"


def _answer(options: RunOptions, project: Project) -> int:
    agent = project.body(project.agent_name(options.agent)) or Agent(BUILTIN)
    message = read_input(agent, options.text, options.input, options.file)
    return asyncio.run(_run(options, project, message))


async def _run(options: RunOptions, project: Project, message: Input) -> int:
    async with open_app(project, options.agent, options.engine, inputs_known=message.inputs_known) as opened:
        for warning in project.config.warnings:
            tell(f"rondel: {warning}")
        conversation = opened.app.conversation(agent=opened.agent)
        if options.conversation:
            knows_agent = None if options.agent else opened.app.registry.knows_agent
            id = await find_conversation(opened.app.store, options.conversation, knows_agent=knows_agent)
            conversation = await open_conversation(opened.app, id, options.agent)
            if options.engine:
                await conversation.use_engine(options.engine)
            if conversation.agent != opened.agent:
                tell(f"rondel: this conversation is with {conversation.agent}, which answers")
        if not options.as_json:
            _tell_model(opened, conversation, project)
        if options.cost:
            await opened.app.ledger.ready()
        charges: list[Charge] = []
        view, finished = await _say(conversation, message, charges, as_json=options.as_json)
        result = await view.result(check=False)
        output = _with_sources(result, await conversation.entries())
        code = await _report(opened, view.conversation, finished, output, as_json=options.as_json)
        if code == 0 and not result.ran:
            tell(f"rondel: the prompt of {result.agent!r} is blank, so no model was asked")
        if options.cost and (line := cost_line(charges)):
            sys.stdout.flush()
            tell(f"rondel: {line}")
        followed = await _wait_for_jobs(opened, view, as_json=options.as_json)
        return code or followed


def _tell_model(opened: Opened, conversation: Conversation, project: Project) -> None:
    """Tell a person at a terminal which model answers, and why, if neither they nor a file chose it."""
    is_chosen = bool(opened.picked is None or project.config.engine or project.config.engines)
    if is_chosen or conversation.agent != opened.agent or conversation.chosen_engine or not sys.stderr.isatty():
        return
    console(sys.stderr).print(Text(opened.model_line, "dim"))


async def _say(
    conversation: Conversation, message: Input, charges: list[Charge], *, as_json: bool
) -> tuple[TurnView, TurnFinished | None]:
    try:
        async with asyncio.TaskGroup() as group:
            with _ctrl_c_stops(group) as turn:
                view = turn.view = await conversation.send(message.parts, person=USER)
                finished = await _follow(view, charges, as_json=as_json)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return view, finished


def _with_sources(result: AgentResult, entries: Sequence[Entry]) -> str:
    """Return the answer with a line for its sources, if it cites any."""
    if not result.citations:
        return result.output
    said = next((e.event.message for e in reversed(entries) if isinstance(e.event, RoundFinished)), None)
    text = with_markers(said.parts)[0] if said is not None and said.text == result.output else result.output
    return f"{text.rstrip()}\n\n{sources_line(result.citations)}\n"


class _Stoppable:
    """The turn that Ctrl-C stops, once it has started."""

    view: TurnView | None = None
    stopping = False


@contextlib.contextmanager
def _ctrl_c_stops(group: asyncio.TaskGroup) -> Generator[_Stoppable]:
    """Make the first Ctrl-C stop the turn and keep its text; the second one does not wait for that."""
    task, turn = asyncio.current_task(), _Stoppable()

    def interrupt(number: int) -> None:
        if turn.view is not None and not turn.stopping:
            turn.stopping = True
            group.create_task(turn.view.stop())
        elif task is not None:
            task.cancel()

    with signals(interrupt, "SIGINT"):  # without them, Ctrl-C ends the program and interrupts the turn
        yield turn


async def _follow(view: TurnView, charges: list[Charge], *, as_json: bool) -> TurnFinished | None:
    """Print events as they happen: all of them as JSON, or calls and warnings on stderr."""
    streams = not as_json and streams_answers()
    shown = console(sys.stdout if streams else sys.stderr)
    screen = Screen(shown, now=view.conversation.app.clock.now, rich=streams, person=USER.id)
    watched = SHOWN if streams else (*_WATCHED, *_ALWAYS_SAID) if sys.stderr.isatty() else _ALWAYS_SAID
    finished: TurnFinished | None = None
    async with _progress(screen, shown) if shown.is_terminal and not as_json else contextlib.nullcontext():
        async for event in view:
            if isinstance(event, TurnFinished):
                finished = event
                screen.working = False
            elif (charge := charge_in(event)) is not None:
                charges.append(charge)
            elif isinstance(event, watched) and not as_json:
                screen.show(event)
            elif isinstance(event, RoundFinished):
                screen.learn(event.message.calls)
            if as_json:
                write_json(msgspec.json.encode(event, enc_hook=str).decode())
    return finished


def streams_answers() -> bool:
    """Return whether a person sees stdout, so that an answer is shown while it arrives."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


@contextlib.asynccontextmanager
async def _progress(screen: Screen, shown: SafeConsole) -> AsyncGenerator[None]:
    """Show below what is printed what is still open: the end of the answer, running calls, and the time."""
    from rich.console import Group

    from ..surfaces.terminal.console import live

    async def refresh() -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            picture.update(Group(*screen.live()), refresh=True)

    screen.working = True
    with live(shown, transient=True, vertical_overflow="crop") as picture:
        async with asyncio.TaskGroup() as group:
            refreshing = group.create_task(refresh())
            try:
                yield
            finally:
                picture.update(Group(), refresh=True)
                refreshing.cancel()


async def _wait_for_jobs(opened: Opened, view: TurnView, *, as_json: bool) -> int:
    """Wait for the turn's background jobs, which would end with this process, and report the turns that follow.

    Return the exit code of the first of these turns that did not end with an answer.
    """
    conversation, app = view.conversation, view.conversation.app
    jobs = await app.background.jobs(conversation.id)
    if not jobs:
        return 0
    sys.stdout.flush()
    if names := ", ".join(job.name for job in jobs if not job.is_over):
        tell(f"rondel: waiting for background jobs: {names}; Ctrl-C leaves them pending")
    await app.drain()  # when a job has ended, the turn that follows it may still be running
    transcript, follows, code = Transcript(), False, 0
    for entry in await conversation.entries():
        transcript.apply(entry.event)
        if isinstance(entry.event, TurnFinished):
            if follows:
                ended = await _report(opened, conversation, entry.event, transcript.output, as_json=as_json)
                code = code or ended
            follows = follows or entry.event.turn == view.id
    return code


async def _report(
    opened: Opened, conversation: Conversation, finished: TurnFinished | None, output: str, *, as_json: bool
) -> int:
    outcome = finished.outcome if finished else Outcome.FAILED
    id = short_id(conversation.id)
    if outcome in _SAID and output and not as_json and not streams_answers():
        sys.stdout.write(output if output.endswith("\n") else output + "\n")
        sys.stdout.flush()
    if outcome is Outcome.WAITING:
        for question in await conversation.questions():
            tell(f"rondel: {opened.agent} asks: {question.text}")
        tell(f"Run `rondel resume {id}` to answer.")
    elif outcome is Outcome.FAILED and finished is not None and finished.failure is not None:
        tell(f"rondel: {finished.failure.message}")
    elif outcome is Outcome.LIMITED and finished is not None:
        tell(f"rondel: {finished.reason}")
    elif outcome is Outcome.STOPPED:
        tell(f"rondel: stopped; `rondel chat --conversation {id}` continues")
    return EXIT_CODES[outcome]
