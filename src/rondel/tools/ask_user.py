"""The tool with which a model asks the user a question; the turn waits for the answer."""

from __future__ import annotations

from ..question import Hold, Question
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
    id, answer = f"ask:{context.call.id}", context.answer
    if answer is not None and answer.question_id == id:  # an earlier answer may have been an approval of this call
        if answer.by == "edit":
            return "(no answer: the user has edited the request)"
        return "(no answer in time)" if answer.by == "deadline" else answer.text or "(the answer was empty)"
    # Models often give 0 or 1, and a person needs time to read.
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
