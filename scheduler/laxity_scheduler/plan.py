"""What to do, as values: decisions with reasons, checked against the snapshot they were made on."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard, assert_never

from laxity_scheduler.decision import (
    Admit,
    Continue,
    Decision,
    Forecasted,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Submit,
    Wait,
    When,
)
from laxity_scheduler.ledger import Ledger, LedgerError
from laxity_scheduler.plainly import plainly_fits
from laxity_scheduler.state import FOREVER, HOLD_S, ClusterState, Hold, Job, Node, Pool
from laxity_scheduler.stops import without_stop
from laxity_scheduler.verdict import Promise, Refusal, Verdict

__all__ = [
    "Admit",
    "Continue",
    "Decision",
    "Forecasted",
    "Loan",
    "Plan",
    "PlanError",
    "Preempt",
    "Promised",
    "Reclaim",
    "Refuse",
    "Resize",
    "Submit",
    "Wait",
    "When",
    "verdict_after",
]


class PlanError(ValueError):
    """A plan does not fit the snapshot it was made on; nothing of it may be carried out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in order. At `wake_at` the same state, merely older, would be decided otherwise."""

    decisions: tuple[Decision, ...] = ()
    wake_at: float = FOREVER

    def check(self, state: ClusterState) -> None:
        """Raise PlanError unless every decision fits the snapshot; no row is built."""
        if not plainly_fits(state, self.decisions):
            _Check(state).all(self.decisions)

    def apply(self, state: ClusterState) -> ClusterState:
        """The snapshot after the plan, for what-ifs: shrunk and stopped GPUs count as terminating."""
        self.check(state)
        return _Application(state).all(self.decisions)


def verdict_after(job: Job, decision: Promised | Forecasted | Refuse, now: float) -> Verdict:
    """What the job is told after the decision; every World writes this.

    A refusal does not take away a promise whose deadline is still ahead: who asks for another
    deadline and is refused keeps the old one (`promise.deadline_at`, not `job.deadline_at`).
    """
    if isinstance(decision, Promised):
        return decision.promise
    if isinstance(decision, Forecasted):
        return decision.forecast
    old = job.verdict
    if isinstance(old, Promise) and now <= old.deadline_at:
        return old
    return decision.refusal


class _Check:
    """Spends a plan from a ledger, decision by decision, and says what does not fit."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._refused: dict[str, bool] = {}
        self._acted: dict[str, str] = {}
        self._stopped: set[str] = set()

    @cached_property
    def _ledger(self) -> Ledger:
        """Built for plans that start or grow jobs alone: it costs as much as there are nodes."""
        return Ledger.of(self._state)

    def all(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:  # whoever starts or grows gives up what was held for it
            if isinstance(decision, Admit) or _grows(decision, self._state):
                self._ledger.open_holds(decision.job)
        for decision in decisions:
            try:
                self._one(decision)
            except LedgerError as error:
                raise PlanError(f"{_title(decision)}: {error}") from None

    def _one(self, decision: Decision) -> None:
        match decision:
            case Promised() | Forecasted():
                self._verdict(decision)
            case Refuse():
                self._refuse(decision)
            case Wait() | Submit():
                self._known(decision)
            case Admit():
                self._admit(decision)
            case Resize():
                self._resize(decision)
            case Preempt():
                self._preempt(decision)
            case Continue():
                self._continue(decision)
            case Loan():
                self._pools(decision, decision.nodes, "inference")
            case Reclaim():
                self._reclaim(decision)
            case _:
                assert_never(decision)

    def _known(self, decision: Promised | Forecasted | Refuse | Wait | Submit) -> Job:
        job = self._state.by_id.get(decision.job)
        if job is None:
            raise PlanError(f"{_title(decision)}: no unfinished job has this id")
        return job

    def _acting(self, decision: Admit | Resize | Preempt | Continue) -> Job:
        job = self._state.by_id.get(decision.job)
        if job is None:
            raise PlanError(f"{_title(decision)}: no unfinished job has this id")
        if job.pinned:
            raise PlanError(f"{_title(decision)}: the job is pinned; only its user may touch it")
        if decision.job in self._acted:
            raise PlanError(f"{_title(decision)}: the plan already has {self._acted[job.id]} of it")
        self._acted[job.id] = type(decision).__name__
        return job

    def _verdict(self, decision: Promised | Forecasted) -> None:
        self._refused[self._known(decision).id] = False

    def _refuse(self, decision: Refuse) -> None:
        job = self._known(decision)
        after = verdict_after(job, decision, self._state.now)
        self._refused[job.id] = isinstance(after, Refusal)
        if self._refused[job.id] and job.workers:
            raise PlanError(f"{_title(decision)}: it has {job.workers} worker(s); stop it first")

    def _admit(self, decision: Admit) -> None:
        job = self._acting(decision)
        if job.workers or job.terminating_workers:
            raise PlanError(
                f"{_title(decision)}: it is not queued, it has {job.workers} worker(s) and "
                f"{job.terminating_workers} terminating"
            )
        if self._refused.get(job.id, job.refused):
            raise PlanError(f"{_title(decision)}: it was refused")
        self._width(decision, job)
        self._eligible(decision, job, decision.nodes)
        self._ledger.take(decision.nodes, job.gpus_per_worker)

    def _resize(self, decision: Resize) -> None:
        job = self._acting(decision)
        if not job.workers:
            raise PlanError(f"{_title(decision)}: it does not run; admit it")
        self._width(decision, job)
        if decision.workers == job.workers:
            raise PlanError(f"{_title(decision)}: it has {job.workers} worker(s) already")
        kept = min(job.workers, decision.workers)
        if job.nodes and decision.nodes[:kept] != job.nodes[:kept]:
            raise PlanError(
                f"{_title(decision)}: workers 0..{kept - 1} stay where they are, on "
                f"{_listed(job.nodes[:kept])}, not on {_listed(decision.nodes[:kept])}"
            )
        if decision.workers > job.workers:
            if decision.at == "epoch":
                raise PlanError(f"{_title(decision)}: growth starts pods now, not at an epoch")
            self._eligible(decision, job, decision.nodes[kept:])
            self._ledger.take(decision.nodes[kept:], job.gpus_per_worker)

    def _eligible(self, decision: Admit | Resize, job: Job, nodes: Sequence[str]) -> None:
        """New workers start only where the job may run."""
        may = self._state.eligible(job)
        wrong = () if may is None else sorted(set(nodes) - may)
        if wrong:
            raise PlanError(
                f"{_title(decision)}: it may not use {_listed(wrong)}: {job.eligible} allows "
                f"{_listed(sorted(may or ())) or 'no node'}"
            )

    def _width(self, decision: Admit | Resize, job: Job) -> None:
        if decision.workers not in job.widths:
            raise PlanError(
                f"{_title(decision)}: {decision.workers} is not among its widths {job.widths}"
            )
        if decision.workers < 1:
            raise PlanError(f"{_title(decision)}: a Job of 0 workers completes; suspend it")
        if len(decision.nodes) != decision.workers:
            raise PlanError(
                f"{_title(decision)}: {len(decision.nodes)} node(s) named for "
                f"{decision.workers} worker(s)"
            )

    def _preempt(self, decision: Preempt) -> None:
        job = self._acting(decision)
        if not job.workers:
            raise PlanError(f"{_title(decision)}: it does not run")
        if decision.beneficiary and decision.beneficiary not in self._state.by_id:
            raise PlanError(
                f"{_title(decision)}: beneficiary {decision.beneficiary!r} is no unfinished job"
            )
        if not job.preemptible and decision.beneficiary not in ("", job.id):
            raise PlanError(f"{_title(decision)}: it is not preemptible")
        if decision.at == "now":
            if not job.start_seen:
                raise PlanError(f"{_title(decision)}: its start was not seen yet")
            self._stopped.add(job.id)

    def _continue(self, decision: Continue) -> None:
        if self._acting(decision).stop_requested_at is None:
            raise PlanError(f"{_title(decision)}: it was not asked to stop")

    def _pools(self, decision: Loan | Reclaim, names: Sequence[str], want: Pool) -> None:
        pools = {node.id: node.pool for node in self._state.nodes}
        for name in names:
            if name not in pools:
                raise PlanError(f"{_title(decision)}: node {name!r} is not in the cluster")
            if pools[name] != want:
                raise PlanError(
                    f"{_title(decision)}: node {name} is in pool {pools[name]}, not {want}"
                )

    def _reclaim(self, decision: Reclaim) -> None:
        self._pools(decision, decision.nodes, "loaned")
        wanted = frozenset(decision.nodes)
        for job in self._state.running:
            taken = wanted.intersection(job.nodes)
            if taken and job.id not in self._stopped:
                raise PlanError(
                    f"{_title(decision)}: job {job.id} still runs on {_listed(sorted(taken))}"
                )


class _Application:
    """Builds the rows that a checked plan changes; all others are the same objects."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rows: dict[str, Job] = {}
        self._taken: Counter[str] = Counter()
        self._holds = list(state.holds)
        self._pool: dict[str, Pool] = {}

    def all(self, decisions: Iterable[Decision]) -> ClusterState:
        for decision in decisions:
            self._one(decision)
        state = self._state
        return replace(
            state,
            nodes=tuple([self._node(node) for node in state.nodes]),
            jobs=tuple([self._rows.get(job.id, job) for job in state.jobs]),
            holds=tuple(self._holds),
        )

    def _one(self, decision: Decision) -> None:
        match decision:
            case Promised() | Forecasted() | Refuse():
                self._verdict(decision)
            case Admit():
                self._admit(decision)
            case Resize():
                self._resize(decision)
            case Preempt():
                self._preempt(decision)
            case Continue(job=job_id):
                self._rows[job_id] = without_stop(self._row(job_id))
            case Loan(nodes=nodes):
                self._pool |= dict.fromkeys(nodes, "loaned")
            case Reclaim(nodes=nodes):
                self._pool |= dict.fromkeys(nodes, "inference")
            case Wait() | Submit():
                pass
            case _:
                assert_never(decision)

    def _row(self, job_id: str) -> Job:
        return self._rows.get(job_id) or self._state.by_id[job_id]

    def _node(self, node: Node) -> Node:
        taken, pool = self._taken[node.id], self._pool.get(node.id, node.pool)
        if not taken and pool == node.pool:
            return node
        return replace(node, free_gpus=node.free_gpus - taken, pool=pool)

    def _take(self, job: Job, nodes: Iterable[str]) -> None:
        for name in nodes:
            self._taken[name] += job.gpus_per_worker
        self._holds = [hold for hold in self._holds if hold.job != job.id]

    def _verdict(self, decision: Promised | Forecasted | Refuse) -> None:
        job = self._row(decision.job)
        verdict = verdict_after(job, decision, self._state.now)
        self._rows[job.id] = replace(job, verdict=verdict, asked=False)

    def _admit(self, decision: Admit) -> None:
        job, now = self._row(decision.job), self._state.now
        self._take(job, decision.nodes)
        self._rows[job.id] = replace(
            job,
            workers=decision.workers,
            nodes=decision.nodes,
            since=now,
            resumed_at=now,
            width_changed_at=now,
            epoch_started_at=None,
            stop_requested_at=None,
            stop_for="",
            formed=0,
            resize_to=0,
            parked_epoch=None,
        )

    def _resize(self, decision: Resize) -> None:
        job, now = self._row(decision.job), self._state.now
        if decision.at == "epoch":
            self._rows[job.id] = replace(job, resize_to=decision.workers)
            return
        self._take(job, decision.nodes[job.workers :])
        self._rows[job.id] = replace(
            job,
            workers=decision.workers,
            nodes=decision.nodes,
            terminating_workers=job.terminating_workers + max(0, job.workers - decision.workers),
            attained_gpu_s=job.attained_gpu_s + job.gpus * (now - job.since),
            since=now,
            width_changed_at=now,
            resize_to=0,
        )

    def _preempt(self, decision: Preempt) -> None:
        job, now = self._row(decision.job), self._state.now
        if decision.at == "epoch":
            self._rows[job.id] = replace(job, stop_requested_at=now, stop_for=decision.beneficiary)
            return
        if decision.beneficiary:
            freed = Counter(job.nodes)
            self._holds += [
                Hold(decision.beneficiary, node, workers * job.gpus_per_worker, now + HOLD_S)
                for node, workers in sorted(freed.items())
            ]
        self._rows[job.id] = replace(
            job,
            workers=0,
            nodes=(),
            terminating_workers=job.terminating_workers + job.workers,
            attained_gpu_s=job.attained_gpu_s + job.gpus * (now - job.since),
            since=now,
            queued_at=now,
            preemptions=job.preemptions + 1,
            epoch_started_at=None,
            stop_requested_at=None,
            stop_for="",
            formed=0,
            resize_to=0,
            parked_epoch=None,
        )


def _grows(decision: Decision, state: ClusterState) -> TypeGuard[Resize]:
    if not isinstance(decision, Resize):
        return False
    job = state.by_id.get(decision.job)
    return job is not None and decision.workers > job.workers


def _title(decision: Decision) -> str:
    if isinstance(decision, Loan | Reclaim):
        return f"{type(decision).__name__} of {_listed(decision.nodes)}"
    return f"{type(decision).__name__} of job {decision.job}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown}, and {len(names) - 5} more" if len(names) > 5 else shown
