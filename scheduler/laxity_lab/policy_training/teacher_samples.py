"""A teacher's decisions in simulated clusters, as choices that a net can imitate.

A choice is a state while GPUs are dealt out: the next step of each job that still fits, and stop.
Right are the steps that lead to the widths that the teacher chose; where none is left and one would
fit, to stop is right. So the teacher's order among them need not be known, and stops are labels too
(DL2 has none: algorithms.md 6.9).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from laxity_lab.policy_training.step_walk import StepWalk
from laxity_lab.simulate.run import Setting, run_cycles, truths_of
from laxity_lab.traces.traces import Trace
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
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan

MOST_CHOICES: Final = 4  # of one decision, drawn at random; and its stop


class Choice(NamedTuple):
    """`rows` of features, (n, F), the last one that of stopping; which of them are `right`, (n,)."""

    rows: Floats
    right: Bools


def share_right(net: ScoringNet, choices: Sequence[Choice]) -> float:
    """Among how many of the choices the best-scored row is right; 0 if there are none."""
    right = [bool(mask[net.score(rows).argmax()]) for rows, mask in choices]
    return sum(right) / max(1, len(right))


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

    setting = Setting(teacher, nodes, gpus_per_node, cost_model="live")
    run_cycles(trace.name, setting, truths_of(trace, setting), policy=decide)
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
    states = walk_to(steps, targets, free_gpus, draw)
    most = min(len(states), MOST_CHOICES)
    places = sorted(draw.choice(len(states), size=most, replace=False)) if states else []
    ends = stop_rows(steps)
    return [_choice(steps, ends, *states[place]) for place in places]


def walk_to(
    steps: JobSteps, targets: Sequence[int], free_gpus: int, draw: np.random.Generator
) -> list[tuple[list[int], list[bool], int]]:
    """States on one way to these widths: rows that fit, which lead there, and free GPUs."""
    walk, states = StepWalk(steps, list(targets), free_gpus), []
    while True:
        fits = walk.fitting()
        right = [bool(steps.after[row] <= targets[steps.job[row]]) for row in fits]
        if fits:
            states.append((fits, right, walk.free_gpus))
        ways = [row for row, leads in zip(fits, right, strict=True) if leads]
        if not ways:
            return states
        walk.take(ways[int(draw.integers(len(ways)))])


def _choice(
    steps: JobSteps, ends: Floats, fits: list[int], right: list[bool], free_gpus: int
) -> Choice:
    end = ends[free_level(free_gpus, steps.cluster_gpus)]
    rows = np.vstack([steps.features[fits], end])
    return Choice(rows, np.array([*right, not any(right)]))
