"""What the learned policy sees of a job's next width: numbers free of job types, scaled and bounded.

DL2 (algorithms.md 6.2) describes jobs by a type out of eight, and leaves the capacity out. Here a job
is its measured curve, and a summary of the cluster stands beside it (our own), so that models never
seen before, and clusters of other sizes, need no new net.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import HOUR_S, MINUTE_S, Job

JOB_FEATURES: Final = (
    "left",  # share of the epochs
    "rest_least",  # time left at the least width
    "rest_present",  # at the width before the step
    "rest_relative",  # at the least width, to the other jobs' (geometric mean)
    "speedup",  # time at the width before the step / at the least width
    "saved",  # share of the time left that the step saves
    "saved_per_gpu",  # seconds per GPU, less the time to re-form
    "progress_gain",  # shares of the whole training per GPU-hour
    "rest_gain",  # shares of what is left per GPU-hour
    "efficiency",  # speed gained / GPUs gained
    "share",  # of the cluster's GPUs, before the step
    "more",  # what the step adds to it
    "width",  # place among its widths
    "held",  # it runs at such a width or a wider one
    "grows",  # it runs at a narrower one
    "reform",  # time to re-form / time left
    "due",  # has a deadline
    "slack",  # time to spare at the width before the step / time left at the least width
)
SUMMARY: Final = ("free", "crowd", "load", "mean_rest")
FEATURES: Final = (*JOB_FEATURES, *SUMMARY, "stop")
FREE: Final = FEATURES.index("free")
STOP: Final = FEATURES.index("stop")
FREE_LEVELS: Final = 64  # steps of the free share that the score of stopping tells apart
LOG_LONGEST: Final = 12.0  # log(1 + minutes) of 19 weeks


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """One job. `rest_s` are the mean seconds left at each of its widths, none slower than the last.

    `left` is the share of its epochs; `spare_s` are the seconds until its deadline, or infinite.
    """

    widths: tuple[int, ...]
    rest_s: tuple[float, ...]
    left: float = 1.0
    gpus_per_worker: int = 1
    workers: int = 0
    reform_s: float = 0.0
    spare_s: float = np.inf


@dataclass(frozen=True, slots=True)
class JobSteps:
    """All S steps from a width to the next that n jobs could take; those of a job in order.

    `before`, `after`, `more_gpus` and `job` have shape (S,); job i has rows first[i] to first[i + 1];
    `features` has shape (S, F).
    """

    job: Ints
    before: Ints
    after: Ints
    more_gpus: Ints
    first: tuple[int, ...]
    features: Floats
    summary: Floats
    cluster_gpus: int


def read_jobs(jobs: Sequence[Job], forecasts: Forecasts) -> list[JobNumbers]:
    """The numbers of a snapshot's jobs."""
    numbers = []
    for job, curve in zip(jobs, forecasts.curves(jobs), strict=True):
        numbers.append(
            JobNumbers(
                curve.widths,
                tuple([curve.total_s(width, "mean") for width in curve.widths]),
                left=curve.epochs_left / max(1, job.workload.epochs),
                gpus_per_worker=job.gpus_per_worker,
                workers=job.workers,
                reform_s=curve.reform_s(curve.widths[0], "mean"),
                spare_s=job.deadline_at - forecasts.now,
            )
        )
    return numbers


def cut_widths(job: JobNumbers, least: int) -> JobNumbers:
    """The same job where it has at least this one of its widths."""
    place = job.widths.index(least)
    return replace(job, widths=job.widths[place:], rest_s=job.rest_s[place:])


def describe_steps(jobs: Sequence[JobNumbers], *, cluster_gpus: int, free_gpus: int) -> JobSteps:
    """All steps with their features; `free_gpus` are those left once each job has its least width."""
    counts = [len(job.widths) - 1 for job in jobs]
    owner = np.repeat(np.arange(len(jobs)), counts)
    before = np.array([width for job in jobs for width in job.widths[:-1]], dtype=np.int64)
    after = np.array([width for job in jobs for width in job.widths[1:]], dtype=np.int64)
    size = np.array([job.gpus_per_worker for job in jobs], dtype=np.int64)[owner]
    first = tuple(np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist())
    summary = summarise_cluster(jobs, cluster_gpus, free_gpus)
    rows = np.zeros((len(owner), len(FEATURES)))
    rows[:, FREE:STOP] = summary
    if len(owner):
        rows[:, :FREE] = _describe_rows(jobs, owner, before, after, (size, cluster_gpus))
    more = (after - before) * size
    return JobSteps(owner, before, after, more, first, rows, summary, cluster_gpus)


def stop_rows(steps: JobSteps) -> Floats:
    """What stopping looks like, (FREE_LEVELS + 1, F): a row for each share of free GPUs."""
    rows = np.zeros((FREE_LEVELS + 1, len(FEATURES)))
    rows[:, FREE:STOP] = steps.summary
    rows[:, FREE] = np.arange(FREE_LEVELS + 1) / FREE_LEVELS
    rows[:, STOP] = 1.0
    return rows


def free_level(free_gpus: int, cluster_gpus: int) -> int:
    """Which of the rows of stopping holds."""
    return min(FREE_LEVELS, FREE_LEVELS * free_gpus // max(1, cluster_gpus))


def summarise_cluster(jobs: Sequence[JobNumbers], cluster_gpus: int, free_gpus: int) -> Floats:
    """Shape (4,): free share, jobs to GPUs, least widths to GPUs, how long jobs still take."""
    size = max(1, cluster_gpus)
    least = sum(job.widths[0] * job.gpus_per_worker for job in jobs)
    rest_s = _finite([job.rest_s[0] for job in jobs])
    mean_rest = float(_log_time(rest_s).mean()) if len(jobs) else 0.0
    crowd, load = len(jobs) / (len(jobs) + size), least / (least + size)
    return np.array([min(1.0, free_gpus / size), crowd, load, mean_rest])


def _describe_rows(
    jobs: Sequence[JobNumbers], owner: Ints, before: Ints, after: Ints, sizes: tuple[Ints, int]
) -> Floats:
    """Shape (S, F of jobs)."""
    size, cluster_gpus = sizes
    now_s = _finite([rest for job in jobs for rest in job.rest_s[:-1]])
    next_s = _finite([rest for job in jobs for rest in job.rest_s[1:]])
    alone_s = _finite([job.rest_s[0] for job in jobs])
    spare_s = np.array([job.spare_s for job in jobs])
    relative = np.log(alone_s) - np.log(alone_s).mean()
    least_s, left = alone_s[owner], np.array([job.left for job in jobs])[owner]
    workers = np.array([job.workers for job in jobs])[owner]
    reform_s = _finite([job.reform_s for job in jobs])[owner]
    place = np.concatenate([np.arange(len(j.widths) - 1) / len(j.widths) for j in jobs])
    more = (after - before) * size
    saved_s = now_s - next_s
    paid_s = saved_s - np.where((workers > 0) & (after != workers), reform_s, 0.0)
    rate = HOUR_S * (1.0 / next_s - 1.0 / now_s) / more  # of what is left, per GPU-hour
    due = np.isfinite(spare_s)[owner]
    slack = np.where(due, (np.where(due, spare_s[owner], 0.0) - now_s) / least_s, 1.0)
    columns = (
        left,
        _log_time(least_s),
        _log_time(now_s),
        relative[owner] / 5.0,
        now_s / least_s,
        saved_s / now_s,
        np.sign(paid_s) * _log_time(np.abs(paid_s) / more),
        np.log1p(1e3 * left * rate) / 10.0,
        np.log1p(1e3 * rate) / 10.0,
        (now_s / next_s - 1.0) / (after / before - 1.0),
        before * size / max(1, cluster_gpus),
        more / max(1, cluster_gpus),
        place,
        after <= workers,
        (workers > 0) & (after > workers),
        reform_s / (reform_s + now_s),
        due,
        slack,
    )
    table = np.stack([np.asarray(each, dtype=np.float64) for each in columns], 1)
    features: Floats = np.clip(table, -1.0, 1.0)
    return features


def _finite(seconds: Sequence[float]) -> Floats:
    """At least a second, at most what the scale tells apart."""
    most_s = MINUTE_S * np.expm1(LOG_LONGEST)
    return np.clip(np.nan_to_num(np.array(seconds, dtype=np.float64), nan=most_s), 1.0, most_s)


def _log_time(seconds: Floats) -> Floats:
    """Seconds on a scale from 0 to 1."""
    return np.asarray(np.log1p(seconds / MINUTE_S) / LOG_LONGEST)
