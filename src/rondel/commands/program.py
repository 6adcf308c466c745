"""The commands, their arguments and options, as typer reads them. What each does is in the file of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError

_SETTINGS = {"help_option_names": ["--help", "-h"]}

program = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    help="Agents that talk, work and call each other. Without a command: talk to one.",
)
_model = typer.Typer(rich_markup_mode=None, context_settings=_SETTINGS, help="The embedded models.")
program.add_typer(_model, name="model")
_jobs = typer.Typer(rich_markup_mode=None, context_settings=_SETTINGS, help="Work in the background, and schedules.")
program.add_typer(_jobs, name="jobs")

Agent = Annotated[str, typer.Argument(help="the agent to talk to", show_default=False)]
Engine = Annotated[
    str, typer.Option("--engine", "-e", help="the model to ask: provider:model, or an engine of rondel.toml")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
New = Annotated[bool, typer.Option("--new", help="begin a new conversation, which is the default")]
Continue = Annotated[bool, typer.Option("--continue", "-c", help="go on with the newest conversation")]
Cost = Annotated[bool, typer.Option("--cost", help="say after each turn what it came to")]
Conversation = Annotated[str, typer.Option("--conversation", help="go on with this one: its id, a part of it, or last")]


@program.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    engine: Engine = "",
    new: New = False,
    go_on: Continue = False,
    conversation: Conversation = "",
    cost: Cost = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="print the version")] = False,
) -> None:
    if version:
        from .. import __version__

        typer.echo(f"rondel {__version__}")
    elif context.invoked_subcommand is None:
        _chat("", engine, new, go_on, conversation, cost)
    elif engine or new or go_on or conversation or cost:
        raise typer.BadParameter(
            f"options of the chat come behind the command: rondel {context.invoked_subcommand} ..."
        )


@program.command()
def chat(
    agent: Agent = "",
    engine: Engine = "",
    new: New = False,
    go_on: Continue = False,
    conversation: Conversation = "",
    cost: Cost = False,
) -> None:
    """Talk to an agent in the terminal."""
    _chat(agent, engine, new, go_on, conversation, cost)


def _chat(agent: str, engine: str, new: bool, go_on: bool, conversation: str, cost: bool) -> None:
    if new + go_on + bool(conversation) > 1:
        raise ConfigError("--new, --continue and --conversation exclude each other; give one of them")
    from .chat import Choice, chat

    chat(Choice(agent, engine, "last" if go_on else conversation, cost=cost))


@program.command()
def serve(
    host: Annotated[str, typer.Option("--host", help="the address to listen on")] = "",
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="the port; 0 takes a free one", min=0, max=65535)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="show the requests as they come")] = False,
) -> int:
    """Serve models and agents to programs that speak OpenAI's or Anthropic's protocol."""
    from .serve import Choice
    from .serve import serve as serve_

    return serve_(Choice(host, port, watch))


Key = Annotated[str, typer.Option("--key", help="the name of a key in [gateway.keys]; without it, the first good one")]


@program.command(context_settings={"allow_interspersed_args": False})
def code(
    command: Annotated[list[str] | None, typer.Argument(help="a program and its arguments; claude by default")] = None,
    key: Key = "",
) -> int:
    """Start a coding agent, or any program, that asks the gateway. Exit codes: those of the program."""
    from .code import Choice, code

    return code(Choice(tuple(command or ()), key))


@program.command()
def activate(
    shell: Annotated[str, typer.Option("--shell", help="bash, zsh, fish or powershell")] = "",
    unset: Annotated[bool, typer.Option("--unset", help="take it back")] = False,
    key: Key = "",
) -> None:
    """Print lines for a shell, so that programs in it ask the gateway."""
    from .activate import Choice, activate

    activate(Choice(shell, unset, key))


@program.command()
def logs(
    name: Annotated[str, typer.Argument(help="which log; without it, the newest")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="how many")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="show what comes, until Ctrl-C")] = False,
    json: Json = False,
) -> None:
    """Show what the gateway wrote about its requests."""
    from .logs import View, logs

    logs(View(name, limit, follow, json))


@program.command()
def run(
    agent: Annotated[
        str,
        typer.Argument(
            help="the agent to ask: of this project, of a library as in time.now, or rondel, the built-in one"
        ),
    ] = "",
    text: Annotated[
        str,
        typer.Argument(help="what to say; - reads it from stdin; where no model answers, it may need none"),
    ] = "",
    input: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="one of the agent's inputs: name=value")
    ] = None,
    engine: Engine = "",
    json: Annotated[bool, typer.Option("--json", help="print every event as a line of JSON")] = False,
    file: Annotated[list[str] | None, typer.Option("--file", "-f", help="an image or a file to send along")] = None,
    conversation: Conversation = "",
    cost: Cost = False,
) -> int:
    """Get one answer on stdout. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 waits for an answer, 130 stopped."""
    from .run import Request, run

    return run(Request(agent, text, engine, conversation, tuple(input or ()), tuple(file or ()), json, cost))


@program.command()
def conversations(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="how many")] = 20, json: Json = False
) -> None:
    """List the conversations, newest first."""
    from .conversations import conversations

    conversations(limit=limit, as_json=json)


@program.command()
def resume(
    id: Annotated[str, typer.Argument(help="the conversation: its id, a part of it, or last")] = "last",
    engine: Engine = "",
) -> None:
    """Go on where a conversation was cut off, then talk."""
    from .chat import Choice, chat

    chat(Choice("", engine, id, go_on=True))


@program.command()
def trace(
    id: Annotated[str, typer.Argument(help="the conversation: its id, a part of it, or last")],
    turn: Annotated[str, typer.Option("--turn", help="only this turn: its number, last, or its id")] = "",
    short: Annotated[bool, typer.Option("--short", help="only turns and calls")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
    html: Annotated[bool, typer.Option("--html", help="a page for a browser that needs nothing else")] = False,
    json: Json = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="the file to write it to")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="print each line as it comes, until Ctrl-C")] = False,
) -> None:
    """Show what happened in a conversation, as a tree."""
    from .trace import View, trace

    trace(id, View(turn, json, markdown, html, short, watch, output))


@program.command()
def facts(
    id: Annotated[str, typer.Argument(help="the conversation: its id, a part of it, or last")] = "last",
    json: Json = False,
) -> None:
    """Show what agents have learned in a conversation."""
    from .facts import facts

    facts(id, as_json=json)


@program.command()
def usage(
    by: Annotated[str, typer.Option("--by", help="model, agent, person, key, ...; several with a comma")] = "model",
    window: Annotated[str, typer.Option("--window", "-w", help="day, week, month or lifetime: a row for each")] = "",
    since: Annotated[str, typer.Option("--since", help="from this day on: 2026-02-28, or 30d, 6w, 3m")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="how many")] = 20,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="all rows, for a spreadsheet")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="draw it anew every second, until Ctrl-C")] = False,
) -> None:
    """Show what was spent, by whom, and how the limits stand."""
    from .usage import View
    from .usage import usage as usage_

    usage_(View(by, window, since, limit, json, csv, watch))


@program.command()
def prompt(
    agent: Annotated[str, typer.Argument(help="the agent; rondel is the built-in one")],
    text: Annotated[str, typer.Argument(help="what somebody would say to it")],
    json: Json = False,
) -> None:
    """Show how an agent's prompt comes about, step by step. Nobody is asked."""
    from .prompt import prompt

    prompt(agent, text, as_json=json)


@program.command()
def route(
    file: Annotated[str, typer.Argument(help="a request's body as JSON; - reads it from stdin")],
    explain: Annotated[bool, typer.Option("--explain", help="say what every rule says, and what happens then")] = False,
    dialect: Annotated[str, typer.Option("--dialect", help="openai-chat, openai-responses or anthropic")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", help="a header of the request: name=value")] = None,
    json: Json = False,
) -> None:
    """Say which engine would answer a program's request, and why. Nobody is asked."""
    from .route import Choice, route

    route(Choice(file, dialect, tuple(header or ()), explain, json))


@program.command()
def lint(
    path: Annotated[list[Path] | None, typer.Argument(help="files or projects; without any, this project")] = None,
    json: Json = False,
) -> int:
    """Say what is wrong with a project's files, all at once. Exit codes: 0 nothing or only warnings, 1 errors."""
    from .lint import lint

    return lint(path or [], as_json=json)


@program.command()
def plugins(agent: Agent = "", json: Json = False) -> None:
    """Show an agent's plugins in their order."""
    from .plugins import plugins

    plugins(agent, as_json=json)


@program.command()
def doctor(json: Json = False) -> int:
    """Say what works here, what is missing, and how to get it."""
    from .doctor import doctor

    return doctor(as_json=json)


@program.command()
def init(folder: Annotated[Path, typer.Argument(help="where")] = Path()) -> None:
    """Write a project to start from. Nothing that is there is changed."""
    from .init import init

    init(folder)


@program.command()
def config(json: Json = False) -> None:
    """Show what is in force, and where it came from."""
    from .config import config

    config(as_json=json)


@program.command(name="help")
def show_help(context: typer.Context) -> None:
    """Show this list."""
    typer.echo(context.find_root().get_help())


Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="how many")]
Watch = Annotated[bool, typer.Option("--watch", help="show what changes, until no job is queued or at work")]


@_jobs.callback(invoke_without_command=True)
def jobs(context: typer.Context, limit: Limit = 20, json: Json = False, watch: Watch = False) -> None:
    if context.invoked_subcommand is None:
        jobs_list(limit, json, watch)
    elif json or watch or limit != 20:
        raise typer.BadParameter(f"options come behind the command: rondel jobs {context.invoked_subcommand} ...")


@_jobs.command(name="list")
def jobs_list(limit: Limit = 20, json: Json = False, watch: Watch = False) -> None:
    """List the jobs of all conversations, newest first, and what is scheduled."""
    from .jobs import list_jobs

    list_jobs(limit=limit, as_json=json, watch=watch)


JobId = Annotated[str, typer.Argument(help="the job or the schedule: its id, or a part of it")]


@_jobs.command(name="show")
def jobs_show(id: JobId, json: Json = False) -> None:
    """Show all that is known of a job or a schedule."""
    from .jobs import show_job

    show_job(id, as_json=json)


@_jobs.command(name="cancel")
def jobs_cancel(id: JobId) -> None:
    """Cancel a job or a schedule."""
    from .jobs import cancel_job

    cancel_job(id)


@_jobs.command(name="schedule")
def jobs_schedule(
    agent: Annotated[str, typer.Argument(help="the agent to speak to")],
    text: Annotated[str, typer.Argument(help="what to say when the time comes")],
    every: Annotated[str, typer.Option("--every", help="an interval: 15m, 2h, 1d")] = "",
    at: Annotated[str, typer.Option("--at", help="one time: '2027-03-01 09:00', or 'in 20m'")] = "",
    cron: Annotated[str, typer.Option("--cron", help="a cron line: '0 9 * * 1-5'")] = "",
    zone: Annotated[str, typer.Option("--zone", help="the time zone: Europe/Berlin")] = "",
    hours: Annotated[str, typer.Option("--hours", help="only within these hours: 09:00-17:00")] = "",
    conversation: Conversation = "",
) -> None:
    """Have an agent told something later."""
    from .jobs import Wish, schedule_job

    schedule_job(Wish(agent, text, every, at, cron, zone, hours, conversation))


@_jobs.command(name="run")
def jobs_run(engine: Engine = "") -> None:
    """Do what is pending and what is scheduled, until Ctrl-C."""
    from .jobs import run_jobs

    run_jobs(engine)


@_model.callback(invoke_without_command=True)
def model(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        model_list()


@_model.command(name="list")
def model_list(json: Json = False) -> None:
    """List the embedded models."""
    from .model import list_models

    list_models(as_json=json)


@_model.command(name="pull")
def model_pull(name: Annotated[str, typer.Argument(help="which; without it, the next better one")] = "") -> None:
    """Fetch a model. Ctrl-C keeps what has come; the next pull goes on from there."""
    from .model import pull_model

    pull_model(name)


@_model.command(name="remove")
def model_remove(name: Annotated[str, typer.Argument(help="which")]) -> None:
    """Remove a model from the cache folder."""
    from .model import remove_model

    remove_model(name)
