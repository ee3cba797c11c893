"""Simulated jobs of which half hold no state: promises are kept, and these are stopped last."""

import math
from dataclasses import replace

import numpy as np
import pytest

from laxity_lab.traces.traces import Trace
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.engine import run_cycle
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.decision import Preempt, Promised, Resize
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs
from tests.support.simulated import job, trace, world

JOBS = 24


def crowded(draw: np.random.Generator) -> Trace:
    """Jobs of ten minutes to two hours on 4 GPUs, half of them with a deadline."""
    at = np.cumsum(draw.exponential(400.0, JOBS))
    runs_s = draw.integers(1, 12, JOBS) * 600.0
    due_at = np.where(draw.random(JOBS) < 0.5, at + runs_s * draw.uniform(1.2, 6.0, JOBS), math.inf)
    rows = zip(
        at.tolist(), runs_s.tolist(), draw.choice([1, 1, 2], JOBS), due_at.tolist(), strict=True
    )
    return trace(
        *(
            job(f"j{number:02}", at=at, runs_s=runs_s, gpus=int(gpus), due_at=due_at)
            for number, (at, runs_s, gpus, due_at) in enumerate(rows)
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_promises_are_kept_and_only_hard_jobs_have_one_stopped(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sim, truths = world(crowded(draw), cost="live", nodes=1)
    predictor = NoisyPredictor(truths, costs("live", cluster_gpus=4))
    stateless = {truth.id for truth in truths if draw.random() < 0.5}
    policy = with_follow_ups(find("qos").policy())
    due_at: dict[str, float] = {}
    stops: list[Preempt] = []
    while not sim.done:
        sim.advance()
        for name, live in sim.live.items():
            live.row = replace(live.row, holds_state=name not in stateless)
        for decision in run_cycle(sim, policy, predictor).decisions:
            if isinstance(decision, Promised):
                due_at[decision.job] = decision.promise.deadline_at
            assert not (isinstance(decision, Resize) and decision.job in stateless)
            if isinstance(decision, Preempt) and decision.job in stateless:
                stops.append(decision)

    ended_at = {name: at for name, (_, at) in sim.finished.items()}
    assert {name for name, at in due_at.items() if ended_at[name] > at} == set()
    beneficiaries = {stop.beneficiary for stop in stops if stop.at == "epoch"}
    assert beneficiaries <= due_at.keys()
