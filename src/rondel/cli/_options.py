"""Options that several commands share, and short ways to declare others. Each command declares the rest in its file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[F], F]

TYPO = 0.75
"""How alike a single word and a name must be, from 0 to 1, for it to be a typo. Other words are questions."""
WHICH = "the conversation: its id, part of its id, or last"


class CommandGroup(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def flag(*names: str, help: str) -> Decorator[F]:
    return click.option(*names, is_flag=True, help=help)


def string(*names: str, help: str, default: str = "") -> Decorator[F]:
    return click.option(*names, default=default, help=help)


def limit(default: int) -> Decorator[F]:
    return click.option(
        "--limit", "-n", type=click.IntRange(min=1), default=default, show_default=True, help="how many to show"
    )


engine = string("--engine", "-e", help="the model to use: provider:model, or an engine in rondel.toml")
as_json = flag("--json", "as_json", help="print JSON")
cost = flag("--cost", help="print tokens and cost after each turn")
conversation = string("--conversation", help="continue this conversation: its id, part of its id, or last")
key = string("--key", help="the name of a key in [gateway.keys]; by default, the first valid one")
agent = click.argument("agent", default="", help="the agent to talk to")
conversation_id = click.argument("id", default="last", help=WHICH)


def chat_options(command: F) -> F:
    """The options of the chat. `rondel` without a command takes them too."""
    new = flag("--new", help="start a new conversation (the default)")
    newest = flag("--continue", "-c", "newest", help="continue the newest conversation")
    return engine(new(newest(conversation(cost(command)))))
