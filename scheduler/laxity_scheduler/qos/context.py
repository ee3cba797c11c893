"""One decision in the making: what is still free, who has been decided on, when to look again.

The QoS policy works through a snapshot in steps (verdicts, starts, sizes); this is what the steps
share. Nothing of it outlives the decision.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from laxity_profiler.estimate import Floats
from laxity_scheduler.allocation.victims import Need, Victim
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState, Coming, Node
from laxity_scheduler.model.decision import Decision, Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job, PendingPromise
from laxity_scheduler.promising.claims import deadline_in_force, holds_promise
from laxity_scheduler.promising.placement_rules import PlacementRules
from laxity_scheduler.promising.promise import Judge
from laxity_scheduler.promising.queueing import Waiting, WaitingTable, build_waiting_table
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.qos.pending_releases import PendingReleases

THETA: Final = 0.15  # a job gives workers back only if ahead by this share of its window
MARGIN: Final = 0.05  # a width is chosen to end this share of the time left before the deadline
MOVED: Final = 0.05  # a promise has moved when its P90 shifts by this share of its window
MOST_DISPLACING: Final = 50  # jobs per decision for which others are stopped


@dataclass(frozen=True)
class QosParameters:
    """The parameters of the QoS policy that are tried with other values; durations in seconds."""

    patience: float = (
        0.5  # a promised job waits for GPUs while its slack is this share of its window
    )
    cooldown_epochs: float = 2.0  # between two changes of a job's width
    least_run_s: float = 60.0  # a job runs so long before it is stopped for one that can wait
    second_looks: int = 4  # at refusals, per decision: each is a decision more
    refuses: bool = True  # a hard job that cannot be promised goes; else it runs on as soft


@dataclass(slots=True)
class Start:
    """A job that will be admitted; idle GPUs may still widen it before the decision is final."""

    waiting: Waiting
    workers: int
    nodes: tuple[str, ...]
    placed: int  # so many workers found nodes when it was its turn
    wanted: int  # so many it was to have first
    coming: Coming | None = None  # some of its nodes are not there yet

    @property
    def after_s(self) -> float:
        """In how many seconds its nodes are there (P90)."""
        return 0.0 if self.coming is None else self.coming.within_s


class DecisionContext:
    """A snapshot being decided."""

    def __init__(self, state: ClusterState, forecasts: Forecasts, rules: QosParameters) -> None:
        self.state, self.forecasts, self.rules = state, forecasts, rules
        self.judge = Judge(state, forecasts)
        self.ledger = Ledger.of(state)
        self.decisions: list[Decision] = []
        self.starts: dict[str, Start] = {}
        self.blocked: list[Waiting] = []
        self.waits_for: dict[str, tuple[str, ...]] = {}
        self.acted: set[str] = set()
        self.candidates: list[Job] | None = None  # what `preemption.choose` has worked out already
        self.stopped: dict[str, Victim] = {}
        self.narrowed: dict[str, tuple[Victim, ...]] = {}
        self.newly: dict[str, PendingPromise] = {}  # promises of this decision
        self._wake: list[float] = []
        self.releases = PendingReleases(state, forecasts)
        self.ends: set[str] = set()  # somebody waits for the end of these: they are not stopped
        self.shrunk: dict[str, int] = {}  # who gives workers in this decision, and what it keeps

    @cached_property
    def waiting(self) -> WaitingTable:
        """The waiting jobs as columns."""
        return build_waiting_table(self.forecasts)

    @cached_property
    def nodes_by_id(self) -> Mapping[str, Node]:
        return {node.id: node for node in self.state.nodes}

    @cached_property
    def placement(self) -> PlacementRules:
        """Where workers may go; asked for when all verdicts are given."""
        return PlacementRules(self.state, self.reservations)

    @property
    def now(self) -> float:
        return self.state.now

    @property
    def reservations(self) -> Reservations:
        return self.judge.reservations

    @property
    def starts_at_once(self) -> bool:
        """Whether it does not matter how long one holds its nodes, and nothing is held for anybody."""
        at_once = self.reservations.roomy or not self.placement.regions
        return at_once and not (self.state.holds or self.placement.kept)

    @property
    def grows(self) -> bool:
        """Whether new workers may start on any node."""
        return self.reservations.room.planner.grows

    def wake(self, at: float) -> None:
        """Look again then at the latest."""
        if self.now < at < FOREVER:
            self._wake.append(at)

    def wake_first(self, instants: Floats) -> None:
        """Look again at the first of these that is ahead; shape (n,)."""
        ahead = instants[instants > self.now]
        if len(ahead):
            self.wake(float(ahead.min()))

    @property
    def wake_at(self) -> float:
        return min(self._wake, default=FOREVER)

    def change(self, decision: Preempt | Resize) -> None:
        """Decide on a running job, once; who was to give some workers may be asked for all."""
        if self.shrunk.pop(decision.job, 0):
            self.decisions = [
                other for other in self.decisions if not _resizes(other, decision.job)
            ]
        elif isinstance(decision, Resize) and decision.at == "epoch":
            self.shrunk[decision.job] = decision.workers
        self.decisions.append(decision)
        self.acted.add(decision.job)

    def _starts_now(self, job: Job) -> bool:
        return job.resumed_at is not None and job.resumed_at >= self.now

    def is_just_served(self, job: Job) -> bool:
        """Whether a running job was given its workers at this very instant: it asks for no more yet.

        Who is stopped for it now could be given back what it frees, before it can take that.
        """
        served = job.workers > 0 and (self._starts_now(job) or job.changed_now(self.now))
        if served:
            self.wake(self.now + 1.0)
        return served

    def is_settled(self, job: Job) -> bool:
        """Whether a running job may be stopped: it is not pinned, stopping, awaited or decided.

        One that shrinks may: at its epoch's end all workers leave as well as some of them.
        What was started or widened at this very instant, or narrowed to the pods that fit, is left
        alone until there is something new.
        """
        if self._starts_now(job) or (job.changed_now(self.now) and job.formed < job.workers):
            self.wake(self.now + 1.0)
            return False
        return (
            job.workers > 0
            and not job.pinned
            and not stopping(job)
            and job.id not in self.ends
            and job.id not in self.acted
        )

    def is_formed(self, job: Job) -> bool:
        """Whether it is settled and trains, so that its width may change.

        Not twice at one instant: what is decided on the same facts must not undo itself.
        """
        if job.changed_now(self.now):
            self.wake(self.now + 1.0)
            return False
        return self.is_settled(job) and job.formed == job.workers and not job.resize_to

    def cooldown_end_at(self, job: Job) -> float:
        """When its width may be changed again."""
        changed_at = max(job.width_changed_at or 0.0, job.resumed_at or 0.0)
        epoch_s = self.forecasts.curve(job).epoch_s(job.workers, "mean")
        return changed_at + self.rules.cooldown_epochs * epoch_s

    def just_started(self, job: Job, patience_s: float) -> bool:
        """Whether a promised job has run too short a time to be stopped for another that can wait.

        Two that are stopped for each other as soon as they start would both get nothing done.
        """
        if job.resumed_at is None:
            return False
        again_s = job.resumed_at + self.rules.least_run_s - self.now
        curve, width = self.forecasts.curve(job), job.formed or job.workers
        freed_s = curve.epoch_s(width, "p90") + curve.stop_s(width, "p90")  # an epoch begins then
        freed_s = max(freed_s, self.forecasts.time_to_free_s(job))
        if again_s <= 0.0 or again_s + freed_s > patience_s:
            return False
        self.wake(self.now + again_s)
        return True

    def time_left_s(self, job: Job) -> float:
        """Seconds to the deadline in force."""
        return self.deadline_at(job) - self.now

    def deadline_at(self, job: Job) -> float:
        """The deadline in force; of a promise of this decision, the new one."""
        new = self.newly.get(job.id)
        return deadline_in_force(job) if new is None else new.deadline_at

    def claims(self, job: Job) -> bool:
        """Whether it holds a promise that can still be kept, perhaps given in this decision."""
        return holds_promise(job, self.now) or job.id in self.newly

    def need(
        self,
        job: Job,
        workers: int,
        nodes: frozenset[str],
        coming: Mapping[str, int],
        *,
        ledger: Ledger | None = None,
    ) -> Need:
        """So many more workers of a job: on these nodes, none: any; and within its quota."""
        left, size = self.placement.quota_left(job), job.gpus_per_worker
        quota = job.quota if left < FOREVER else ""
        return Need(workers, size, ledger or self.ledger, nodes, coming, quota, left, job.needs)

    def keep_parts(self, need: Need, freed: Mapping[str, int], workers: int) -> None:
        """Keep free GPUs that make places for so many workers only together with what comes."""
        size, coming = need.gpus_per_worker, Counter(need.coming) + Counter(freed)
        for node in sorted(coming):
            free = self.ledger.free_on(node)
            if workers <= 0 or not free or (need.nodes and node not in need.nodes):
                continue
            more = min(workers, (free + coming[node]) // size - free // size)
            self.ledger.set_aside(node, max(0, more * size - coming[node]))
            workers -= more


def _resizes(decision: Decision, job: str) -> bool:
    return isinstance(decision, Resize) and decision.job == job
