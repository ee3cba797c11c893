"""A deadline-elastic policy as a value: shares are given by deadline; whom to promise, what is left.

`policy_of(rule)` is the policy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from laxity_profiler.estimate import Predictor
from laxity_scheduler.capacity.eligibility import may_ever_start, never_starts
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.remaining import stopping, too_slow_reason
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision, Forecasted, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import FOREVER, Forecast, Job, Promise, Refusal
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.shares.gpu_waits import with_waits
from laxity_scheduler.shares.rows import (
    NEWCOMER,
    PROMISED,
    TURNED_AWAY,
    Columns,
    RuleParameters,
    count_gpus,
    find_movable,
    levels_held,
    open_rows,
)
from laxity_scheduler.shares.share_decisions import promise_jobs, start_jobs

Admission = Literal["none", "greedy"]


@dataclass(frozen=True, slots=True)
class ShareRule:
    """Whom to promise, and where the surplus goes.

    `reserves`: promised GPUs are kept over time; without it only the present counts.
    `drops`: who is not promised goes away; else it runs on what is left.
    """

    name: str
    admission: Admission = "none"
    reserves: bool = True
    surplus: Literal["cheapest", "dearest"] = "cheapest"
    drops: bool = False

    def on(self, gpus: float) -> RuleParameters:
        """The rule on so many GPUs, as numbers."""
        return RuleParameters(
            gpus=gpus,
            promises=self.admission != "none",
            reserves=self.reserves,
            dearest=self.surplus == "dearest",
            drops=self.drops,
        )


def policy_of(rule: ShareRule) -> Callable[[ClusterState, Predictor], Plan]:
    """The rule as a policy."""

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        return _Decision(state, predictor, rule).plan()

    return decide


def judge(
    rule: ShareRule, state: ClusterState, predictor: Predictor
) -> tuple[Promised | Forecasted | Refuse, ...]:
    """What the rule tells those who ask, and nothing else: see `admission`."""
    return _Decision(state, predictor, rule).verdicts()


class _Decision:
    """One decision: columns, the loop, and its answer as decisions with reasons."""

    def __init__(self, state: ClusterState, predictor: Predictor, rule: ShareRule) -> None:
        self.state, self.rule = state, rule
        self.ledger = Ledger.of(state)
        self.jobs, self.rows = find_movable(state), open_rows(state, predictor)
        self.wake_at = FOREVER
        self.refused: set[int] = set()  # rows that keep the promise they have

    def plan(self) -> Plan:
        if not self.jobs:
            return Plan()
        held = levels_held(self.jobs)
        columns = self.rows.columns(self.jobs, self.state.now)
        if self.rule.reserves:  # else only the present counts, not when GPUs come
            columns = with_waits(columns, held, self.ledger.total_free)
        verdicts, target = self._allocate(columns)
        changed = np.flatnonzero(target != held)
        judged = np.flatnonzero(columns.asks) if self.rule.admission != "none" else changed[:0]
        decisions = [
            *self._build_verdicts(judged, columns, verdicts, target),
            *self._changes(changed, columns, verdicts, target),
        ]
        return Plan(tuple(decisions), self.wake_at)

    def verdicts(self) -> tuple[Promised | Forecasted | Refuse, ...]:
        if not any(job.asked and job.service_class == "hard" for job in self.jobs):
            return ()
        # who runs is up to the policy behind: when it has others stop is not known here
        columns = self.rows.columns(self.jobs, self.state.now)
        verdicts, target = self._allocate(columns)
        return tuple(self._build_verdicts(np.flatnonzero(columns.asks), columns, verdicts, target))

    def _allocate(self, columns: Columns) -> tuple[Ints, Ints]:
        from laxity_scheduler.shares.share_loop import allocate

        rule, many = self.rule, len(self.jobs)
        gpus = count_gpus(self.state, self.jobs, self.ledger.total_free)
        stays = columns.hard & ~columns.asks & ~columns.promised
        verdicts = np.where(columns.promised, PROMISED, np.where(stays, TURNED_AWAY, NEWCOMER))
        renewed = self._find_renewals(columns)
        verdicts[renewed] = NEWCOMER
        verdicts[self._misfits(columns, verdicts)] = TURNED_AWAY
        due = np.where(columns.hard | (not rule.drops), columns.due, FOREVER)
        if rule.admission != "none" and not rule.drops:  # soft jobs have deadlines, no promises
            verdicts = np.where(columns.hard | columns.promised, verdicts, TURNED_AWAY)
        target = np.empty(many, dtype=np.int64)
        while True:
            given = verdicts.astype(np.int64)
            wake_s = allocate(columns._replace(due=due), rule.on(gpus), given, target)
            turned = [row for row in renewed if given[row] == TURNED_AWAY and self._stands(row)]
            if not turned or rule.admission == "none":
                break
            self.refused.update(turned)  # their old promises are kept: judge all others anew
            renewed = [row for row in renewed if row not in self.refused]
            verdicts[turned] = PROMISED
            due[turned] = [self._promise_deadline_at(row) - self.state.now for row in turned]
        if wake_s < FOREVER:
            self.wake_at = self.state.now + max(1.0, wake_s)
        return given, target

    def _find_renewals(self, columns: Columns) -> list[int]:
        """Rows of promised jobs that ask for an earlier deadline, or whose promise is broken."""
        asks = np.flatnonzero(columns.promised & columns.asks).tolist()
        return [
            row
            for row in asks
            if self.jobs[row].deadline_at < self._promise_deadline_at(row) or not self._stands(row)
        ]

    def _misfits(self, columns: Columns, verdicts: Ints) -> list[int]:
        """Rows to be judged whose least width not even the empty cluster holds.

        And those that may use some nodes only: the loop counts GPUs as one pool, so that a promise
        of it might rest on the wrong ones.
        """
        asks = np.flatnonzero(columns.asks & (verdicts == NEWCOMER)).tolist()
        jobs = self.jobs
        return [
            row for row in asks if jobs[row].eligible or not may_ever_start(self.state, jobs[row])
        ]

    def _stands(self, row: int) -> bool:
        return self.state.now <= self._promise_deadline_at(row)

    def _promise_deadline_at(self, row: int) -> float:
        """The deadline that the job holds a promise on."""
        verdict = self.jobs[row].verdict
        return verdict.deadline_at if isinstance(verdict, Promise) else -FOREVER

    def _build_verdicts(
        self, judged: Ints, columns: Columns, verdicts: Ints, target: Ints
    ) -> Iterator[Promised | Forecasted | Refuse]:
        """Verdicts for those who asked."""
        now, rule = self.state.now, self.rule
        given, levels = verdicts[judged], target[judged]
        rests = columns.rests(judged)
        rows, jobs = judged.tolist(), [self.jobs[row] for row in judged.tolist()]
        turned = given != PROMISED
        turned |= np.array([row in self.refused for row in rows], dtype=np.bool_)
        kept = np.flatnonzero(~turned)
        promises = iter(promise_jobs([jobs[at] for at in kept], rests[kept], levels[kept], now))
        lasts = rests[np.arange(len(rows)), np.maximum(levels, 0)].tolist()
        for row, job, rest_s, other in zip(rows, jobs, lasts, turned.tolist(), strict=True):
            if not other:
                yield next(promises)
            elif row in self.refused or (rule.drops and not job.workers):
                refusal = Refusal(self._why_not(row, columns), (), now + rest_s)
                yield Refuse(job.id, refusal, refusal.reason)
            else:
                finish_at = now + rest_s
                late_s = max(0.0, finish_at - job.deadline_at)
                why = reason("forecast", p90_at=finish_at)
                yield Forecasted(job.id, Forecast(finish_at, finish_at, late_s, why), why)

    def _why_not(self, row: int, columns: Columns) -> Reason:
        job = self.jobs[row]
        if job.eligible:
            pooled = reason("counted_as_one_pool", policy=self.rule.name, asks=job.eligible)
            return never_starts(self.state, job) or pooled
        never = never_starts(self.state, job)
        if never is not None:
            return never
        rests = columns.rests(np.array([row]))[0]
        level = int(np.argmin(rests))
        best_s = float(rests[level])
        late_s = best_s - float(columns.due[row])
        if late_s > 0:
            return too_slow_reason(
                job,
                self.rows.predictor,
                workers=job.widths[level],
                p90_at=self.state.now + best_s,
                late_s=late_s,
            )
        return reason(
            "capacity_promised_to_others",
            needed_gpus=int(columns.width[row, 0]),
            free_gpus=self.ledger.total_free,
            late_s=0.0,
        )

    def _changes(
        self, changed: Ints, columns: Columns, verdicts: Ints, target: Ints
    ) -> Iterator[Decision]:
        """Shrinking and stopping first; then starts and growth, as far as GPUs are free now."""
        settled = [not _changing(self.jobs[row]) for row in changed.tolist()]
        changed = changed[np.array(settled, dtype=np.bool_)]
        order = changed[np.argsort(columns.due[changed], kind="stable")]
        runs = np.array([job.workers > 0 for job in self.jobs], dtype=np.bool_)
        starts = target >= 0
        if self.rule.drops:
            starts &= verdicts != TURNED_AWAY
        for row in order[runs[order]].tolist():
            if self.jobs[row].changed_now(self.state.now):
                starts[row] = False  # the next event will do: to look again at once makes it swing
                continue
            spare = columns.due[row] < FOREVER and verdicts[row] == PROMISED
            yield from self._narrow_job(self.jobs[row], int(target[row]), spare=bool(spare))
        rows = order[starts[order]]
        jobs = [self.jobs[row] for row in rows.tolist()]
        among = [self.state.eligible_nodes(job) for job in jobs] if self.state.sets else ()
        yield from start_jobs(jobs, rows, target[rows], columns, self.ledger, among=among)

    def _narrow_job(self, job: Job, level: int, *, spare: bool) -> Iterator[Decision]:
        workers = job.widths[level] if level >= 0 else 0
        if workers and job.workers > workers:
            figures = {"from_workers": job.workers, "workers": workers}
            why = (
                reason("shrink_spare", **figures)
                if spare
                else reason("shrink_ordered", policy=self.rule.name, **figures)
            )
            yield Resize(job.id, workers, job.nodes[:workers], "epoch", why)
        elif not workers:
            why = reason(
                "preempt_ordered", policy=self.rule.name, beneficiary="others", gpus=job.gpus
            )
            yield Preempt(job.id, "epoch", "", why)


def _changing(job: Job) -> bool:
    """Told to stop or to shrink, and has not done so yet: there is nothing to tell it meanwhile."""
    return bool(job.terminating_workers or stopping(job) or (job.workers and job.resize_to))
