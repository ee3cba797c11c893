"""Every item is in one worker's shard, shards differ by one item at most, columns are cut alike."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.worker.data.counted_io import bytes_of
from laxity.worker.data.shards import take_shard
from laxity.worker.group.averaging import list_leaves, mean_by_weight


@given(
    count=st.integers(0, 40),
    width=st.integers(1, 9),
    seed=st.one_of(st.none(), st.integers(0, 5)),
)
def test_shards_are_even_and_hold_every_item_once(count: int, width: int, seed: int | None) -> None:
    data = list(range(count))

    parts = [take_shard(data, rank=rank, width=width, seed=seed, epoch=1) for rank in range(width)]

    assert sorted(itertools.chain(*parts)) == data
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("seed", [None, 4])
def test_columns_are_cut_alike(seed: int | None) -> None:
    rows = np.arange(10)

    x, y = take_shard((rows, list(rows)), rank=1, width=3, seed=seed, epoch=2)
    named = take_shard({"x": rows, "y": rows * 2}, rank=1, width=3, seed=seed, epoch=2)

    assert list(x) == [int(item) for item in y]
    assert list(named["y"]) == list(named["x"] * 2)


def test_a_seed_shuffles_each_epoch_anew() -> None:
    orders = [
        list(take_shard(range(50), rank=0, width=1, seed=1, epoch=epoch)) for epoch in (1, 2, 1)
    ]

    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != sorted(orders[0])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="columns of one length"):
        take_shard((np.zeros(3), np.zeros(4)), rank=0, width=1)


@given(
    parts=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=6)
)
def test_a_mean_is_numpys_mean_bit_for_bit(parts: list[list[float]]) -> None:
    arrays = [np.array(part) + 0.0 for part in parts]

    mean = mean_by_weight(arrays, [1.0] * len(arrays))

    np.testing.assert_array_equal(mean, np.mean(arrays, axis=0))


def test_a_weighted_mean_counts_every_item_once() -> None:
    mean = mean_by_weight([np.array([1.0]), np.array([4.0])], [3, 1])

    assert mean == np.array([1.75])


class Plain:
    def __init__(self) -> None:
        self.weights = [np.zeros(2), np.zeros(3)]
        self.labels = np.zeros(4, dtype=int)
        self.rate = 0.1


class Learned:
    def __init__(self) -> None:
        self.coef_ = np.zeros(2)
        self._rows = np.zeros(9)
        self.sample = np.zeros(9)

    def get_params(self) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(
    ("thing", "want"),
    [
        pytest.param(np.zeros(2), [""], id="an array"),
        pytest.param({"b": np.zeros(2), "a": 1.0, "n": 3}, ["['b']", "['a']"], id="a dict"),
        pytest.param(Plain(), [".weights[0]", ".weights[1]"], id="an object's float arrays"),
        pytest.param(Learned(), [".coef_"], id="what an estimator has learned"),
    ],
)
def test_what_is_averaged(thing: Any, want: list[str]) -> None:
    assert [leaf.name for leaf in list_leaves(thing)] == want


@pytest.mark.parametrize("thing", [np.zeros(2, dtype=int), {}, "text", {"n": 3}])
def test_what_has_no_floats_cannot_be_averaged(thing: Any) -> None:
    with pytest.raises(TypeError, match="float"):
        list_leaves(thing)


def test_bytes_are_counted_in_nested_batches() -> None:
    assert bytes_of(({"x": np.zeros(3)}, [b"ab", "cd"], 7)) == 28
