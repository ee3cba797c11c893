"""Multiple-choice knapsack: GPUs to jobs, at most one item of each (Aryl / Lyra, 4.5).

    best[c] = max over the items of a group of best[c - weight] + value      exact, O(capacity x items)

Where that is too much work, each group gives its concave hull, and steps of all hulls are taken in
order of value per GPU (the relaxation's own order). The first step that does not fit, taken in part,
gives the relaxation's value: `bound` certifies how far the answer can be from the best one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints

MOST_CELLS: Final = 20_000_000  # capacity x items that are computed exactly: about 0.1 s
NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class Item:
    """So many GPUs more are worth so much."""

    weight: int
    value: float


@dataclass(frozen=True, slots=True)
class KnapsackChoice:
    """The number of the item chosen of each group (-1: none), their value, and what none exceeds."""

    choice: tuple[int, ...]
    value: float
    bound: float


Groups = Sequence[Sequence[Item]]


def solve_knapsack(
    groups: Groups, capacity: int, *, most_cells: int = MOST_CELLS
) -> KnapsackChoice:
    """The best choice; where the exact one is too much work, a near one with its bound."""
    useful = [
        [(place, item) for place, item in enumerate(group) if item.value > 0 and item.weight >= 0]
        for group in groups
    ]
    if sum(max((item.weight for _, item in group), default=0) for group in useful) <= capacity:
        return _take_best_of_each(useful)
    weights = [item.weight for group in useful for _, item in group if item.weight]
    unit = reduce(gcd, weights, 0) or 1
    scaled = [
        [(place, Item(item.weight // unit, item.value)) for place, item in group]
        for group in useful
    ]
    room = max(0, capacity) // unit
    if room * len(weights) <= most_cells:
        return _solve_exactly(scaled, room)
    return _climb_hulls(scaled, room)


Choices = Sequence[Sequence[tuple[int, Item]]]  # of each group: its items with their numbers


def _take_best_of_each(groups: Choices) -> KnapsackChoice:
    best = [max(group, key=lambda entry: entry[1].value, default=None) for group in groups]
    value = sum(entry[1].value for entry in best if entry)
    return KnapsackChoice(tuple([entry[0] if entry else NOTHING for entry in best]), value, value)


def _solve_exactly(groups: Choices, room: int) -> KnapsackChoice:
    best: Floats = np.zeros(room + 1)
    choices: list[Ints] = []
    for group in groups:
        old, best = best, best.copy()
        choice = np.full(room + 1, NOTHING, dtype=np.int64)
        for number, (_, item) in enumerate(group):
            if item.weight > room:
                continue
            worth = old[: room + 1 - item.weight] + item.value
            better = worth > best[item.weight :]
            best[item.weight :][better] = worth[better]
            choice[item.weight :][better] = number
        choices.append(choice)
    left, numbers = room, []
    for group, choice in zip(reversed(groups), reversed(choices), strict=True):
        number = int(choice[left])
        numbers.append(group[number][0] if number != NOTHING else NOTHING)
        left -= group[number][1].weight if number != NOTHING else 0
    return KnapsackChoice(tuple(reversed(numbers)), float(best[room]), float(best[room]))


def _climb_hulls(groups: Choices, room: int) -> KnapsackChoice:
    """Steps of all hulls by value per GPU; then whatever still fits, in the same order."""
    hulls = [find_hull([item for _, item in group]) for group in groups]
    steps = sorted(
        (-_slope(hull, level), number, level)
        for number, hull in enumerate(hulls)
        for level in range(1, len(hull))
    )
    level, left, bound = [0] * len(groups), room, 0.0
    fits_all = True
    for slope, number, target in steps:
        hull = hulls[number]
        weight = hull[target].weight - hull[level[number]].weight
        if weight <= left:
            gain = hull[target].value - hull[level[number]].value
            level[number], left = target, left - weight
            bound += gain if fits_all else 0.0
        elif fits_all:
            bound += -slope * left
            fits_all = False
    numbers, value = [], 0.0
    for group, hull, step in zip(groups, hulls, level, strict=True):
        item = hull[step]
        value += item.value
        place = next((place for place, other in group if other is item), NOTHING)
        numbers.append(place)
    return KnapsackChoice(tuple(numbers), value, max(bound, value))


def find_hull(items: Sequence[Item]) -> list[Item]:
    """The items on the upper concave hull over weight, after one that is nothing."""
    hull = [Item(0, 0.0)]
    for item in sorted(items, key=lambda item: (item.weight, -item.value)):
        if item.value <= hull[-1].value:
            continue
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], item):
            hull.pop()
        if item.weight == hull[-1].weight:
            hull[-1] = item
        else:
            hull.append(item)
    return hull


def _turns_up(first: Item, middle: Item, last: Item) -> bool:
    """Whether the middle item lies on or below the line from the first to the last."""
    rise = (last.value - first.value) * (middle.weight - first.weight)
    return (middle.value - first.value) * (last.weight - first.weight) <= rise


def _slope(hull: Sequence[Item], level: int) -> float:
    """Value per GPU of the step to this level of a hull."""
    before, item = hull[level - 1], hull[level]
    return (item.value - before.value) / (item.weight - before.weight)
