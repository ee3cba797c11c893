"""The part of some data that belongs to one worker: every n-th item, so that sorted data stay mixed."""

from typing import Any


def take_shard(data: Any, *, rank: int, width: int, seed: int | None = None, epoch: int = 0) -> Any:
    """Items rank, rank + width, ... of each array; parts differ by one item at most.

    Tuples and dicts of arrays are cut alike. With a seed the items are shuffled first, each epoch
    anew and on all workers alike.
    """
    columns = _list_columns(data)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"shard() cuts columns of one length, not {lengths}")
    if seed is None:
        return _cut_rows(data, slice(rank, None, width))
    import numpy as np

    order = np.random.default_rng([seed, epoch]).permutation(next(iter(lengths.values()), 0))
    return _cut_rows(data, order[rank::width])


def _list_columns(data: Any) -> dict[Any, Any]:
    if isinstance(data, dict):
        return data
    if _is_table(data):
        return dict(enumerate(data))
    return {"data": data}


def _is_table(data: Any) -> bool:
    """A tuple is a table if it holds columns (things with a length that are no texts)."""
    return isinstance(data, tuple) and all(
        hasattr(column, "__len__") and not isinstance(column, str | bytes) for column in data
    )


def _cut_rows(data: Any, which: Any) -> Any:
    if isinstance(data, dict):
        return {name: _cut_rows(column, which) for name, column in data.items()}
    if _is_table(data) and data:
        return tuple(_cut_rows(column, which) for column in data)
    if isinstance(which, slice) or hasattr(data, "shape"):
        return data[which]
    return [data[int(index)] for index in which]
