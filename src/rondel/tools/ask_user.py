"""The tool with which a model asks the person it works for; the turn rests until the answer. Knows no surface."""

from __future__ import annotations

from ..question import Answer, Hold, Question
from ..tool import CallContext, tool

TIMEOUT_S_MIN = 10.0


@tool(name="ask_user", timeout_s=0, idempotent=True)
async def ask_user(
    question: str,
    context: CallContext,
    options: list[str] = [],  # noqa: B006 - `tool` copies it
    free_text: bool = True,
    timeout_s: float | None = None,
) -> Hold | str:
    """Ask the user something that only they can tell you, and wait for the answer.

    Args:
        question: what to ask, in one or two sentences
        options: answers to choose from, when there are a few
        free_text: whether another answer than the options is welcome
        timeout_s: how many seconds to wait; without it, as long as it takes
    """
    id = f"ask:{context.call.id}"
    answer = context.answer
    if answer is not None and answer.question_id == id:  # another one may have been about letting this call run
        return _heard(answer)
    # Models that know no good number give 0 or 1, and a person who is asked needs time to read.
    deadline = context.turn.now() + max(timeout_s, TIMEOUT_S_MIN) if timeout_s else None
    return Hold(
        Question(
            id,
            kind="choose" if options else "ask",
            text=question,
            options=tuple(options),
            free_text=free_text or not options,
            call_id=context.call.id,
            deadline=deadline,
        )
    )


def _heard(answer: Answer) -> str:
    if answer.by == "deadline":
        return "(nobody answered in time)"
    return answer.text or "(the answer was empty)"
