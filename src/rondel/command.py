"""The contract of a command: something that a person types, such as `/help`. Knows no surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from .app import Conversation

CommandFunction: TypeAlias = "Callable[[Conversation, str], Awaitable[str]]"


class Command(msgspec.Struct, frozen=True):
    """`run` gets the conversation and what stands behind the command's name; what it returns is shown."""

    name: str
    description: str
    run: CommandFunction
    usage: str = ""
