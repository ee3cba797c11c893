"""Where further workers of a job go, and which nodes those that wait could use."""

from laxity_scheduler.model.job import Job
from laxity_scheduler.qos.bargain import Bargain


def waited_for(bargain: Bargain) -> frozenset[str] | None:
    """The nodes that those who wait may use; None: all."""
    found: frozenset[str] = frozenset()
    for one in bargain.blocked:
        may = bargain.state.eligible(one.job)
        if may is None:
            return None
        found |= may
    return found


def more_nodes(bargain: Bargain, job: Job, workers: int) -> tuple[str, ...] | None:
    """Nodes for more workers of a running job, to the end."""
    rest_s = bargain.forecasts.rest_s(job, job.workers)
    claimed = bargain.claims(job)
    return nodes_for(bargain, job, workers, rest_s, frozenset(), claimed=claimed)


def nodes_for(
    bargain: Bargain,
    job: Job,
    workers: int,
    hold_s: float,
    without: frozenset[str],
    *,
    claimed: bool,
) -> tuple[str, ...] | None:
    """Where so many more workers may go for so long, taken; a running job may be tied to its own."""
    ledger, sites = bargain.ledger, bargain.sites
    if bargain.grows or job.id in bargain.starts:
        return sites.place(ledger, job, workers, hold_s, claimed=claimed, without=without)
    if not without.isdisjoint(job.nodes):
        return None
    return sites.place_on(ledger, job, workers, hold_s, claimed=claimed)
