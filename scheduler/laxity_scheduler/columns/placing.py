# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Placing thousands of workers one after the other: best fit, the lowest node first among equals.

The loops of `Ledger.place` on arrays. Nodes are counted in blocks of 64 by how many GPUs are free on
them, so the lowest node with c free GPUs is looked for in one block; `hint[c]` is the lowest block
that may have one.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit

BLOCK: Final = 64


class Nodes(NamedTuple):
    """n nodes, of which none has more than C GPUs free."""

    free: Ints  # (n,)
    blocks: Ints  # (C + 1, n / BLOCK): how many nodes of a block have so many free
    hint: Ints  # (C + 1,)
    total: Ints  # (1,): free GPUs in all


@jit
def nodes_of(free: Ints) -> Nodes:
    """The nodes with so many GPUs free."""
    most, total = 0, 0
    for gpus in free:
        most, total = max(most, gpus), total + gpus
    blocks = np.zeros((most + 1, len(free) // BLOCK + 1), dtype=np.int64)
    for number in range(len(free)):
        blocks[free[number], number // BLOCK] += 1
    return Nodes(free, blocks, np.zeros(most + 1, dtype=np.int64), np.full(1, total))


@jit
def change(nodes: Nodes, number: int, gpus: int) -> None:
    """So many GPUs more are free on a node."""
    before, block = nodes.free[number], number // BLOCK
    nodes.blocks[before, block] -= 1
    nodes.blocks[before + gpus, block] += 1
    nodes.free[number] = before + gpus
    nodes.hint[before + gpus] = min(nodes.hint[before + gpus], block)
    nodes.total[0] += gpus


@jit
def best_fit(nodes: Nodes, gpus: int) -> int:
    """The fullest node with so many GPUs free, of equals the lowest; -1 if there is none."""
    for count in range(gpus, len(nodes.hint)):
        block = nodes.hint[count]
        while block < nodes.blocks.shape[1] and not nodes.blocks[count, block]:
            block += 1
        nodes.hint[count] = block
        if block < nodes.blocks.shape[1]:
            number = block * BLOCK
            while nodes.free[number] != count:
                number += 1
            return int(number)
    return -1


@jit
def place(nodes: Nodes, workers: int, gpus: int, taken: Ints, at: int) -> bool:
    """Node numbers of so many workers into `taken` from `at` on; False (nothing taken) if no fit."""
    if workers * gpus > nodes.total[0]:
        return False
    found = 0
    while found < workers:
        number = best_fit(nodes, gpus)
        if number < 0:
            for place in range(at, at + found):
                change(nodes, taken[place], gpus)
            return False
        many = min(workers - found, nodes.free[number] // gpus)
        change(nodes, number, -many * gpus)
        taken[at + found : at + found + many] = number
        found += many
    return True


@jit
def place_all(
    nodes: Nodes,
    tries: Ints,
    gpus: Ints,
    stops: bool,  # noqa: FBT001
    taken: Ints,
    ends: Ints,
) -> int:
    """One after the other on the first of its tries (n, K) that fits; 0 ends them.

    Node numbers go into `taken`, where each one's end into `ends`. `stops`: at the first that has no
    place. How many were looked at.
    """
    at = 0
    for row in range(len(tries)):
        placed = False
        for workers in tries[row]:
            if workers > 0 and place(nodes, workers, gpus[row], taken, at):
                at += workers
                placed = True
                break
        if stops and not placed:
            return row
        ends[row] = at
    return len(tries)
