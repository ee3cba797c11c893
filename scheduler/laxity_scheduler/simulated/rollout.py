"""When each job of a snapshot will end if nobody else comes: the policy in force runs the queue down.

From the snapshot and the plan that was made on it, a simulated cluster goes from event to event, and
the policy decides at each. All that a finish depends on is in it: waits, stops, changes of width,
promises to others. Nodes that an autoscaler would add do not come, and no inference node moves.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import run_cycle
from laxity_scheduler.model.cluster import ClusterState, Pool
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.events import EventQueue
from laxity_scheduler.simulated.execution import JobExecution
from laxity_scheduler.simulated.ground_truth import GroundTruth
from laxity_scheduler.simulated.plan_executor import PlanExecutor
from laxity_scheduler.simulated.queue_predictor import LONGEST_S, QueuePredictor
from laxity_scheduler.simulated.simulated_job import SimJob
from laxity_scheduler.simulated.simulated_nodes import SimNodes

AS_LIVE: Final = Costs("live")  # changes wait for an epoch's end; each job has its own seconds
MOST_CYCLES: Final = 2_000
MOST_IDLE: Final = 20  # cycles in a row without a decision or a worker: what waits is never started
RUNNING_EPOCH: Final = 0.999  # no more of an epoch is done than this until its worker says so


def roll_out(
    state: ClusterState,
    plan: Plan,
    policy: Policy,
    predictor: Predictor,
    *,
    costs: Costs = AS_LIVE,
    pause: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The instant at which each job will end; a job that has no end in sight is not in it.

    `plan` was made on `state` by `policy`. `pause` is called before each further decision.
    """
    products = sorted({node.gpu_type for node in state.nodes})
    beliefs = QueuePredictor.of(state.jobs, predictor, products if len(products) > 1 else ())
    queue = QueueWorld(state, beliefs.truths, costs)
    queue.carry_out(plan)
    idle = 0
    for _ in range(MOST_CYCLES):
        if queue.done or idle > MOST_IDLE or not queue.advance():
            break
        pause()
        decided = run_cycle(queue, policy, beliefs).decisions
        idle = 0 if decided or queue.runs else idle + 1
    return {name: at for name, at in queue.ends.items() if at - state.now < LONGEST_S}


class QueueWorld:
    """A World of the jobs that a snapshot has."""

    def __init__(
        self, state: ClusterState, truths: Mapping[str, GroundTruth], costs: Costs = AS_LIVE
    ) -> None:
        self._state, self._memory = state, dict[str, Any]()
        self._timeline = EventQueue(state.now)
        self._held = _count_held(state.jobs)
        nodes = {node.id: max(node.gpus, self._held[node.id]) for node in state.nodes}
        lost = {name: gpus for name, gpus in self._held.items() if name not in nodes}
        products = {node.id: node.gpu_type for node in state.nodes}
        self._fleet = SimNodes([*nodes.items(), *lost.items()], state.now, products)
        pools: dict[str, Pool] = {node.id: node.pool for node in state.nodes}
        self._fleet.set_pools({**dict.fromkeys(lost, "cordoned"), **pools}, {}, FOREVER)
        self._execution = JobExecution(self._timeline, self._fleet, costs)
        self._executor = PlanExecutor(self._execution)
        self._executor.holds = list(state.holds)
        self._executor.rounds = state.cycle
        for job in state.jobs:
            self._add(job, truths[job.id])
        self._set_others_aside()

    @property
    def done(self) -> bool:
        """No job is left, but for refused ones."""
        return all(job.row.refused and not job.workers for job in self._execution.live.values())

    @property
    def runs(self) -> bool:
        """Whether a job holds workers."""
        return any(job.workers for job in self._execution.live.values())

    @property
    def ends(self) -> dict[str, float]:
        """When those that have ended did."""
        return {name: ended_at for name, (_, ended_at) in self._execution.finished.items()}

    def observe(self) -> ClusterState:
        return replace(
            self._state,
            now=self._timeline.now,
            jobs=self._execution.rows(),
            nodes=self._fleet.observe_nodes(),
            holds=self._executor.open_holds(),
            cycle=self._executor.rounds,
            inference=None,
            memory=self._memory,
        )

    def carry_out(self, plan: Plan) -> None:
        self._executor.carry_out(plan)

    def advance(self) -> bool:
        """Go to the next instant at which something happens. False: nothing ever will."""
        return self._timeline.advance()

    def _add(self, job: Job, truth: GroundTruth) -> None:
        live = SimJob(truth, _bare_row(job, truth), since=self._timeline.now)
        live.accounted_at = self._timeline.now
        live.position = job.progress.epochs_done + job.saved_part
        self._execution.add(live)
        if job.workers:
            self._fleet.take(job.nodes, job.gpus_per_worker)
            _go_on(live, job, self._execution)
            self._execution.plan_next(live)

    def _set_others_aside(self) -> None:
        """GPUs that are neither free nor with these jobs are others'; pods that still go give theirs."""
        going = sum(job.terminating_workers * job.gpus_per_worker for job in self._state.jobs)
        for node in self._state.nodes:
            others = max(
                0, node.gpus - max(0, node.free_gpus) - node.away_gpus - self._held[node.id]
            )
            freed = min(others, going)
            going -= freed
            self._fleet.set_aside(node.id, others - freed)


def _count_held(jobs: Iterable[Job]) -> Counter[str]:
    """GPUs that workers hold, by node; also on one that has gone."""
    held = Counter[str]()
    for job in jobs:
        for name in job.nodes:
            held[name] += job.gpus_per_worker
    return held


def _bare_row(job: Job, truth: GroundTruth) -> Job:
    """Its row without what the simulated cluster does not have."""
    return replace(job, workload=truth.workload, needs=(), terminating_workers=0, not_before=0.0)


def _go_on(live: SimJob, job: Job, execution: JobExecution) -> None:
    """A job that holds workers goes on from where its row says that it is."""
    now = execution.now
    live.workers, live.nodes = job.workers, job.nodes
    live.move_to(execution.fleet.products_on(job.nodes))
    live.formed = job.formed or job.workers
    live.shrink_to = job.resize_to
    live.fresh_at = job.progress.epochs_done
    live.ready_at = now
    begun_at = job.epoch_started_at
    if not job.formed:
        live.starting = True
        began_at = job.start_began_at
        live.ready_at = max(now, (now if began_at is None else began_at) + execution.start_s(live))
    elif begun_at is not None:
        part = max(0.0, now - begun_at) / live.epoch_s
        live.position = job.progress.epochs_done + min(RUNNING_EPOCH, part)
        live.ready_at = max(now, begun_at)
    if live.workers > live.formed:
        live.grown_at = max(now, (job.width_changed_at or now) + execution.start_s(live))
    saves = job.stop_requested_at is not None and job.formed > 0 and begun_at is None
    live.parked = job.parked_epoch is not None or saves
    live.stop_at_boundary = job.stop_requested_at is not None and not live.parked
    if live.parked and job.parked_epoch is None:
        live.ready_at = now + execution.stop_s(live)
        execution.timeline.wake_at(live.ready_at)
