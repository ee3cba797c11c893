"""What a plan's decisions ask of each Job, as patches.

A cycle decides anew why each Job waits, and its words differ whenever any other Job starts or ends.
Writing all of them would be most of what the API server is asked to do, so a Job that does nothing
but wait is written when it begins to wait for something else, and then every five minutes at most.
That its promise moved meanwhile, still in time, is held back for a minute: most such Jobs start by
then, or their promises move again, and one patch says all of it.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from laxity import json_tree, names
from laxity_k8s.act.neighbours import blame_neighbours
from laxity_k8s.act.patches import JobPatch, job_patch
from laxity_k8s.act.promise_events import BACKOFF_CODE, MoveFilter, describe_backoff_limit
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import preempted_for
from laxity_k8s.objects.containers import BEING_MADE
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name, machine_names
from laxity_k8s.objects.status_annotation import read_status
from laxity_k8s.observe.moved_promises import CODE as MOVED
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.model.cluster import FLEET_POOLS, ClusterState
from laxity_scheduler.model.decision import (
    Admit,
    Decision,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Resize,
    Wait,
)
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.service_clock import CLOCK

WAITS_AGAIN_S: Final = 300.0
WorkerToken = Callable[[str], str]


def no_token(uid: str) -> str:
    """For a service that nobody calls: its workers get no token."""
    del uid
    return ""


class WaitFilter:
    """Which waits are news, and which `moves`; forgetting costs one patch and Event for each Job."""

    def __init__(self) -> None:
        self.moves = MoveFilter()
        self._written: dict[str, tuple[str, float]] = {}

    def is_news(
        self, job_id: str, decisions: Sequence[Decision], now: float, *, shown: str = ""
    ) -> bool:
        """Whether the last decision about a Job is anything but the wait that it knows of.

        `shown` is the reason that stands on the Job: of one that was left out for a while, and in
        another service's time, that is all there is to know.
        """
        last = decisions[-1]
        if not isinstance(last, Wait):
            self._written.pop(job_id, None)
            return True
        is_shown = last.reason.within(job_id.partition("/")[0]).text == shown
        first_told = (last.reason.code, now) if is_shown else ("", 0.0)
        code, since = self._written.setdefault(job_id, first_told)
        if code == last.reason.code and now < since + WAITS_AGAIN_S:
            return False
        self._written[job_id] = (last.reason.code, now)
        return True

    def keep_only(self, job_ids: Container[str]) -> None:
        """Forget all other Jobs."""
        self._written = {key: last for key, last in self._written.items() if key in job_ids}
        self.moves.keep_only(job_ids)


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """What is to be written on one Job: see `job_patch`."""

    job: Json
    row: Job
    decisions: Sequence[Decision]
    repeats_wait: bool
    tells_move: bool
    held_back: Promised | None


class PatchFactory:
    """Makes the patches of one plan, Job by Job."""

    def __init__(
        self, state: ClusterState, snapshot: Snapshot, *, cycle: int, worker_token: WorkerToken
    ) -> None:
        self._state, self._snapshot = state, snapshot
        self._cycle, self._worker_token = cycle, worker_token
        self._has_fleet = any(node.pool in FLEET_POOLS for node in state.nodes)

    def build_patch(self, update: JobUpdate, now: float) -> JobPatch | None:
        state, job, row, mine = self._state, update.job, update.row, update.decisions
        shown = self._snapshot.shown
        made = job_patch(
            job,
            row,
            [preempted_for.note_beneficiary(on_machines(decision), shown) for decision in mine],
            now=now,
            cycle=self._cycle,
            kept_off=self._find_kept_off(row, mine),
            has_fleet=self._has_fleet,
            product=self._find_product(row, mine),
            token=self._worker_token(str(job["metadata"].get("uid", ""))),
            repeats_wait=update.repeats_wait,
            taken=blame_neighbours(state, row, mine, self._snapshot.foreign_gpus),
            held_back=update.held_back,
        )
        if made is None:
            return None
        told = [event for event in made.reasons if event[0] != MOVED or update.tells_move]
        if words := describe_backoff_limit(job, row, mine):
            told.append((BACKOFF_CODE, lambda: words))
        return replace(made, reasons=tuple(told))

    def _find_product(self, row: Job, mine: Sequence[Decision]) -> tuple[str, str] | None:
        """The label of the product on which a start keeps its workers."""
        starts = [decision for decision in mine if isinstance(decision, Admit)]
        return self._snapshot.product_label(row.id, starts[-1].nodes) if starts else None

    def _find_kept_off(self, row: Job, mine: Sequence[Decision]) -> set[str]:
        """Nodes with GPUs that are held for others, but for those that the plan names for this Job."""
        state = self._state
        held = {
            machine_name(hold.node)
            for hold in state.holds
            if hold.job != row.id and hold.until_at > state.now
        }
        named = (
            node for decision in mine if isinstance(decision, Admit) for node in decision.nodes
        )
        return held.difference(machine_names(named))


def plan_patches(
    decisions: Iterable[Decision],
    state: ClusterState,
    snapshot: Snapshot,
    waits: WaitFilter,
    *,
    cycle: int,
    guard: Guard,
    worker_token: WorkerToken = no_token,
) -> list[JobPatch]:
    """The patches that the decisions come to. A Job of which none can be made is the guard's."""
    by_job: defaultdict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        if not isinstance(decision, Loan | Reclaim):
            by_job[decision.job].append(decision)
    if not by_job:
        return []
    waits.keep_only(state.by_id)
    snapshot.moved_promises.keep_only(state.by_id)
    factory = PatchFactory(state, snapshot, cycle=cycle, worker_token=worker_token)
    patches: list[JobPatch] = []
    for job_id, mine in _select_possible(by_job, state, snapshot):
        update = _build_update(job_id, mine, state, snapshot, waits)
        if update is not None:
            patch = guard(job_id, factory.build_patch, update, CLOCK.now())
            patches += [] if patch is None else [patch]
    return patches


def explain_missing_pods(
    decisions: Iterable[Decision], shown: Mapping[str, Json], find_words: Callable[[Json], str]
) -> Iterator[Decision]:
    """The decisions, with words from Events where a Job's pods are refused or cannot be made."""
    for decision in decisions:
        job = shown.get(getattr(decision, "job", ""))
        if isinstance(decision, Preempt | Resize) and job is not None:
            why = decision.reason
            told = str(why.fact("why") or "")
            if (
                why.code == "pods_do_not_fit"
                and (not told or told.endswith(BEING_MADE))
                and (words := find_words(job))
            ):
                facts = dict(why.facts) | {"why": f": {words}"}
                yield replace(decision, reason=reason(why.code, **facts))
                continue
        yield decision


def _select_possible(
    by_job: Mapping[str, Sequence[Decision]], state: ClusterState, snapshot: Snapshot
) -> Iterator[tuple[str, list[Decision]]]:
    """The decisions about each Job, without starts and growth for which there is no room yet."""
    shown = snapshot.shown
    every = [decision for mine in by_job.values() for decision in mine]
    full = snapshot.bounds.without_room(every, state.by_id, shown)
    for job_id, mine in by_job.items():
        yield (
            job_id,
            [
                decision
                for decision in mine
                if not (isinstance(decision, Resize) and _would_be_undone(decision, state, shown))
                and not (job_id in full and isinstance(decision, Admit | Resize))
            ],
        )


def _would_be_undone(growth: Resize, state: ClusterState, shown: Mapping[str, Json]) -> bool:
    """Whether a file that is applied again and again would soon undo that its Job grows."""
    row, job = state.by_id.get(growth.job), shown.get(growth.job)
    if row is None or job is None or growth.workers <= row.workers:
        return False
    kept = read_status(job)
    return kept.applied > 1 and kept.not_before > state.now


def _build_update(
    job_id: str,
    mine: list[Decision],
    state: ClusterState,
    snapshot: Snapshot,
    waits: WaitFilter,
) -> JobUpdate | None:
    """What is to be written on this Job; None if there is nothing, or it can wait."""
    row, job = state.by_id.get(job_id), snapshot.shown.get(job_id)
    if row is None or job is None or not mine:
        return None
    moved, now = snapshot.moved_promises, state.now
    shown = json_tree.annotations_of(job).get(names.REASON, "")
    is_news, is_due = waits.is_news(job_id, mine, now, shown=shown), moved.is_due(job_id, now)
    if not is_news and not is_due and (len(mine) == 1 or moved.hold_back(job, row, mine, now)):
        return None
    held_back, mine = moved.take_held(job, mine)
    if is_due and held_back is not None and not is_news and len(mine) == 1:
        mine, held_back = [held_back, *mine], None  # nothing else is said: the move is the news
    return JobUpdate(
        job, row, mine, not is_news, waits.moves.is_news(job_id, mine), held_back=held_back
    )


def on_machines(decision: Decision) -> Decision:
    """The decision as the cluster knows its nodes: by machine."""
    if isinstance(decision, Admit | Resize) and any("/" in node for node in decision.nodes):
        return replace(decision, nodes=machine_names(decision.nodes))
    return decision
