"""The contract of a surface, a front end such as the terminal. It does IO only: it runs no tool and decides nothing.

What a person can do on every surface, and what they must see, is in tests/surfaces/test_contract.py: the terminal, the
web and Discord pass the same tests. They are built differently. Where many people share a conversation, as on the web
and in Discord, a surface works directly with conversations (machine/conversation.py). Where one person types lines, it
makes a `Session` (surfaces/session.py) and implements the protocol below. The session sends, steers, answers and runs
commands, and calls these methods to show what happens. None of them may wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from ..events import Event
from ..question import Question
from ..values import Message, Person, ToolCall
from .command import Command, Output

Level: TypeAlias = Literal["info", "warning", "error"]


class Surface(Protocol):
    """A front end with a session, such as the terminal: it shows what the session tells it."""

    person: Person  # the person who types here
    shows: tuple[type[Event], ...]  # the events that it wants to see
    commands: Sequence[Command]  # commands that only this surface has, such as `/quit`
    tips: tuple[tuple[str, str], ...]  # what `/help` says about the surface itself, such as its keys

    def show(self, event: Event) -> None:
        """Show an event of the conversation: a piece of an answer, a call, the end of a turn."""

    def show_output(self, output: Output) -> None:
        """Show what a command returned."""

    def show_note(self, text: str, level: Level = "info") -> None:
        """Show a sentence beside the conversation."""

    def show_message(self, text: str) -> None:
        """Show what the person said on another surface or in another process."""

    def show_history(self, messages: Sequence[Message], open_calls: Sequence[ToolCall]) -> None:
        """Show the end of a conversation that is opened. `open_calls` have no result yet."""

    def ask(self, question: Question) -> None:
        """Ask the person. The next line that is not a command is the answer."""

    def show_working(self, working: bool) -> None:
        """Show that a turn began, or that nothing is running any more."""
