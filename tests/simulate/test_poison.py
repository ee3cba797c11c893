"""A thousand jobs of extremes in a simulated world: each is its own refusal, honest ones are in time."""

import random

from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import TraceJob
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs
from tests.support.simulated import job, trace, world

HONEST = [f"honest-{number}" for number in range(10)]
POISONED = 1_000
TABLES = (
    ThroughputTable((1, 4096), (1e-9, 1e9)), ThroughputTable((1, 2, 4), (5.0, 1e-300, 1e-300)),
    ThroughputTable((1,), (1e-12,)), ThroughputTable((2**20,), (1.0,)),
)  # fmt: skip


def poison(chance: random.Random, number: int) -> TraceJob:
    """A hard job: too large, too long, too late, or all at once; none can be in time."""
    at = 60.0 * (number % len(HONEST))
    how = chance.randrange(4)
    runs_s = chance.choice((1e-9, 1.0, 600.0, 1e9, 1e15, 1e300))
    gpus = chance.choice((1, 3, 8, 9, 4096))
    due_at = at + chance.choice((1e-9, 1.0, 3_600.0, 1e12, 1e300))
    if how == 0:
        gpus = chance.choice((10**6, 2**31, 2**53))
    elif how == 1:
        runs_s, due_at = chance.choice((1e9, 1e15, 1e300)), at + 3_600.0
    elif how == 2:
        due_at = at - chance.choice((0.0, 1.0, 1e9, 1e300))
    else:
        table = chance.choice(TABLES)
        due_at = at + 60.0
        return job(
            f"poison-{number}", at=at, runs_s=1e12, gpus=table.gpus[0], due_at=due_at, table=table
        )
    return job(f"poison-{number}", at=at, runs_s=runs_s, gpus=gpus, due_at=due_at)


def honest() -> list[TraceJob]:
    return [
        job(name, at=60.0 * number, runs_s=600.0, due_at=60.0 * number + 1_200.0)
        for number, name in enumerate(HONEST)
    ]


def waited(*jobs: TraceJob) -> tuple[dict[str, int], set[str]]:
    """How many cycles each honest job waited for its start; who was refused."""
    sim, made = world(trace(*jobs), nodes=4, gpus_per_node=8)
    decide = with_follow_ups(find("qos").policy())
    belief = NoisyPredictor(made, costs("free", cluster_gpus=32))
    came: dict[str, int] = {}
    served: dict[str, int] = {}
    cycle = 0
    while sim.advance():
        cycle += 1
        state = sim.observe()
        for name in state.by_id.keys() - came.keys():
            came[name] = cycle
        plan = decide(state, belief)
        check_plan(plan, state)
        sim.carry_out(plan)
        sim.wake_at(plan.wake_at)
        for one in plan.decisions:
            if isinstance(one, Admit):
                served.setdefault(one.job, cycle - came[one.job])
    assert {f"default/{name}" for name in HONEST} <= sim.promised_at.keys()
    return {name: served[f"default/{name}"] for name in HONEST}, set(sim.refusals)


def test_a_thousand_jobs_of_extremes_delay_no_honest_one_by_more_than_two_cycles() -> None:
    chance = random.Random(7)
    poisoned = [poison(chance, number) for number in range(POISONED)]
    without, _ = waited(*honest())
    beside, refused = waited(*honest(), *poisoned)
    assert max(beside[name] - without[name] for name in HONEST) <= 2
    assert refused == {f"default/{one.id}" for one in poisoned}
