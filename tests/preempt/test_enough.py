"""Who was stopped is enough, at every instant between the question and the last pod's end.

Two promises wait and two jobs were stopped for them. Whatever of it is seen already (asked, pods on
their way out, GPUs held), in whichever combination, nobody else has to go.
"""

from itertools import product

import pytest

from laxity_scheduler.model.cluster import ClusterState, Hold, Node
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies.qos import decide
from tests.promise.test_toy_world import is_interfered_with, keeps_to_sets
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised
from tests.support.plans import stopped_jobs

FOR = {"v1": "hard1", "v2": "hard2"}
STAGES = ("asked", "leaving", "gone")


def victim(name: str, stage: str) -> Job:
    if stage == "asked":
        return job(name, running=1, stop_requested_at=1.0, stop_for=f"team/{FOR[name]}")
    return job(name, asked=False, preemptions=1, terminating_workers=int(stage == "leaving"))


def seen(*stages: str, foreign: int = 0) -> ClusterState:
    """Both victims at these stages, on a full node with two more jobs that run."""
    victims = [victim(name, stage) for name, stage in zip(FOR, stages, strict=True)]
    others = [job(name, running=1) for name in ("be1", "be2")]
    hard = [promised(name, 700.0) for name in FOR.values()]
    free = stages.count("gone")
    holds = [
        Hold(f"team/{FOR[name]}", "n0", 1, 300.0)
        for name, stage in zip(FOR, stages, strict=True)
        if stage == "gone"
    ]
    state = cluster(gpus=4 + foreign, jobs=[*victims, *others, *hard], holds=holds, now=2.0)
    nodes: tuple[Node, ...] = (node(gpus=4 + foreign, free_gpus=free),)
    return ClusterState(now=2.0, nodes=nodes, jobs=state.jobs, holds=state.holds)


@pytest.mark.parametrize("foreign", [0, 2])
@pytest.mark.parametrize("stages", list(product(STAGES, repeat=2)))
def test_nobody_else_is_stopped_while_enough_is_on_its_way(
    stages: tuple[str, str], foreign: int
) -> None:
    assert stopped_jobs(decide(seen(*stages, foreign=foreign), MINUTE_EPOCHS)) == []


def test_one_that_leaves_is_enough_for_one_only() -> None:
    jobs = [victim("v1", "leaving"), job("be1", running=1), job("be2", running=1)]
    hard = [promised(name, 700.0) for name in FOR.values()]
    state = ClusterState(now=2.0, nodes=(node(gpus=3, free_gpus=0),), jobs=(*jobs, *hard))
    assert len(stopped_jobs(decide(state, MINUTE_EPOCHS))) == 1


def test_what_is_on_its_way_to_a_wide_job_is_not_counted_for_the_next_as_well() -> None:
    """One leaves, one more is stopped for the first promise; the second needs one of its own."""
    jobs = [victim("v1", "leaving"), *(job(f"be{n}", running=1) for n in range(3))]
    hard = [promised("hard1", 380.0, workers=(2,)), promised("hard2", 700.0)]
    state = ClusterState(now=2.0, nodes=(node(gpus=4, free_gpus=0),), jobs=(*jobs, *hard))
    assert len(stopped_jobs(decide(state, MINUTE_EPOCHS))) == 2


def test_who_would_give_too_late_is_passed_over_for_one_that_stops_in_time() -> None:
    """j8 can wait for 2 s. j1 would give it a GPU in 4 s, and j7 can stop at once."""
    keeps_to_sets(1_221)


def test_one_that_has_to_start_wider_waits_an_epoch_more_for_who_makes_way() -> None:
    """j4 is amended; its next epoch ends before j2 and j8 have left the other node."""
    is_interfered_with(1_079)
