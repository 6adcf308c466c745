"""What a call spent, and what it was for: values.

Tokens and money are whole numbers, so that sums are exact: money is in billionths of a dollar. An unknown price is
None, never 0. Knows no store, no engine and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import astuple

from .values import Usage, Value

NANO = 1_000_000_000
TOKENS_MAX = 1_000_000_000  # no call spends more: a larger number is not credible
TEXT_CHARS_MAX = 200

ALL = "all"  # the dimension of all charges together; its only value is empty
EACH = "*"
BETWEEN = "\x1f"
"""Separates the values of several dimensions. No value contains it, because control characters are removed."""

_CONTROLS = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Scope(Value, frozen=True):
    """What a call is for. An empty field is unknown, and counts nowhere.

    `kind` is `chat`, `agent` (one that works for another), `question` (of a trigger), `summary`, `relay`, `image`,
    `voice`, `embedding`, or a word of your own.
    """

    kind: str = ""
    model: str = ""
    engine: str = ""
    agent: str = ""
    conversation: str = ""
    person: str = ""
    roles: tuple[str, ...] = ()
    channel: str = ""
    guild: str = ""
    key: str = ""
    project: str = ""

    def values_of(self, dimension: str) -> tuple[str, ...]:
        """Return the values of a dimension; empty if it is unknown."""
        if dimension == "role":
            return self.roles
        value: str = getattr(self, dimension)
        return (value,) if value else ()

    @property
    def chars(self) -> int:
        """The number of characters of its values."""
        return len(self._joined) + sum(map(len, self.roles))

    @property
    def _joined(self) -> str:
        return (
            f"{self.kind}{self.model}{self.engine}{self.agent}{self.conversation}{self.person}"
            f"{self.channel}{self.guild}{self.key}{self.project}"
        )

    def over(self, other: Scope) -> Scope:
        """Return this scope with unknown fields filled in from another one."""
        if self == _UNKNOWN:
            return other
        return Scope(*(mine or theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def cleaned(self) -> Scope:
        """Return this scope with texts that can be stored: short, and without control characters."""
        if not self.roles:
            joined = self._joined
            if len(joined) <= TEXT_CHARS_MAX and joined.isascii() and joined.isprintable():  # the usual case
                return self
        roles = tuple(dict.fromkeys(cleaned for role in self.roles if (cleaned := clean(role))))
        values = (roles if field == "roles" else clean(getattr(self, field)) for field in self.__struct_fields__)
        return Scope(*values)  # type: ignore[arg-type]


_UNKNOWN = Scope()


class ImageUsage(Value, frozen=True):
    """What a call used in addition to its tokens: the pictures that it made, and the tokens of pictures in its input.
    Both may have prices of their own."""

    made: int
    tokens_in: int = 0


DIMENSIONS = tuple("role" if field == "roles" else field for field in Scope.__struct_fields__)


def clean(text: str) -> str:
    """Return a text that can be stored: short, and without control characters."""
    text = text[:TEXT_CHARS_MAX]
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(" ", text)


def model_of(engine: str) -> str:
    """Return the model in an engine's name, or the whole name if there is none."""
    _, colon, model = engine.partition(":")
    return model if colon else engine


class Charge(Value, frozen=True):
    """What one call spent. `at` is when it began; `price` names the price list that `cost_nanousd` is from."""

    id: str
    at: float
    scope: Scope
    usage: Usage
    cost_nanousd: int | None = None
    price: str = ""
    metadata: dict[str, Any] = {}

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.usage.tokens_in + self.usage.tokens_out


Tell: TypeAlias = Callable[[Any], object]  # gets the ledger's events about some calls
