"""`rondel` itself: the list of commands, each imported from its own file when it is used."""

from __future__ import annotations

import importlib
import re
import sys

import click
from click.shell_completion import CompletionItem

from ..errors import ConfigError, near_word, nearest
from ._options import HELP, TYPO, chat_options, flag, with_help

COMMANDS = {
    "chat": "Talk to an agent in the terminal.",
    "serve": "Serve the page, models and agents (OpenAI and Anthropic protocols).",
    "discord": "Run a Discord bot.",
    "code": "Run a coding agent or another program through the gateway.",
    "activate": "Print shell commands that point programs at the gateway.",
    "status": "Show the running gateway's open requests and failed engines.",
    "logs": "Show the gateway's request log.",
    "run": "Ask an agent once and print the answer.",
    "imagine": "Make a picture, or edit one.",
    "conversations": "Manage and search the conversations.",
    "resume": "Continue an interrupted conversation, then chat.",
    "stop": "Stop what is running in a conversation, also in another terminal.",
    "trace": "Show what happened in a conversation, as a tree.",
    "facts": "Show what agents learned in a conversation.",
    "usage": "Show tokens and cost, who used them, and the limits.",
    "prompt": "Preview an agent's prompt without calling a model.",
    "route": "Show which engine would answer a request, without calling it.",
    "lint": "Check a project's files and list all problems.",
    "plugins": "Show an agent's plugins in order.",
    "doctor": "Check what works here, what is missing, and how to fix it.",
    "init": "Create a starter project without changing existing files.",
    "trust": "Trust a project: its code may run and send your keys.",
    "config": "Show the effective settings and where each comes from.",
    "model": "Manage the embedded models.",
    "knowledge": "Manage and search the knowledge bases.",
    "jobs": "Manage background jobs and schedules.",
    "mcp": "Manage MCP servers, or serve the agents as one.",
    "completion": "Print the code that completes `rondel` in a shell.",
    "help": "Show this list, or the help of a command.",
}
"""Each command with its short help, so that `rondel --help` imports no command. A test compares them."""
ELSEWHERE = {"resume": "chat"}  # commands that share a file with another one


OTHER_WORDS = {
    "agents": "/agent in a chat, which lists the agents",
    "history": "`rondel conversations`",
    "keys": "`rondel doctor`, which says which keys are set",
    "login": "`rondel doctor`, which says which keys are set",
    "quit": "Ctrl-D, which leaves the chat",
    "exit": "Ctrl-D, which leaves the chat",
    "setup": "`rondel`, which starts without a setup",
    "start": "`rondel`, which starts a chat",
    "update": "`git pull` and `pip install` in the checkout",
    "upgrade": "`git pull` and `pip install` in the checkout",
    "version": "`rondel --version`",
}
"""Words that people type for commands that have another name here."""


def _meant(word: str) -> str:
    """Return what a single word was probably meant to be; empty if it is a question."""
    if word in OTHER_WORDS:
        return OTHER_WORDS[word]
    alike = (one for one in COMMANDS if len(one) == len(word) and one[0] == word[0])
    one_letter = (one for one in alike if sum(a != b for a, b in zip(one, word, strict=True)) == 1)
    near = near_word(word, COMMANDS, TYPO) or next(one_letter, "")  # `rum` is too short for the ratio
    return f"`rondel {near}`" if near else ""


class Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module = importlib.import_module(f".{ELSEWHERE.get(cmd_name, cmd_name)}", __package__)
            self.commands[cmd_name] = getattr(module, cmd_name)
        return with_help(self.commands.get(cmd_name), ctx)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = HELP
        return option

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word in COMMANDS:
            return super().resolve_command(ctx, args)
        if re.fullmatch("[a-z]+", word) and (meant := _meant(word)):
            from ._names import default_agent

            raise ConfigError(
                f"{word!r} is not a command; did you mean {meant}? "
                f'To ask it anyway: rondel run {default_agent()} "{word}"'
            )
        return self._question(ctx, args)

    def _question(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """Treat anything that is not a command as a question for the default agent, with the options before it."""
        from .run import question

        given = ctx.params
        options = ["--engine", given["engine"]] if given["engine"] else []
        which = "last" if given["newest"] else given["conversation"]
        options += [*(("--conversation", which) if which else ()), *(("--cost",) if given["cost"] else ())]
        ctx.params = {name: type(value)() for name, value in given.items()}
        return "question", question, [*options, *args]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing any of them."""
        names = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Agents that talk, work and call each other. Without a command: chat with one, or ask it a question.",
    subcommand_metavar="[QUESTION | COMMAND [ARGS]...]",
)
@chat_options
@flag("--version", "-V", help="print the version")
@click.pass_context
def program(
    context: click.Context, engine: str, new: bool, newest: bool, conversation: str, cost: bool, version: bool
) -> None:
    if version:
        from .. import __version__

        sys.stdout.write(f"rondel {__version__}\n")
    elif context.invoked_subcommand is None:
        from .chat import chat

        context.invoke(chat, agent="", engine=engine, new=new, newest=newest, conversation=conversation, cost=cost)
    elif engine or new or newest or conversation or cost:
        raise click.UsageError(f"options of the chat go after the command: rondel {context.invoked_subcommand} ...")


@program.command(name="help")
@click.argument("command", default="", help="a command; by default, all are listed")
@click.pass_context
def show_help(context: click.Context, command: str) -> None:
    """Show this list, or the help of a command."""
    root = context.find_root()
    if command:
        if command not in COMMANDS:
            raise click.UsageError(f"there is no command {command!r}{nearest(command, tuple(COMMANDS))}")
        name, found, _ = program.resolve_command(root, [command])
        assert found is not None
        root = click.Context(found, info_name=name, parent=root)
    sys.stdout.write(f"{root.get_help()}\n")
