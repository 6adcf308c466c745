"""The tools with which an agent lists and cancels its background jobs. When a job ends, a digest informs the next
turn."""

from __future__ import annotations

from ..contracts.runtime import JobInfo
from ..errors import RondelError, ToolError
from ..tool import CallContext, tool

LISTED_MAX = 50


@tool(name="list_jobs", idempotent=True)
async def list_jobs(context: CallContext) -> str:
    """List the background jobs of this conversation, the newest first, with their status."""
    jobs = await context.turn.services.background.jobs(_conversation(context))
    return "\n".join(_line(job) for job in jobs[::-1][:LISTED_MAX]) or "no background jobs"


@tool(name="cancel_job", idempotent=True)
async def cancel_job(job_id: str, context: CallContext) -> str:
    """Cancel a background job of this conversation.

    Args:
        job_id: as it was given when the job was started
    """
    try:
        cancelled = await context.turn.services.background.cancel(_conversation(context), job_id)
    except RondelError as error:
        raise ToolError(f"{error}; list_jobs lists them") from error
    return f"{job_id} is being cancelled" if cancelled else f"{job_id} had already finished"


def _conversation(context: CallContext) -> str:
    return context.turn.conversation.partition("/")[0]


def _line(job: JobInfo) -> str:
    done = "" if job.progress is None or job.is_over else f" {job.progress:.0%}"
    said = job.summary or job.text
    return f"{job.id} {job.name}: {job.status}{done}{f' ({said})' if said else ''}"
