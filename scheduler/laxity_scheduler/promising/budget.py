"""What the promises of a namespace reserve of its budget of GPU-seconds."""

from laxity_scheduler.model.job import Job
from laxity_scheduler.model.verdict import Runs
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import Share


def promised_gpu_s(reservations: Reservations, namespace: str) -> float:
    """GPU-seconds that its promised jobs, and the coming steps of its groups, still reserve."""
    state = reservations.state
    jobs = sum(
        reservation_gpu_s(job, runs_of(share, state.now), state.now)
        for job in reservations.claims.jobs
        if job.namespace == namespace and (share := reservations.shares.get(job.id)) is not None
    )
    steps = sum(
        kept.gpus * (kept.until_at - kept.from_at)
        for kept in state.reserved
        if kept.step.startswith(f"{namespace}/")
    )
    return jobs + steps


def runs_of(share: Share, now: float) -> Runs:
    """The widths of a plan over time, without those that are over."""
    ends = [now + at_s for at_s, _ in share.steps[1:]] + [now + share.finish_s]
    runs = zip(ends, share.steps, strict=True)
    return tuple([(until_at, workers) for until_at, (_, workers) in runs if until_at > now])


def reservation_gpu_s(job: Job, runs: Runs, now: float) -> float:
    """GPU-seconds that runs still reserve."""
    spent, before = 0.0, now
    for until_at, workers in runs:
        if workers:  # who waits for ever spends nothing
            spent += max(0.0, until_at - before) * workers * job.gpus_per_worker
        before = max(before, until_at)
    return spent
