"""The cheapest set to stop: compared with all sets, per node, for small and for large clusters."""

import random
from itertools import combinations
from math import isinf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_scheduler.allocation.victims import (
    Need,
    Victim,
    cheapest_victims,
    total_cost_s,
    victim_by_shrinking,
    victim_by_stopping,
)
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts
from tests.support.builders import Curve, cluster, job


def victim(name: str, *, loss: float, delay: float = 0.0, **frees: int) -> Victim:
    return Victim(name, tuple(sorted(frees.items())), delay, loss)


def need(
    workers: int,
    gpus: int = 1,
    *,
    free: int = 0,
    only: frozenset[str] = frozenset(),
    coming: dict[str, int] | None = None,
) -> Need:
    ledger = Ledger(["n0", "n1", "n2"], [free] * 3)
    return Need(workers, gpus, ledger, nodes=only, coming=coming or {})


def best_by_looking_at_all(candidates: list[Victim], wanted: Need) -> float | None:
    missing = wanted.workers - wanted.workers_fitting
    best_s = float("inf")
    for count in range(len(candidates) + 1):
        for chosen in combinations(candidates, count):
            cost_s = total_cost_s(chosen)  # first: what they gain takes longer to count
            if cost_s < best_s and wanted.gain_from(chosen) >= missing:
                best_s = cost_s
    return None if isinf(best_s) else best_s


def instance(rng: random.Random, count: int) -> list[Victim]:
    return [
        victim(
            f"v{number:03}",
            loss=rng.lognormvariate(3.0, 1.0),
            delay=rng.uniform(0.0, 60.0),
            **{f"n{rng.randrange(3)}": rng.choice([1, 1, 2, 4])},
        )
        for number in range(count)
    ]


@given(seed=st.integers(0, 10_000), workers=st.integers(1, 6), gpus=st.sampled_from([1, 2, 4]))
def test_of_few_candidates_the_best_set_is_found(seed: int, workers: int, gpus: int) -> None:
    candidates = instance(random.Random(seed), 8)
    wanted = need(workers, gpus)
    chosen, best_s = (
        cheapest_victims(candidates, wanted),
        best_by_looking_at_all(candidates, wanted),
    )
    if best_s is None:
        assert chosen is None
    else:
        assert chosen is not None
        assert total_cost_s(chosen) == pytest.approx(best_s)


def test_of_many_candidates_the_set_is_near_the_best_on_average() -> None:
    rng, ratios = random.Random(7), []
    for _ in range(60):
        candidates = instance(rng, 14)
        wanted = need(rng.randint(2, 6))
        best_s = best_by_looking_at_all(candidates, wanted)
        chosen = cheapest_victims(candidates, wanted)
        assert chosen is not None
        assert wanted.gain_from(chosen) >= wanted.workers
        ratios.append(total_cost_s(chosen) / (best_s or 1.0))
    assert sum(ratios) / len(ratios) < 1.10


def test_nobody_is_stopped_for_nothing_where_stopping_costs_nothing() -> None:
    candidates = [
        victim(f"v{number:02}", loss=0.0, **{f"n{number % 3}": 1}) for number in range(40)
    ]
    chosen = cheapest_victims(candidates, need(2))
    assert chosen is not None
    assert len(chosen) == 2


def test_nobody_is_stopped_for_what_fits_anyway() -> None:
    assert cheapest_victims([victim("v", loss=1.0, n0=4)], need(2, free=1)) == ()


def test_what_does_not_fit_even_if_all_stop_stops_nobody() -> None:
    assert cheapest_victims([victim("v", loss=1.0, n0=1)], need(2)) is None


def test_gpus_on_two_nodes_make_no_room_for_one_large_worker() -> None:
    apart = [victim("v", loss=1.0, n0=1), victim("w", loss=1.0, n1=1)]
    together = [*apart, victim("x", loss=5.0, n1=1)]
    assert cheapest_victims(apart, need(1, 2)) is None
    chosen = cheapest_victims(together, need(1, 2))
    assert chosen is not None
    assert {one.job for one in chosen} == {"w", "x"}


def test_large_workers_find_room_among_many_candidates() -> None:
    candidates = [victim(f"v{n:02}", loss=10.0 + n, **{f"n{n % 3}": 1}) for n in range(15)]
    chosen = cheapest_victims(candidates, need(1, 4))
    assert chosen is not None
    assert len({one.frees[0][0] for one in chosen}) == 1
    assert len(chosen) == 4


def test_one_slow_victim_is_worse_than_two_quick_ones() -> None:
    slow = victim("slow", loss=1.0, delay=600.0, n0=2)
    quick = [victim("q1", loss=20.0, delay=5.0, n0=1), victim("q2", loss=20.0, delay=5.0, n1=1)]
    chosen = cheapest_victims([slow, *quick], need(2))
    assert chosen is not None
    assert {one.job for one in chosen} == {"q1", "q2"}


def test_growth_needs_room_on_its_own_nodes() -> None:
    candidates = [victim("far", loss=1.0, n1=4), victim("near", loss=9.0, n0=1)]
    chosen = cheapest_victims(candidates, need(1, only=frozenset({"n0"})))
    assert chosen is not None
    assert [one.job for one in chosen] == ["near"]


def test_gpus_that_come_anyway_are_not_freed_twice() -> None:
    assert cheapest_victims([victim("v", loss=1.0, n0=1)], need(2, coming={"n0": 2})) == ()


PRICES = Curve(epoch_s=100.0, start_s=20.0, stop_s=5.0)


def test_a_victim_costs_its_checkpoint_and_restart_and_the_rest_of_its_epoch_as_delay() -> None:
    runs = job("a", running=2, workers=(2,))
    forecasts = Forecasts(cluster(gpus=4, jobs=[runs], now=10.0), PRICES)
    found = victim_by_stopping(runs, forecasts, float("inf"))
    assert found == Victim("team/a", (("n0", 2),), delay_s=45.0, loss_s=25.0, moment="epoch")


@pytest.mark.parametrize(
    ("done_s", "patience_s", "at"),
    [
        pytest.param(10.0, 50.0, "now", id="too late, and little is lost"),
        pytest.param(10.0, 500.0, "epoch", id="there is time"),
        pytest.param(70.0, 10.0, "epoch", id="too late, but more would be lost"),
    ],
)
def test_a_victim_is_stopped_at_once_only_if_waiting_is_too_late_and_costs_more(
    done_s: float, patience_s: float, at: str
) -> None:
    runs = job("a", running=1)
    forecasts = Forecasts(cluster(gpus=4, jobs=[runs], now=done_s), PRICES)
    assert victim_by_stopping(runs, forecasts, patience_s).moment == at


def test_a_narrowed_job_frees_its_last_workers_gpus() -> None:
    runs = job("a", running=4, workers=(1, 2, 4), nodes=("n0", "n0", "n1", "n1"))
    forecasts = Forecasts(cluster(gpus=[4, 4], jobs=[runs]), PRICES)
    found = victim_by_shrinking(runs, 2, forecasts)
    assert (found.frees, found.keeps, found.delay_s) == ((("n1", 2),), 2, 30.0)
