"""The knapsack of phase 2: exact where that is cheap, certified where it is not."""

from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from laxity_scheduler.loans.knapsack import (
    NOTHING,
    Groups,
    Item,
    KnapsackChoice,
    find_hull,
    solve_knapsack,
)

SAME = 1e-9


def draw_groups(seed: int, groups: int, items: int, widest: int) -> list[list[Item]]:
    """Random items; some are worth nothing, many are worth the same."""
    draw = Random(seed)
    return [
        [
            Item(draw.randint(1, widest), draw.choice((draw.uniform(-5.0, 100.0), 10.0)))
            for _ in range(draw.randint(0, items))
        ]
        for _ in range(groups)
    ]


def value_and_weight(groups: Groups, choice: KnapsackChoice) -> tuple[float, int]:
    chosen = [
        group[place] for group, place in zip(groups, choice.choice, strict=True) if place != NOTHING
    ]
    return sum(item.value for item in chosen), sum(item.weight for item in chosen)


def best_by_brute_force(groups: Groups, capacity: int) -> float:
    nothing = Item(0, 0.0)
    return max(
        sum(item.value for item in some)
        for some in product(*([nothing, *group] for group in groups))
        if sum(item.weight for item in some) <= capacity
    )


def check_against_brute_force(seed: int) -> None:
    groups = draw_groups(seed, groups=1 + seed % 5, items=4, widest=9)
    capacity = Random(seed).randint(0, 30)
    choice = solve_knapsack(groups, capacity)
    value, weight = value_and_weight(groups, choice)
    assert weight <= capacity
    assert value == pytest.approx(best_by_brute_force(groups, capacity), abs=SAME)
    assert choice.value == pytest.approx(value, abs=SAME)


def best_by_milp(groups: Groups, capacity: int) -> float:
    items = [(number, item) for number, group in enumerate(groups) for item in group]
    weights = np.array([[item.weight for _, item in items]], dtype=float)
    member = np.zeros((len(groups), len(items)))
    for column, (number, _) in enumerate(items):
        member[number, column] = 1.0
    answer = milp(
        -np.array([item.value for _, item in items]),
        constraints=[
            LinearConstraint(weights, ub=float(capacity)),
            LinearConstraint(member, ub=1.0),
        ],
        integrality=np.ones(len(items), dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.0},
    )
    assert answer.fun is not None
    return -float(answer.fun)


def check_against_milp(seed: int) -> float:
    """The near answer and its bound hold the best one between them; how wide the gap is."""
    groups = draw_groups(seed, groups=300, items=4, widest=64)
    best = best_by_milp(groups, 1_000)
    exact = solve_knapsack(groups, 1_000)
    near = solve_knapsack(groups, 1_000, most_cells=0)
    value, weight = value_and_weight(groups, near)
    assert weight <= 1_000
    assert exact.value == pytest.approx(best, rel=1e-6)
    assert value == pytest.approx(near.value, abs=SAME)
    assert near.value <= best * (1 + 1e-6)
    assert near.bound >= best * (1 - 1e-6)
    return (near.bound - near.value) / near.bound


def test_knapsack_equals_brute_force() -> None:
    for seed in range(100):
        check_against_brute_force(seed)


@pytest.mark.soak
def test_knapsack_equals_brute_force_on_a_thousand_instances() -> None:
    for seed in range(1_000):
        check_against_brute_force(seed)


def test_large_knapsack_holds_the_best_answer_within_its_certificate() -> None:
    assert check_against_milp(1) < 0.01


@pytest.mark.soak
def test_many_large_knapsacks_hold_the_best_answer_within_their_certificates() -> None:
    assert max(check_against_milp(seed) for seed in range(2, 30)) < 0.01


def test_items_that_are_worth_nothing_are_left() -> None:
    choice = solve_knapsack([[Item(1, -3.0), Item(1, 0.0)]], 10)
    assert choice.choice == (NOTHING,)
    assert choice.value == choice.bound == 0.0


def test_where_all_fits_each_group_gets_its_best_item() -> None:
    groups = [[Item(2, 5.0), Item(4, 4.0)], [Item(8, 1.0)]]
    assert solve_knapsack(groups, 12).choice == (0, 0)


def test_no_room_and_no_groups_give_nothing() -> None:
    assert solve_knapsack([], 5) == KnapsackChoice((), 0.0, 0.0)
    assert solve_knapsack([[Item(2, 5.0)]], 0).choice == (NOTHING,)
    assert solve_knapsack([[Item(2, 5.0)]], -3).choice == (NOTHING,)


def test_a_later_rise_of_a_curve_stays_on_the_hull() -> None:
    items = [Item(1, -2.0), Item(2, 1.0), Item(3, 9.0), Item(8, 10.0)]
    assert find_hull([item for item in items if item.value > 0]) == [
        Item(0, 0.0),
        Item(3, 9.0),
        Item(8, 10.0),
    ]
