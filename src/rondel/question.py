"""Questions to a person: approve this call, answer this, choose one of these.

A question is an entry in the journal, and its answer is another one. A turn that waits for an answer costs nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from .errors import QuestionError
from .values import Value

QuestionKind: TypeAlias = Literal["approve", "ask", "choose"]

YES, NO, ALWAYS = "yes", "no", "always"
"""Whether a call may run; `always` allows what the question covers for the rest of the conversation."""

NOT_A_PERSON = ("deadline", "stop", "edit")
"""What `Answer.by` says if a question was closed without an answer. Such an answer allows nothing."""

QUOTE_BAR = "  │ "
"""Begins each line of a text that a question quotes, so that no quoted text can look like the question itself. A
surface that wraps a quoted line begins each of its rows with it."""

_YES = frozenset((YES, ALWAYS, "y", "true", "ok", "allow"))


class Question(Value, frozen=True):
    """At its `deadline` (seconds since the epoch) the answer is `default`."""

    id: str
    kind: QuestionKind
    text: str
    options: tuple[str, ...] = ()
    free_text: bool = True
    call_id: str = ""
    deadline: float | None = None
    default: str = ""
    person: str = ""
    """The id of the person who may answer; empty if anyone may."""
    covers: str = ""
    """A digest of what an approval is about; `always` allows later calls with the same digest."""


class Answer(Value, frozen=True):
    """`by` is who answered: the id of a person, `deadline` if the time ran out, `stop` if the turn was stopped, or
    `edit` if the message that led to the question was edited."""

    question_id: str
    text: str
    by: str = ""


class Hold(Value, frozen=True):
    """Returned by a plugin or a tool to ask a person: the call waits for the answer, then runs again."""

    question: Question


def is_yes(text: str) -> bool:
    """Return whether this answer allows a call. Anything but a yes refuses it."""
    return text.strip().rstrip(".!").casefold() in _YES


def is_always(text: str) -> bool:
    return text.strip().rstrip(".!").casefold() == ALWAYS


def check_answer(question: Question, answer: Answer, *, instead_of: str = "") -> None:
    """Raise QuestionError if the answer does not fit. `instead_of` is the person on whose behalf it is given."""
    if question.person and question.person != instead_of and answer.by not in (question.person, *NOT_A_PERSON):
        raise QuestionError(f"question {question.id!r} is for {question.person!r}, not for {answer.by!r}")
    if question.options and not question.free_text and answer.by not in NOT_A_PERSON and question.kind != "approve":
        known = {option.casefold() for option in question.options}
        if answer.text.strip().casefold() not in known:
            raise QuestionError(f"{answer.text!r} is not one of: {', '.join(question.options)}")
