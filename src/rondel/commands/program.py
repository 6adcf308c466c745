"""The commands, their arguments and options, as click reads them. What each does is in the file of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from ..errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[F], F]

_SETTINGS: dict[str, Any] = {"help_option_names": ["--help", "-h"]}


class Group(click.Group):
    """Lists its commands in the order in which they stand here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def flag(*names: str, help: str) -> Decorator[F]:
    return click.option(*names, is_flag=True, help=help)


def text(*names: str, help: str, default: str = "") -> Decorator[F]:
    return click.option(*names, default=default, help=help)


def limit(default: int) -> Decorator[F]:
    return click.option(
        "--limit", "-n", type=click.IntRange(min=1), default=default, show_default=True, help="how many"
    )


engine = text("--engine", "-e", help="the model to ask: provider:model, or an engine of rondel.toml")
as_json = flag("--json", "as_json", help="print JSON")
new = flag("--new", help="begin a new conversation, which is the default")
go_on = flag("--continue", "-c", "go_on", help="go on with the newest conversation")
cost = flag("--cost", help="say after each turn what it came to")
conversation = text("--conversation", help="go on with this one: its id, a part of it, or last")
key = text("--key", help="the name of a key in [gateway.keys]; without it, the first good one")
agent = click.argument("agent", default="", help="the agent to talk to")
WHICH = "the conversation: its id, a part of it, or last"


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings=_SETTINGS,
    help="Agents that talk, work and call each other. Without a command: talk to one.",
)
@engine
@new
@go_on
@conversation
@cost
@flag("--version", "-V", help="print the version")
@click.pass_context
def program(
    context: click.Context, engine: str, new: bool, go_on: bool, conversation: str, cost: bool, version: bool
) -> None:
    if version:
        from .. import __version__

        click.echo(f"rondel {__version__}")
    elif context.invoked_subcommand is None:
        _chat("", engine, new, go_on, conversation, cost)
    elif engine or new or go_on or conversation or cost:
        raise click.BadParameter(
            f"options of the chat come behind the command: rondel {context.invoked_subcommand} ..."
        )


@program.command()
@agent
@engine
@new
@go_on
@conversation
@cost
def chat(agent: str, engine: str, new: bool, go_on: bool, conversation: str, cost: bool) -> None:
    """Talk to an agent in the terminal."""
    _chat(agent, engine, new, go_on, conversation, cost)


def _chat(agent: str, engine: str, new: bool, go_on: bool, conversation: str, cost: bool) -> None:
    if new + go_on + bool(conversation) > 1:
        raise ConfigError("--new, --continue and --conversation exclude each other; give one of them")
    from .chat import Choice, chat

    chat(Choice(agent, engine, "last" if go_on else conversation, cost=cost))


@program.command()
@text("--host", help="the address to listen on")
@click.option("--port", "-p", type=click.IntRange(0, 65535), help="the port; 0 takes a free one")
@flag("--watch", help="show the requests as they come")
def serve(host: str, port: int | None, watch: bool) -> int:
    """Serve models and agents to programs that speak OpenAI's or Anthropic's protocol."""
    from .serve import Choice
    from .serve import serve as serve_

    return serve_(Choice(host, port, watch))


@program.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, help="a program and its arguments; claude by default")
@key
def code(command: tuple[str, ...], key: str) -> int:
    """Start a coding agent, or any program, that asks the gateway. Exit codes: those of the program."""
    from .code import Choice, code

    return code(Choice(command, key))


@program.command()
@text("--shell", help="bash, zsh, fish or powershell")
@flag("--unset", help="take it back")
@key
def activate(shell: str, unset: bool, key: str) -> None:
    """Print lines for a shell, so that programs in it ask the gateway."""
    from .activate import Choice, activate

    activate(Choice(shell, unset, key))


@program.command()
@click.argument("name", default="", help="which log; without it, the newest")
@limit(50)
@flag("--follow", "-f", help="show what comes, until Ctrl-C")
@as_json
def logs(name: str, limit: int, follow: bool, as_json: bool) -> None:
    """Show what the gateway wrote about its requests."""
    from .logs import View, logs

    logs(View(name, limit, follow, as_json))


@program.command()
@click.argument(
    "agent",
    default="",
    help="the agent to ask: of this project, of a library as in time.now, or rondel, the built-in one",
)
@click.argument("text", default="", help="what to say; - reads it from stdin; where no model answers, it may need none")
@click.option("--input", "-i", multiple=True, help="one of the agent's inputs: name=value")
@engine
@flag("--json", "as_json", help="print every event as a line of JSON")
@click.option("--file", "-f", multiple=True, help="an image or a file to send along")
@conversation
@cost
def run(
    agent: str,
    text: str,
    input: tuple[str, ...],
    engine: str,
    as_json: bool,
    file: tuple[str, ...],
    conversation: str,
    cost: bool,
) -> int:
    """Get one answer on stdout. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 waits for an answer, 130 stopped."""
    from .run import Request, run

    return run(Request(agent, text, engine, conversation, input, file, as_json, cost))


@program.command()
@limit(20)
@as_json
def conversations(limit: int, as_json: bool) -> None:
    """List the conversations, newest first."""
    from .conversations import conversations

    conversations(limit=limit, as_json=as_json)


@program.command()
@click.argument("id", default="last", help=WHICH)
@engine
def resume(id: str, engine: str) -> None:
    """Go on where a conversation was cut off, then talk."""
    from .chat import Choice, chat

    chat(Choice("", engine, id, go_on=True))


@program.command()
@click.argument("id", default="last", help=WHICH)
@text("--turn", help="only this turn: its number, last, or its id")
@flag("--short", help="only turns and calls")
@flag("--markdown", help="print Markdown")
@flag("--html", help="a page for a browser that needs nothing else")
@as_json
@click.option("--output", "-o", type=click.Path(path_type=Path), help="the file to write it to")
@flag("--watch", help="print each line as it comes, until Ctrl-C")
def trace(
    id: str,
    turn: str,
    short: bool,
    markdown: bool,
    html: bool,
    as_json: bool,
    output: Path | None,
    watch: bool,
) -> None:
    """Show what happened in a conversation, as a tree."""
    from .trace import View, trace

    trace(id, View(turn, as_json, markdown, html, short, watch, output))


@program.command()
@click.argument("id", default="last", help=WHICH)
@as_json
def facts(id: str, as_json: bool) -> None:
    """Show what agents have learned in a conversation."""
    from .facts import facts

    facts(id, as_json=as_json)


@program.command()
@text("--by", default="model", help="model, agent, person, key, ...; several with a comma")
@text("--window", "-w", help="day, week, month or lifetime: a row for each")
@text("--since", help="from this day on: 2026-02-28, or 30d, 6w, 3m")
@limit(20)
@as_json
@flag("--csv", help="all rows, for a spreadsheet")
@flag("--watch", help="draw it anew every second, until Ctrl-C")
def usage(by: str, window: str, since: str, limit: int, as_json: bool, csv: bool, watch: bool) -> None:
    """Show what was spent, by whom, and how the limits stand."""
    from .usage import View
    from .usage import usage as usage_

    usage_(View(by, window, since, limit, as_json, csv, watch))


@program.command()
@click.argument("agent", help="the agent; rondel is the built-in one")
@click.argument("text", help="what somebody would say to it")
@as_json
def prompt(agent: str, text: str, as_json: bool) -> None:
    """Show how an agent's prompt comes about, step by step. Nobody is asked."""
    from .prompt import prompt

    prompt(agent, text, as_json=as_json)


@program.command()
@click.argument("file", help="a request's body as JSON; - reads it from stdin")
@flag("--explain", help="say what every rule says, and what happens then")
@text("--dialect", help="openai-chat, openai-responses or anthropic")
@click.option("--header", multiple=True, help="a header of the request: name=value")
@as_json
def route(file: str, explain: bool, dialect: str, header: tuple[str, ...], as_json: bool) -> None:
    """Say which engine would answer a program's request, and why. Nobody is asked."""
    from .route import Choice, route

    route(Choice(file, dialect, header, explain, as_json))


@program.command()
@click.argument("path", nargs=-1, type=click.Path(path_type=Path), help="files or projects; without any, this project")
@as_json
def lint(path: tuple[Path, ...], as_json: bool) -> int:
    """Say what is wrong with a project's files, all at once. Exit codes: 0 nothing or only warnings, 1 errors."""
    from .lint import lint

    return lint(list(path), as_json=as_json)


@program.command()
@agent
@as_json
def plugins(agent: str, as_json: bool) -> None:
    """Show an agent's plugins in their order."""
    from .plugins import plugins

    plugins(agent, as_json=as_json)


@program.command()
@as_json
def doctor(as_json: bool) -> int:
    """Say what works here, what is missing, and how to get it."""
    from .doctor import doctor

    return doctor(as_json=as_json)


@program.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(), help="where")
def init(folder: Path) -> None:
    """Write a project to start from. Nothing that is there is changed."""
    from .init import init

    init(folder)


@program.command()
@as_json
def config(as_json: bool) -> None:
    """Show what is in force, and where it came from."""
    from .config import config

    config(as_json=as_json)


@program.command(name="help")
@click.pass_context
def show_help(context: click.Context) -> None:
    """Show this list."""
    click.echo(context.find_root().get_help())


# --- embedded models --------------------------------------------------------------------------------------------------


@program.group(cls=Group, invoke_without_command=True, help="The embedded models.")
@click.pass_context
def model(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        context.invoke(model_list, as_json=False)


@model.command(name="list")
@as_json
def model_list(as_json: bool) -> None:
    """List the embedded models."""
    from .model import list_models

    list_models(as_json=as_json)


@model.command(name="pull")
@click.argument("name", default="", help="which; without it, the next better one")
def model_pull(name: str) -> None:
    """Fetch a model. Ctrl-C keeps what has come; the next pull goes on from there."""
    from .model import pull_model

    pull_model(name)


@model.command(name="remove")
@click.argument("name", help="which")
def model_remove(name: str) -> None:
    """Remove a model from the cache folder."""
    from .model import remove_model

    remove_model(name)


# --- jobs -------------------------------------------------------------------------------------------------------------

JOBS = 20
watch = flag("--watch", help="show what changes, until no job is queued or at work")
job = click.argument("id", help="the job or the schedule: its id, or a part of it")


@program.group(cls=Group, invoke_without_command=True, help="Work in the background, and schedules.")
@limit(JOBS)
@as_json
@watch
@click.pass_context
def jobs(context: click.Context, limit: int, as_json: bool, watch: bool) -> None:
    if context.invoked_subcommand is None:
        context.invoke(jobs_list, limit=limit, as_json=as_json, watch=watch)
    elif as_json or watch or limit != JOBS:
        raise click.BadParameter(f"options come behind the command: rondel jobs {context.invoked_subcommand} ...")


@jobs.command(name="list")
@limit(JOBS)
@as_json
@watch
def jobs_list(limit: int, as_json: bool, watch: bool) -> None:
    """List the jobs of all conversations, newest first, and what is scheduled."""
    from .jobs import list_jobs

    list_jobs(limit=limit, as_json=as_json, watch=watch)


@jobs.command(name="show")
@job
@as_json
def jobs_show(id: str, as_json: bool) -> None:
    """Show all that is known of a job or a schedule."""
    from .jobs import show_job

    show_job(id, as_json=as_json)


@jobs.command(name="cancel")
@job
def jobs_cancel(id: str) -> None:
    """Cancel a job or a schedule."""
    from .jobs import cancel_job

    cancel_job(id)


@jobs.command(name="schedule")
@click.argument("agent", help="the agent to speak to")
@click.argument("text", help="what to say when the time comes")
@text("--every", help="an interval: 15m, 2h, 1d")
@text("--at", help="one time: '2027-03-01 09:00', or 'in 20m'")
@text("--cron", help="a cron line: '0 9 * * 1-5'")
@text("--zone", help="the time zone: Europe/Berlin")
@text("--hours", help="only within these hours: 09:00-17:00")
@conversation
def jobs_schedule(
    agent: str, text: str, every: str, at: str, cron: str, zone: str, hours: str, conversation: str
) -> None:
    """Have an agent told something later."""
    from .jobs import Wish, schedule_job

    schedule_job(Wish(agent, text, every, at, cron, zone, hours, conversation))


@jobs.command(name="run")
@engine
def jobs_run(engine: str) -> None:
    """Do what is pending and what is scheduled, until Ctrl-C."""
    from .jobs import run_jobs

    run_jobs(engine)
