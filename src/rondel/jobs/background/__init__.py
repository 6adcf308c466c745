"""Background jobs: a call is answered at once with a job's id, and the job does the work.

A job is a turn without a model, on a transcript of its own (`<conversation>/<job>`): its engine calls one tool after
the other and answers with the last result. So jobs have the guarantees of calls: a tool that must not run twice runs at
most once, an agent continues where it was, and a restart resumes the job. The end of a job is an entry in the
conversation that started it, with a digest for that conversation's next turn or with a turn of its own.
"""

from .job import JOBS_AT_ONCE
from .status import cancel_without_app, read_jobs
from .work import JOBS_OPEN_MAX, Background

__all__ = ["JOBS_AT_ONCE", "JOBS_OPEN_MAX", "Background", "cancel_without_app", "read_jobs"]
