"""`rondel run`: one answer of one agent on stdout; what else there is to say goes to stderr."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Generator

import msgspec

from ..agent import Agent
from ..charge import Charge
from ..conversation import Conversation, TurnView
from ..errors import ConfigError
from ..events import (
    CallFinished,
    CallProgressed,
    CallStarted,
    Event,
    HandedOff,
    LimitHit,
    Nested,
    Outcome,
    PluginFailed,
    RoundFinished,
    SpendingWarned,
    Trimmed,
    TurnFinished,
)
from ..libraries import agent_names, is_library_name
from ..spending import cost_line
from ..surfaces.terminal.screen import Screen, charge_in
from ..surfaces.terminal.slash import find_conversation, open_conversation
from ..surfaces.terminal.views import short_id
from ..values import Notice
from ._message import Told, told
from ._output import console, tell
from ._project import BUILTIN, Opened, Project, load_project, open_app
from ._weights import pull_with_bar

EXIT_CODES = {Outcome.DONE: 0, Outcome.FAILED: 1, Outcome.WAITING: 3, Outcome.STOPPED: 130}

_WATCHED = (CallStarted, CallFinished, CallProgressed, Nested, Notice, HandedOff, Trimmed)
_ALWAYS_SAID = (LimitHit, PluginFailed, SpendingWarned)


class Request(msgspec.Struct, frozen=True):
    agent: str
    text: str
    engine: str = ""
    conversation: str = ""
    inputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    as_json: bool = False
    cost: bool = False


def run(request: Request) -> int:
    project = load_project()
    if not request.agent:
        own = ", ".join(name for name in project.names if not is_library_name(name))
        libraries = ", ".join(agent_names())
        raise ConfigError(f"say which agent: `rondel run AGENT TEXT`; there are {own}, and in libraries {libraries}")
    agent = project.body(project.agent_name(request.agent)) or Agent(BUILTIN)
    message = told(agent, request.text, request.inputs, request.files)
    return asyncio.run(_run(request, project, message))


async def _run(request: Request, project: Project, message: Told) -> int:
    async with open_app(project, request.agent, request.engine, inputs_known=message.inputs_known) as opened:
        for warning in project.config.warnings:
            tell(f"rondel: {warning}")
        if opened.picked is not None and opened.picked.needs_pull is not None:
            await pull_with_bar(opened.picked.needs_pull)
        conversation = opened.app.conversation(agent=opened.agent)
        if request.conversation:
            id = await find_conversation(opened.app.store, request.conversation)
            conversation = await open_conversation(opened.app, id, request.agent)
            if request.engine:
                await conversation.use_engine(request.engine)
        with _ctrl_c_stops(conversation):
            if request.cost:
                await opened.app.ledger.ready()
            view = await conversation.send(message.parts)
            charges: list[Charge] = []
            finished = await _follow(view, charges, as_json=request.as_json)
        code = await _report(opened, view, finished, as_json=request.as_json)
        if request.cost and (line := cost_line(charges)):
            sys.stdout.flush()
            tell(f"rondel: {line}")
        await _wait_for_jobs(view, as_json=request.as_json)
        return code


@contextlib.contextmanager
def _ctrl_c_stops(conversation: Conversation) -> Generator[None]:
    """The first Ctrl-C stops the turn, which keeps what was said; a second one does not wait for it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        turn = conversation.app.running_turn(conversation.id)
        if turn is not None and not turn.stopping:
            turn.stop()
        elif task is not None:
            task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, RuntimeError):  # there Ctrl-C ends the program, and the turn is cut off
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _follow(view: TurnView, charges: list[Charge], *, as_json: bool) -> TurnFinished | None:
    """Print events as they come: all of them as JSON, or what a waiting person wants to know on stderr."""
    screen = Screen(console(sys.stderr), now=view.conversation.app.clock.now, rich=False)
    watched = (*_WATCHED, *_ALWAYS_SAID) if sys.stderr.isatty() else _ALWAYS_SAID
    finished: TurnFinished | None = None
    async for event in view:
        if isinstance(event, TurnFinished):
            finished = event
        elif (charge := charge_in(event)) is not None:
            charges.append(charge)
        if as_json:
            _print_json(event)
        elif isinstance(event, watched):
            screen.show(event)
        elif isinstance(event, RoundFinished):
            screen.learn(event.message.calls)
    return finished


async def _wait_for_jobs(view: TurnView, *, as_json: bool) -> None:
    """What the turn left to the background would be cut off with this process. A turn that follows answers, too."""
    conversation, app = view.conversation, view.conversation.app
    jobs = await app.background.jobs(conversation.id)
    if not jobs:
        return
    sys.stdout.flush()
    if left := ", ".join(job.name for job in jobs if not job.is_over):
        tell(f"rondel: waiting for {left} in the background; Ctrl-C leaves it pending")
    await app.drain()  # the turn that follows a job may be under way when the job is over
    transcript = await conversation.transcript()
    if transcript.turn != view.id and not as_json and transcript.output:
        sys.stdout.write(transcript.output.rstrip("\n") + "\n")


def _print_json(event: Event) -> None:
    sys.stdout.write(msgspec.json.encode(event, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


async def _report(opened: Opened, view: TurnView, finished: TurnFinished | None, *, as_json: bool) -> int:
    outcome = finished.outcome if finished else Outcome.FAILED
    id = short_id(view.conversation.id)
    if outcome is Outcome.DONE:
        output = (await view.result()).output
        if not as_json and output:
            sys.stdout.write(output if output.endswith("\n") else output + "\n")
        return 0 if output or not (finished and finished.reason) else 1
    if outcome is Outcome.WAITING:
        for question in await view.conversation.questions():
            tell(f"rondel: {opened.agent} asks: {question.text} (answer it with `rondel resume {id}`)")
    elif outcome is Outcome.FAILED and finished is not None and finished.failure is not None:
        tell(f"rondel: {finished.failure.message}")
    elif outcome is Outcome.STOPPED:
        tell(f"rondel: stopped; `rondel chat --conversation {id}` goes on from there")
    return EXIT_CODES[outcome]
