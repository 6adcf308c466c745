"""What is held for a person: approve this call, answer this, pick one of these.

A question is an entry in the journal; its answer is another one. A turn that waits for it costs nothing. Knows no
surface.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from .errors import QuestionError
from .values import Value

QuestionKind: TypeAlias = Literal["approve", "ask", "choose"]

YES, NO, ALWAYS = "yes", "no", "always"
"""Answers to whether a call may run; `always` holds for its tool, for the rest of the conversation."""


class Question(Value, frozen=True):
    """`deadline` is a point in time (seconds since the epoch); when it passes, `default` is the answer."""

    id: str
    kind: QuestionKind
    text: str
    options: tuple[str, ...] = ()
    free_text: bool = True
    call_id: str = ""
    deadline: float | None = None
    default: str = ""
    person: str = ""
    """Who may answer; anybody when it is empty."""


class Answer(Value, frozen=True):
    """`by` is who answered; it is `deadline` when nobody did and `stop` when the turn was stopped instead."""

    question_id: str
    text: str
    by: str = ""


class Hold(Value, frozen=True):
    """Returned by a plugin or a tool instead of a result: the call waits for an answer, then it is answered anew."""

    question: Question


def check_answer(question: Question, answer: Answer) -> None:
    """Raises QuestionError when this person may not give this answer."""
    if question.person and answer.by not in (question.person, "deadline", "stop"):
        raise QuestionError(f"question {question.id!r} is for {question.person!r}, not for {answer.by!r}")
    if question.options and not question.free_text and answer.by != "deadline" and question.kind != "approve":
        known = {option.casefold() for option in question.options}
        if answer.text.strip().casefold() not in known:
            raise QuestionError(f"{answer.text!r} is not one of: {', '.join(question.options)}")
