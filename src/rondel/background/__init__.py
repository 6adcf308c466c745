"""Work in the background: a call that is answered at once with a job's id, and the job that does the work.

A job is a turn without a model, on a transcript of its own (`<conversation>/<job>`): its engine calls one tool after
the other and says what the last one gave. So what holds for calls holds for jobs: what must not run twice runs at most
once, an agent goes on where it was, and a restart takes it up. Its end is an entry of the conversation that started it,
with a digest for that conversation's next turn, or with a turn of its own. Knows no surface and no command line.
"""

from .order import JOBS_AT_ONCE
from .shelf import cancel_from_outside, read_jobs
from .work import JOBS_OPEN_MAX, Background

__all__ = ["JOBS_AT_ONCE", "JOBS_OPEN_MAX", "Background", "cancel_from_outside", "read_jobs"]
