"""PickyMan's ordered division: for whom to stop which running jobs (IPCCC 2022; our reading).

The abstract says only that the choice is an ordered division of the running set, found greedily.
We read: waiting jobs p_1 .. p_m in order take disjoint sets V_1 .. V_m of running jobs, so that

    sum_i [ max_{v in V_i} S_v + sum_{v in V_i} (C_v + R_v) ]

is small. S_v: until v has saved and its GPUs are free; C_v: its saving; R_v: its restart. Each V_i
is a knapsack cover: the cheapest set whose GPUs are enough. `greedy_cover` takes the cheapest per
useful GPU, drops whoever is not needed, and looks at single victims; `exact_cover` is the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may be stopped: its GPUs, what that costs in all, and how long it takes."""

    id: str
    gpus: int
    cost_s: float
    freed_s: float = 0.0


def greedy_cover(victims: Sequence[Victim], need: int) -> list[Victim]:
    """Victims with at least `need` GPUs at little cost; empty if there are not enough."""
    if need <= 0:
        return []
    chosen: list[Victim] = []
    got = 0
    for victim in sorted(victims, key=lambda v: (v.cost_s / min(v.gpus, need), v.id)):
        if got >= need:
            break
        chosen.append(victim)
        got += victim.gpus
    if got < need:
        return []
    for victim in sorted(chosen, key=lambda v: (-v.cost_s, v.id)):
        if got - victim.gpus >= need:
            chosen.remove(victim)
            got -= victim.gpus
    one = min((v for v in victims if v.gpus >= need), key=lambda v: (v.cost_s, v.id), default=None)
    if one is not None and one.cost_s < sum(victim.cost_s for victim in chosen):
        return [one]
    return chosen


def exact_cover(victims: Sequence[Victim], need: int) -> list[Victim]:
    """The cheapest set with at least `need` GPUs, by dynamic programming: O(victims x need)."""
    best: list[tuple[float, tuple[int, ...]] | None] = [(0.0, ())] + [None] * max(need, 0)
    for number, victim in enumerate(victims):
        for short in range(need, 0, -1):
            before = best[max(0, short - victim.gpus)]
            if before is None:
                continue
            cost_s = before[0] + victim.cost_s
            known = best[short]
            if known is None or cost_s < known[0]:
                best[short] = (cost_s, (*before[1], number))
    found = best[max(need, 0)]
    return [] if found is None else [victims[number] for number in found[1]]
