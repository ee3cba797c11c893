"""Who has waited too long goes before promises that have time to spare; these are kept."""

import random

import pytest

from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.model.job import FOREVER
from tests.promise.test_toy_world import keeps_all
from tests.support.builders import Curve, job
from tests.support.toy_world import ToyWorld

HOUR_S = 3600.0
HOURS = Curve(models={"day": HOUR_S, "small": 600.0}, start_s=20.0, stop_s=5.0)


def days(due_h: float) -> ToyWorld:
    """One GPU, a promised job of a day every day, and one of ten minutes that came after the first."""
    arrivals = [job("small", epochs=1, model="small", submitted_at=60.0)]
    for day in range(3):
        at = 24 * HOUR_S * day
        due_at = at + due_h * HOUR_S
        arrivals.append(job(f"day{day}", epochs=24, model="day", due_at=due_at, submitted_at=at))
    return ToyWorld(gpus=(1,), truth=HOURS, arrivals=arrivals)


@pytest.mark.parametrize("due_h", [28.8, 60.0, 144.0])
def test_a_small_job_waits_an_epoch_and_no_day_for_a_promise_with_time_to_spare(
    due_h: float,
) -> None:
    world = days(due_h)
    keeps_all(world)

    started_at, _ = world.of("team/small", Admit)[0]
    assert 5 * 600.0 < started_at < HOUR_S + 600.0, "after five run times, at an epoch's end"
    asked, stopped = [one for _, one in world.of("team/day0", Preempt)]
    assert (asked.at, stopped.at) == ("epoch", "now")  # type: ignore[union-attr]
    assert asked.reason.text == "team/small has waited longer than the ageing limit"
    assert not [one for day in (1, 2) for one in world.of(f"team/day{day}", Preempt)]


def test_no_promise_makes_way_that_would_be_late() -> None:
    """A day by 24.3 hours: what ten minutes and a start would leave of its time is no margin."""
    world = days(24.3)
    keeps_all(world)

    started_at, _ = world.of("team/small", Admit)[0]
    assert started_at > 24 * HOUR_S
    assert not world.of("team/day0", Preempt)


def long_world(seed: int) -> ToyWorld:
    """Hours of promised training, and jobs of minutes without a promise beside it."""
    rng = random.Random(f"long {seed}")
    models = {f"hard{number}": rng.uniform(600.0, HOUR_S) for number in range(3)}
    models |= {f"other{number}": rng.uniform(30.0, 600.0) for number in range(3)}
    speedup: dict[int, float] = rng.choice([{}, {2: 1.7, 4: 2.5}])
    start_s, stop_s = rng.choice([10.0, 60.0]), rng.choice([1.0, 30.0])
    gpus = rng.choice([(1,), (2,), (4,), (2, 2)])
    arrivals, at = [], 0.0
    for number in range(rng.randint(6, 14)):
        at += rng.expovariate(1 / HOUR_S)
        kind = rng.choice(["hard", "hard", "soft", "best_effort"])
        epochs = rng.randint(4, 24) if kind == "hard" else rng.randint(1, 4)
        model = f"{'hard' if kind == 'hard' else 'other'}{rng.randint(0, 2)}"
        due_at = at + 600.0 + models[model] * epochs * rng.uniform(1.2, 6.0)
        arrivals.append(
            job(
                f"j{number}",
                epochs=epochs,
                model=model,
                due_at=FOREVER if kind == "best_effort" else due_at,
                workers=rng.choice([(1,), (1,), (1, 2)]) if sum(gpus) > 1 else (1,),
                service_class=kind,
                submitted_at=at,
            )
        )
    truth = Curve(models=models, speedup=speedup, start_s=start_s, stop_s=stop_s)
    return ToyWorld(gpus=gpus, truth=truth, arrivals=arrivals)


@pytest.mark.parametrize(
    "seed", [1, 2, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 15))]
)
def test_no_promise_is_broken_where_small_jobs_wait_beside_long_ones(seed: int) -> None:
    keeps_all(long_world(seed))
