"""What the first verdict predicted beside what the job took: in words, for people.

The finish that the service expects moves with each epoch, and at the end it is the truth. Only the
first prediction says how good predictions are.
"""

from typing import Final

from laxity.api.job_view import JobView
from laxity.human_time import count_noun, format_seconds

LEAST_DIFFERENCE_S: Final = 30.0  # below, the time that a start takes is most of it
DOUBTED: Final = 2.0  # times as long, or as short, as declared
STARTUP_S: Final = 60.0  # of a run that an estimate of its epochs does not hold


def run_time_s(job: JobView) -> float:
    """Seconds during which an ended job had workers, without waiting and stops."""
    if job.finished_at is None:
        return 0.0
    widths = job.width_history
    ends = [*(since for since, _ in widths[1:]), job.finished_at]
    spans = zip(widths, ends, strict=True) if widths else ()
    return sum(max(0.0, end - since) for (since, workers), end in spans if workers)


def prediction_error_pct(job: JobView) -> float | None:
    """How far the predicted run time of a finished job is off, in percent of what it took.

    None where its code ended it early: that is an outcome of its own.
    """
    took_s = run_time_s(job)
    if job.finished_early or job.state != "finished" or job.first_run_s is None or took_s <= 0.0:
        return None
    return 100.0 * abs(job.first_run_s - took_s) / took_s


def comparison_text(job: JobView) -> str:
    """The predicted run time beside the true one; empty while the job has not finished."""
    if job.finished_early and job.first_run_s is not None:
        predicted, took = format_seconds(job.first_run_s), format_seconds(run_time_s(job))
        epochs = f"{job.epochs_done} of at most {count_noun(job.epochs, 'epoch')}"
        return f"predicted {predicted} of run time, took {took} for {epochs}"
    error_pct = prediction_error_pct(job)
    if error_pct is None or job.first_run_s is None:
        return ""
    took_s = run_time_s(job)
    predicted, took = format_seconds(job.first_run_s), format_seconds(took_s)
    is_seen = abs(job.first_run_s - took_s) >= LEAST_DIFFERENCE_S
    share = f" ({error_pct:.0f} % off)" if is_seen else ""
    return f"predicted {predicted} of run time, took {took}{share}"


def history_doubt(job: JobView, epoch_estimate_s: float | None) -> str:
    """Whether the verdict rests on a history that contradicts the declared epoch time, in words.

    A model that nobody named is called as its function, and two projects may each have a `train`:
    the second is then predicted by the runs of the first. Empty if nothing is to be doubted.
    """
    predicted_s, what = _first_predicted_s(job)
    if predicted_s is None or epoch_estimate_s is None or not job.epochs:
        return ""
    declared_s = epoch_estimate_s * job.epochs
    least_s = declared_s / max(job.widths, default=1) / DOUBTED
    if least_s <= predicted_s <= declared_s * DOUBTED + STARTUP_S:
        return ""
    note = f" ({job.prediction_note})" if job.prediction_note else ""
    return (
        f"the history of model {job.model!r} says {format_seconds(predicted_s)} for a run{what}{note}; "
        f"the declared epoch_estimate says {format_seconds(declared_s)} for "
        f"{count_noun(job.epochs, 'epoch')} on one worker. If these are runs of another training, "
        "give this one a model of its own (model=..., --model)"
    )


def _first_predicted_s(job: JobView) -> tuple[float | None, str]:
    """Seconds of run time that the verdict rests on, and at which quantile if not at P50.

    None where it says nothing about a whole run.
    """
    if job.epochs_done or job.attempt > 1:
        return None, ""
    if job.reason_code == "deadline_before_fastest_finish" and job.p90_at and job.submitted_at:
        return job.p90_at - job.submitted_at, " (P90)"
    return job.first_run_s, ""
