"""The metrics of a run (algorithms.md 8), each by its definition.

a submit, f finish, d deadline. Refused and unfinished jobs are counted, never dropped; times are
averaged over finished jobs. Shares are fractions of 1; a figure that does not exist is None.

    avg_jct_s            mean of f - a; avg_jct_due_s and avg_jct_free_s: with and without a deadline
    avg_wait_s           mean of (f - a) - time with GPUs; avg_first_wait_s: mean of first start - a
    makespan_s           last f - first a
    deadline_met_ratio   jobs with f <= d / all jobs with a deadline, refused ones included
    promised_met_ratio   promised jobs with f <= d / promised jobs
    promises_broken      promised jobs that ended late or not at all: the false admits
    soft_value_ratio     what the ends of soft jobs with value steps were worth / what they could be
    false_refusals       refused jobs that would have been in time (`refusals`)
    tardiness            f - d of those that ended late
    prediction           (p - f) / (f - a), p the P90 finish that was told with the promise: its mean
                         is the bias, its absolute value the ape; p90_coverage: share with f <= p
    prediction_mape_at_  of the run time that is left when 10 or 50 % of the epochs are done, mean
                         over finished jobs. Waiting is not in it, as it is in the one above. A job's
                         own epochs shrink the error that was drawn for it (`NoisyPredictor`), but for
                         an order's jobs, which are believed once, when they come.
    gpu_utilisation      GPU-seconds held / (GPUs x makespan); gpu_busy: without what was lost
    finish               of jobs that were told one as they came (`--finishes`): |p - f| / (f - a), p the
                         P50 finish, waiting included, its mean and median; p90_coverage: share with
                         f <= the P90 told, of all and of promised jobs
    lost_gpu_hours       GPUs held for starts, stops, re-formings and work done twice
    preemption_ratio     jobs stopped at least once / jobs
    fairness_jain        Jain's index of ideal run time / JCT
    slowdown             JCT / ideal run time: finish-time fairness, alone at the width asked for
    decision             milliseconds of a decision, where the literal cycle was run
    decisions_dropped    decisions that did not fit the snapshot; all others of their plans stood
    lent_gpu_hours       GPUs of inference lent; lent_gpus_mean: per second of the makespan
    usage_all_gpus       GPU-seconds held by training and used by inference / (all GPUs x makespan)
    preempted_per_reclaimed_server   jobs stopped for nodes that went back / nodes that went back
    inference_short      GPU-hours that inference needed and did not have; and its longest wait
    inference_forecast_coverage      share of slots in which the need stayed within its forecast
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from laxity_lab.traces.traces import TraceJob
from laxity_lab.world.outcome import Run
from laxity_profiler.estimate import Floats
from laxity_scheduler.model.job import HOUR_S

Figures = dict[str, Any]
SHARES_DONE: Final = (10, 50)  # per cent of the epochs
LATE_TOLERANCE_S: Final = 1e-3  # rounding of long sums of seconds
T95: Final = (0.0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def report(run: Run) -> Figures:
    """One JSON object: figures of a run, and what was run."""
    finished = np.isfinite(run.column("finished_at"))
    figures: Figures = {
        "policy": run.policy,
        "trace": run.trace,
        "gpus": run.gpus,
        "jobs": len(run),
        "finished": int(finished.sum()),
        "refused": len(run.refused) if _drops(run, finished) else int((~finished).sum()),
        "unfinished": int((~finished).sum()),
    }
    figures |= _deadlines(run) | _predictions(run) | _later_predictions(run, finished)
    figures |= _told_finishes(run)
    figures |= _times(run, finished) | _use(run, finished) | _loans(run, finished)
    figures |= {
        "decision_p50_ms": _quantile(run.decisions_s, 0.5, 1e3),
        "decision_p95_ms": _quantile(run.decisions_s, 0.95, 1e3),
        "decision_p99_ms": _quantile(run.decisions_s, 0.99, 1e3),
        "decisions_dropped": run.dropped,
        "events": run.events,
        "cpu_s": run.cpu_s,
        "wall_s": run.setting.get("wall_s", run.cpu_s),
        "jobs_per_s": len(run) / run.cpu_s if run.cpu_s > 0 else None,
    }
    return figures | {
        name: value for name, value in run.setting.items() if name not in {*figures, "wall_s"}
    }


def finite_figures(figures: Figures) -> Figures:
    """Infinities and not-a-numbers become None, which JSON and tables have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }


def deadline_met(run: Run) -> tuple[int, int]:
    """Jobs in time, and jobs with a deadline."""
    due = np.isfinite(run.column("deadline_at"))
    met = due & (run.column("finished_at") <= run.column("deadline_at") + LATE_TOLERANCE_S)
    return int(met.sum()), int(due.sum())


def soft_value_ratio(run: Run, jobs: Sequence[TraceJob]) -> float | None:
    """The value that soft jobs had at their ends, as a share of the most that it could be."""
    got = most = 0.0
    for job, ended_at in zip(jobs, run.column("finished_at").tolist(), strict=True):
        if job.value_steps:
            got += next((value for until_at, value in job.value_steps if ended_at <= until_at), 0.0)
            most += job.value_steps[0][1]
    return got / most if most else None


def _drops(run: Run, finished: NDArray[np.bool_]) -> bool:
    """Whether a refused job went away, or ran on without a promise."""
    return all(not finished[number] for number in run.refused)


def _deadlines(run: Run) -> Figures:
    due, ended = run.column("deadline_at"), run.column("finished_at")
    met, deadlines = deadline_met(run)
    promised = np.isfinite(run.column("promised_at"))
    broken = promised & (ended > due + LATE_TOLERANCE_S)
    late = np.isfinite(due) & np.isfinite(ended) & (ended > due + LATE_TOLERANCE_S)
    late_s = ended[late] - due[late]
    promises = int(promised.sum())
    return {
        "deadlines": deadlines,
        "deadlines_met": met,
        "deadline_met_ratio": met / deadlines if deadlines else None,
        "promises": promises,
        "promised_ratio": promises / deadlines if deadlines else None,
        "promises_broken": int(broken.sum()),
        "promised_met_ratio": 1.0 - float(broken.sum()) / promises if promises else None,
        "tardiness_mean_s": _mean(late_s),
        "tardiness_p95_s": _quantile(late_s.tolist(), 0.95),
    }


def _predictions(run: Run) -> Figures:
    """Of promised jobs that ended: what they were told against when they did."""
    predicted_at, ended = run.column("promised_at"), run.column("finished_at")
    both = np.isfinite(predicted_at) & np.isfinite(ended)
    took_s = np.maximum(ended[both] - run.column("submitted_at")[both], 1e-9)
    error = (predicted_at[both] - ended[both]) / took_s
    return {
        "prediction_mape": _mean(np.abs(error)),
        "prediction_ape_p50": _quantile(np.abs(error), 0.5),
        "prediction_ape_p90": _quantile(np.abs(error), 0.9),
        "prediction_bias": _mean(error),
        "p90_coverage": _mean((error >= -LATE_TOLERANCE_S / took_s).astype(np.float64)),
    }


def _told_finishes(run: Run) -> Figures:
    """Of jobs that were told a finish as they came, and ended."""
    numbers = [n for n, name in enumerate(run.ids) if name in run.told]
    numbers = [n for n in numbers if math.isfinite(run.column("finished_at")[n])]
    if not numbers:
        return {}
    ended, came = run.column("finished_at")[numbers], run.column("submitted_at")[numbers]
    told = [run.told[run.ids[n]] for n in numbers]
    error = np.abs(np.array([each.p50_at for each in told]) - ended) / np.maximum(
        ended - came, 1e-9
    )
    kept = np.array([each.p90_at for each in told]) >= ended - LATE_TOLERANCE_S
    promised = np.isfinite(run.column("promised_at")[numbers])
    return {
        "finishes_told": len(numbers),
        "finish_mape": _mean(error),
        "finish_ape_p50": _quantile(error, 0.5),
        "finish_p90_coverage": _mean(kept.astype(np.float64)),
        "promised_finish_p90_coverage": _mean(kept[promised].astype(np.float64)),
    }


def _later_predictions(run: Run, finished: NDArray[np.bool_]) -> Figures:
    return {
        f"prediction_mape_at_{share}": _mean(run.ape_at[share][finished])
        if share in run.ape_at
        else None
        for share in SHARES_DONE
    }


def _times(run: Run, finished: NDArray[np.bool_]) -> Figures:
    jct_s = run.column("finished_at")[finished] - run.column("submitted_at")[finished]
    wait_s = jct_s - run.column("running_s")[finished]
    first_s = run.column("first_start_at")[finished] - run.column("submitted_at")[finished]
    ideal_s = run.column("ideal_s")[finished]
    due = np.isfinite(run.column("deadline_at")[finished])
    share = ideal_s / np.maximum(jct_s, 1e-9)
    slow = jct_s / np.maximum(ideal_s, 1e-9)
    return {
        "avg_jct_s": _mean(jct_s),
        "avg_jct_due_s": _mean(jct_s[due]),
        "avg_jct_free_s": _mean(jct_s[~due]),
        "p50_jct_s": _quantile(jct_s, 0.5),
        "p95_jct_s": _quantile(jct_s, 0.95),
        "p99_jct_s": _quantile(jct_s, 0.99),
        "avg_wait_s": _mean(wait_s),
        "p95_wait_s": _quantile(wait_s, 0.95),
        "avg_first_wait_s": _mean(first_s),
        "makespan_s": _makespan_s(run, finished),
        "fairness_jain": _jain(share),
        "slowdown_p95": _quantile(slow, 0.95),
        "slowdown_max": _quantile(slow, 1.0),
    }


def _use(run: Run, finished: NDArray[np.bool_]) -> Figures:
    held = float(run.column("gpu_s").sum())
    lost = float(run.column("lost_gpu_s").sum())
    whole = run.gpus * (_makespan_s(run, finished) or 0.0)
    whole += run.loans.lent_gpu_s if run.loans else 0.0
    stops = run.column("preemptions")
    return {
        "gpu_utilisation": held / whole if whole else None,
        "gpu_busy": (held - lost) / whole if whole else None,
        "gpu_hours": held / HOUR_S,
        "lost_gpu_hours": lost / HOUR_S,
        "lost_share": lost / held if held else None,
        "preemptions": int(stops.sum()),
        "preemptions_per_job": float(stops.mean()) if len(stops) else None,
        "preemption_ratio": float((stops > 0).mean()) if len(stops) else None,
        "resizes": int(run.column("resizes").sum()),
        "resizes_per_job": float(run.column("resizes").mean()) if len(stops) else None,
    }


def _loans(run: Run, finished: NDArray[np.bool_]) -> Figures:
    """Of a run with inference nodes."""
    loans, span_s = run.loans, _makespan_s(run, finished)
    if loans is None or not span_s:
        return {}
    held = float(run.column("gpu_s").sum()) + loans.inference_gpu_s
    back = loans.reclaimed_servers
    return {
        "inference_gpus": loans.fleet_gpus,
        "lent_gpu_hours": loans.lent_gpu_s / HOUR_S,
        "lent_gpus_mean": loans.lent_gpu_s / span_s,
        "usage_all_gpus": held / ((run.gpus + loans.fleet_gpus) * span_s),
        "lent_servers": loans.lent_servers,
        "reclaimed_servers": back,
        "reclaim_preemptions": loans.preemptions,
        "preempted_per_reclaimed_server": loans.preemptions / back if back else None,
        "inference_short_gpu_hours": loans.short_gpu_s / HOUR_S,
        "inference_short_max_s": loans.longest_short_s,
        "inference_forecast_coverage": loans.forecast_coverage,
    }


def _makespan_s(run: Run, finished: NDArray[np.bool_]) -> float | None:
    if not finished.any():
        return None
    last = float(run.column("finished_at")[finished].max())
    return last - float(run.column("submitted_at").min())


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: Sequence[float] | Floats, share: float, scale: float = 1.0) -> float | None:
    return float(np.quantile(values, share)) * scale if len(values) else None


def _jain(share: Floats) -> float | None:
    squares = float((share**2).sum())
    return float(share.sum()) ** 2 / (len(share) * squares) if squares else None


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval (Student's t); 0 for one value."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, 0.0
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    factor = T95[count - 1] if count <= len(T95) else 1.96
    return mean, factor * spread / math.sqrt(count)


def groups(
    rows: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> list[tuple[dict[str, Any], list[Mapping[str, Any]]]]:
    """Rows that have the same values under these names: the values, and the rows."""
    members_by_key: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        members_by_key.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return [
        (dict(zip(names, key, strict=True)), members) for key, members in members_by_key.items()
    ]


def summary(reports: Sequence[Mapping[str, object]], figures: Sequence[str]) -> Figures:
    """Mean and 95 % interval of each figure over runs that differ in their seed alone."""
    means: Figures = {"runs": len(reports)}
    for name in figures:
        values = [value for report in reports if isinstance(value := report.get(name), int | float)]
        if values:
            mean, half = interval([float(value) for value in values])
            means[name], means[f"{name}_ci95"] = mean, half
    return means
