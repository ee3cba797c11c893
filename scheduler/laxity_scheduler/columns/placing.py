# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Placing thousands of workers one after the other: best fit, the lowest node first among equals.

The loops of `Ledger.place` and of `Sites.place` on arrays. Nodes that are alike to all jobs, since
they lie in the same sets of nodes, are a *cell*; a set is a bit mask of cells. The nodes of a cell
are counted in blocks of 64 by how many GPUs are free on them, so its lowest node with c free GPUs is
looked for in one block; `hint[c, cell]` is the lowest block that may have one.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_scheduler.columns.compiled import jit
from laxity_scheduler.columns.share_table import Bools, Ints

BLOCK: Final = 64
NO_LIMIT: Final = 1 << 60


class Nodes(NamedTuple):
    """Places of nodes, none with more than C GPUs free; each cell begins with a block of its own."""

    free: Ints  # (places,): -1 where there is no node
    number: Ints  # (places,): the node's number
    place: Ints  # (n,): its place by its number
    cell: Ints  # (n,)
    blocks: Ints  # (C + 1, blocks): how many nodes of a block have so many free
    ends: Ints  # (cells,): one past the last block of a cell
    hint: Ints  # (C + 1, cells)
    many: Ints  # (C + 1, cells): nodes with so many free
    total: Ints  # (1,): free GPUs in all


class Ties(NamedTuple):
    """Who may use which nodes: K kinds of jobs, R regions on which claims are counted."""

    may: Ints  # (K,): cells of the nodes that a kind may use
    inside: Bools  # (K, R): which regions a kind cannot leave
    region: Ints  # (R,): cells of a region, small regions first
    left: Ints  # (R,): GPUs that no claim needs
    spare: Ints  # (R,): the same for one job, as it is placed
    shut: Ints  # (1,): cells that nobody may use


class Wants(NamedTuple):
    """n jobs: GPUs of a worker, the kind, whether it has a claim, and whether it can be stopped."""

    gpus: Ints
    kind: Ints
    claims: Bools
    stops: Bools


@jit
def nodes_of(free: Ints, cell: Ints) -> Nodes:
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
    hint = np.zeros((most + 1, cells), dtype=np.int64)
    many = np.zeros((most + 1, cells), dtype=np.int64)
    for one in range(1, cells):
        hint[:, one] = ends[one - 1]
    follows = hint[0] * BLOCK
    places = np.full(ends[-1] * BLOCK, -1, dtype=np.int64)
    numbers = np.zeros(ends[-1] * BLOCK, dtype=np.int64)
    place = np.zeros(len(free), dtype=np.int64)
    for number in range(len(free)):
        at, gpus = follows[cell[number]], free[number]
        follows[cell[number]] += 1
        places[at], numbers[at], place[number] = gpus, number, at
        blocks[gpus, at // BLOCK] += 1
        many[gpus, cell[number]] += 1
    return Nodes(places, numbers, place, cell, blocks, ends, hint, many, np.full(1, total))


@jit
def change(nodes: Nodes, number: int, gpus: int) -> None:
    """So many GPUs more are free on a node."""
    at, cell = nodes.place[number], nodes.cell[number]
    before, block = nodes.free[at], at // BLOCK
    nodes.blocks[before, block] -= 1
    nodes.many[before, cell] -= 1
    nodes.blocks[before + gpus, block] += 1
    nodes.many[before + gpus, cell] += 1
    nodes.free[at] = before + gpus
    nodes.hint[before + gpus, cell] = min(nodes.hint[before + gpus, cell], block)
    nodes.total[0] += gpus


@jit
def best_fit(nodes: Nodes, gpus: int, cells: int) -> int:
    """The fullest node of these cells with so many GPUs free, of equals the lowest; -1: none."""
    for count in range(gpus, len(nodes.hint)):
        best = -1
        for cell in range(len(nodes.ends)):
            if not nodes.many[count, cell] or not (cells >> cell) & 1:
                continue
            block = nodes.hint[count, cell]
            while not nodes.blocks[count, block]:
                block += 1
            nodes.hint[count, cell] = block
            at = block * BLOCK
            while nodes.free[at] != count:
                at += 1
            number = nodes.number[at]
            best = number if best < 0 else min(best, number)
        if best >= 0:
            return int(best)
    return -1


@jit
def place(nodes: Nodes, workers: int, gpus: int, cells: int, taken: Ints, at: int) -> int:
    """Node numbers of up to so many workers into `taken` from `at` on; how many have a place."""
    found = 0
    while found < workers:
        number = best_fit(nodes, gpus, cells)
        if number < 0:
            break
        many = min(workers - found, nodes.free[nodes.place[number]] // gpus)
        change(nodes, number, -many * gpus)
        taken[at + found : at + found + many] = number
        found += many
    return found


@jit
def lay(
    nodes: Nodes, ties: Ties, taken: Ints, first: int, last: int, gpus: int, left: Ints
) -> None:
    """These workers are on the regions that their nodes lie in: so many GPUs less are left there."""
    for region in range(len(ties.region)):
        for at in range(first, last):
            if (ties.region[region] >> nodes.cell[taken[at]]) & 1:
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
    nodes: Nodes, ties: Ties, wants: Wants, job: int, workers: int, taken: Ints, at: int
) -> int:
    """`Sites._placed`: outside all regions first, then with the largest of them, and so on."""
    gpus, kind, found = wants.gpus[job], wants.kind[job], 0
    claims, limited = wants.claims[job], wants.claims[job] or not wants.stops[job]
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
    nodes: Nodes, ties: Ties, wants: Wants, job: int, taken: Ints, at: int, end: int
) -> None:
    """A job has started on these nodes: `Sites._take`."""
    if wants.claims[job] or not wants.stops[job]:
        ties.spare[:] = ties.left
        lay(nodes, ties, taken, at, end, wants.gpus[job], ties.left)
        for region in range(len(ties.region)):
            if wants.claims[job] and ties.inside[wants.kind[job], region]:  # it was counted there
                ties.left[region] = ties.spare[region]


@jit
def site(
    nodes: Nodes, ties: Ties, wants: Wants, job: int, workers: int, taken: Ints, at: int
) -> bool:
    """Places for all workers of a job, where it harms no claim; False (nothing taken) if none."""
    gpus = wants.gpus[job]
    if workers * gpus > nodes.total[0]:
        return False
    if len(ties.region):
        found = in_stages(nodes, ties, wants, job, workers, taken, at)
    else:
        cells = ties.may[wants.kind[job]] & ~ties.shut[0]
        found = place(nodes, workers, gpus, cells, taken, at)
    if found < workers:
        for worker in range(at, at + found):
            change(nodes, taken[worker], gpus)
        return False
    count_in(nodes, ties, wants, job, taken, at, at + workers)
    return True


@jit
def place_all(
    nodes: Nodes,
    ties: Ties,
    wants: Wants,
    tries: Ints,
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
            if workers > 0 and site(nodes, ties, wants, row, workers, taken, at):
                at += workers
                placed = True
                break
        if halts and not placed:
            return row
        ends[row] = at
    return len(tries)
