"""Whether a plan fits the snapshot that it was made on, without what does not, and the snapshot after it.

Decision by decision, on a ledger.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, TypeGuard, assert_never

from laxity.human_time import count_noun
from laxity_scheduler.capacity.ledger import STARTABLE, Ledger, LedgerError
from laxity_scheduler.model.cluster import ClusterState, Pool, is_promised
from laxity_scheduler.model.decision import (
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
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.plan import Misfit, Plan, list_names

LOOK_AGAIN_S: Final = 10.0  # after something was dropped
JobDecision = Promised | Forecasted | Refuse | Wait | Admit | Resize | Preempt | Continue


class PlanError(ValueError):
    """A plan does not fit the snapshot it was made on; nothing of it may be carried out."""


class _MisfitError(ValueError):
    """One decision does not fit: what is wrong with it."""


def check_plan(plan: Plan, state: ClusterState) -> None:
    """Raise PlanError unless every decision fits the snapshot; no row is built."""
    for misfit in _Check(state).find_misfits(plan.decisions).values():
        raise PlanError(str(misfit))


def fit_plan(plan: Plan, state: ClusterState) -> Plan:
    """The plan without the decisions that do not fit the snapshot together: all others stand."""
    dropped: list[Misfit] = []
    decisions = plan.decisions
    while misfits := _Check(state).find_misfits(
        decisions
    ):  # others may have counted on their holds
        dropped += misfits.values()
        decisions = tuple([one for at, one in enumerate(decisions) if at not in misfits])
    if not dropped:
        return plan
    return Plan(decisions, min(plan.wake_at, state.now + LOOK_AGAIN_S), tuple(dropped))


def apply_plan(plan: Plan, state: ClusterState) -> ClusterState:
    """The snapshot after the plan, for what-ifs: shrunk and stopped GPUs count as terminating."""
    check_plan(plan, state)
    return apply_decisions(state, plan.decisions)


class _Check:
    """Spends a plan from a ledger, decision by decision, and says what does not fit."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._refused: dict[str, bool] = {}
        self._acted: dict[str, str] = {}
        self._stopped: set[str] = set()

    @cached_property
    def _ledger(self) -> Ledger:
        """Built only when a job starts or grows: its cost grows with the number of nodes."""
        return Ledger.of(self._state, pools=STARTABLE)

    def find_misfits(self, decisions: Sequence[Decision]) -> dict[int, Misfit]:
        misfits: dict[int, Misfit] = {}
        for name in self._find_open(decisions) if self._state.holds else ():
            self._ledger.open_holds(name)
        for place, decision in enumerate(decisions):
            try:
                self._check_one(decision)
            except (LedgerError, _MisfitError) as error:
                misfits[place] = Misfit(decision, str(error))
        return misfits

    def _find_open(self, decisions: Sequence[Decision]) -> Iterator[str]:
        """Jobs for which GPUs are held that these may take: their own, and of who runs already.

        Where there are promises, or the plan has some, also what is held for jobs without one.
        """
        by_id, now = self._state.by_id, self._state.now
        takers = {
            decision.job
            for decision in decisions
            if isinstance(decision, Admit) or _is_growth(decision, self._state)
        }
        promises = any(isinstance(decision, Promised) for decision in decisions)
        promises = promises or any(is_promised(job, now) for job in self._state.jobs)
        for name in sorted({hold.job for hold in self._state.holds}) if takers else ():
            job = by_id.get(name)
            makes_way = promises and not is_promised(job, now)
            if name in takers or (job is not None and (job.workers or makes_way)):
                yield name

    def _check_one(self, decision: Decision) -> None:
        match decision:
            case Promised() | Forecasted():
                self._check_verdict(decision)
            case Refuse():
                self._check_refusal(decision)
            case Wait():
                self._job_of(decision)
            case Admit():
                self._check_start(decision)
            case Resize():
                self._check_resize(decision)
            case Preempt():
                self._check_stop(decision)
            case Continue():
                self._check_withdrawal(decision)
            case Loan():
                self._check_pools(decision.nodes, "inference")
            case Reclaim():
                self._check_reclaim(decision)
            case _:
                assert_never(decision)

    def _job_of(self, decision: JobDecision) -> Job:
        job = self._state.by_id.get(decision.job)
        if job is None:
            raise _MisfitError("no unfinished job has this id")
        return job

    def _job_acted_on(self, decision: Admit | Resize | Preempt | Continue) -> Job:
        job = self._job_of(decision)
        if job.pinned:
            raise _MisfitError("the job is pinned; only its user may touch it")
        if decision.job in self._acted:
            raise _MisfitError(f"the plan already has {self._acted[job.id]} of it")
        self._acted[job.id] = type(decision).__name__
        return job

    def _check_verdict(self, decision: Promised | Forecasted) -> None:
        self._refused[self._job_of(decision).id] = False

    def _check_refusal(self, decision: Refuse) -> None:
        job = self._job_of(decision)
        after = verdict_after(job, decision, self._state.now)
        self._refused[job.id] = isinstance(after, Refusal)
        if self._refused[job.id] and job.workers:
            raise _MisfitError(f"it has {count_noun(job.workers, 'worker')}; stop it first")

    def _check_start(self, decision: Admit) -> None:
        job = self._job_acted_on(decision)
        if job.workers or job.terminating_workers:
            workers = count_noun(job.workers, "worker")
            raise _MisfitError(
                f"it is not queued, it has {workers} and {job.terminating_workers} terminating"
            )
        if self._refused.get(job.id, job.refused):
            raise _MisfitError("it was refused")
        self._check_width(decision, job)
        self._check_nodes(job, decision.nodes)
        self._ledger.take(decision.nodes, job.gpus_per_worker, needs=job.needs)

    def _check_resize(self, decision: Resize) -> None:
        job = self._job_acted_on(decision)
        if not job.workers:
            raise _MisfitError("it does not run; admit it")
        self._check_width(decision, job)
        if decision.workers == job.workers:
            raise _MisfitError(f"it has {count_noun(job.workers, 'worker')} already")
        unchanged = min(job.workers, decision.workers)
        if job.nodes and decision.nodes[:unchanged] != job.nodes[:unchanged]:
            raise _MisfitError(
                f"workers 0..{unchanged - 1} stay where they are, on "
                f"{list_names(job.nodes[:unchanged])}, not on {list_names(decision.nodes[:unchanged])}"
            )
        if decision.workers > job.workers:
            if decision.at == "epoch":
                raise _MisfitError("growth starts pods now, not at an epoch")
            self._check_nodes(job, decision.nodes[unchanged:])
            self._ledger.take(decision.nodes[unchanged:], job.gpus_per_worker, needs=job.needs)

    def _check_nodes(self, job: Job, nodes: Sequence[str]) -> None:
        """New workers start only where the job may run."""
        may = self._state.eligible_nodes(job)
        wrong = () if may is None else sorted(set(nodes) - may)
        if wrong:
            raise _MisfitError(
                f"it may not use {list_names(wrong)}: {job.eligible} allows "
                f"{list_names(sorted(may or ())) or 'no node'}"
            )

    def _check_width(self, decision: Admit | Resize, job: Job) -> None:
        if decision.workers not in job.widths:
            raise _MisfitError(f"{decision.workers} is not among its widths {job.widths}")
        if decision.workers < 1:
            raise _MisfitError("a Job of 0 workers completes; suspend it")
        if len(decision.nodes) != decision.workers:
            raise _MisfitError(
                f"{count_noun(len(decision.nodes), 'node')} named for "
                f"{count_noun(decision.workers, 'worker')}"
            )

    def _check_stop(self, decision: Preempt) -> None:
        job = self._job_acted_on(decision)
        if not job.workers:
            raise _MisfitError("it does not run")
        if decision.beneficiary and decision.beneficiary not in self._state.by_id:
            raise _MisfitError(f"beneficiary {decision.beneficiary!r} is no unfinished job")
        if not job.preemptible and decision.beneficiary not in ("", job.id):
            raise _MisfitError("it is not preemptible")
        if decision.at == "now":
            if not job.start_seen:
                raise _MisfitError("its start was not seen yet")
            self._stopped.add(job.id)

    def _check_withdrawal(self, decision: Continue) -> None:
        if self._job_acted_on(decision).stop_requested_at is None:
            raise _MisfitError("it was not asked to stop")

    def _check_pools(self, names: Sequence[str], want: Pool) -> None:
        pools = {node.id: node.pool for node in self._state.nodes}
        for name in names:
            if name not in pools:
                raise _MisfitError(f"node {name!r} is not in the cluster")
            if pools[name] != want:
                raise _MisfitError(f"node {name} is in pool {pools[name]}, not {want}")

    def _check_reclaim(self, decision: Reclaim) -> None:
        self._check_pools(decision.nodes, "loaned")
        wanted = frozenset(decision.nodes)
        for job in self._state.running:
            taken = wanted.intersection(job.nodes)
            if taken and job.id not in self._stopped:
                raise _MisfitError(f"job {job.id} still runs on {list_names(sorted(taken))}")


def _is_growth(decision: Decision, state: ClusterState) -> TypeGuard[Resize]:
    if not isinstance(decision, Resize):
        return False
    job = state.by_id.get(decision.job)
    return job is not None and decision.workers > job.workers
