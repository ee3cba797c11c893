"""Chronus (algorithms.md 7.7): who holds the next lease, by hand, and against all that could be.

A lease is 20 minutes; a job of x seconds needs n = ceil(1.1 x / 1,200) of them within
m = floor((deadline - now) / 1,200).
"""

import itertools

import pytest

from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies import chronus
from laxity_scheduler.policies.chronus import LEASE_S, SAFETY, leases
from tests.support.builders import MINUTE_EPOCHS, cluster, job


def held(gpus: int, **cases: tuple[int, float, float]) -> set[str]:
    """`name=(GPUs, seconds left, due in)`: who holds the lease that begins now."""
    jobs = [job(name, workers=(many,), due_at=due_at) for name, (many, _, due_at) in cases.items()]
    left_s = {f"team/{name}": seconds for name, (_, seconds, _) in cases.items()}
    return {name.removeprefix("team/") for name in leases(jobs, left_s, gpus=gpus, now=0.0)}


def test_the_job_without_a_lease_to_spare_holds_the_next_one() -> None:
    """2 GPUs. tight: 2,000 s x 1.1 = 2,200 s, 2 leases of the 2 until 2,400 s: now and then.

    loose: 1,000 s, 1 lease of the 3 until 3,600 s: the third will do, both GPUs are taken till then.
    """
    assert held(2, tight=(2, 2_000.0, 2_400.0), loose=(1, 1_000.0, 3_600.0)) == {"tight"}


def test_two_short_jobs_in_time_are_worth_more_than_a_long_one() -> None:
    """2 GPUs for 2 leases. long takes both leases; first and second take one each.

    Only `first` is due after one lease, so it holds the next one.
    """
    cases = {
        "long": (2, 2_000.0, 2_400.0),
        "first": (2, 1_000.0, 1_200.0),
        "second": (2, 1_000.0, 2_400.0),
    }
    assert held(2, **cases) == {"first"}


@pytest.mark.parametrize(
    ("left_s", "due_at", "has"),
    [
        pytest.param(1_090.0, 1_200.0, True, id="1,090 x 1.1 = 1,199: one lease of one"),
        pytest.param(1_092.0, 1_200.0, False, id="1,092 x 1.1 = 1,201: two leases of one"),
        pytest.param(1_000.0, 1_199.0, False, id="no whole lease until then"),
    ],
)
def test_leases_are_whole(left_s: float, due_at: float, *, has: bool) -> None:
    assert held(4, only=(1, left_s, due_at)) == ({"only"} if has else set())


def best_worth(jobs: list[tuple[int, int, int]], gpus: int) -> int:
    """Most jobs in time of (GPUs, leases needed, leases ahead), by trying all choices of leases."""
    most = 0
    horizon = max(ahead for _, _, ahead in jobs)
    options = [
        [(), *itertools.combinations(range(ahead), needs)] if needs <= ahead else [()]
        for _, needs, ahead in jobs
    ]
    for choice in itertools.product(*options):
        use = [0] * horizon
        for (many, _, _), taken in zip(jobs, choice, strict=True):
            for lease in taken:
                use[lease] += many
        if max(use) <= gpus:
            most = max(most, sum(bool(taken) for taken in choice))
    return most


@pytest.mark.parametrize("seed", range(12))
def test_following_the_leases_meets_as_many_deadlines_as_any_choice_could(seed: int) -> None:
    """Lease after lease, each time solved anew on what is left, on up to five jobs."""
    import random

    draw = random.Random(seed)
    gpus = draw.randint(1, 4)
    made = [
        (draw.randint(1, gpus), draw.randint(1, 3), draw.randint(1, 4))
        for _ in range(draw.randint(2, 5))
    ]
    left = {f"j{number}": needs for number, (_, needs, _) in enumerate(made)}
    for lease in range(4):
        jobs: list[Job] = []
        left_s = {}
        for number, (many, _, ahead) in enumerate(made):
            name = f"j{number}"
            if left[name]:
                jobs.append(job(name, workers=(many,), due_at=ahead * LEASE_S))
                left_s[f"team/{name}"] = (left[name] * LEASE_S - 1.0) / SAFETY
        for name in leases(jobs, left_s, gpus=gpus, now=lease * LEASE_S):
            left[name.removeprefix("team/")] -= 1
    assert sum(not rest for rest in left.values()) == best_worth(made, gpus)


def test_who_holds_no_lease_makes_way_at_a_lease_s_begin_and_only_then() -> None:
    """1 GPU. free runs; due (10 epochs of 60 s, 600 s x 1.1: one lease) has until 1,200 s."""
    free = job("free", epochs=100, running=1)
    due = job("due", epochs=10, due_at=LEASE_S + LEASE_S, submitted_at=LEASE_S)
    at_begin = chronus.decide(cluster(gpus=1, jobs=[free, due], now=LEASE_S), MINUTE_EPOCHS)
    assert [(d.job, d.beneficiary) for d in at_begin.decisions if isinstance(d, Preempt)] == [
        ("team/free", "team/due")
    ]
    between = chronus.decide(cluster(gpus=1, jobs=[free, due], now=LEASE_S + 1), MINUTE_EPOCHS)
    assert between.decisions == ()
    assert (at_begin.wake_at, between.wake_at) == (2 * LEASE_S, 2 * LEASE_S)


@pytest.mark.parametrize("now", [LEASE_S, LEASE_S + 1.0], ids=["a lease begins", "between leases"])
def test_gpus_that_no_lease_takes_go_to_the_least_gpu_time(now: float) -> None:
    """2 GPUs without a lease: 2 x 600 = 1,200 GPU-s, 1 x 900, 1 x 300: the last two start."""
    jobs = [
        job("both", epochs=10, workers=(2,)),
        job("long", epochs=15, submitted_at=1.0),
        job("short", epochs=5, submitted_at=2.0),
    ]
    plan = chronus.decide(cluster(gpus=2, jobs=jobs, now=now), MINUTE_EPOCHS)
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/short", "team/long"]


def started(*jobs: Job, now: float) -> list[str]:
    """Who starts on one free GPU."""
    plan = chronus.decide(cluster(gpus=1, jobs=jobs, now=now), MINUTE_EPOCHS)
    return [d.job.removeprefix("team/") for d in plan.decisions if isinstance(d, Admit)]


def test_who_holds_a_lease_starts_before_a_shorter_job_that_holds_none() -> None:
    """due: 900 s x 1.1, one lease of the one until 1,200 s. short: 300 s and no deadline."""
    due = job("due", epochs=15, due_at=2 * LEASE_S)
    assert started(due, job("short", epochs=5), now=LEASE_S) == ["due"]


def test_between_leases_a_job_with_a_deadline_starts_before_a_shorter_one_without() -> None:
    due = job("due", epochs=15, due_at=3 * LEASE_S)
    assert started(due, job("short", epochs=5), now=LEASE_S + 1.0) == ["due"]
