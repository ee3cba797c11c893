"""What the first verdict predicted beside what the job took: in words, for people.

The finish that the service expects moves with each epoch, and at the end it is the truth. Only the
first prediction says how good predictions are.
"""

from laxity.api.job_view import JobView
from laxity.human_time import format_seconds


def run_time_s(job: JobView) -> float:
    """Seconds during which an ended job had workers, without waiting and stops."""
    if job.finished_at is None:
        return 0.0
    widths = job.width_history
    ends = [*(since for since, _ in widths[1:]), job.finished_at]
    spans = zip(widths, ends, strict=True) if widths else ()
    return sum(max(0.0, end - since) for (since, workers), end in spans if workers)


def prediction_error_pct(job: JobView) -> float | None:
    """How far the predicted run time of a finished job is off, in percent of what it took."""
    took_s = run_time_s(job)
    if job.state != "finished" or job.first_run_s is None or took_s <= 0.0:
        return None
    return 100.0 * abs(job.first_run_s - took_s) / took_s


def comparison_text(job: JobView) -> str:
    """The predicted run time beside the true one; empty while the job has not finished."""
    error_pct = prediction_error_pct(job)
    if error_pct is None or job.first_run_s is None:
        return ""
    predicted, took = format_seconds(job.first_run_s), format_seconds(run_time_s(job))
    return f"predicted {predicted} of run time, took {took} ({error_pct:.0f} % off)"
