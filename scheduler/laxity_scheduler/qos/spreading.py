"""Where further workers of a job go, and which nodes those that wait could use."""

from laxity_scheduler.model.job import Job
from laxity_scheduler.qos.bargain import Bargain


def waited_for(bargain: Bargain) -> frozenset[str] | None:
    """The nodes that those who wait may use; None: all."""
    found: frozenset[str] = frozenset()
    for one in bargain.blocked:
        may = bargain.state.eligible_nodes(one.job)
        if may is None:
            return None
        found |= may
    return found


def more_nodes(bargain: Bargain, job: Job, workers: int) -> tuple[str, ...] | None:
    """Nodes for more workers of a running job, to the end."""
    ledger, sites = bargain.ledger, bargain.sites
    rest_s, claimed = bargain.forecasts.rest_s(job, job.workers), bargain.claims(job)
    if bargain.grows:
        return sites.place(ledger, job, workers, rest_s, claimed=claimed)
    return sites.place_on(ledger, job, workers, rest_s, claimed=claimed)
