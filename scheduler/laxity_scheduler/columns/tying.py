"""Who may use which nodes, as compiled loops want it (`placing`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from laxity_scheduler.columns.share_table import Bools, Ints

if TYPE_CHECKING:
    from laxity_scheduler.columns.placing import Ties, Wants

MOST_CELLS: Final = 60  # bits of a mask
MOST_SETS: Final = 60
Nodes = frozenset[str] | None  # None: all
ALL_CELLS: Final = (1 << MOST_CELLS) - 1


class Tied(NamedTuple):
    """The nodes' cells, what jobs may do there, and the jobs."""

    cell: Ints
    ties: "Ties"
    wants: "Wants"


def cells_of(names: Sequence[str], sets: Sequence[frozenset[str]]) -> tuple[Ints, list[int]] | None:
    """The cell of each node, and each set as a mask of cells; None where there are too many."""
    if len(sets) > MOST_SETS:
        return None
    member = [np.array([name in one for name in names], dtype=np.bool_) for one in sets]
    code = np.zeros(len(names), dtype=np.int64)
    for at, inside in enumerate(member):
        code |= inside.astype(np.int64) << at
    found, cell = np.unique(code, return_inverse=True)
    if len(found) > MOST_CELLS:
        return None
    codes = found.tolist()
    masks = [
        sum(1 << cell for cell, one in enumerate(codes) if one >> at & 1) for at in range(len(sets))
    ]
    return cell.astype(np.int64), masks


def untied(nodes: int, gpus: Ints) -> Tied:
    """All jobs may use all nodes."""
    from laxity_scheduler.columns.placing import Ties, Wants

    kind, flags = np.zeros(len(gpus), dtype=np.int64), np.ones(len(gpus), dtype=np.bool_)
    none = np.zeros(0, dtype=np.int64)
    every = np.full(1, ALL_CELLS), np.zeros((1, 0), dtype=np.bool_)
    ties = Ties(*every, none, none.copy(), none.copy(), np.zeros(1, dtype=np.int64))
    return Tied(np.zeros(nodes, dtype=np.int64), ties, Wants(gpus, kind, flags, flags))


def tied(names: Sequence[str], among: Sequence[Nodes], gpus: Ints) -> Tied | None:
    """Each job may use these nodes; None where there are too many cells."""
    if not any(may is not None for may in among):
        return untied(len(names), gpus)
    kinds = {may: kind for kind, may in enumerate(dict.fromkeys(among))}
    sets = [may for may in kinds if may is not None]
    found = cells_of(names, sets)
    if found is None:
        return None
    cell, masks = found
    known: dict[Nodes, int] = {None: ALL_CELLS, **dict(zip(sets, masks, strict=True))}
    plain = untied(len(names), gpus)
    kind = np.array([kinds[may] for may in among], dtype=np.int64)
    may = np.array([known[one] for one in kinds], dtype=np.int64)
    inside: Bools = np.zeros((len(kinds), 0), dtype=np.bool_)
    ties = plain.ties._replace(may=may, inside=inside)
    return Tied(cell, ties, plain.wants._replace(kind=kind))
