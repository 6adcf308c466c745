"""`rondel run`: one answer of one agent on stdout; everything else goes to stderr."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Generator, Sequence
from typing import Any

import click
import msgspec

from ..agent import Agent
from ..charge import Charge
from ..errors import ConfigError
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
from ..surfaces.terminal.device import USER
from ..surfaces.terminal.screen import Screen, charge_in
from ..surfaces.terminal.signals import signals
from ..surfaces.views import short_id
from ..text.citations import sources_line, with_markers
from ..values import AgentResult, Notice
from ._message import Input, read_input
from ._options import conversation, cost, engine, flag
from ._output import console, tell, write_json
from ._project import Opened, load_project, open_app

EXIT_CODES = {Outcome.DONE: 0, Outcome.FAILED: 1, Outcome.WAITING: 3, Outcome.LIMITED: 4, Outcome.STOPPED: 130}

_WATCHED = (CallStarted, CallFinished, CallProgressed, Nested, Notice, HandedOff, Trimmed)
_ALWAYS_SAID = (PluginFailed, SpendingWarned)


class Request(msgspec.Struct, frozen=True):
    agent: str
    text: str
    engine: str
    conversation: str
    input: tuple[str, ...]
    file: tuple[str, ...]
    as_json: bool
    cost: bool


@click.command()
@click.argument("agent", default="", help="an agent of this project or of a library (time.now), or rondel (built in)")
@click.argument("text", default="", help="the message; - reads it from stdin; agents without a model may need none")
@click.option("--input", "-i", multiple=True, help="one of the agent's inputs: name=value")
@engine
@flag("--json", "as_json", help="print each event as a line of JSON")
@click.option("--file", "-f", multiple=True, help="attach an image or a file; - is stdin")
@conversation
@cost
def run(**options: Any) -> int:
    """Print one answer on stdout.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 waiting for an answer, 4 limit reached, 77 project not trusted,
    130 stopped.
    """
    request, project = Request(**options), load_project()
    if not request.agent:
        own = ", ".join(name for name in project.names if not is_library_name(name))
        libraries = ", ".join(agent_names())
        raise ConfigError(f"name an agent: `rondel run AGENT TEXT`; known: {own}; in libraries: {libraries}")
    if " " in request.agent and request.agent not in project.names:
        known = ", ".join(project.names)
        raise ConfigError(f"the agent comes first: `rondel run AGENT TEXT`; known: {known}")
    agent = project.body(project.agent_name(request.agent)) or Agent(BUILTIN)
    message = read_input(agent, request.text, request.input, request.file)
    return asyncio.run(_run(request, project, message))


async def _run(request: Request, project: Project, message: Input) -> int:
    async with open_app(project, request.agent, request.engine, inputs_known=message.inputs_known) as opened:
        for warning in project.config.warnings:
            tell(f"rondel: {warning}")
        if opened.picked is not None and opened.picked.needs_pull is not None:
            from ._weights import pull_with_bar

            await pull_with_bar(opened.picked.needs_pull)
        conversation = opened.app.conversation(agent=opened.agent)
        if request.conversation:
            id = await find_conversation(opened.app.store, request.conversation)
            conversation = await open_conversation(opened.app, id, request.agent)
            if request.engine:
                await conversation.use_engine(request.engine)
        if request.cost:
            await opened.app.ledger.ready()
        charges: list[Charge] = []
        view, finished = await _say(conversation, message, charges, as_json=request.as_json)
        output = _with_sources(await view.result(check=False), await conversation.entries())
        code = await _report(opened, view.conversation, finished, output, as_json=request.as_json)
        if request.cost and (line := cost_line(charges)):
            sys.stdout.flush()
            tell(f"rondel: {line}")
        followed = await _wait_for_jobs(opened, view, as_json=request.as_json)
        return code or followed


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
    """The first Ctrl-C stops the turn and keeps its text; the second one does not wait for that."""
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
    screen = Screen(console(sys.stderr), now=view.conversation.app.clock.now, rich=False)
    watched = (*_WATCHED, *_ALWAYS_SAID) if sys.stderr.isatty() else _ALWAYS_SAID
    finished: TurnFinished | None = None
    async for event in view:
        if isinstance(event, TurnFinished):
            finished = event
        elif (charge := charge_in(event)) is not None:
            charges.append(charge)
        if as_json:
            write_json(msgspec.json.encode(event, enc_hook=str).decode())
        elif isinstance(event, watched):
            screen.show(event)
        elif isinstance(event, RoundFinished):
            screen.learn(event.message.calls)
    return finished


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
    await app.drain()  # when a job is over, the turn that follows it may still be running
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
    if outcome in (Outcome.DONE, Outcome.LIMITED) and output and not as_json:
        sys.stdout.write(output if output.endswith("\n") else output + "\n")
        sys.stdout.flush()
    if outcome is Outcome.WAITING:
        for question in await conversation.questions():
            tell(f"rondel: {opened.agent} asks: {question.text} (`rondel resume {id}` answers it)")
    elif outcome is Outcome.FAILED and finished is not None and finished.failure is not None:
        tell(f"rondel: {finished.failure.message}")
    elif outcome is Outcome.LIMITED and finished is not None:
        tell(f"rondel: {finished.reason}")
    elif outcome is Outcome.STOPPED:
        tell(f"rondel: stopped; `rondel chat --conversation {id}` continues")
    return EXIT_CODES[outcome]
