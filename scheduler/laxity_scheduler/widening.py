"""Elastic policies that hand out GPUs one level at a time, and the plan that leads there.

`widen` gives every job its least width, in order, and then the step that gains most, until nothing
gains or fits. `toward` turns wished-for widths into decisions: shrink and stop at an epoch's end,
start and grow on the GPUs that are free now; the rest follows in later cycles, when they are free.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from laxity_scheduler.decision import Admit, Decision, Preempt, Resize
from laxity_scheduler.ledger import Ledger, may_ever_start
from laxity_scheduler.plan import Plan
from laxity_scheduler.priority import movable
from laxity_scheduler.promising.regions import Purse
from laxity_scheduler.reasons import reason
from laxity_scheduler.state import FOREVER, ClusterState, Job

Gain = Callable[[Job, int, int], float]  # (job, from workers, to workers), larger is better


def resizable(state: ClusterState) -> list[Job]:
    """Jobs whose width a policy may change now, in order of submission."""
    found = [
        job
        for job in state.jobs
        if movable(job)
        and not job.resize_to
        and (not job.workers or job.workers in job.widths)
        and (not job.eligible or job.workers or may_ever_start(state, job))
    ]
    return sorted(found, key=lambda job: (job.submitted_at, job.id))


def widen(
    jobs: Sequence[Job], purse: Purse, gain: Gain, *, worth_it: float = 0.0
) -> dict[str, int]:
    """Workers by job id (absent: none). `jobs` come in the order in which they get their least."""
    width: dict[str, int] = {}
    heads: list[tuple[float, int, int]] = []
    for number, job in enumerate(jobs):
        least = job.widths[0]
        if purse.take(job, 0, least):
            width[job.id] = least
            _offer(heads, number, job, place=0, gain=gain, worth_it=worth_it)
    heapify(heads)
    while heads:
        _, number, place = heappop(heads)
        job = jobs[number]
        if purse.take(job, width[job.id], job.widths[place]):
            width[job.id] = job.widths[place]
            _offer(heads, number, job, place=place, gain=gain, worth_it=worth_it)
    return width


def _offer(
    heads: list[tuple[float, int, int]],
    number: int,
    job: Job,
    *,
    place: int,
    gain: Gain,
    worth_it: float,
) -> None:
    """The best next width of a job: a later rise is not missed because of a fall before it."""
    found = [
        (-gain(job, job.widths[place], job.widths[higher]), number, higher)
        for higher in range(place + 1, len(job.widths))
    ]
    best = min(found, default=None)
    if best is not None and -best[0] > worth_it:
        heappush(heads, best)


def toward(
    state: ClusterState,
    jobs: Sequence[Job],
    width: Mapping[str, int],
    *,
    policy: str,
    wake_at: float = FOREVER,
) -> Plan:
    """Decisions that bring these jobs to these widths, as far as that is possible now."""
    ledger = Ledger.of(state)
    decisions: list[Decision] = []
    for job in jobs:
        wanted = width.get(job.id, 0)
        if job.width_changed_at == state.now or wanted >= job.workers:
            continue
        if wanted:
            why = reason("shrink_ordered", policy=policy, from_workers=job.workers, workers=wanted)
            decisions.append(Resize(job.id, wanted, job.nodes[:wanted], "epoch", why))
        else:
            why = reason("preempt_ordered", policy=policy, beneficiary="others", gpus=job.gpus)
            decisions.append(Preempt(job.id, "epoch", "", why))
    for job in jobs:
        if not job.workers or job.width_changed_at != state.now:  # not twice at one instant
            decisions += _more(job, width.get(job.id, 0), ledger, policy, state.eligible(job))
    return Plan(tuple(decisions), wake_at)


def _more(
    job: Job, wanted: int, ledger: Ledger, policy: str, may: frozenset[str] | None
) -> list[Decision]:
    ledger.open_holds(job.id)
    for workers in reversed([level for level in job.widths if job.workers < level <= wanted]):
        nodes = ledger.place(workers - job.workers, job.gpus_per_worker, may)
        if nodes is None:
            continue
        why = reason("order", policy=policy)
        if not job.workers:
            return [Admit(job.id, workers, nodes, why)]
        return [Resize(job.id, workers, (*job.nodes, *nodes), "now", why)]
    ledger.close_holds(job.id)
    return []


def capacity(state: ClusterState, jobs: Sequence[Job]) -> Purse:
    """GPUs that these jobs may share: free ones, and those that they hold."""
    return Purse(state, jobs, Ledger.of(state).total_free + sum(job.gpus for job in jobs))
