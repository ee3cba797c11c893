"""PickyMan (IPCCC 2022): stop running jobs only where waiting saved exceeds waiting caused.

Waiting jobs go shortest GPU-time first. Who does not fit may have others stopped, if the sum of what
they lose is less than the waiting it saves:

    benefit = waiting of all if nobody is stopped
              - waiting of all if they are, the victims' until they start again included
              - sum over victims (saving + restart)

Both by running the queue down in order: who starts sooner also ends sooner, so all behind it move
up, not the newcomer alone. Whom to stop is the ordered division of the running set: one waiting job
after the other takes the cheapest set whose nodes hold it (`victims`); who has had others stopped for
it keeps the place until it starts.

Shortest first alone would leave the longest jobs to the end, when most GPUs idle. A job is critical
once its own rest is as long as that of the whole cluster (`drain`): whatever the order, all is done
no sooner than that job is. From then on, and no sooner, it goes first (of several the longest), free
GPUs are kept where it will fit first, and what a stop costs it counts twice, since the end of all is
put off as well. This is our own reading of the abstract's second goal, the makespan.

A victim must have more left (P10) than the newcomer needs in all (P90) with the overhead, have run
since its last start for as long as that costs, and have been stopped less than five times; one with
a deadline must have the slack, unless that deadline is lost anyway and was never promised. The
paper's formulas are not public: the reading is ours (algorithms.md 2.5).

Three ablations: `zero` believes that stopping costs nothing (`overhead` 0); `unguarded` knows neither
a pause between stops nor a limit to them, so that nothing but the costs holds it back; `blind` has
neither the costs nor these.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.makespan import gpus_to_start, remaining_makespan_s
from laxity_scheduler.allocation.ranking import is_movable
from laxity_scheduler.allocation.victims import Need, Victim, cheapest_victims
from laxity_scheduler.capacity.eligibility import misfit_reason
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Preempt
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.promising.claims import holds_promise

MOST_TRIED: Final = 16  # waiting jobs for which victims are looked for, per decision
MOST_COUNTED: Final = 256  # of the queue whose waits count: a bound on the time of a decision
NEVER_S: Final = 1e9  # the end of a job that never ends, so that sums of waits can be compared


@dataclass(frozen=True, slots=True)
class PickyMan:
    """`overhead`: how much of the predicted costs is believed (1 all, 0 none).

    `pause`: a job runs so many times as long as its stop and restart take before it is stopped again.
    """

    overhead: float = 1.0
    pause: float = 1.0
    most_stops: int = 5

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        return _Division(state, Forecasts(state, predictor), self).plan()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A running job that may be stopped for somebody who needs little enough time."""

    job: Job
    victim: Victim
    over_s: float  # until its GPUs are free, and to start again
    surely_s: float  # its rest, P10
    slack_s: float  # FOREVER without a deadline, or with one that is lost anyway

    def spares(self, needs_s: float) -> bool:
        """Whether a newcomer that needs so long may have it stopped."""
        over_s = self.over_s
        return self.surely_s > needs_s + over_s and self.slack_s > over_s + needs_s


class _End(NamedTuple):
    """When a job ends, or stops, and which nodes it leaves."""

    at_s: float
    name: str  # decides ties
    job: Job
    nodes: tuple[str, ...]


class _Division:
    def __init__(self, state: ClusterState, forecasts: Forecasts, rule: PickyMan) -> None:
        self.state, self.forecasts, self.rule = state, forecasts, rule
        self.ledger = Ledger.of(state)
        self.waiting: list[Job] = []  # that nobody is stopped for yet, in order
        self.queue: list[Job] = []  # whose waits count, in order
        self.served: set[str] = set()  # for whom others stop
        self.room = Ledger.of(replace(state, holds=()))  # whoever it is kept for
        self.rest_s = {
            job.id: forecasts.rest_s(job, job.workers or job.widths[0], "mean")
            for job in state.jobs
            if job.workers or not (job.refused or misfit_reason(state, job))
        }
        self.ends = sorted(state.running, key=lambda job: (self.rest_s[job.id], job.id))
        self.drain_s = remaining_makespan_s(state, self.rest_s)
        self.course = [_End(self._frees_s(job), job.id, job, job.nodes) for job in self.ends]
        self.running: list[_Candidate] = []
        self.wait_s = 0.0  # of all that wait, if no more are stopped

    def plan(self) -> Plan:
        waiting = [job for job in self.state.queued if job.id in self.rest_s]
        queue = sorted(waiting, key=self._order)
        stops_for = {job.stop_for for job in self.state.running}
        self.served = stops_for | {hold.job for hold in self.state.holds}
        decisions: list[Decision] = []
        for job in sorted(queue, key=lambda job: job.id not in self.served):
            start = self._start(job)
            decisions += start
            if start:
                continue
            self.queue.append(job)
            if job.id in self.served:
                self._keep_place(job, [one for one in self.state.running if one.stop_for == job.id])
            elif self._critical(job.id):
                self._keep_place(job, self._first_to_end(job))
            else:
                self.waiting.append(job)
        self.running = self._candidates() if self.waiting else []
        if self.running:
            decisions += self._stops_for_all()
        return Plan(tuple(decisions))

    def _stops_for_all(self) -> list[Decision]:
        empty = self.room.copy()
        for end in self.course:
            empty.give(end.nodes, end.job.gpus_per_worker, needs=end.job.needs)
        self.queue = [job for job in self.queue if self._fits(empty, job)][:MOST_COUNTED]
        self.wait_s = self._wait_of_all_s(self.queue, self.course)
        return [stop for job in self.waiting[:MOST_TRIED] for stop in self._stops(job)]

    def _order(self, job: Job) -> tuple[int, int, float, float, str]:
        """Jobs with a deadline first; then who decides the makespan; then the least GPU-time."""
        critical = self._critical(job.id)
        run_s = self.forecasts.curve(job).total_s(job.widths[0], "mean")
        short = -self.rest_s[job.id] if critical else run_s * gpus_to_start(job)
        best_effort = job.deadline_at == FOREVER
        return (int(best_effort), int(not critical), short, job.submitted_at, job.id)

    def _critical(self, job: str) -> bool:
        """Whether all is done no sooner than this job is."""
        return FOREVER > self.rest_s[job] >= self.drain_s

    def _start(self, job: Job) -> list[Decision]:
        self.ledger.open_holds(job.id)
        nodes = self._find_place(self.ledger, job)
        if nodes is None:
            self.ledger.close_holds(job.id)
            return []
        self.room.take(nodes, job.gpus_per_worker, needs=job.needs)
        self.course.append(_End(self.rest_s[job.id], job.id, job, nodes))
        return [Admit(job.id, job.widths[0], nodes, reason("order", policy="pickyman"))]

    def _find_place(self, ledger: Ledger, job: Job) -> tuple[str, ...] | None:
        return ledger.place(
            job.widths[0], job.gpus_per_worker, self.state.eligible_nodes(job), needs=job.needs
        )

    def _after(self, job: Job, stopped: Sequence[Job]) -> Ledger:
        """What this job will find free once these have stopped."""
        trial = self.ledger.copy()
        trial.open_holds(job.id)
        for other in stopped:
            trial.give(other.nodes, other.gpus_per_worker, needs=other.needs)
        return trial

    def _keep_place(self, job: Job, stopped: Sequence[Job]) -> None:
        """Nobody else takes the free GPUs that it needs beside those that are being freed for it."""
        nodes = self._find_place(self._after(job, stopped), job) or ()
        freed: Counter[str] = Counter()
        for other in stopped:
            for node in other.nodes:
                freed[node] += other.gpus_per_worker
        for hold in self.state.holds:
            freed[hold.node] += hold.gpus if hold.job == job.id else 0
        for node, workers in sorted(Counter(nodes).items()):
            short = workers * job.gpus_per_worker - freed[node]
            self.ledger.set_aside(node, max(0, short))

    def _first_to_end(self, job: Job) -> Sequence[Job]:
        """The jobs after whose ends it fits; none if it never does."""
        later = self._after(job, ())
        for count, other in enumerate(self.ends, start=1):
            later.give(other.nodes, other.gpus_per_worker, needs=other.needs)
            if self._fits(later, job):
                return self.ends[:count]
        return ()

    def _fits(self, ledger: Ledger, job: Job) -> bool:
        may = self.state.eligible_nodes(job)
        return ledger.slots(job.gpus_per_worker, may, needs=job.needs) >= job.widths[0]

    def _stops(self, job: Job) -> list[Decision]:
        needs_s = self.forecasts.rest_s(job, job.widths[0], "p90")
        candidates = [candidate.victim for candidate in self.running if candidate.spares(needs_s)]
        may = self.state.eligible_nodes(job) or frozenset()
        need = Need(job.widths[0], job.gpus_per_worker, self.ledger, may, needs=job.needs)
        victims = cheapest_victims(candidates, need)
        if not victims:
            return []
        stopped = {victim.job: victim for victim in victims}
        again = [other for other in self.ends if other.id in stopped]
        course = [
            end._replace(at_s=stopped[end.name].delay_s) if end.name in stopped else end
            for end in self.course
        ]
        others = [other for other in self.queue if other is not job]
        queue = [job, *sorted([*others, *again], key=self._place)]
        lost_s = sum(self._weight(one.job) * (one.loss_s - one.delay_s) for one in victims)
        wait_s = self._wait_of_all_s(queue, course) + lost_s
        if wait_s >= self.wait_s:
            return []
        self.queue, self.course, self.wait_s = queue, course, wait_s
        self.served.add(job.id)
        chosen = [candidate.job for candidate in self.running if candidate.job.id in stopped]
        self._keep_place(job, chosen)
        self.running = [candidate for candidate in self.running if candidate.job.id not in stopped]
        return [
            Preempt(
                other.id,
                "epoch",
                job.id,
                reason("preempt_ordered", policy="pickyman", beneficiary=job.id, gpus=other.gpus),
            )
            for other in chosen
        ]

    def _victim(self, job: Job) -> Victim:
        curve, share = self.forecasts.curve(job), self.rule.overhead
        lost_s = curve.stop_s(job.workers, "mean") + curve.start_s(job.workers, "mean")
        frees = Counter(job.nodes)
        return Victim(
            job.id,
            tuple((node, workers * job.gpus_per_worker) for node, workers in sorted(frees.items())),
            delay_s=share * self.forecasts.time_to_free_s(job, "mean"),
            loss_s=share * lost_s,
        )

    def _candidates(self) -> list[_Candidate]:
        running = [job for job in self.state.running if is_movable(job)]
        running.sort(key=lambda job: (job.submitted_at, job.id))
        return [candidate for job in running if (candidate := self._candidate(job)) is not None]

    def _candidate(self, job: Job) -> _Candidate | None:
        rule, forecasts = self.rule, self.forecasts
        ran_s = 0.0 if job.resumed_at is None else self.state.now - job.resumed_at
        curve = forecasts.curve(job)
        again_s = curve.start_s(job.workers, "mean")
        pause_s = rule.pause * (curve.stop_s(job.workers, "mean") + again_s)
        if job.preemptions >= rule.most_stops or ran_s < pause_s or not ran_s:
            return None
        slack_s = job.deadline_at - self.state.now - self.rest_s[job.id]
        lost = slack_s < 0.0 and not holds_promise(job, self.state.now)
        return _Candidate(
            job,
            self._victim(job),
            over_s=rule.overhead * (forecasts.time_to_free_s(job, "mean") + again_s),
            surely_s=forecasts.rest_s(job, job.workers, "p10"),
            slack_s=FOREVER if lost else slack_s,
        )

    def _frees_s(self, job: Job) -> float:
        """When a running job's GPUs are free, if nobody (else) is stopped."""
        if stopping(job):
            return self.forecasts.time_to_free_s(job, "mean")
        return self.rest_s[job.id]

    def _weight(self, job: str) -> int:
        """What delays a critical job delays the end of all as well: it counts twice."""
        return 1 + self._critical(job)

    def _place(self, job: Job) -> tuple[bool, tuple[int, int, float, float, str]]:
        """In the queue: who keeps a place already comes first."""
        return job.id not in self.served, self._order(job)

    def _wait_of_all_s(self, queue: Sequence[Job], ends: Sequence[_End]) -> float:
        """Until each starts, summed up: one after the other on what is free and what ends free."""
        room, ends, at_s, all_s = self.room.copy(), list(ends), 0.0, 0.0
        heapify(ends)
        for job in queue:
            while (nodes := self._find_place(room, job)) is None and ends:
                end = heappop(ends)
                room.give(end.nodes, end.job.gpus_per_worker, needs=end.job.needs)
                at_s = max(at_s, min(end.at_s, NEVER_S))
            all_s += self._weight(job.id) * at_s
            heappush(ends, _End(at_s + self.rest_s[job.id], job.id, job, nodes or ()))
        return all_s


decide = PickyMan()
zero = PickyMan(overhead=0.0)
unguarded = PickyMan(pause=0.0, most_stops=1_000)
blind = replace(unguarded, overhead=0.0)
