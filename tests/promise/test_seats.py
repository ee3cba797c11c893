"""Who waits and could leave a set of nodes is planned on seats that it keeps as long as it runs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.job import Promise, Refusal, Verdict
from laxity_scheduler.promising.claimants import count_inside, count_seats, find_seats
from laxity_scheduler.promising.promise import Judge
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised

slots = st.lists(
    st.tuples(st.integers(-1, 5), st.integers(-1, 5)), min_size=1, max_size=8
)  # GPUs free inside of a region and outside of it


@given(free=slots, workers=st.integers(1, 4), size=st.integers(1, 3))
def test_room_begins_with_the_first_slot_from_which_all_workers_can_stay(
    free: list[tuple[int, int]], workers: int, size: int
) -> None:
    inside, outside = np.array(free, dtype=float).T
    end = len(free)

    def stay(first: int) -> bool:
        seats = max(0, inside[first:].min() // size) + max(0, outside[first:].min() // size)
        return bool(seats >= workers)

    begins = find_seats(inside, inside + outside, 0, end, float(workers * size), float(size))
    assert begins == next((first for first in range(end) if stay(first)), end)


@given(free=slots, workers=st.integers(1, 4), size=st.integers(1, 3))
def test_workers_sit_inside_that_do_not_fit_outside_all_the_time(
    free: list[tuple[int, int]], workers: int, size: int
) -> None:
    inside, outside = np.array(free, dtype=float).T
    gpus, least = float(workers * size), float(outside.min())
    held = count_inside(inside, inside + outside, 0, len(free), gpus, float(size))
    assert held == max(0, workers - count_seats(least, float(size))) * size


def one_waits_for_two_of_three_nodes() -> ClusterState:
    """`wide` starts on n0 and n2 when `first` ends, and sits there until 600 s; n1 is free from 420 s on."""
    jobs = (
        promised("first", 300.0, running=1, epochs=5),
        promised("longer", 420.0, running=1, epochs=7, nodes=("n1",)),
        promised("wide", 640.0, epochs=10, workers=(2,)),
    )
    return cluster(gpus=(1, 1, 1), jobs=jobs, sets={"zone": NodeSet(frozenset({"n0"}))})


def verdict_on_tied(due_at: float) -> Verdict:
    tied = job("tied", epochs=5, due_at=due_at, eligible="zone")
    state = one_waits_for_two_of_three_nodes().with_job(tied)
    return Judge(state, Forecasts(state, MINUTE_EPOCHS)).verdict(tied)


def test_a_job_is_promised_no_node_before_who_waits_and_will_sit_there_has_left() -> None:
    assert isinstance(verdict_on_tied(850.0), Refusal)
    promise = verdict_on_tied(950.0)
    assert isinstance(promise, Promise)
    starts_at, workers = promise.runs[0]
    assert workers == 0
    assert 600.0 <= starts_at <= 620.0
