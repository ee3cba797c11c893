"""The promises that a share rule gives, all in one go."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.model.decision import Promised
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.model.verdict import Promise
from laxity_scheduler.shares.arrays import TINY


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
    promises = construct_many(Promise, due_at, p90_at, p90_at, runs, reasons, repeat(()))
    return construct_many(Promised, [job.id for job in jobs], promises, reasons)


def _from_0(levels: Ints) -> list[int]:
    clipped: list[int] = np.maximum(levels, 0).tolist()
    return clipped
