"""Who may use which nodes, as compiled loops want it (`tied_placing`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from laxity_scheduler.frame.arrays import Ints

if TYPE_CHECKING:
    from laxity_scheduler.columns.tied_placing import Ties

MOST_CELLS: Final = 60  # bits of a mask
MOST_SETS: Final = 60
Nodes = frozenset[str] | None  # None: all
ALL_CELLS: Final = (1 << MOST_CELLS) - 1


class Tied(NamedTuple):
    """The nodes' cells, and what jobs may do there."""

    cell: Ints
    ties: "Ties"


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


def tied(names: Sequence[str], among: Sequence[Nodes]) -> Tied | None:
    """Each job may use these nodes; None where there are too many cells."""
    from laxity_scheduler.columns.tied_placing import Ties

    kinds = {may: kind for kind, may in enumerate(dict.fromkeys(among))}
    sets = [may for may in kinds if may is not None]
    found = cells_of(names, sets)
    if found is None:
        return None
    known: dict[Nodes, int] = {None: ALL_CELLS, **dict(zip(sets, found[1], strict=True))}
    flags = np.ones(len(among), dtype=np.bool_)
    none = np.zeros(0, dtype=np.int64)
    ties = Ties(
        np.array([kinds[may] for may in among], dtype=np.int64),
        ~flags,
        flags,
        np.array([known[one] for one in kinds], dtype=np.int64),
        np.zeros((len(kinds), 0), dtype=np.bool_),
        *(none, none.copy(), none.copy()),
        np.zeros(1, dtype=np.int64),
    )
    return Tied(found[0], ties)
