"""GPUs dealt out step by step: the best-scored job gets its next width, until stopping scores more.

As in DL2 (algorithms.md 6.3), where all-reduce leaves n + 1 actions: one more for job i, or stop. The
features of a step do not change while GPUs are dealt out, but for the free share that stopping sees;
so all rows are scored at once, and a step is one look at a heap.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from laxity_scheduler.learned.job_features import (
    JobNumbers,
    JobSteps,
    describe_steps,
    free_level,
    stop_rows,
)
from laxity_scheduler.learned.scoring_net import ScoringNet

SAME_DIGITS: Final = 9  # equal rows may differ beyond, by their places in a matrix
Take = Callable[[int, int, int], bool]  # (job, from workers, to workers): whether there was room
Widen = Callable[[list[int], JobSteps, ScoringNet, Take, int], None]


def widen_best(
    widths: list[int], steps: JobSteps, net: ScoringNet, take: Take, free_gpus: int
) -> None:
    """Change `widths` by the best-scored step, again and again, until stopping scores more.

    Of equal scores the first job wins, and any job over stopping.
    """
    scores: list[float] = net.score(steps.features).round(SAME_DIGITS).tolist()
    stops: list[float] = net.score(stop_rows(steps)).round(SAME_DIGITS).tolist()
    heads = [
        (-scores[begin], number, begin)
        for number, (begin, end) in enumerate(zip(steps.first, steps.first[1:], strict=False))
        if widths[number] and begin < end
    ]
    heapify(heads)
    after, more = steps.after.tolist(), steps.more_gpus.tolist()
    while heads:
        cost, number, row = heappop(heads)
        if -cost < stops[free_level(free_gpus, steps.cluster_gpus)]:
            return
        if take(number, widths[number], after[row]):
            widths[number] = after[row]
            free_gpus -= more[row]
            if row + 1 < steps.first[number + 1]:
                heappush(heads, (-scores[row + 1], number, row + 1))


def allocate(
    net: ScoringNet,
    jobs: Sequence[JobNumbers],
    take: Take,
    *,
    free_gpus: int,
    cluster_gpus: int,
    widen: Widen = widen_best,
) -> list[int]:
    """Workers of each job, 0: none. `jobs` come in the order in which they get their least width.

    `free_gpus` are for all of them together. Where a net is trained, `widen` draws steps instead.
    """
    widths = give_least_widths(jobs, take)
    free_gpus -= count_gpus(jobs, widths)
    steps = describe_steps(jobs, cluster_gpus=cluster_gpus, free_gpus=free_gpus)
    if len(steps.job):
        widen(widths, steps, net, take, free_gpus)
    return widths


def give_least_widths(jobs: Sequence[JobNumbers], take: Take) -> list[int]:
    """The least width of each job, in their order; 0 where there is no room for it."""
    return [
        job.widths[0] if take(number, 0, job.widths[0]) else 0 for number, job in enumerate(jobs)
    ]


def count_gpus(jobs: Sequence[JobNumbers], widths: Sequence[int]) -> int:
    """GPUs that these jobs hold at these widths."""
    return sum(job.gpus_per_worker * width for job, width in zip(jobs, widths, strict=True))
