"""How long each job still takes, on each width, from this instant.

The predictor answers for whole epochs. What a job still needs *now* is that, less what of the
running epoch is done, plus what starting or re-forming costs:

    rest(w) = remaining(w) * (1 - phi / n)         running at w; n epochs left, phi of the first done
            + resume_cost                          when it must be started first
    rest(w) = until the boundary where the new width forms, at the present one
            + reform_cost + remaining(w) * left / n                       running at another width

phi is the elapsed share of the running epoch at the same quantile, at most 0.99: so a finish that
is predicted at P90 does not move while an epoch goes as predicted. Quantiles (algorithms.md 10):
widths and verdicts at P90, orders by the mean, a victim's remainder at P10. A sum of P90s (start,
rest) errs on the careful side.

What does not depend on `now` is kept between decisions (`curve`).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.construct import replace_fields
from laxity_scheduler.frame.curve import MOST_OF_AN_EPOCH, Curve, Quantile, memory_of
from laxity_scheduler.frame.frame import Frame, frame_of
from laxity_scheduler.frame.lanes import Lanes, lanes_of
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job

TINY_S: Final = 1e-6


class Forecasts:
    """The curves of a snapshot's jobs, and what follows from them at its instant."""

    def __init__(self, state: ClusterState, predictor: Predictor) -> None:
        self.now = state.now
        self.predictor = predictor
        self._state = state
        self._memory = memory_of(predictor)
        self._memory.learn(state.jobs)
        self._known = self._memory.known
        self._variants: dict[int, tuple[Job, Curve]] = {}  # rows that no snapshot has, by identity
        self._alike: dict[tuple[int, tuple[int, ...]], tuple[Curve, Curve]] = {}
        self._rests: dict[tuple[str, int, Quantile], tuple[Job, float]] = {}

    def curve(self, job: Job) -> Curve:
        known = self._known.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        variant = self._variants.get(id(job))
        return self._memory.curve(job) if variant is None else variant[1]

    def curves(self, jobs: Sequence[Job]) -> list[Curve]:
        """Their curves, in order."""
        try:
            known = list(map(self._known.__getitem__, [job.id for job in jobs]))
        except KeyError:
            return [self.curve(job) for job in jobs]
        return [
            one[1] if one[0] is job else self.curve(job)
            for one, job in zip(known, jobs, strict=True)
        ]

    def on_widths(self, job: Job, widths: tuple[int, ...]) -> Job:
        """The same job on other widths. Jobs of one curve share the answers for these as well."""
        row, before = replace_fields(job, widths=widths), self.curve(job)
        alike = self._alike.get((id(before), widths))
        if alike is None:
            alike = self._alike[id(before), widths] = before, self._memory.asked(row)
        self._variants[id(row)] = (row, alike[1])
        return row

    @cached_property
    def facts(self) -> Frame:
        """The snapshot's rows as columns."""
        return frame_of(self.predictor, self._state.jobs, self.curve, self.now)

    @cached_property
    def lanes(self) -> Lanes:
        """The snapshot's rows as compiled loops want them."""
        return lanes_of(self.predictor, self._state.jobs, self.curve)

    def phi(self, job: Job, quantile: Quantile) -> float:
        """The share of its running epoch that is done; negative while it re-forms for it."""
        if job.epoch_started_at is None or job.parked_epoch is not None or not job.workers:
            return 0.0
        epoch_s = self.curve(job).epoch_s(job.formed or job.workers, quantile)
        if not 0.0 < epoch_s < FOREVER:
            return 0.0
        return min(MOST_OF_AN_EPOCH, max(-1.0, (self.now - job.epoch_started_at) / epoch_s))

    def start_left_s(self, job: Job, quantile: Quantile) -> float:
        """How long until a started job does its first useful step; 0 once it trains."""
        if not job.workers or job.formed or job.epoch_started_at is not None:
            return 0.0
        started_at = self.now if job.resumed_at is None else job.resumed_at
        cost_s = self.curve(job).start_s(job.workers, quantile)
        return min(cost_s, max(0.0, started_at + cost_s - self.now))

    def boundary_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """How long until its running epoch ends; 0 if it is parked at an epoch's end."""
        if job.parked_epoch is not None:
            return 0.0
        curve = self.curve(job)
        epoch_s = curve.epoch_s(job.formed or job.workers, quantile)
        return self.start_left_s(job, quantile) + (1.0 - self.phi(job, quantile)) * epoch_s

    def freed_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """How long until its GPUs are free, if it is (or was) asked to stop at its epoch's end."""
        return self.boundary_s(job, quantile) + self.curve(job).stop_s(job.workers, quantile)

    def rest_s(
        self, job: Job, workers: int, quantile: Quantile = "p90", *, after_s: float = 0.0
    ) -> float:
        """Seconds from now to the end if it is to have `workers` workers `after_s` from now on.

        A queued job starts then. A running one goes on at its present width until the first
        epoch's end at which the new one can form; no sooner ends are lost, none is skipped.
        """
        if after_s or not job.workers:
            return self._rest_s(job, workers, quantile, after_s)
        known = self._rests.get((job.id, workers, quantile))
        if known is None or known[0] is not job:
            known = (job, self._rest_s(job, workers, quantile, 0.0))
            self._rests[job.id, workers, quantile] = known
        return known[1]

    def _rest_s(self, job: Job, workers: int, quantile: Quantile, after_s: float) -> float:
        curve = self.curve(job)
        total_s = curve.total_s(workers, quantile)
        if not curve.epochs_left:
            return 0.0
        if FOREVER in (total_s, after_s):
            return FOREVER
        if not job.workers:
            return after_s + curve.start_s(workers, quantile) + total_s
        if stopping(job):
            return self._resumed_s(job, workers, quantile, after_s)
        formed = job.formed or job.workers
        if workers == formed and workers == job.workers:
            phi = self.phi(job, quantile) / curve.epochs_left
            return self.start_left_s(job, quantile) + total_s * (1.0 - phi)
        return self._changed_s(job, workers, quantile, after_s)

    def trajectory_s(self, job: Job, quantile: Quantile = "p90") -> float:
        """Seconds from now to its end if nothing is decided (queued: if started now, narrowest)."""
        if not job.workers:
            return self.rest_s(job, self.curve(job).least, quantile)
        return self.rest_s(job, job.resize_to or job.workers, quantile)

    def _resumed_s(self, job: Job, workers: int, quantile: Quantile, after_s: float) -> float:
        """Stopped at its epoch's end, then started again at once."""
        curve = self.curve(job)
        left = curve.epochs_left - (job.parked_epoch is None)
        freed_s = self.freed_s(job, quantile)
        if left <= 0:
            return freed_s
        again_s = curve.start_s(workers, quantile) + left * curve.epoch_s(workers, quantile)
        return max(freed_s, after_s) + again_s

    def _changed_s(self, job: Job, workers: int, quantile: Quantile, after_s: float) -> float:
        """Running at one width, forming at another at the first epoch's end that allows it."""
        curve = self.curve(job)
        formed = job.formed or job.workers
        epoch_s, left = curve.epoch_s(formed, quantile), curve.epochs_left
        ready_s = after_s + self.join_s(job, workers, quantile)
        boundary_s, done = self.boundary_s(job, quantile), 1
        while boundary_s < ready_s - TINY_S and done < left and epoch_s > 0.0:
            more = min(left - done, max(1, -int(-(ready_s - TINY_S - boundary_s) // epoch_s)))
            boundary_s, done = boundary_s + more * epoch_s, done + more
        if done >= left:
            return boundary_s
        return (
            boundary_s
            + curve.reform_s(workers, quantile)
            + (left - done) * curve.epoch_s(workers, quantile)
        )

    def join_s(self, job: Job, workers: int, quantile: Quantile) -> float:
        """How long until new workers could join; 0 when none are new."""
        if workers < job.workers or (workers == job.workers and job.width_changed_at is None):
            return 0.0
        cost_s = self.curve(job).start_s(workers, quantile)
        if workers > job.workers:
            return cost_s
        changed_at = self.now if job.width_changed_at is None else job.width_changed_at
        return min(cost_s, max(0.0, changed_at + cost_s - self.now))


def stopping(job: Job) -> bool:
    """Whether it was told to stop at its epoch's end, or waits there to be stopped."""
    return bool(job.workers) and (job.stop_requested_at is not None or job.parked_epoch is not None)
