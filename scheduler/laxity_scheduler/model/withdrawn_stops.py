"""Requests to stop that are taken back.

A request to stop at the end of an epoch names its beneficiary, who may need it no more.
"""

from collections.abc import Iterable
from dataclasses import replace

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job


def was_served(beneficiary: Job, victim: Job) -> bool:
    """Whether the beneficiary has started or grown since the victim was asked to stop for it."""
    if beneficiary.id == victim.id or not beneficiary.workers or victim.stop_requested_at is None:
        return False
    changes = (beneficiary.resumed_at, beneficiary.width_changed_at)
    return (
        max((change_at for change_at in changes if change_at is not None), default=0.0)
        >= victim.stop_requested_at
    )


def needless_stops(state: ClusterState) -> list[Job]:
    """Jobs asked to stop for a job that is gone, was refused, or has started meanwhile."""
    return [job for job in state.running if _is_needless(job, state)]


def withdraw_stops(state: ClusterState, jobs: Iterable[Job]) -> ClusterState:
    """The state without the requests to stop these jobs, whose widths stay as they are."""
    ids = {job.id for job in jobs}
    rows = [withdraw_stop(job) if job.id in ids else job for job in state.jobs]
    return replace(state, jobs=tuple(rows)).lock_holds(ids)


def _is_needless(job: Job, state: ClusterState) -> bool:
    if not job.stop_for or job.pinned or job.stop_requested_at == state.now:
        return False
    beneficiary = state.by_id.get(job.stop_for)
    return beneficiary is None or beneficiary.refused or was_served(beneficiary, job)


def withdraw_stop(job: Job) -> Job:
    """The row without its request to stop."""
    return replace(job, stop_requested_at=None, stop_for="", parked_epoch=None)
