"""Small clusters on which some promised jobs run, and newcomers that may use some nodes only."""

from dataclasses import replace
from random import Random
from typing import Any

from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.reserve import Share
from tests.support.builders import cluster, job, promised

MINUTE_S = 60.0


def sets_of(draw: Random, names: list[str]) -> dict[str, NodeSet]:
    """A few sets of nodes that may overlap."""
    chosen = [draw.sample(names, draw.randint(1, len(names) - 1)) for _ in range(3)]
    return {f"set{number}": NodeSet(frozenset(nodes)) for number, nodes in enumerate(chosen)}


def drawn(draw: Random) -> ClusterState:
    """Two to four nodes, on which some promised jobs run; one that is due last sets the horizon."""
    sizes = [draw.randint(1, 3) for _ in range(draw.randint(2, 4))]
    names = [f"n{number}" for number in range(len(sizes))]
    sets = sets_of(draw, names)
    running: list[Job] = []
    for number, name in enumerate(names):
        if draw.random() < 0.4:
            may = [one for one in sets if name in sets[one].nodes]
            due_at, eligible = draw.uniform(300.0, 900.0), draw.choice([*may, ""])
            row = promised(f"r{number}", due_at, running=1, nodes=(name,), epochs=5)
            running.append(replace(row, eligible=eligible))
    last = promised("last", 1_500.0, epochs=1)
    return cluster(gpus=sizes, jobs=[*running, last], sets=sets)


def newcomers(draw: Random, state: ClusterState, *, epochs: int, slack: float) -> list[Job]:
    """Hard jobs on some nodes or on all, due at once or a while after they could be done."""
    found = []
    for number in range(draw.randint(2, 7)):
        width, eligible = draw.choice((1, 1, 2)), draw.choice(["", *sorted(state.sets or {})])
        least_s = epochs * MINUTE_S / width
        due_at = least_s * (1.0 + draw.random() * slack)
        fields: dict[str, Any] = {"workers": (width,), "epochs": epochs, "eligible": eligible}
        found.append(job(f"j{number}", due_at=due_at, **fields))
    return found


def workers_at(share: Share, at_s: float) -> int:
    if at_s >= share.finish_s:
        return 0
    return next((workers for since_s, workers in reversed(share.steps) if since_s <= at_s), 0)
