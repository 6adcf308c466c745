"""Options that several commands share, and short ways to declare others. Each command declares the rest in its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from ..errors import nearest

F = TypeVar("F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[F], F]
Names: TypeAlias = Callable[[], Mapping[str, str]]

TYPO = 0.75
"""How similar a single word and a command's name must be, from 0 to 1, for the word to be a typo. Other words are
questions."""
HELP_CHARS_MAX = 200
"""Longer than the first sentence of any command: click would cut it off at the width of the terminal."""
HELP = "show this help"
WHICH = "the conversation: its id, part of its id, or last"


def with_help(command: click.Command | None, context: click.Context | None) -> click.Command | None:
    """Give the option `--help` of a command a text in the style of the other options."""
    if command is not None and context is not None and (option := command.get_help_option(context)) is not None:
        option.help = HELP
    return command


class CommandGroup(click.Group):
    """Lists its commands in the order in which they are defined. Without a command, `default` runs."""

    def __init__(self, *args: Any, default: str = "list", **settings: Any) -> None:
        super().__init__(*args, subcommand_metavar="[COMMAND [ARGS]...]", **settings)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_command = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        if has_command or ctx.resilient_parsing:  # a shell that completes wants the commands
            return super().parse_args(ctx, args)
        if late := next((word for word in args if word in self.commands), None):
            raise click.UsageError(f"options go after the command: {ctx.command_path} {late} ...")
        return super().parse_args(ctx, [self.default, *args])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return with_help(super().get_command(ctx, cmd_name), ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(HELP_CHARS_MAX)) for name, one in self.commands.items()])
        records = (
            one.get_help_record(ctx) for one in self.commands[self.default].params if one.param_type_name == "option"
        )
        if options := [record for record in records if record]:
            with formatter.section(f"Options of {self.default}, the default command"):
                formatter.write_dl(options)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise click.UsageError(f"there is no command {args[0]!r}{nearest(args[0], tuple(self.commands))}", ctx)
        return super().resolve_command(ctx, args)


def flag(*names: str, help: str) -> Decorator[F]:
    return click.option(*names, is_flag=True, help=help)


def string(*names: str, help: str, default: str = "", complete: Names | None = None) -> Decorator[F]:
    return click.option(*names, default=default, help=help, shell_complete=completes(complete) if complete else None)


def completes(names: Names) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Complete an argument with names. They are read only when a shell asks."""

    def complete(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
        return [CompletionItem(name, help=about) for name, about in names().items() if name.startswith(start)]

    return complete


def a_file(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    return [CompletionItem(start, type="file")]


def names_of(kind: Literal["agents", "engines", "conversations"]) -> dict[str, str]:
    """Return the names that can be completed, each with its description."""
    from . import _names

    return getattr(_names, kind)()


def limit(default: int) -> Decorator[F]:
    return click.option(
        "--limit", "-n", type=click.IntRange(min=1), default=default, show_default=True, help="how many to show"
    )


engine = string(
    "--engine",
    "-e",
    help="the model to use: provider:model, or an engine in rondel.toml",
    complete=lambda: names_of("engines"),
)
as_json = flag("--json", "as_json", help="print JSON")
cost = flag("--cost", help="print tokens and cost after each turn")
conversation = string(
    "--conversation",
    help="continue this conversation: its id, part of its id, or last",
    complete=lambda: names_of("conversations"),
)
key = string("--key", help="the name of a key in [gateway.keys]; by default, the first valid one")
complete_agent = completes(lambda: names_of("agents"))
complete_conversation = completes(lambda: names_of("conversations"))
agent = click.argument("agent", default="", help="the agent; by default, the project's", shell_complete=complete_agent)
conversation_id = click.argument(
    "id", default="last", help=f"{WHICH} (the default)", shell_complete=complete_conversation
)


def chat_options(command: F) -> F:
    """Add the options of the chat. `rondel` without a command takes them, too."""
    new = flag("--new", help="start a new conversation (the default)")
    newest = flag("--continue", "-c", "newest", help="continue the newest conversation")
    return engine(new(newest(conversation(cost(command)))))
