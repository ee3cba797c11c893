# ruff: noqa: FBT001, PLR0917 - compiled loops take arrays, by place
"""Best fit: which nodes workers get, one job after the other, on nodes that some jobs may not use.

Nodes that are alike to all jobs, since they lie in the same sets of nodes, are a *cell*; a set of
nodes is a bit mask of cells. Where every job may use every node there is one cell. Nodes are counted
by cell, by free GPUs and by block of 8 node numbers, so the lowest node with c free GPUs is looked
for in one block; a hint says which is the lowest block that may have one.

These functions work on lists, and are compiled for arrays (`frame.compiled`): one source for both.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

Ints = list[int]  # or an array of them
BLOCK: Final = 8
ALL_CELLS: Final = (1 << 60) - 1
NO_LIMIT: Final = 1 << 60


class Nodes(NamedTuple):
    """n nodes in C cells, none with `levels` or more GPUs free, in `blocks` blocks."""

    free: Ints  # (n,): GPUs
    cell: Ints  # (n,)
    counts: Ints  # (C * levels,): how many nodes of a cell have so many free
    hints: Ints  # (C * levels,): the lowest block that may have such a node
    in_block: Ints  # (C * levels * blocks,): how many such nodes a block has
    total: Ints  # (1,): free GPUs in all
    levels: int
    blocks: int


def change_free(nodes: Nodes, number: int, gpus: int) -> None:
    """So many GPUs more are free on a node."""
    block, before = number // BLOCK, nodes.free[number]
    old = nodes.cell[number] * nodes.levels + before
    new = old + gpus
    nodes.counts[old] -= 1
    nodes.counts[new] += 1
    nodes.in_block[old * nodes.blocks + block] -= 1
    nodes.in_block[new * nodes.blocks + block] += 1
    nodes.hints[new] = min(nodes.hints[new], block)
    nodes.free[number] = before + gpus
    nodes.total[0] += gpus


def best_fit(nodes: Nodes, gpus: int, cells: int) -> int:
    """The fullest node of these cells with so many GPUs free, of equals the lowest; -1: none."""
    best, most = -1, nodes.levels - 1
    for cell in range(len(nodes.counts) // nodes.levels):
        if not (cells >> cell) & 1:
            continue
        count, first = gpus, cell * nodes.levels
        while count <= most and not nodes.counts[first + count]:
            count += 1
        if count <= most:
            number = lowest_node(nodes, cell, count)
            best = number if best < 0 or count < most else min(best, number)
            most = count
    return best


def lowest_node(nodes: Nodes, cell: int, count: int) -> int:
    """The lowest node of a cell that has so many GPUs free; there must be one."""
    kind = cell * nodes.levels + count
    block = nodes.hints[kind]
    while not nodes.in_block[kind * nodes.blocks + block]:
        block += 1
    nodes.hints[kind] = block
    number = block * BLOCK
    while nodes.free[number] != count or nodes.cell[number] != cell:
        number += 1
    return number


def place_some(nodes: Nodes, workers: int, gpus: int, cells: int, taken: Ints, begin: int) -> int:
    """Node numbers of up to so many workers into `taken` from `begin` on; how many have a place."""
    placed = 0
    while placed < workers:
        number = best_fit(nodes, gpus, cells)
        if number < 0:
            break
        # with one worker more it is fuller still: the best fit stays there while one fits
        more = min(workers - placed, nodes.free[number] // gpus)
        change_free(nodes, number, -more * gpus)
        for worker in range(begin + placed, begin + placed + more):
            taken[worker] = number
        placed += more
    return placed


def place(nodes: Nodes, workers: int, gpus: int, cells: int, taken: Ints, begin: int) -> bool:
    """Places for all of so many workers; False (nothing taken) if there are none."""
    if workers * gpus > nodes.total[0]:
        return False
    placed = place_some(nodes, workers, gpus, cells, taken, begin)
    if placed < workers:
        give_back(nodes, taken, begin, begin + placed, gpus)
    return placed == workers


def give_back(nodes: Nodes, taken: Ints, first: int, last: int, gpus: int) -> None:
    """Undo what was taken for these workers."""
    for worker in range(first, last):
        change_free(nodes, taken[worker], gpus)


class Rules(NamedTuple):
    """Who may use which nodes: n jobs of K kinds, R regions on which claims are counted.

    `left` is what no claim needs, by slot of time; there is one slot where all claims run at once.
    `spare` is the same for one job, as it is placed.
    """

    kind: Ints  # (n,)
    claims: Ints  # (n,): 1 for who has a claim
    limited: Ints  # (n,): 1 for who must leave what claims need
    widest: Ints  # (n,): workers
    awaited: Ints  # (n * R,): GPUs that are freed or held for a job in a region
    may: Ints  # (K,): cells of the nodes that a kind may use
    inside: Ints  # (K * R,): 1 for the regions that a kind cannot leave
    region: Ints  # (R,): cells of a region, small regions first; 0: a quota, wherever its jobs are
    left: Ints  # (R * stride,): GPUs
    since: Ints  # (n,): from which slot on a job needs what it takes
    until: Ints  # (n,): before which slot it gives that back
    spare: Ints  # (R,): GPUs
    shut: Ints  # (1,): cells that nobody may use
    quota: Ints  # (K,): which quota bounds a kind
    quota_left: Ints  # GPUs by quota
    slots: int  # that are looked at
    stride: int


def workers_in_claim(rules: Rules, job: int, region: int, workers: int, gpus: int) -> int:
    """How many of its new workers a job's claim was counted with on a region."""
    regions = len(rules.region)
    if not rules.claims[job]:
        return 0
    if rules.inside[rules.kind[job] * regions + region]:
        return workers
    return min(workers, rules.awaited[job * regions + region] // gpus)


def least_left(rules: Rules, job: int, region: int) -> int:
    """GPUs of a region that no claim needs while a job holds what it takes."""
    first, since = region * rules.stride, rules.since[job]
    least = rules.left[first + since]
    for slot in range(since + 1, min(rules.until[job], rules.slots)):
        least = min(least, rules.left[first + slot])
    return least


def look_up_spare(rules: Rules, job: int, gpus: int) -> int:
    """GPUs of each region that no claim needs, for one job; how many of them it may have at most.

    A claim was counted on the regions that it cannot leave; who has none must find spare GPUs there.
    """
    most, first = NO_LIMIT, rules.kind[job] * len(rules.region)
    for region in range(len(rules.region)):
        inside = rules.inside[first + region]
        concerns = inside or rules.region[region]
        if not (rules.limited[job] and concerns) or (rules.claims[job] and inside):
            rules.spare[region] = NO_LIMIT
            continue
        mine = workers_in_claim(rules, job, region, rules.widest[job], gpus) * gpus
        rules.spare[region] = least_left(rules, job, region) + mine
        if inside:
            most = min(most, rules.spare[region])
    return most


def most_for(rules: Rules, job: int, gpus: int) -> int:
    """GPUs that a job may have at most, wherever; what is spare for it is looked up."""
    return min(look_up_spare(rules, job, gpus), rules.quota_left[rules.quota[rules.kind[job]]])


def cells_outside(rules: Rules, kind: int, gpus: int, closed: int, workers: int) -> tuple[int, int]:
    """Cells without the first regions and those where no worker is spare; and how many may go there."""
    cells, most = rules.may[kind] & ~rules.shut[0], workers
    for region in range(len(rules.region)):
        if rules.inside[kind * len(rules.region) + region]:
            continue
        if region < closed or rules.spare[region] < gpus:
            cells &= ~rules.region[region]
        else:
            most = min(most, rules.spare[region] // gpus)
    return cells, most


def count_workers_in(nodes: Nodes, cells: int, taken: Ints, first: int, last: int) -> int:
    """How many of these workers are on nodes of these cells."""
    held = 0
    for worker in range(first, last):
        held += (cells >> nodes.cell[taken[worker]]) & 1
    return held


def place_in_stages(
    nodes: Nodes, rules: Rules, job: int, workers: int, gpus: int, taken: Ints, begin: int
) -> int:
    """Outside all regions that it can leave first, then with the largest of them, and so on."""
    kind, placed = rules.kind[job], 0
    for closed in range(len(rules.region), -1, -1):
        while placed < workers:
            cells, most = cells_outside(rules, kind, gpus, closed, workers - placed)
            more = place_some(nodes, most, gpus, cells, taken, begin + placed)
            if not more:
                break
            for region in range(len(rules.region)):
                held = count_workers_in(
                    nodes, rules.region[region], taken, begin + placed, begin + placed + more
                )
                rules.spare[region] -= held * gpus
            placed += more
    return placed


def take_nodes(
    nodes: Nodes, rules: Rules, job: int, workers: int, gpus: int, taken: Ints, begin: int
) -> None:
    """A job has started on these nodes: what it was not counted with is no longer left."""
    kind, stride = rules.kind[job], rules.stride
    rules.quota_left[rules.quota[kind]] -= workers * gpus
    for region in range(len(rules.region)):
        held = count_workers_in(nodes, rules.region[region], taken, begin, begin + workers)
        if not rules.region[region]:
            held = workers * rules.inside[kind * len(rules.region) + region]
        more = held - workers_in_claim(rules, job, region, workers, gpus)
        if rules.limited[job] and more > 0:
            for slot in range(region * stride, region * stride + rules.until[job]):
                rules.left[slot] -= more * gpus


def site(
    nodes: Nodes, rules: Rules, job: int, workers: int, gpus: int, taken: Ints, begin: int
) -> bool:
    """Places for all workers of a job, where it harms no claim; False (nothing taken) if none."""
    if workers * gpus > nodes.total[0] or workers * gpus > most_for(rules, job, gpus):
        return False
    placed = place_in_stages(nodes, rules, job, workers, gpus, taken, begin)
    if placed < workers:
        give_back(nodes, taken, begin, begin + placed, gpus)
        return False
    take_nodes(nodes, rules, job, workers, gpus, taken, begin)
    return True


def site_on(
    nodes: Nodes,
    rules: Rules,
    job: int,
    own: Ints,
    first: int,
    last: int,
    workers: int,
    gpus: int,
    taken: Ints,
    begin: int,
) -> bool:
    """`site` on its own nodes only, which stand in `own` from `first` to `last`: where it may grow."""
    if workers * gpus > most_for(rules, job, gpus):
        return False
    cells, _ = cells_outside(rules, rules.kind[job], gpus, 0, workers)
    for worker in range(begin, begin + workers):
        best = -1
        for place in range(first, last):
            number = own[place]
            fits = nodes.free[number] >= gpus and (cells >> nodes.cell[number]) & 1
            if fits and (best < 0 or nodes.free[number] < nodes.free[best]):
                best = number
        if best < 0:
            give_back(nodes, taken, begin, worker, gpus)
            return False
        change_free(nodes, best, -gpus)
        taken[worker] = best
    kind = rules.kind[job] * len(rules.region)
    for region in range(len(rules.region)):
        held = count_workers_in(nodes, rules.region[region], taken, begin, begin + workers)
        if not rules.inside[kind + region] and held * gpus > rules.spare[region]:
            give_back(nodes, taken, begin, begin + workers, gpus)
            return False
    take_nodes(nodes, rules, job, workers, gpus, taken, begin)
    return True


def place_all(
    nodes: Nodes,
    rules: Rules,
    tries: Sequence[Ints],
    gpus: Ints,
    stops: bool,
    taken: Ints,
    ends: Ints,
) -> int:
    """One job after the other on the first of its tries (n, K) that fits; 0 workers are no try.

    Node numbers go into `taken`, where each one's end into `ends`. `stops`: at the first that has no
    place. How many were looked at.
    """
    end = 0
    for job in range(len(gpus)):
        placed = False
        for workers in tries[job]:
            if workers > 0 and site(nodes, rules, job, workers, gpus[job], taken, end):
                placed = True
                end += workers
                break
        if stops and not placed:
            return job
        ends[job] = end
    return len(gpus)


def count_nodes(free: Ints, cell: Ints, *, levels: int = 0) -> Nodes:
    """The nodes with so many GPUs free, each in its cell."""
    levels, blocks = max(levels, max(free, default=0) + 1), len(free) // BLOCK + 1
    kinds = (max(cell, default=0) + 1) * levels
    counts, in_block = [0] * kinds, [0] * (kinds * blocks)
    for number, (mine, gpus) in enumerate(zip(cell, free, strict=True)):
        kind = mine * levels + gpus
        counts[kind] += 1
        in_block[kind * blocks + number // BLOCK] += 1
    return Nodes(free, cell, counts, [0] * kinds, in_block, [sum(free)], levels, blocks)


def cells_of(names: Sequence[str], sets: Iterable[frozenset[str]]) -> Ints:
    """The cell of each node: nodes of one cell lie in the same sets."""
    masks = [0] * len(names)
    for bit, nodes in enumerate(sets):
        masks = [mask | (name in nodes) << bit for mask, name in zip(masks, names, strict=True)]
    numbers = {mask: number for number, mask in enumerate(dict.fromkeys(masks))}
    return [numbers[mask] for mask in masks]


def without_claims(kind: Ints, masks: Ints) -> Rules:
    """Rules for jobs of these kinds, which may use these cells, where nobody has a claim."""
    none: Ints = [0] * len(kind)
    nowhere: Ints = []
    return Rules(
        kind=kind,
        claims=none,
        limited=none,
        widest=none,
        awaited=nowhere,
        may=masks,
        inside=nowhere,
        region=nowhere,
        left=nowhere,
        since=none,
        until=none,
        spare=nowhere,
        shut=[0],
        quota=[0] * len(masks),
        quota_left=[NO_LIMIT],
        slots=1,
        stride=1,
    )
