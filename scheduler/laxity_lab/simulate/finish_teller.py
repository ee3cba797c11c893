"""Each simulated job is told its finish when it comes, as by the service: the queue is run down."""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.overtaking import EndedFinish, Overtaking
from laxity_scheduler.simulated.rollout import roll_out
from laxity_scheduler.simulated.told_finish import PROMISED, ToldFinish, kind_of, told_finishes


class FinishTeller:
    """`told`: what each job was told first. It learns from jobs as they end."""

    def __init__(self, costs: Costs) -> None:
        self.told: dict[str, ToldFinish] = {}
        self._costs, self._overtaking = costs, Overtaking()
        self._seen: set[str] = set()
        self._open: dict[str, str] = {}  # the kind of each job that was told and has not ended

    def around(self, policy: Policy) -> Policy:
        """The policy, whose newcomers are told their finish once it has decided."""

        def decide(state: ClusterState, predictor: Predictor) -> Plan:
            plan = policy(state, predictor)
            self._learn(state)
            if not self._seen.issuperset(state.by_id):
                ends = roll_out(state, plan, policy, predictor, costs=self._costs)
                self._tell(state, told_finishes(state, plan, ends, self._overtaking))
            return plan

        return decide

    def _tell(self, state: ClusterState, finishes: dict[str, ToldFinish]) -> None:
        for job in state.jobs:
            if job.id not in self._seen and job.id in finishes:
                self.told[job.id] = finishes[job.id]
                self._open[job.id] = job.service_class
        self._seen.update(state.by_id)

    def _learn(self, state: ClusterState) -> None:
        for job in state.jobs:
            if job.id in self._open and job.promise is not None:
                self._open[job.id] = kind_of(PROMISED, job.service_class)
        for name in [name for name in self._open if name not in state.by_id]:
            kind, told = self._open.pop(name), self.told[name]
            if told.queue_s is not None:
                kept, took_s = state.now <= told.p90_at, state.now - told.at
                self._overtaking.learn(EndedFinish(kind, told.queue_s, took_s, kept=kept))
