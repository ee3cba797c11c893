"""The ledger answers by the state it is in: a naive count of the same state says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_scheduler.capacity.ledger import Ledger, LedgerError
from laxity_scheduler.model.cluster import Hold
from tests.support.builders import cluster, job, node


class NaiveLedger:
    """Best fit by looking at every node for every worker."""

    def __init__(self, free: list[int]) -> None:
        self.free = free

    def place(self, workers: int, gpus: int) -> list[int] | None:
        left, taken = list(self.free), []
        for _ in range(workers):
            fits = [number for number, count in enumerate(left) if count >= gpus]
            if not fits:
                return None
            best = min(fits, key=lambda number: (left[number], number))
            left[best] -= gpus
            taken.append(best)
        self.free = left
        return taken


steps = st.lists(
    st.tuples(st.sampled_from(["place", "give"]), st.integers(1, 5), st.sampled_from([1, 2, 4])),
    max_size=30,
)


@given(free=st.lists(st.integers(0, 8), min_size=1, max_size=8), steps=steps)
def test_it_places_as_a_naive_count_does(
    free: list[int], steps: list[tuple[str, int, int]]
) -> None:
    names = [f"n{number}" for number in range(len(free))]
    ledger, naive = Ledger(names, free), NaiveLedger(list(free))

    for kind, workers, gpus in steps:
        if kind == "place":
            placed, want = ledger.place(workers, gpus), naive.place(workers, gpus)
            assert placed == (None if want is None else tuple(names[number] for number in want))
        else:
            number = workers % len(free)
            ledger.give([names[number]], gpus)
            naive.free[number] += gpus
        assert ledger.free == naive.free
        assert ledger.total_free == sum(naive.free)
        assert ledger.slots(gpus) == sum(count // gpus for count in naive.free)


@given(free=st.lists(st.integers(0, 8), min_size=1, max_size=6), workers=st.integers(1, 6))
def test_a_copy_is_spent_without_the_original(free: list[int], workers: int) -> None:
    ledger = Ledger([f"n{number}" for number in range(len(free))], free)
    ledger.copy().place(workers, 1)
    assert ledger.free == free


def test_growth_goes_to_the_fullest_of_the_named_nodes() -> None:
    ledger = Ledger(["n0", "n1", "n2"], [1, 3, 2])
    assert ledger.place_on(["n1", "n2"], 3, 1) == ("n2", "n2", "n1")


def test_growth_that_does_not_fit_takes_nothing() -> None:
    ledger = Ledger(["n0", "n1"], [8, 1])
    assert ledger.place_on(["n1"], 2, 1) is None
    assert ledger.free == [8, 1]


def test_held_gpus_are_free_for_their_job_alone() -> None:
    state = cluster(gpus=4, jobs=[job("a"), job("b")], holds=[Hold("team/a", "n0", 3, 60.0)])
    assert Ledger.of(state).total_free == 1
    assert Ledger.of(state, job="team/b").total_free == 1
    assert Ledger.of(state, job="team/a").total_free == 4


def test_of_two_holds_on_one_node_the_earlier_comes_first() -> None:
    holds = [Hold("team/a", "n0", 2, 60.0), Hold("team/b", "n0", 2, 60.0)]
    state = cluster(gpus=3, jobs=[job("a"), job("b")], holds=holds)
    assert Ledger.of(state, job="team/a").total_free == 2
    assert Ledger.of(state, job="team/b").total_free == 1


def test_a_hold_that_has_run_out_holds_nothing() -> None:
    state = cluster(gpus=4, jobs=[job("a")], holds=[Hold("team/a", "n0", 3, 60.0)], now=60.0)
    assert Ledger.of(state).total_free == 4


def test_nodes_of_the_inference_pool_are_not_counted() -> None:
    state = cluster(gpus=4)
    nodes = (*state.nodes, node("n1", 8, pool="inference"), node("n2", 2, pool="loaned"))
    assert Ledger.of(type(state)(0.0, nodes, ())).total_free == 6


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        pytest.param(["n0", "n0"], "node n0 has 1 free GPU.*2 asked", id="more than is free"),
        pytest.param(["n9"], "node 'n9' is not in the cluster", id="a node that is gone"),
    ],
)
def test_taking_what_is_not_there_is_an_error_with_figures(nodes: list[str], words: str) -> None:
    ledger = Ledger(["n0"], [3])
    with pytest.raises(LedgerError, match=words):
        ledger.take(nodes, 2)
