"""The snapshot after a plan, for what-ifs and for the simulated World."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, assert_never

from laxity_profiler.estimate import Progress
from laxity_scheduler.model.cluster import HOLD_S, ClusterState, Hold, Node, Pool, cut_holds
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
from laxity_scheduler.model.job import Job, Needs, spend
from laxity_scheduler.model.withdrawn_stops import withdraw_stop

NOT_TRAINING: Final[Mapping[str, Any]] = {  # fields of a row whose workers start or have stopped
    "epoch_started_at": None,
    "stop_requested_at": None,
    "stop_for": "",
    "formed": 0,
    "resize_to": 0,
    "parked_epoch": None,
}


def apply_decisions(state: ClusterState, decisions: Iterable[Decision]) -> ClusterState:
    """The snapshot after decisions that fit it: shrunk and stopped GPUs count as terminating."""
    return _Application(state).apply_all(decisions)


def progress_after_stop(job: Job) -> Progress:
    """What the next start goes on from."""
    return job.progress if job.holds_state else replace(job.progress, epochs_done=0)


class _Application:
    """Builds the rows that a checked plan changes; all other rows stay the same objects."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rows: dict[str, Job] = {}
        self._taken: Counter[str] = Counter()
        self._spent: dict[str, Counter[Needs]] = {}  # workers by what else they need, by node
        self._holds, self._new_holds = list(state.holds), list[Hold]()
        self._pool: dict[str, Pool] = {}

    def apply_all(self, decisions: Iterable[Decision]) -> ClusterState:
        for decision in decisions:
            self._apply_one(decision)
        state = self._state
        return replace(
            state,
            nodes=tuple([self._node_after(node) for node in state.nodes]),
            jobs=tuple([self._rows.get(job.id, job) for job in state.jobs]),
            holds=(*self._holds_left(), *self._new_holds),
        )

    def _holds_left(self) -> list[Hold]:
        """Of those there were; others may have taken what binds nobody."""
        if not self._holds or not self._taken:
            return self._holds
        free = {node.id: node.free_gpus for node in self._state.nodes}
        return cut_holds(self._holds, self._taken, free, self._state.by_id)

    @cached_property
    def _coming_s(self) -> Mapping[str, float]:
        """In how many seconds nodes are there that have to come first."""
        nodes = self._state.nodes
        return {node.id: node.coming.within_s for node in nodes if node.coming is not None}

    def _apply_one(self, decision: Decision) -> None:
        match decision:
            case Promised() | Forecasted() | Refuse():
                self._set_verdict(decision)
            case Admit():
                self._start_job(decision)
            case Resize():
                self._resize_job(decision)
            case Preempt():
                self._stop_job(decision)
            case Continue(job=job_id):
                self._rows[job_id] = withdraw_stop(self._current_row(job_id))
            case Loan(nodes=nodes):
                self._pool |= dict.fromkeys(nodes, "loaned")
            case Reclaim(nodes=nodes):
                self._pool |= dict.fromkeys(nodes, "inference")
            case Wait():
                pass
            case _:
                assert_never(decision)

    def _current_row(self, job_id: str) -> Job:
        return self._rows.get(job_id) or self._state.by_id[job_id]

    def _node_after(self, node: Node) -> Node:
        taken, pool = self._taken[node.id], self._pool.get(node.id, node.pool)
        if not taken and pool == node.pool:
            return node
        room = node.free_room
        for needs, workers in self._spent.get(node.id, {}).items():
            room = None if room is None else spend(room, needs, workers)
        return replace(node, free_gpus=node.free_gpus - taken, pool=pool, free_room=room)

    def _take_gpus(self, job: Job, nodes: Iterable[str]) -> None:
        for name in nodes:
            self._taken[name] += job.gpus_per_worker
            if job.needs:
                self._spent.setdefault(name, Counter())[job.needs] += 1
        self._holds = [hold for hold in self._holds if hold.job != job.id]
        self._new_holds = [hold for hold in self._new_holds if hold.job != job.id]

    def _set_verdict(self, decision: Promised | Forecasted | Refuse) -> None:
        job = self._current_row(decision.job)
        verdict = verdict_after(job, decision, self._state.now)
        self._rows[job.id] = replace(job, verdict=verdict, asked=False)

    def _start_job(self, decision: Admit) -> None:
        job, now = self._current_row(decision.job), self._state.now
        self._take_gpus(job, decision.nodes)
        row = replace(
            job,
            workers=decision.workers,
            nodes=decision.nodes,
            since=now,
            resumed_at=now,
            width_changed_at=now,
            **NOT_TRAINING,
        )
        after_s = max([self._coming_s.get(node, 0.0) for node in decision.nodes], default=0.0)
        self._rows[job.id] = replace(row, restarted_at=now + after_s) if after_s else row

    def _resize_job(self, decision: Resize) -> None:
        job, now = self._current_row(decision.job), self._state.now
        if decision.at == "epoch":
            self._rows[job.id] = replace(job, resize_to=decision.workers)
            return
        self._take_gpus(job, decision.nodes[job.workers :])
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

    def _stop_job(self, decision: Preempt) -> None:
        job, now = self._current_row(decision.job), self._state.now
        if decision.at == "epoch":
            self._rows[job.id] = replace(job, stop_requested_at=now, stop_for=decision.beneficiary)
            return
        if decision.beneficiary:
            freed = Counter(job.nodes)
            self._new_holds += [
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
            progress=progress_after_stop(job),
            **NOT_TRAINING,
        )
