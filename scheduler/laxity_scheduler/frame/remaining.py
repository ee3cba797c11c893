"""How long each job of a snapshot still takes, on each width, from its instant on (see `kernels`).

Quantiles (algorithms.md 10): widths and verdicts at P90, orders by the mean, a victim's remainder at
P10. A sum of P90s (start, rest) errs on the careful side.

What does not depend on `now` is kept between decisions (`curve`).

Why no width or no start is in time, is said here as well.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame import kernels
from laxity_scheduler.frame.arrays import replace_fields
from laxity_scheduler.frame.curve import Curve, CurveMemory, Quantile, start_to_end_s, work_of
from laxity_scheduler.frame.frame import Frame, Rows
from laxity_scheduler.frame.kernels import Work
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason

SHOWN_FROM_S: Final = 1.0


class Memory:
    """What was read last, for one predictor; answers do not depend on it."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.curves, self.rows = CurveMemory(predictor), Rows()


def memory_of(state: ClusterState, predictor: Predictor) -> Memory:
    """The snapshot's own. What-ifs read beside the loop: it is replaced as a whole."""
    memory: Memory | None = state.memory.get("frame")
    if memory is None or memory.predictor is not predictor:
        memory = state.memory["frame"] = Memory(predictor)
    return memory


class Forecasts:
    """The curves of a snapshot's jobs, and what follows from them at its instant."""

    def __init__(self, state: ClusterState, predictor: Predictor) -> None:
        self.now = state.now
        self.predictor = predictor
        self._state = state
        self._memory = memory_of(state, predictor)
        self._memory.curves.learn(state.jobs)
        self._known = self._memory.curves.known
        self._variants: dict[int, tuple[Job, Curve]] = {}  # rows that no snapshot has, by identity
        self._alike: dict[tuple[int, tuple[int, ...]], tuple[Curve, Curve]] = {}
        self._work: dict[tuple[str, Quantile], tuple[Job, Work]] = {}

    def curve(self, job: Job) -> Curve:
        entry = self._known.get(job.id)
        if entry is not None and entry[0] is job:
            return entry[1]
        variant = self._variants.get(id(job))
        return self._memory.curves.curve(job) if variant is None else variant[1]

    def curves(self, jobs: Sequence[Job]) -> list[Curve]:
        """Their curves, in order."""
        try:
            entries = list(map(self._known.__getitem__, [job.id for job in jobs]))
        except KeyError:
            return [self.curve(job) for job in jobs]
        return [
            entry[1] if entry[0] is job else self.curve(job)
            for entry, job in zip(entries, jobs, strict=True)
        ]

    def on_widths(self, job: Job, widths: tuple[int, ...]) -> Job | None:
        """The same job on other widths; None where the last of them is not worth having.

        Jobs of one curve share the answers for these as well.
        """
        before = self.curve(job)
        alike = self._alike.get((id(before), widths))
        if alike is None:
            curve = before
            if not self._adds_nothing(job, before, widths):
                curve = self._memory.curves.ask_curve(replace_fields(job, widths=widths))
            alike = self._alike[id(before), widths] = before, curve
        if widths[-1] not in alike[1].widths:
            return None
        row = replace_fields(job, widths=widths)
        self._variants[id(row)] = (row, alike[1])
        return row

    def _adds_nothing(self, job: Job, before: Curve, widths: tuple[int, ...]) -> bool:
        """Whether the last of these, which it has not, is no faster than those that it has.

        That is one question, where a curve is one for each width and two for what each costs.
        """
        has_limit = min(job.wall_limit_s, job.active_deadline_s) < FOREVER
        if widths[:-1] != job.widths or has_limit:
            return False
        mean_s = self.predictor.remaining(job.workload, job.progress, widths[-1]).mean_s
        return mean_s >= before.total_s(before.widths[-1], "mean")

    @cached_property
    def frame(self) -> Frame:
        """The snapshot's rows as columns."""
        memory, jobs = self._memory, self._state.jobs
        rows = memory.rows
        if rows.jobs is not jobs:  # what-ifs ask beside the loop: it is replaced as a whole
            rows = memory.rows = rows.update_rows(jobs, self.curves(jobs))
        return Frame(rows, self.now, self._state.predictability)

    def work(self, job: Job, quantile: Quantile) -> Work:
        """The job as the kernels want it."""
        cached = self._work.get((job.id, quantile))
        if cached is None or cached[0] is not job:
            cached = self._work[job.id, quantile] = job, work_of(job, self.curve(job), quantile)
        return cached[1]

    def phi(self, job: Job, quantile: Quantile) -> float:
        """The share of its running epoch that is done; negative while it re-forms for it."""
        return kernels.phi(self.work(job, quantile), self.now)

    def lost_s(self, job: Job) -> float:
        """Seconds (mean) of finished epochs that a stop loses: all of a job that holds no state."""
        epoch_s = self.curve(job).epoch_s(job.formed or job.workers, "mean")
        return 0.0 if job.holds_state else job.progress.epochs_done * epoch_s

    def boundary_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """How long until its running epoch ends; 0 if it is parked at an epoch's end."""
        return kernels.boundary_s(self.work(job, quantile), self.now)

    def time_to_free_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """How long until its GPUs are free, if it is (or was) asked to stop at its epoch's end."""
        return kernels.time_to_free_s(self.work(job, quantile), self.now)

    def rest_s(
        self, job: Job, workers: int, quantile: Quantile = "p90", *, after_s: float = 0.0
    ) -> float:
        """Seconds from now to the end if it is to have `workers` workers `after_s` from now on."""
        width = self.curve(job).at(workers, quantile)
        return kernels.remaining_s(self.work(job, quantile), width, after_s, self.now)

    def restart_s(self, job: Job) -> float:
        """Seconds (P90) to the end of a running job that is stopped at its epoch's end and starts again."""
        width = self.curve(job).at(job.workers, "p90")
        return kernels.finish_after_restart_s(self.work(job, "p90"), width, 0.0, self.now)

    def slack_s(self, job: Job, left_s: float) -> tuple[float, int]:
        """Spare seconds (P90) on the least width that is in time; negative: on the fastest one."""
        curve = self.curve(job)
        work, levels = self.work(job, "p90"), curve.levels("p90")
        slack_s, level = kernels.slack_s(work, levels, len(curve.widths), left_s, self.now)
        return slack_s, curve.widths[level]

    def trajectory_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """Seconds from now to its end if nothing is decided (queued: if started now, narrowest)."""
        if not job.workers:
            return self.rest_s(job, self.curve(job).least, quantile)
        return self.rest_s(job, job.resize_to or job.workers, quantile)

    def finish_s(
        self, job: Job, steps: Sequence[tuple[float, int]], quantile: Quantile = "p90"
    ) -> float:
        """Seconds from now to its end if it has these workers from these times (from now) on."""
        work, curve = self.work(job, quantile), self.curve(job)
        course = kernels.initial_course(work, self.now)
        for begin_s, workers in steps:
            course = kernels.change_width(
                work, course, begin_s, curve.at(workers, quantile), self.now
            )
        return kernels.course_end_s(work, course)


def too_slow_reason(
    job: Job, predictor: Predictor, *, workers: int, p90_at: float, late_s: float
) -> Reason:
    """Why a job is late that has the cluster alone; names its finishing where that takes a second."""
    finishing_s = predictor.finishing_time(job.workload, workers).p90_s
    part = {"finishing_s": finishing_s} if finishing_s >= SHOWN_FROM_S else {}
    late = {"workers": workers, "p90_at": p90_at, "late_s": late_s}
    return reason("deadline_before_fastest_finish", **late, **part)


def stopping(job: Job) -> bool:
    """Whether it was told to stop at its epoch's end, or waits there to be stopped."""
    return bool(job.workers) and (job.stop_requested_at is not None or job.parked_epoch is not None)


def find_limit(job: Job, forecasts: Forecasts, slots: int) -> Reason | None:
    """The limit within which no start on up to `slots` workers gets anywhere; None if one does."""
    curve = forecasts.curve(job)
    if curve.known and curve.least <= slots and job.active_deadline_s == FOREVER:
        return None
    widths = [width for width in job.widths if width <= slots]
    return _below_epoch(job, forecasts.predictor, widths) or _below_end(job, forecasts, widths)


def _below_epoch(job: Job, predictor: Predictor, widths: list[int]) -> Reason | None:
    """A link of a chain must hold an epoch."""
    epochs_s = [(predictor.epoch_time(job.workload, w).p90_s, w) for w in widths]
    epoch_s, workers = min(epochs_s)
    if not job.wall_limit_s < epoch_s < FOREVER:
        return None
    return reason(
        "wall_limit_below_epoch", limit_s=job.wall_limit_s, epoch_s=epoch_s, workers=workers
    )


def _below_end(job: Job, forecasts: Forecasts, widths: list[int]) -> Reason | None:
    """A start that is no link must hold all of the job."""
    curve = forecasts.curve(job)
    needs_s = [(start_to_end_s(curve.totals[w], curve.starts[w]), w) for w in widths]
    needed_s, workers = min(needs_s)
    if not job.active_deadline_s < needed_s < FOREVER:
        return None
    return reason(
        "active_deadline_too_short",
        limit_s=job.active_deadline_s, needed_s=needed_s, workers=workers,
    )  # fmt: skip


def restarts_reason(
    job: Job, predictor: Predictor, restarts_s: float, late: Mapping[str, float]
) -> Reason:
    """What each restart is thought to cost, and whether that was ever seen."""
    workers = int(late["workers"])
    start, stop = (
        cost(job.workload, workers) for cost in (predictor.resume_cost, predictor.suspend_cost)
    )
    was_seen = start.n_points and stop.n_points
    return reason(
        "deadline_before_last_link",
        **late,
        restarts_s=restarts_s,
        limit_s=job.wall_limit_s,
        restart_s=start.p90_s + stop.p90_s,
        basis="as seen" if was_seen else "assumed: no restart of this model was seen yet",
    )
