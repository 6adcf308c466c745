"""The contract of a command that a person types in a session, such as `/help`. It returns plain values, which each
surface shows in its own way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from ..values import Media, Person, Value
from .store import ConversationInfo

if TYPE_CHECKING:
    from ..app.app import App, Conversation
    from ..engine import EngineInfo


# --- what a command returns -------------------------------------------------------------------------------------------


class Table(Value, frozen=True, tag=True):
    """Rows of text. The last `flexible` columns share the remaining space: they wrap if `wraps`, otherwise they are
    cut. The others are never cut, because they contain what people copy, such as ids and names."""

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    flexible: int = 1
    wraps: bool = True


class Option(Value, frozen=True):
    name: str
    description: str = ""
    is_current: bool = False


class Choices(Value, frozen=True, tag=True):
    """Things to choose from. `/command NAME` chooses one; a surface may offer buttons that send it."""

    command: str
    options: tuple[Option, ...]
    text: str = ""
    hint: str = ""


class Outline(Value, frozen=True, tag=True):
    """A node of a tree, such as a trace."""

    kind: Literal["root", "turn", "round", "call", "job", "note", "detail"]
    name: str
    text: str = ""
    facts: str = ""
    status: str = ""
    children: tuple[Outline, ...] = ()


class Clip(Value, frozen=True, tag=True):
    """A text for the person's clipboard."""

    text: str


class Document(Value, frozen=True, tag=True):
    """A text to save as a file of this name, or to send as one."""

    name: str
    text: str


class Draft(Value, frozen=True, tag=True):
    """A line for the person to change and send."""

    text: str


Output: TypeAlias = str | Table | Choices | Outline | Clip | Document | Draft


# --- what a command gets ----------------------------------------------------------------------------------------------


class Models(msgspec.Struct, frozen=True):
    """The models to offer, each with a description, and a function that raises RondelError for an unknown name."""

    offered: Mapping[str, str] = {}
    check: Callable[[str], object] | None = None


class Chat(Protocol):
    """The chat in which a command was typed."""

    app: App
    conversation: Conversation
    models: Models
    model_line: str  # a sentence that says which model the app's first agent uses, and why
    recent: list[ConversationInfo]  # the conversations that were listed last, for completion

    @property
    def person(self) -> Person:
        """The person who typed the command."""
        ...

    @property
    def commands(self) -> list[Command]:
        """Every command that can be typed here: the shared ones, the surface's own, and the plugins'."""
        ...

    @property
    def tips(self) -> tuple[tuple[str, str], ...]:
        """What `/help` says about the surface itself, such as its keys."""
        ...

    @property
    def engine(self) -> EngineInfo:
        """The engine that answers in this conversation."""
        ...

    @property
    def chosen_engine(self) -> str:
        """The engine that was chosen for this conversation; empty if its agent uses its own."""
        ...

    async def use_engine(self, name: str) -> None:
        """Use another engine from the next turn on."""
        ...

    async def settings(self) -> dict[str, Any]:
        """Return the agent's settings that this conversation overrides."""
        ...

    async def set(self, key: str, value: Any) -> None:
        """Override a setting of the agent in this conversation; None restores the agent's own."""

    async def switch(self, conversation: Conversation, *, resumes: bool = False) -> None:
        """Continue in another conversation. `resumes` also continues its interrupted turn."""

    async def stop(self) -> bool:
        """Stop what is running, also in another process. Return False if nothing is."""
        ...

    async def retry(self) -> None:
        """Undo the last turn and send its message again."""

    async def edit(self, text: str) -> None:
        """Undo the last turn and send this instead of its message."""

    def attach(self, media: Media) -> None:
        """Send this with the next message."""


CommandFunction: TypeAlias = Callable[[Chat, str], Awaitable[Output | None]]


class Command(msgspec.Struct, frozen=True):
    """`run` gets the chat and the text after the command's name. If it returns None, nothing is shown."""

    name: str
    description: str
    run: CommandFunction
    usage: str = ""
