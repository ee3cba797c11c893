"""A world in memory with a virtual clock, in which every epoch takes exactly what was predicted.

It does what a cluster does with a plan: pods take time to start and to go, widths change at epoch
ends, and the GPUs of a stopped job are held for the job they were freed for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from laxity_profiler.estimate import Progress
from laxity_scheduler.model.cluster import ClusterState, Hold, Node, NodeSet
from laxity_scheduler.model.decision import Admit, Continue, Decision, Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job, Promise, Verdict
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan
from tests.support.builders import Curve

SAME_S = 1e-9
MOST_CYCLES = 20_000
ACTING = (Admit, Resize, Preempt, Continue)


@dataclass
class Told:
    """What was decided, when."""

    at: float
    decision: Decision


@dataclass
class ToyWorld:
    """`arrivals` come at their submitted_at; `truth` is how long everything takes."""

    gpus: Sequence[int]
    arrivals: Sequence[Job]
    truth: Curve
    now: float = 0.0
    told: list[Told] = field(default_factory=list)
    finished: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, Verdict | None] = field(default_factory=dict)
    sets: Mapping[str, NodeSet] | None = None
    quotas: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._boundary_at: dict[str, float] = {}  # end of the running epoch
        self._starts_at: dict[str, float] = {}  # first step of a job that was just started
        self._joins_at: dict[str, float] = {}  # new workers are up
        self._gone_at: list[tuple[float, str, tuple[str, ...]]] = []  # pods, by node
        self._holds: tuple[Hold, ...] = ()
        self._to_come = sorted(self.arrivals, key=lambda one: (one.submitted_at, one.id))
        self._busy: Counter[str] = Counter()

    def observe(self) -> ClusterState:
        nodes = tuple(
            Node(f"n{number}", size, size - self._busy[f"n{number}"])
            for number, size in enumerate(self.gpus)
        )
        jobs = sorted(self._jobs.values(), key=lambda one: (one.submitted_at, one.id))
        state = ClusterState(self.now, nodes, tuple(jobs), self._holds)
        return replace(state, sets=self.sets, quotas=self.quotas)

    def run(self, policy: Policy, *, until: float = FOREVER) -> None:
        """Decide at every event until nothing is left to happen."""
        for _ in range(MOST_CYCLES):
            wake_at = self._settle(policy)
            at = min([wake_at, *self._events()], default=FOREVER)
            if at > until or at == FOREVER:
                return
            self.now = at
            self._happen()
        raise AssertionError(f"still not done after {MOST_CYCLES} events, at {self.now}")

    def _settle(self, policy: Policy) -> float:
        """Decide until a decision changes nothing; a stable policy needs two cycles."""
        for _ in range(10):
            state = self.observe()
            plan = policy(state, self.truth)
            self._carry_out(plan, state)
            if not any(isinstance(decision, ACTING) for decision in plan.decisions):
                assert plan.wake_at > self.now
                return plan.wake_at
        raise AssertionError(f"the policy keeps changing its mind at {self.now}: {plan.decisions}")

    def _carry_out(self, plan: Plan, state: ClusterState) -> None:
        assert plan.dropped == ()
        after = apply_plan(plan, state)
        before = state.by_id
        self._jobs = {job.id: job for job in after.jobs}
        self._holds = after.holds
        self.verdicts |= {job.id: job.verdict for job in after.jobs}
        for decision in plan.decisions:
            self.told.append(Told(self.now, decision))
            if isinstance(decision, ACTING):
                self._act(decision, before[decision.job])

    def _act(self, decision: Admit | Resize | Preempt | Continue, job: Job) -> None:
        size, cost_s = job.gpus_per_worker, self.truth.start_s
        if isinstance(decision, Continue):
            if job.parked_epoch is not None:
                self._begin_epoch(job.id, job.formed, self.now)
            return
        if isinstance(decision, Admit):
            self._take(decision.nodes, size)
            self._starts_at[job.id] = self.now + cost_s
        elif isinstance(decision, Resize) and decision.workers > job.workers:
            self._take(decision.nodes[job.workers :], size)
            self._joins_at[job.id] = self.now + cost_s
        elif decision.at == "now":
            keeps = decision.workers if isinstance(decision, Resize) else 0
            self._gone_at.append((self.now + self.truth.stop_s, job.id, job.nodes[keeps:]))
            if not keeps:
                self._boundary_at.pop(job.id, None)
                self._starts_at.pop(job.id, None)

    def _take(self, nodes: Sequence[str], size: int) -> None:
        for name in nodes:
            self._busy[name] += size

    def _events(self) -> list[float]:
        parked = {job.id for job in self._jobs.values() if job.parked_epoch is not None}
        return [
            *(job.submitted_at for job in self._to_come[:1]),
            *self._starts_at.values(),
            *(at for name, at in self._boundary_at.items() if name not in parked),
            *(at for at, _, _ in self._gone_at),
        ]

    def _happen(self) -> None:
        soon = self.now + SAME_S
        while self._to_come and self._to_come[0].submitted_at <= soon:
            job = self._to_come.pop(0)
            self._jobs[job.id] = replace(job, queued_at=job.submitted_at)
        for name, at in list(self._starts_at.items()):
            if at <= soon:
                del self._starts_at[name]
                self._begin_epoch(name, self._jobs[name].workers, at)
        for name, at in list(self._boundary_at.items()):
            if at <= soon and self._jobs[name].parked_epoch is None:
                self._end_epoch(name, at)
        for gone in [gone for gone in self._gone_at if gone[0] <= soon]:
            self._gone_at.remove(gone)
            self._pods_gone(gone[1], gone[2])

    def _begin_epoch(self, name: str, width: int, at: float) -> None:
        job = self._jobs[name]
        self._jobs[name] = replace(job, formed=width, epoch_started_at=at)
        self._boundary_at[name] = at + self.truth.one_epoch_s(job.workload, width)

    def _end_epoch(self, name: str, at: float) -> None:
        job = self._jobs[name]
        done = job.progress.epochs_done + 1
        job = self._jobs[name] = replace(job, progress=Progress(done), since=at)
        if done >= job.workload.epochs:
            self._finish(job, at)
        elif job.stop_requested_at is not None:
            self._jobs[name] = replace(job, parked_epoch=done, epoch_started_at=None)
        elif job.resize_to and job.resize_to != job.formed:
            self._begin_epoch(name, job.resize_to, at + self.truth.stop_s)
        elif job.workers > job.formed and self._joins_at.get(name, FOREVER) <= at + SAME_S:
            self._begin_epoch(name, job.workers, at + self.truth.stop_s)
        else:
            self._begin_epoch(name, job.formed, at)

    def _finish(self, job: Job, at: float) -> None:
        self.finished[job.id] = at
        del self._jobs[job.id], self._boundary_at[job.id]
        for name in job.nodes:
            self._busy[name] -= job.gpus_per_worker
        self._holds = tuple(hold for hold in self._holds if hold.job != job.id)

    def _pods_gone(self, name: str, nodes: tuple[str, ...]) -> None:
        size = next(job for job in self.arrivals if job.id == name).gpus_per_worker
        for node in nodes:
            self._busy[node] -= size
        job = self._jobs.get(name)
        if job is not None:
            left = job.terminating_workers - len(nodes)
            self._jobs[name] = replace(job, terminating_workers=left)

    def cancel(self, job: str) -> None:
        """Somebody deletes a job that waits."""
        del self._jobs[job]
        self.verdicts.pop(job, None)
        self._holds = tuple(hold for hold in self._holds if hold.job != job)

    def amend(self, job: str, deadline_at: float) -> None:
        """Somebody asks for another deadline."""
        self._jobs[job] = replace(self._jobs[job], deadline_at=deadline_at, asked=True)

    def of(self, job: str, kind: type) -> list[tuple[float, Decision]]:
        """When something of this kind was decided about a job."""
        return [
            (told.at, told.decision)
            for told in self.told
            if isinstance(told.decision, kind) and getattr(told.decision, "job", "") == job
        ]

    def broken(self) -> dict[str, float]:
        """Promised jobs that finished late or not at all: by how many seconds."""
        late: dict[str, float] = {}
        for name, verdict in self.verdicts.items():
            if isinstance(verdict, Promise):
                over_s = self.finished.get(name, FOREVER) - verdict.deadline_at
                if over_s > 1e-6:
                    late[name] = over_s
        return late
