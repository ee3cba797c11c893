"""A teacher's decisions in simulated clusters, as choices that a net can imitate.

A choice is a state while GPUs are dealt out: the next step of each job that still fits, and stop.
Right are the steps that lead to the widths that the teacher chose; where none is left and one would
fit, to stop is right. So the teacher's order among them need not be known, and stops are labels too
(DL2 has none: algorithms.md 6.9).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats, Predictor
from laxity_scheduler.allocation.surplus import (
    NO_FLOORS,
    TEACHERS,
    budget_of_jobs,
    resizable_jobs,
)
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.learned.job_features import (
    JobSteps,
    describe_steps,
    free_level,
    read_jobs,
    stop_rows,
)
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.simulate.change_costs import costs
from laxity_scheduler.simulate.ground_truth import ground_truths
from laxity_scheduler.simulate.noisy_predictor import NoisyPredictor
from laxity_scheduler.simulate.replay import replay
from laxity_scheduler.simulate.run import nodes_of
from laxity_scheduler.simulate.traces import Trace
from laxity_scheduler.simulate.world import SimWorld

MOST_CHOICES: Final = 4  # of one decision, drawn at random; and its stop


@dataclass(frozen=True, slots=True)
class Choice:
    """`rows` of features, (n, F), the last one that of stopping; which of them are `right`, (n,)."""

    rows: Floats
    right: Bools


def collect_choices(
    trace: Trace, teacher: str, *, nodes: int, gpus_per_node: int, seed: int
) -> list[Choice]:
    """Choices of a teacher that schedules this trace; `seed` draws which are kept."""
    rule, draw = TEACHERS[teacher], np.random.default_rng(seed)
    choices: list[Choice] = []

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        forecasts, jobs = Forecasts(state, predictor), resizable_jobs(state)
        purse = budget_of_jobs(state, jobs)
        free = purse.whole
        width = rule(jobs, purse, forecasts, NO_FLOORS)
        choices.extend(choices_of_widths(state, jobs, forecasts, width, free_gpus=free, draw=draw))
        return plan_transition(state, jobs, width, policy=teacher)

    model = costs("live", cluster_gpus=nodes * gpus_per_node)
    truths = ground_truths(trace, elastic=True, gpus_per_node=gpus_per_node, pooled=False)
    world = SimWorld(truths, nodes_of(nodes, gpus_per_node, pooled=False), model)
    replay(world, decide, NoisyPredictor(truths, model, error=0.0, seed=seed))
    return choices


def choices_of_widths(
    state: ClusterState,
    jobs: Sequence[Job],
    forecasts: Forecasts,
    width: Mapping[str, int],
    *,
    free_gpus: int,
    draw: np.random.Generator,
) -> list[Choice]:
    """Choices that lead to the widths decided on a snapshot; `draw` says which are kept."""
    numbers = read_jobs(jobs, forecasts)
    targets = [width.get(job.id, 0) for job in jobs]
    for job, target in zip(numbers, targets, strict=True):
        free_gpus -= job.widths[0] * job.gpus_per_worker if target else 0
    steps = describe_steps(numbers, cluster_gpus=state.total_gpus, free_gpus=free_gpus)
    states = list(walk_to(steps, targets, free_gpus, draw))
    most = min(len(states), MOST_CHOICES)
    places = sorted(draw.choice(len(states), size=most, replace=False)) if states else []
    ends = stop_rows(steps)
    return [_choice(steps, ends, *states[place]) for place in places]


def walk_to(
    steps: JobSteps, targets: Sequence[int], free_gpus: int, draw: np.random.Generator
) -> list[tuple[list[int], list[bool], int]]:
    """States on one way to these widths: rows that fit, which lead there, and free GPUs."""
    heads = [
        begin
        for begin, end, target in zip(steps.first, steps.first[1:], targets, strict=False)
        if begin < end and target
    ]
    states = []
    while True:
        fits = [row for row in heads if steps.more_gpus[row] <= free_gpus]
        right = [bool(steps.after[row] <= targets[steps.job[row]]) for row in fits]
        if fits:
            states.append((fits, right, free_gpus))
        if not any(right):
            return states
        ways = [row for row, leads in zip(fits, right, strict=True) if leads]
        row = ways[int(draw.integers(len(ways)))]
        free_gpus -= int(steps.more_gpus[row])
        heads.remove(row)
        if row + 1 < steps.first[steps.job[row] + 1]:
            heads.append(row + 1)


def _choice(
    steps: JobSteps, ends: Floats, fits: list[int], right: list[bool], free_gpus: int
) -> Choice:
    end = ends[free_level(free_gpus, steps.cluster_gpus)]
    rows = np.vstack([steps.features[fits], end])
    return Choice(rows, np.array([*right, not any(right)]))
