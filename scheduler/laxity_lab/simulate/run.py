"""One simulation: a trace, a policy, a cluster, costs, errors and a seed in; a Run out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from laxity.durations import parse_duration, positive_duration
from laxity_lab.simulate.finish_teller import FinishTeller
from laxity_lab.simulate.progress import Ended, nobody
from laxity_lab.simulate.replay import literal
from laxity_lab.simulate.report import SHARES_DONE
from laxity_lab.simulate.rigid import run_order
from laxity_lab.simulate.trace_groups import TraceGroups
from laxity_lab.traces.inference_load import read_load
from laxity_lab.traces.trace_lookup import trace_at
from laxity_lab.traces.traces import Trace
from laxity_lab.world.inference_fleet import InferenceFleet
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_lab.world.outcome import Run
from laxity_lab.world.trace_truths import (
    EPOCH_S,
    belief_errors,
    epochs_of,
    error_factors,
    ground_truths,
    names_of,
)
from laxity_lab.world.world import Failures, SimWorld
from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.order import Packing
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import NodeSet
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import CostName, Costs, costs, scale
from laxity_scheduler.simulated.ground_truth import GroundTruth


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. Costs matter to jobs that are stopped or resized: an order does neither.

    `paid_starts`: an order's jobs pay for their only start, as those of all other policies do.
    `cost_scale`: the costs of the model, times this.
    `inference`: a load of `inference_nodes` more nodes, idle ones of which are lent if it `lends`;
    "": none.
    `fails_s` and `repair_s`: a node's mean time between failures and to repair; 0: none fails.
    `literal_cycle`: a fresh snapshot at every event even where an order's queue could be kept.
    `wall_limit_s`: no start runs longer, all jobs are chains of links; 0: no limit.
    `each_epoch`: an epoch's end is an event too, as live; so an order has a snapshot at every event.
    `tells`: each job is told its finish when it comes, by running the queue down.
    """

    policy: str
    nodes: int
    gpus_per_node: int
    pooled: bool = False
    cost_model: CostName = "flat"
    restart_s: float = 30.0
    error: float = 0.0
    seed: int = 0
    admission: str | None = None
    packing: Packing = "skip"
    epoch_s: float = EPOCH_S
    fails_s: float = 0.0
    repair_s: float = 3600.0
    literal_cycle: bool = False
    each_epoch: bool = False
    paid_starts: bool = False
    cost_scale: float = 1.0
    inference: str = ""
    inference_nodes: int = 0
    lends: bool = True
    wall_limit_s: float = 0.0
    tells: bool = False

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def costs(self) -> Costs:
        model = costs(self.cost_model, cluster_gpus=self.gpus, restart_s=self.restart_s)
        return scale(model, self.cost_scale)

    def to_json(self) -> Mapping[str, object]:
        """Its fields; those of inference nodes and of a limit only where there are some."""
        unused = [] if self.inference else ["inference", "inference_nodes", "lends"]
        unused += [] if self.wall_limit_s else ["wall_limit_s"]
        unused += [] if self.tells else ["tells"]
        names = [name for name in self.__dataclass_fields__ if name not in unused]
        return {name: getattr(self, name) for name in names}


def in_links(setting: Setting, limit: str) -> Setting:
    """The same with a time limit of each start, none if it is empty. ValueError for no duration.

    Links end at an epoch's end as live, so every event has a literal cycle; and starts cost.
    """
    if not limit:
        return setting
    try:
        limit_s = positive_duration(parse_duration(limit)).total_seconds()
    except ValueError as problem:
        raise ValueError(f"--wall-limit {limit!r}: {problem}") from problem
    return replace(
        setting, wall_limit_s=limit_s, literal_cycle=True, each_epoch=True, paid_starts=True
    )


def simulate(trace: Trace, setting: Setting, *, ended: Ended = nobody) -> Run:
    """Run one policy over a trace. The same arguments give the same Run, but for its times.

    `ended` is told as it goes how many jobs have ended, or been turned away.
    """
    began = time.perf_counter()
    factors = error_factors(names_of(trace), error=setting.error, seed=setting.seed)
    run, epochs_seen = _run(trace, setting, factors, ended)
    wall_s = time.perf_counter() - began
    epochs = np.array([epochs_of(job.duration_s, setting.epoch_s) for job in trace.jobs])
    errors = {
        share: belief_errors(np.array(factors), epochs * epochs_seen, share)
        for share in SHARES_DONE
    }
    return replace(run, setting={**setting.to_json(), "wall_s": wall_s}, ape_at=errors)


def _run(
    trace: Trace, setting: Setting, factors: Sequence[float], ended: Ended
) -> tuple[Run, bool]:
    """A run, and whether it was told of epochs: an order's jobs may be believed once, as they come."""
    policy = find(setting.policy)
    cycles = _by_cycles(setting) or any(job.group for job in trace.jobs)
    if policy.kind == "order" and not cycles:
        run = run_order(
            trace,
            policy.order(setting.packing),
            nodes=setting.nodes,
            gpus_per_node=setting.gpus_per_node,
            pooled=setting.pooled,
            factors=factors,
            ended=ended,
        )
        return run, False
    jobs = truths_of(trace, setting)
    return run_cycles(trace.name, setting, jobs, ended=ended), True


def truths_of(trace: Trace, setting: Setting) -> list[GroundTruth]:
    """The jobs of a trace as they really are in this setting."""
    jobs = ground_truths(
        trace,
        elastic=find(setting.policy).elastic,
        gpus_per_node=setting.gpus_per_node,
        pooled=setting.pooled,
        epoch_s=setting.epoch_s,
    )
    if setting.wall_limit_s:
        jobs = [replace(job, wall_limit_s=setting.wall_limit_s) for job in jobs]
    return jobs


def _by_cycles(setting: Setting) -> bool:
    """Whether every event has a literal cycle, also under an order."""
    cycles = setting.literal_cycle or setting.each_epoch or setting.fails_s > 0
    asks = setting.admission not in (None, "none")
    order = find(setting.policy).kind == "order"
    cycles |= setting.tells
    return cycles or bool(setting.inference) or (order and (asks or setting.paid_starts))


def open_world(
    setting: Setting,
    jobs: Sequence[GroundTruth],
    sets: Mapping[str, NodeSet] | None = None,
    products: Mapping[str, str] | None = None,
) -> SimWorld:
    """The cluster of a setting, before any of these jobs has come; `sets` of nodes that they name.

    `products` of GPUs are by node; none: all are of one kind.

    An order's jobs pay nothing for their only start, unless told to.
    """
    unpaid = find(setting.policy).kind == "order" and not (setting.paid_starts or setting.inference)
    return SimWorld(
        jobs,
        nodes_of(setting.nodes, setting.gpus_per_node, pooled=setting.pooled),
        costs("free", cluster_gpus=setting.gpus) if unpaid else setting.costs,
        failures=Failures(setting.fails_s, setting.repair_s, setting.seed)
        if setting.fails_s
        else None,
        each_epoch=setting.each_epoch,
        sets=sets,
        inference=_inference_fleet(setting),
        products=products,
    )


def run_cycles(
    trace: str,
    setting: Setting,
    jobs: Sequence[GroundTruth],
    *,
    policy: Policy | None = None,
    beliefs: Sequence[GroundTruth] | None = None,
    sets: Mapping[str, NodeSet] | None = None,
    finish: Callable[[Policy], Policy] = with_follow_ups,
    ended: Ended = nobody,
    groups: Callable[[Sequence[GroundTruth], Predictor, str], TraceGroups] = TraceGroups,
) -> Run:
    """By the literal cycle; the setting may be a part of what is run.

    `policy`: what decides, in place of the one named. `beliefs`: the jobs as it is told they are.
    `sets`: nodes that jobs name. `finish`: what is added to every policy.
    `groups`: how workflows are treated.
    """
    world = open_world(setting, jobs, sets)
    named = find(setting.policy)
    predictor = NoisyPredictor(
        jobs if beliefs is None else beliefs, world.costs, error=setting.error, seed=setting.seed
    )
    members, teller = groups(jobs, predictor, setting.policy), FinishTeller(world.costs)

    def decide_by(policy: Policy) -> Policy:
        decide = finish(policy)
        decide = teller.around(decide) if setting.tells else decide
        return members.around(decide) if members.groups else decide

    run = literal(
        setting.policy,
        trace,
        world=world,
        policy=policy or named.policy(packing=setting.packing, admission=setting.admission),
        predictor=predictor,
        ended=ended,
        finish=decide_by,
    )
    return replace(run, told=teller.told) if setting.tells else run


def _inference_fleet(setting: Setting) -> InferenceFleet | None:
    if not setting.inference:
        return None
    names = [f"inference-{number}" for number in range(setting.inference_nodes or setting.nodes)]
    load = read_load(trace_at(Path(setting.inference)))
    return InferenceFleet(names, setting.gpus_per_node, load, lends=setting.lends)


def nodes_of(nodes: int, gpus_per_node: int, *, pooled: bool) -> list[tuple[str, int]]:
    """(name, GPUs) of each node; pooled: one that has them all."""
    if pooled:
        return [("pool", nodes * gpus_per_node)]
    return [(f"node-{number}", gpus_per_node) for number in range(nodes)]
