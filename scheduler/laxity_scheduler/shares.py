"""A deadline-elastic policy as a value: in which order shares are given, and who is promised one.

`policy_of(rule)` is the policy. The simulator keeps its columns between events and calls the same
loop (`shares_loop.allocate`), so that the code that is simulated is the code that runs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from laxity_profiler.estimate import Predictor
from laxity_scheduler.decision import Admit, Decision, Forecasted, Preempt, Promised, Refuse, Resize
from laxity_scheduler.ledger import Ledger
from laxity_scheduler.plan import Plan
from laxity_scheduler.reasons import Reason, reason
from laxity_scheduler.share_rows import Columns, Rows
from laxity_scheduler.state import FOREVER, ClusterState, Job
from laxity_scheduler.verdict import Forecast, Promise, Refusal

if TYPE_CHECKING:
    from laxity_scheduler.share_rows import Ints

Admission = Literal["none", "greedy", "priced"]
PROMISED, TURNED_AWAY, NEWCOMER = 1, 2, 0  # as in shares_loop


@dataclass(frozen=True, slots=True)
class ShareRule:
    """Who gets GPUs first, whom to promise, and where the surplus goes.

    `reserves`: promised GPUs are kept over time; without it only the present counts. `kappa` and
    `steep` are the admission price of algorithms 10.1. `careful` stretches predicted remainders.
    `replans`: how many newcomers of one decision may have everybody planned anew for them.
    `drops`: who is not promised goes away; else it runs on what is left.
    """

    name: str
    order: Literal["deadline", "gpu_time"] = "deadline"
    admission: Admission = "none"
    reserves: bool = True
    kappa: float = 0.3
    steep: float = 1.0
    surplus: Literal["cheapest", "dearest"] = "cheapest"
    hopeless_last: bool = True
    careful: float = 1.0
    replans: int = 0
    drops: bool = False

    @property
    def order_number(self) -> int:
        return ("deadline", "gpu_time").index(self.order)

    @property
    def admission_number(self) -> int:
        return ("none", "greedy", "priced").index(self.admission)

    @property
    def surplus_number(self) -> int:
        return ("cheapest", "dearest").index(self.surplus)


def policy_of(rule: ShareRule) -> Callable[[ClusterState, Predictor], Plan]:
    """The rule as a policy. Rows of the last predictor are kept; the answers do not depend on it."""
    memory: list[Rows] = []

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        if not memory or memory[0].predictor is not predictor:
            memory[:] = [Rows(predictor)]
        return _Decision(state, rule, memory[0]).plan()

    return decide


class _Decision:
    """One decision: columns, the loop, and its answer as decisions with reasons."""

    def __init__(self, state: ClusterState, rule: ShareRule, rows: Rows) -> None:
        self.state, self.rule = state, rule
        self.ledger = Ledger.of(state)
        self.jobs = [job for job in state.jobs if _movable(job)]
        self.rows = rows
        self.wake_at = FOREVER

    def plan(self) -> Plan:
        if not self.jobs:
            return Plan()
        columns = self.rows.columns(self.jobs, self.state.now)
        verdicts, target = self._allocate(columns)
        changed = np.flatnonzero(target != self._held())
        judged = np.flatnonzero(columns.asks) if self.rule.admission != "none" else changed[:0]
        decisions = [
            *self._told(judged, columns, verdicts, target),
            *self._changes(changed.tolist(), columns, verdicts, target),
        ]
        return Plan(tuple(decisions), self.wake_at)

    def _allocate(self, columns: Columns) -> tuple["Ints", "Ints"]:
        from laxity_scheduler.shares_loop import allocate

        rule, many = self.rule, len(self.jobs)
        held = sum(job.gpus for job in self.jobs)
        stays = columns.hard & ~columns.asks & ~columns.promised
        verdicts = np.where(columns.promised, PROMISED, np.where(stays, TURNED_AWAY, NEWCOMER))
        due = np.where(columns.hard, columns.due, FOREVER) if rule.drops else columns.due
        if rule.admission != "none" and not rule.drops:  # soft jobs have deadlines, no promises
            verdicts = np.where(columns.hard | columns.promised, verdicts, TURNED_AWAY)
        target = np.empty(many, dtype=np.int64)
        wake_s = allocate(
            due,
            columns.left,
            columns.total,
            columns.width,
            columns.count,
            columns.level,
            columns.pause,
            columns.change,
            verdicts := verdicts.astype(np.int64),
            float(held + self.ledger.total_free),
            rule.order_number,
            rule.admission_number,
            int(rule.reserves),
            rule.kappa * _typical_gpu_s(columns),
            rule.steep,
            rule.surplus_number,
            int(rule.hopeless_last),
            rule.careful,
            rule.replans,
            int(rule.drops),
            target,
        )
        if wake_s < FOREVER:
            self.wake_at = self.state.now + max(1.0, wake_s)
        return verdicts, target

    def _held(self) -> "Ints":
        """The level of the GPUs that each job holds; -1 without."""
        return np.array(
            [job.widths.index(job.workers) if job.workers else -1 for job in self.jobs],
            dtype=np.int64,
        )

    def _told(
        self, judged: "Ints", columns: Columns, verdicts: "Ints", target: "Ints"
    ) -> Iterator[Decision]:
        """Verdicts for those who asked."""
        now, rule = self.state.now, self.rule
        change, total = columns.change.tolist(), columns.total.tolist()
        given, levels = verdicts.tolist(), target.tolist()
        for row in judged.tolist():
            job, level = self.jobs[row], max(0, levels[row])
            finish_at = now + change[row][level] + total[row][level]
            if given[row] == PROMISED:
                p90_at = finish_at if levels[row] >= 0 else job.deadline_at
                width = job.widths[level]
                why = reason(
                    "fits", p90_in_s=p90_at - now, slack_s=job.deadline_at - p90_at, workers=width
                )
                promise = Promise(job.deadline_at, p90_at, p90_at, ((p90_at, width),), why)
                yield Promised(job.id, promise, why)
            elif rule.drops and not job.workers:
                refusal = Refusal(self._why_not(row, columns), (), finish_at)
                yield Refuse(job.id, refusal, refusal.reason)
            else:
                late_s = max(0.0, finish_at - job.deadline_at)
                why = reason("forecast", p90_in_s=finish_at - now)
                yield Forecasted(job.id, Forecast(finish_at, finish_at, late_s, why), why)

    def _why_not(self, row: int, columns: Columns) -> Reason:
        best_s = float(np.min(columns.change[row] + columns.total[row]))
        level = int(np.argmin(columns.change[row] + columns.total[row]))
        late_s = best_s - float(columns.due[row])
        if late_s > 0:
            return reason(
                "deadline_before_fastest_finish",
                workers=self.jobs[row].widths[level],
                p90_in_s=best_s,
                late_s=late_s,
            )
        return reason(
            "capacity_promised_to_others",
            needed_gpus=int(columns.width[row, 0]),
            free_gpus=self.ledger.total_free,
            late_s=0.0,
        )

    def _changes(
        self, changed: list[int], columns: Columns, verdicts: "Ints", target: "Ints"
    ) -> Iterator[Decision]:
        """Shrinking and stopping first; then starts and growth, as far as GPUs are free now."""
        due, levels, given = columns.due.tolist(), target.tolist(), verdicts.tolist()
        total = columns.total.tolist()
        order = sorted(changed, key=lambda row: (due[row], row))
        for row in order:
            job, level = self.jobs[row], levels[row]
            workers = job.widths[level] if level >= 0 else 0
            if job.width_changed_at == self.state.now:
                continue  # decided at this very instant
            if workers and job.workers > workers:
                why = reason("shrink_spare", from_workers=job.workers, workers=workers)
                yield Resize(job.id, workers, job.nodes[:workers], "epoch", why)
            elif job.workers and not workers:
                why = reason("preempt_for", beneficiary="others", gpus=job.gpus)
                yield Preempt(job.id, "epoch", "", why)
        for row in order:
            if levels[row] >= 0 and not (self.rule.drops and given[row] == TURNED_AWAY):
                yield from self._started(self.jobs[row], levels[row], total[row], due[row])

    def _started(
        self, job: Job, level: int, total_s: list[float], due_s: float
    ) -> Iterator[Decision]:
        for at in range(level, -1, -1):
            width = job.widths[at]
            if width <= job.workers:
                return
            nodes = self.ledger.place(width - job.workers, job.gpus_per_worker)
            if nodes is None:
                continue
            if job.workers:
                saved_s = total_s[job.widths.index(job.workers)] - total_s[at]
                why = reason(
                    "grow_into_idle", from_workers=job.workers, workers=width, saved_s=saved_s
                )
                yield Resize(job.id, width, (*job.nodes, *nodes), "now", why)
            else:
                why = reason("due_first", slack_s=due_s - total_s[at], workers=width)
                yield Admit(job.id, width, nodes, why)
            return


def _movable(job: Job) -> bool:
    """Whether the rule may decide about it; the GPUs of others are simply not there."""
    if job.pinned or job.refused or job.terminating_workers:
        return False
    if not job.workers:
        return True
    if not job.preemptible or job.workers not in job.widths:
        return False
    waits = job.resize_to or job.stop_requested_at is not None or job.parked_epoch is not None
    return not waits


def _typical_gpu_s(columns: Columns) -> float:
    """The median GPU-time of the jobs in sight, each alone on its narrowest width in time."""
    with np.errstate(invalid="ignore"):
        alone = columns.change + columns.total
        work = np.where(alone <= columns.due[:, None], alone * columns.width, np.inf).min(axis=1)
    work = work[np.isfinite(work)]
    return float(np.median(work)) if len(work) else FOREVER
