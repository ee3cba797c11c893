"""What a share rule decides about many jobs, all in one go: promises, and starts and growth.

Starts and growth are on the GPUs that are free now.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.arrays import Ints, construct_many
from laxity_scheduler.model.decision import Admit, Promised, Resize
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.shares.rows import TINY, Columns


def promise_jobs(jobs: Sequence[Job], rests: Floats, levels: Ints, now: float) -> list[Promised]:
    """In time by the plan, if not at the present width; not so where a late promise is eased.

    `rests` (n, L): seconds to the end by level, from now on; `levels` (n,): the present one or -1.
    """
    if not jobs:
        return []
    due_at = [job.deadline_at for job in jobs]
    due = np.array(due_at)
    finish = now + rests[np.arange(len(jobs)), np.maximum(levels, 0)]
    soonest = now + rests.min(axis=1)
    late = soonest > due + TINY
    # it starts or grows later
    p90 = np.where(late, soonest, np.minimum(np.where(levels >= 0, finish, FOREVER), due))
    over_s = np.where(late, soonest - due, due - p90).tolist()
    widths = [job.widths[level] for job, level in zip(jobs, _from_0(levels), strict=True)]
    names = [
        ("promise_in_danger", "late_s") if is_late else ("fits", "slack_s") for is_late in late
    ]
    p90_at = p90.tolist()
    frame = [
        (("p90_at", end_at), ("workers", width), (name, over))
        for end_at, width, (_, name), over in zip(p90_at, widths, names, over_s, strict=True)
    ]
    reasons = construct_many(Reason, [code for code, _ in names], frame)
    runs = [((end_at, width),) for end_at, width in zip(p90_at, widths, strict=True)]
    promises = construct_many(
        Promise, due_at, p90_at, p90_at, runs, reasons, repeat(()), repeat("")
    )
    return construct_many(Promised, [job.id for job in jobs], promises, reasons)


def _from_0(levels: Ints) -> list[int]:
    clipped: list[int] = np.maximum(levels, 0).tolist()
    return clipped


def start_jobs(
    jobs: Sequence[Job],
    rows: Ints,
    levels: Ints,
    columns: Columns,
    ledger: Ledger,
    *,
    among: Sequence[frozenset[str] | None] = (),
) -> Iterator[Admit | Resize]:
    """Each job, one after the other, on the widest level up to its own that fits; else nothing.

    `among`: the nodes that each may use, if not all may use all.
    """
    if not jobs:
        return
    held = np.array([job.workers for job in jobs], dtype=np.int64)
    sizes = np.array([job.gpus_per_worker for job in jobs], dtype=np.int64)
    down = levels[:, None] - np.arange(int(levels.max()) + 1)
    widths = columns.width[rows[:, None], np.maximum(down, 0)] // sizes[:, None]
    more = np.where(down >= 0, np.maximum(widths - held[:, None], 0), 0)
    needs = [job.needs for job in jobs]
    placed = ledger.place_all(more, sizes, among=among, needs=needs)
    had = held.tolist()
    admits = iter(_admits(jobs, rows, placed, had, columns))
    totals_s = columns.total
    for job, row, nodes, workers in zip(jobs, rows.tolist(), placed, had, strict=True):
        if nodes and workers:
            yield _grow_job(job, nodes, totals_s[row])
        elif nodes:
            yield next(admits)


def _admits(
    jobs: Sequence[Job],
    rows: Ints,
    placed: Sequence[tuple[str, ...]],
    had: Sequence[int],
    columns: Columns,
) -> list[Admit]:
    """Of those that wait and have nodes now."""
    places = [place for place, nodes in enumerate(placed) if nodes and not had[place]]
    new = [jobs[place] for place in places]
    nodes = [placed[place] for place in places]
    widths = [len(names) for names in nodes]
    levels = [job.widths.index(width) for job, width in zip(new, widths, strict=True)]
    taken = rows[places]
    due = columns.due[taken]
    with np.errstate(invalid="ignore"):
        slack = np.where(due < FOREVER, due - columns.total[taken, levels], FOREVER)
    frame = [
        (("slack_s", slack_s), ("workers", width))
        for slack_s, width in zip(slack.tolist(), widths, strict=True)
    ]
    reasons = construct_many(Reason, repeat("due_first"), frame)
    return construct_many(Admit, [job.id for job in new], widths, nodes, reasons)


def _grow_job(job: Job, nodes: tuple[str, ...], total_s: Floats) -> Resize:
    width = job.workers + len(nodes)
    before_s, then_s = (
        float(total_s[job.widths.index(workers)]) for workers in (job.workers, width)
    )
    saved_s = before_s - then_s if then_s < FOREVER else 0.0
    growth_reason = reason(
        "grow_into_idle", from_workers=job.workers, workers=width, saved_s=saved_s
    )
    return Resize(job.id, width, (*job.nodes, *nodes), "now", growth_reason)
