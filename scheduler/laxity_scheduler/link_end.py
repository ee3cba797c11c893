"""A training longer than its wall-clock limit runs as a chain: each link ends at an epoch, in time.

A link is one start of the Job. Its clock begins when the Job is started: Kubernetes counts
activeDeadlineSeconds from there, and anew after a suspension, and kills what runs on. So a link is
asked to stop at the last epoch's end that surely comes before, is suspended there as for any other
stop, and the next link goes on with its nodes. An epoch that lasts until the limit is cut off.

The terms are those of a link on Slurm (laxity.worker.chain_link).
"""

from typing import Final

from laxity.worker.chain_link import EPOCH_MARGIN
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason

LEAVING_S: Final = 15.0  # for orders on their way, and clocks that differ ...
LEAVING_SHARE: Final = 0.1  # ... at most this share of the limit
SAVING_SHARE: Final = 0.1  # of the limit at most, for the last checkpoint
CUTS: Final = ("link_cut", "link_lost")  # reasons of stops after which no epoch has come of a link
LINK_ENDS: Final = ("link_ended", *CUTS)  # reasons of stops that are no preemption


def link_ends_at(job: Job) -> float:
    """When its link is killed, POSIX seconds; FOREVER where there is no limit, or it does not run."""
    if job.wall_limit_s == FOREVER or not job.workers or job.resumed_at is None:
        return FOREVER
    return job.resumed_at + job.wall_limit_s


def cut_at(job: Job) -> float:
    """When a link that has not reached an epoch's end is stopped all the same."""
    return link_ends_at(job) - min(LEAVING_S, LEAVING_SHARE * job.wall_limit_s)


def was_set_back(job: Job, now: float) -> bool:
    """Whether the clock shows an instant before its start: how long it has run is not known then."""
    return job.resumed_at is not None and now < job.resumed_at - LEAVING_S


def end_links(state: ClusterState, predictor: Predictor) -> tuple[tuple[Preempt, ...], float]:
    """Stops of links whose time is up, now or at this epoch's end; and when to look again."""
    stops, look_at = [], FOREVER
    for job in state.running:
        if job.wall_limit_s == FOREVER or job.pinned:
            continue
        cut, asks = cut_at(job), asks_at(job, predictor)
        if state.now >= cut:
            cause = _cut_reason(job)
            stops.append(Preempt(job.id, "now", job.id, cause))
        elif job.stop_requested_at is None and (state.now >= asks or was_set_back(job, state.now)):
            cause = reason("link_ends", limit_s=job.wall_limit_s, ends_at=link_ends_at(job))
            stops.append(Preempt(job.id, "epoch", job.id, cause))
        look_at = min(
            look_at, *(instant for instant in (asks, cut) if instant > state.now), FOREVER
        )
    return tuple(stops), look_at


def _cut_reason(job: Job) -> Reason:
    if job.holds_state:
        return reason("link_cut", limit_s=job.wall_limit_s)
    return reason("link_lost", limit_s=job.wall_limit_s, epochs=job.progress.epochs_done)


def asks_at(job: Job, predictor: Predictor) -> float:
    """From when on the link is asked to stop at its epoch's end: at once where no other one fits.

    FOREVER before it trains, in its last epoch, as long as nobody knows how long one takes, and of a
    job that holds no state: its next link would not go on.
    """
    width = job.formed or job.workers
    if not job.holds_state or job.epoch_started_at is None:
        return FOREVER
    if job.progress.epochs_done + 1 >= job.workload.epochs:
        return FOREVER
    epoch_s = max(predictor.epoch_time(job.workload, width).p90_s, *_lately(job, width), 0.0)
    if epoch_s == FOREVER:
        return FOREVER
    save_s = predictor.suspend_cost(job.workload, job.workers).p90_s
    latest_at = cut_at(job) - min(save_s, SAVING_SHARE * job.wall_limit_s) - EPOCH_MARGIN * epoch_s
    ends_at = job.epoch_started_at + epoch_s
    return -FOREVER if ends_at >= latest_at else latest_at


def _lately(job: Job, width: int) -> tuple[float, ...]:
    """What its latest epochs took on so many workers."""
    epochs = zip(job.progress.epoch_s, job.progress.widths, strict=True)
    return tuple(seconds for seconds, workers in epochs if workers == width)
