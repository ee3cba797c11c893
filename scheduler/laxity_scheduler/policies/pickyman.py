"""PickyMan (IPCCC 2022): stop running jobs only where waiting saved exceeds waiting caused.

Waiting jobs go shortest GPU-time first. Who does not fit may have others stopped, if the sum of what
they lose is less than the waiting it saves:

    benefit = helped x (start without stopping - start with it)
              - sum over victims (saving + restart + the newcomer's run time)

helped: waiting jobs that start on the GPUs that are left to them.

A victim must have more left (P10) than the newcomer needs in all (P90) with the overhead, have run
for a while since its last start, and have been stopped less than three times; one with a deadline
must have the slack. The papers' formulas are not public: the reading is ours (algorithms 2.5).
`overhead` 0 is the ablation that believes that stopping costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.decision import Admit, Decision, Preempt
from laxity_scheduler.division import Victim, exact_cover, greedy_cover
from laxity_scheduler.forecast import Forecasts
from laxity_scheduler.ledger import Ledger
from laxity_scheduler.plan import Plan
from laxity_scheduler.priority import movable
from laxity_scheduler.reasons import reason
from laxity_scheduler.state import FOREVER, ClusterState, Job

MOST_TRIED: Final = 16  # waiting jobs for which victims are looked for, per decision
EXACT_UP_TO: Final = 12  # candidates


@dataclass(frozen=True, slots=True)
class PickyMan:
    """`overhead`: how much of the predicted costs is believed (1 all, 0 none)."""

    overhead: float = 1.0
    cooldown_s: float = 600.0
    most_stops: int = 3

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        return _Division(state, Forecasts(state, predictor), self).plan()


class _Division:
    def __init__(self, state: ClusterState, forecasts: Forecasts, rule: PickyMan) -> None:
        self.state, self.forecasts, self.rule = state, forecasts, rule
        self.ledger = Ledger.of(state)
        self.behind: list[int] = []  # GPUs that each waiting job needs, in order
        self.place = 0
        self.ahead = 0  # GPUs that those before it still wait for
        running = [job for job in state.running if movable(job)]
        self.running = sorted(running, key=lambda job: (job.submitted_at, job.id))
        self.rest_s = {job.id: forecasts.rest_s(job, job.workers, "mean") for job in state.running}
        self.ends = sorted((self.rest_s[job.id], job.gpus) for job in state.running)
        self.coming = sum(  # GPUs of stops that were asked for before
            job.gpus for job in state.running if job.stop_requested_at is not None
        )

    def plan(self) -> Plan:
        decisions: list[Decision] = []
        tried = 0
        why = reason("order", policy="pickyman")
        queue = sorted(self.state.queued, key=self._order)
        self.behind = [job.widths[0] * job.gpus_per_worker for job in queue]
        for place, job in enumerate(queue):
            self.place = place
            width = job.widths[0]
            self.ledger.open_holds(job.id)
            nodes = self.ledger.place(width, job.gpus_per_worker)
            if nodes is not None:
                decisions.append(Admit(job.id, width, nodes, why))
                continue
            self.ledger.close_holds(job.id)
            if tried >= MOST_TRIED or not self.running:
                continue
            tried += 1
            if self.coming >= width * job.gpus_per_worker:  # enough is being freed already
                self.coming -= width * job.gpus_per_worker
                continue
            stops = self._stops(job, width * job.gpus_per_worker)
            decisions += stops
            if not stops:
                self.ahead += width * job.gpus_per_worker
        return Plan(tuple(decisions))

    def _order(self, job: Job) -> tuple[int, float, float, str]:
        """Jobs with a deadline first, then the least GPU-time."""
        run_s = self.forecasts.curve(job).total_s(job.widths[0], "mean")
        gpus = job.widths[0] * job.gpus_per_worker
        return (int(job.deadline_at == FOREVER), run_s * gpus, job.submitted_at, job.id)

    def _stops(self, job: Job, gpus: int) -> list[Decision]:
        free = self.ledger.total_free
        need = max(1, gpus - free)
        run_s = self.forecasts.rest_s(job, job.widths[0], "mean")
        candidates = [self._victim(other) for other in self.running if self._may_stop(other, job)]
        exact = len(candidates) <= EXACT_UP_TO
        victims = exact_cover(candidates, need) if exact else greedy_cover(candidates, need)
        if not victims or self._benefit_s(victims, need, run_s) <= 0.0:
            return []
        stopped = {victim.id for victim in victims}
        chosen = [other for other in self.running if other.id in stopped]
        if not self._fits(job, chosen):
            return []
        self.running = [other for other in self.running if other.id not in stopped]
        return [
            Preempt(
                other.id,
                "epoch",
                job.id,
                reason("preempt_ordered", policy="pickyman", beneficiary=job.id, gpus=other.gpus),
            )
            for other in chosen
        ]

    def _fits(self, job: Job, chosen: Sequence[Job]) -> bool:
        """Whether the nodes that the victims leave hold it, and take them for it."""
        trial = self.ledger.copy()
        for other in chosen:
            trial.give(other.nodes, other.gpus_per_worker)
        return trial.place(job.widths[0], job.gpus_per_worker) is not None

    def _victim(self, job: Job) -> Victim:
        curve, share = self.forecasts.curve(job), self.rule.overhead
        save_s = share * curve.stop_s(job.workers, "mean")
        again_s = share * curve.start_s(job.workers, "mean")
        freed_s = share * self.forecasts.freed_s(job, "mean")
        return Victim(job.id, job.gpus, freed_s + save_s + again_s, freed_s)

    def _may_stop(self, job: Job, newcomer: Job) -> bool:
        rule, curve = self.rule, self.forecasts.curve(job)
        ran_s = 0.0 if job.resumed_at is None else self.state.now - job.resumed_at
        if job.preemptions >= rule.most_stops or ran_s < rule.cooldown_s or not ran_s:
            return False
        over_s = rule.overhead * (
            self.forecasts.freed_s(job, "mean") + curve.start_s(job.workers, "mean")
        )
        needs_s = self.forecasts.rest_s(newcomer, newcomer.widths[0], "p90")
        if self.forecasts.rest_s(job, job.workers, "p10") <= needs_s + over_s:
            return False
        slack_s = job.deadline_at - self.state.now - self.rest_s[job.id]
        return slack_s > over_s + needs_s

    def _benefit_s(self, victims: Sequence[Victim], need: int, run_s: float) -> float:
        with_s = max(victim.freed_s for victim in victims)
        caused_s = sum(victim.cost_s - victim.freed_s + run_s for victim in victims)
        return self._helped(victims) * (self._wait_s(need + self.ahead) - with_s) - caused_s

    def _helped(self, victims: Sequence[Victim]) -> int:
        """How many waiting jobs start on what the victims leave, the first one included."""
        left = self.ledger.total_free + sum(victim.gpus for victim in victims)
        helped = 0
        for gpus in self.behind[self.place :]:
            if gpus <= left:
                left -= gpus
                helped += 1
            if not left:
                break
        return max(1, helped)

    def _wait_s(self, need: int) -> float:
        """When enough GPUs are free if nobody is stopped."""
        got = 0
        for end_s, gpus in self.ends:
            got += gpus
            if got >= need:
                return end_s
        return FOREVER


decide = PickyMan()
blind = PickyMan(overhead=0.0, cooldown_s=0.0, most_stops=1_000)  # the ablation
