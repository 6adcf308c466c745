"""The tools with which an agent looks after its jobs in the background: what became of them, and an end to one.

Nobody needs them to hear of a job's end: a digest tells the next turn. Knows no runtime.
"""

from __future__ import annotations

from ..errors import RondelError, ToolError
from ..job import JobInfo
from ..tool import CallContext, tool

LISTED_MAX = 50


@tool(name="list_jobs", idempotent=True)
async def list_jobs(context: CallContext) -> str:
    """List the jobs of this conversation that work in the background, the newest first, with what became of them."""
    jobs = await context.turn.background.jobs(_place(context))
    return "\n".join(_line(job) for job in jobs[::-1][:LISTED_MAX]) or "nothing was started in the background"


@tool(name="cancel_job", idempotent=True)
async def cancel_job(job_id: str, context: CallContext) -> str:
    """Cancel a job of this conversation that works in the background.

    Args:
        job_id: as it was given when the job was started
    """
    try:
        cancelled = await context.turn.background.cancel(_place(context), job_id)
    except RondelError as error:
        raise ToolError(f"{error}; list_jobs lists them") from error
    return f"{job_id} is being cancelled" if cancelled else f"{job_id} was over already"


def _place(context: CallContext) -> str:
    return context.turn.conversation.partition("/")[0]


def _line(job: JobInfo) -> str:
    done = "" if job.progress is None or job.is_over else f" {job.progress:.0%}"
    said = job.summary or job.text
    return f"{job.id} {job.name}: {job.status}{done}{f' ({said})' if said else ''}"
