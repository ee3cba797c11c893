"""One simulation: a trace, a policy, a cluster, costs, errors and a seed in; a Run out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from laxity.durations import parse_duration, positive_duration
from laxity_profiler.estimate import Floats
from laxity_scheduler.order import Packing
from laxity_scheduler.policies.registry import Registered, find
from laxity_scheduler.simulate.change_costs import CostName, Costs, costs, scale
from laxity_scheduler.simulate.elastic import run_rule, runs_without_rows
from laxity_scheduler.simulate.failures import Failures
from laxity_scheduler.simulate.ground_truth import (
    EPOCH_S,
    GroundTruth,
    belief_errors,
    epochs_of,
    error_factor,
    ground_truths,
    names_of,
    sigma_of,
)
from laxity_scheduler.simulate.inference_fleet import InferenceFleet
from laxity_scheduler.simulate.inference_load import read_load
from laxity_scheduler.simulate.noisy_predictor import NoisyPredictor
from laxity_scheduler.simulate.outcome import Run
from laxity_scheduler.simulate.progress import Ended, nobody
from laxity_scheduler.simulate.replay import literal
from laxity_scheduler.simulate.report import SHARES_DONE
from laxity_scheduler.simulate.rigid import run_order
from laxity_scheduler.simulate.trace_lookup import trace_at
from laxity_scheduler.simulate.traces import Trace
from laxity_scheduler.simulate.world import SimWorld


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. Costs matter to jobs that are stopped or resized: an order does neither.

    `paid_starts`: an order's jobs pay for their only start, as those of all other policies do.
    `cost_scale`: the costs of the model, times this.
    `inference`: a load of `inference_nodes` more nodes, idle ones of which are lent if it `lends`;
    "": none.
    `fails_s` and `repair_s`: a node's mean time between failures and to repair; 0: none fails.
    `literal_cycle`: a fresh snapshot at every event even where queue or columns could be kept.
    `wall_limit_s`: no start runs longer, all jobs are chains of links; 0: no limit.
    `each_epoch`: an epoch's end is an event too, as live; so there is a snapshot at every event.
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

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def costs(self) -> Costs:
        model = costs(self.cost_model, cluster_gpus=self.gpus, restart_s=self.restart_s)
        if find(self.policy).kind == "rule" and self.cost_model != "live":
            model = replace(model, at_boundaries=False)
        return scale(model, self.cost_scale)

    def to_json(self) -> Mapping[str, object]:
        """Its fields; those of inference nodes and of a limit only where there are some."""
        unused = [] if self.inference else ["inference", "inference_nodes", "lends"]
        unused += [] if self.wall_limit_s else ["wall_limit_s"]
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
    policy = find(setting.policy)
    run = _run(trace, setting, policy, ended)
    wall_s = time.perf_counter() - began
    settings = {**setting.to_json(), "wall_s": wall_s}
    return replace(run, setting=settings, ape_at=_errors_later(trace, setting, policy))


def _errors_later(trace: Trace, setting: Setting, policy: Registered) -> dict[int, Floats]:
    """By per cent of the epochs done, in the order of the trace; an order's jobs are believed once."""
    sigma = sigma_of(setting.error)
    once = policy.kind == "order" and not _by_cycles(setting, policy)
    keys = [f"{job.namespace}/{job.id}" for job in trace.jobs] if once else names_of(trace)
    factors = np.array([error_factor(key, sigma=sigma, seed=setting.seed) for key in keys])
    epochs = np.array([epochs_of(job.duration_s, setting.epoch_s) for job in trace.jobs])
    epochs_seen = np.zeros(len(epochs)) if once else epochs
    return {share: belief_errors(factors, epochs_seen, share) for share in SHARES_DONE}


def _run(trace: Trace, setting: Setting, policy: Registered, ended: Ended) -> Run:
    cycles = _by_cycles(setting, policy)
    if policy.kind == "order" and not cycles:
        sigma = sigma_of(setting.error)
        return run_order(
            trace,
            policy.order(setting.packing),
            nodes=setting.nodes,
            gpus_per_node=setting.gpus_per_node,
            pooled=setting.pooled,
            predicted_s=None
            if not sigma
            else lambda job: (
                job.duration_s
                * error_factor(f"{job.namespace}/{job.id}", sigma=sigma, seed=setting.seed)
            ),
            ended=ended,
        )
    jobs = truths_of(trace, setting)
    exact = setting.pooled or all(job.gpus_per_worker == 1 for job in jobs)
    if policy.kind == "rule" and not cycles and exact and runs_without_rows(jobs, setting.costs):
        rule = policy.rule(setting.admission)
        return run_rule(
            rule,
            trace.name,
            jobs,
            setting.costs,
            gpus=setting.gpus,
            error=setting.error,
            seed=setting.seed,
            ended=ended,
        )
    return _cycles(trace.name, setting, jobs, ended)


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


def _by_cycles(setting: Setting, policy: Registered) -> bool:
    """Whether every event has a literal cycle."""
    cycles = setting.literal_cycle or setting.each_epoch or setting.fails_s > 0
    cycles = cycles or bool(setting.inference)
    asks = setting.admission not in (None, "none")
    return cycles or (policy.kind == "order" and (asks or setting.paid_starts))


def _cycles(trace: str, setting: Setting, jobs: list[GroundTruth], ended: Ended) -> Run:
    """By the literal cycle. An order's jobs pay nothing for their only start, unless told to."""
    unpaid = find(setting.policy).kind == "order" and not (setting.paid_starts or setting.inference)
    model = costs("free", cluster_gpus=setting.gpus) if unpaid else setting.costs
    nodes = nodes_of(setting.nodes, setting.gpus_per_node, pooled=setting.pooled)
    failures = (
        Failures(setting.fails_s, setting.repair_s, setting.seed) if setting.fails_s else None
    )
    return literal(
        setting.policy,
        trace,
        jobs,
        world=SimWorld(
            jobs,
            nodes,
            model,
            failures=failures,
            each_epoch=setting.each_epoch,
            inference=_inference_fleet(setting),
        ),
        policy=find(setting.policy).policy(packing=setting.packing, admission=setting.admission),
        predictor=NoisyPredictor(jobs, model, error=setting.error, seed=setting.seed),
        ended=ended,
    )


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
