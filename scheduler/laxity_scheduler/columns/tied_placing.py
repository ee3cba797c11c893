# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Placing thousands of workers of which some may use some nodes only: best fit, as `placing`.

The loops of `Sites.place` on arrays. Nodes that are alike to all jobs, since they lie in the same
sets of nodes, are a *cell*; a set is a bit mask of cells. Nodes are counted by cell and, within it,
in blocks of 64. Where all jobs may use all nodes, `placing` does the same twice as fast.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_scheduler.columns.placing import BLOCK
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.compiled import jit

NO_LIMIT: Final = 1 << 60


class Spots(NamedTuple):
    """Spots of nodes, none with more than C GPUs free; each cell begins with a block of its own.

    Few arrays, since each one that is handed to a loop takes time.
    """

    spot: Ints  # (spots, 2): free GPUs (-1 where there is no node), and the node's number
    where: Ints  # (n, 2): its spot and its cell by its number
    blocks: Ints  # (C + 1, blocks): how many nodes of a block have so many free
    heads: Ints  # (C + 1, cells, 2): the hint, and how many nodes of a cell have so many free
    total: Ints  # (1,): free GPUs in all


class Ties(NamedTuple):
    """Who may use which nodes: n jobs of K kinds, R regions on which claims are counted."""

    kind: Ints  # (n,)
    claims: Bools  # (n,): who has a claim
    stops: Bools  # (n,): who can be stopped
    may: Ints  # (K,): cells of the nodes that a kind may use
    inside: Bools  # (K, R): which regions a kind cannot leave
    region: Ints  # (R,): cells of a region, small regions first
    left: Ints  # (R,): GPUs that no claim needs
    spare: Ints  # (R,): the same for one job, as it is placed
    shut: Ints  # (1,): cells that nobody may use


class Ground(NamedTuple):
    """Spots, and who may use them."""

    spots: Spots
    ties: Ties


@jit
def spots_of(free: Ints, cell: Ints) -> Spots:
    """The nodes with so many GPUs free, each in its cell."""
    most, total, cells = 0, 0, 1
    for number in range(len(free)):
        most, total = max(most, free[number]), total + free[number]
        cells = max(cells, cell[number] + 1)
    sizes = np.zeros(cells, dtype=np.int64)
    for one in cell:
        sizes[one] += 1
    ends = np.cumsum(sizes // BLOCK + 1)
    blocks = np.zeros((most + 1, ends[-1]), dtype=np.int64)
    heads = np.zeros((most + 1, cells, 2), dtype=np.int64)
    for one in range(1, cells):
        heads[:, one, 0] = ends[one - 1]
    follows = heads[0, :, 0] * BLOCK
    spot = np.full((ends[-1] * BLOCK, 2), -1, dtype=np.int64)
    where = np.zeros((len(free), 2), dtype=np.int64)
    for number in range(len(free)):
        mine, gpus = cell[number], free[number]
        at = follows[mine]
        follows[mine] += 1
        spot[at, 0], spot[at, 1] = gpus, number
        where[number, 0], where[number, 1] = at, mine
        blocks[gpus, at // BLOCK] += 1
        heads[gpus, mine, 1] += 1
    return Spots(spot, where, blocks, heads, np.full(1, total))


@jit
def change(nodes: Spots, number: int, gpus: int) -> None:
    """So many GPUs more are free on a node."""
    at, cell = nodes.where[number, 0], nodes.where[number, 1]
    before, block = nodes.spot[at, 0], at // BLOCK
    after = before + gpus
    nodes.blocks[before, block] -= 1
    nodes.heads[before, cell, 1] -= 1
    nodes.blocks[after, block] += 1
    nodes.heads[after, cell, 1] += 1
    nodes.heads[after, cell, 0] = min(nodes.heads[after, cell, 0], block)
    nodes.spot[at, 0] = after
    nodes.total[0] += gpus


@jit
def best_fit(nodes: Spots, gpus: int, cells: int) -> int:
    """The fullest node of these cells with so many GPUs free, of equals the lowest; -1: none."""
    for count in range(gpus, len(nodes.heads)):
        best = -1
        for cell in range(nodes.heads.shape[1]):
            if not nodes.heads[count, cell, 1] or not (cells >> cell) & 1:
                continue
            block = nodes.heads[count, cell, 0]
            while not nodes.blocks[count, block]:
                block += 1
            nodes.heads[count, cell, 0] = block
            at = block * BLOCK
            while nodes.spot[at, 0] != count:
                at += 1
            number = nodes.spot[at, 1]
            best = number if best < 0 else min(best, number)
        if best >= 0:
            return int(best)
    return -1


@jit
def place(nodes: Spots, workers: int, gpus: int, cells: int, taken: Ints, at: int) -> int:
    """Node numbers of up to so many workers into `taken` from `at` on; how many have a place."""
    found = 0
    while found < workers:
        number = best_fit(nodes, gpus, cells)
        if number < 0:
            break
        many = min(workers - found, nodes.spot[nodes.where[number, 0], 0] // gpus)
        change(nodes, number, -many * gpus)
        taken[at + found : at + found + many] = number
        found += many
    return found


@jit
def lay(
    nodes: Spots, ties: Ties, taken: Ints, first: int, last: int, gpus: int, left: Ints
) -> None:
    """These workers are on the regions that their nodes lie in: so many GPUs less are left there."""
    for region in range(len(ties.region)):
        for at in range(first, last):
            if (ties.region[region] >> nodes.where[taken[at], 1]) & 1:
                left[region] -= gpus


@jit
def outside(ties: Ties, kind: int, gpus: int, closed: int, workers: int) -> tuple[int, int]:
    """Cells without the first regions and those where no worker is spare; and how many may go there."""
    cells, most = ties.may[kind] & ~ties.shut[0], workers
    for region in range(len(ties.region)):
        if ties.inside[kind, region]:
            continue
        if region < closed or ties.spare[region] < gpus:
            cells &= ~ties.region[region]
        else:
            most = min(most, ties.spare[region] // gpus)
    return cells, most


@jit
def in_stages(
    nodes: Spots, ties: Ties, job: int, workers: int, gpus: int, taken: Ints, at: int
) -> int:
    """`Sites._placed`: outside all regions first, then with the largest of them, and so on."""
    kind, claims, found = ties.kind[job], ties.claims[job], 0
    limited = claims or not ties.stops[job]
    for region in range(len(ties.region)):
        ties.spare[region] = ties.left[region] if limited else NO_LIMIT
        if not claims and ties.inside[kind, region] and workers * gpus > ties.spare[region]:
            return 0
    for closed in range(len(ties.region), -1, -1):
        if closed < len(ties.region) and ties.inside[kind, closed]:
            continue
        while found < workers:
            cells, most = outside(ties, kind, gpus, closed, workers - found)
            more = place(nodes, most, gpus, cells, taken, at + found)
            if not more:
                break
            if limited:
                lay(nodes, ties, taken, at + found, at + found + more, gpus, ties.spare)
            found += more
    return found


@jit
def count_in(
    nodes: Spots, ties: Ties, job: int, gpus: int, taken: Ints, first: int, last: int
) -> None:
    """A job has started on these nodes: `Sites._take`."""
    if ties.claims[job] or not ties.stops[job]:
        ties.spare[:] = ties.left
        lay(nodes, ties, taken, first, last, gpus, ties.left)
        for region in range(len(ties.region)):
            if ties.claims[job] and ties.inside[ties.kind[job], region]:  # it was counted there
                ties.left[region] = ties.spare[region]


@jit
def site(nodes: Spots, ties: Ties, job: int, workers: int, gpus: int, taken: Ints, at: int) -> bool:
    """Places for all workers of a job, where it harms no claim; False (nothing taken) if none."""
    if workers * gpus > nodes.total[0]:
        return False
    found = in_stages(nodes, ties, job, workers, gpus, taken, at)
    if found < workers:
        for worker in range(at, at + found):
            change(nodes, taken[worker], gpus)
        return False
    count_in(nodes, ties, job, gpus, taken, at, at + workers)
    return True


@jit
def place_all(
    nodes: Spots,
    ties: Ties,
    tries: Ints,
    gpus: Ints,
    halts: bool,  # noqa: FBT001
    taken: Ints,
    ends: Ints,
) -> int:
    """One after the other on the first of its tries (n, K) that fits; 0 ends them.

    Node numbers go into `taken`, where each one's end into `ends`. `halts`: at the first that has no
    place. How many were looked at.
    """
    at = 0
    for row in range(len(tries)):
        placed = False
        for workers in tries[row]:
            if workers <= 0:
                continue
            if site(nodes, ties, row, workers, gpus[row], taken, at):
                placed = True
                at += workers
                break
        if halts and not placed:
            return row
        ends[row] = at
    return len(tries)
