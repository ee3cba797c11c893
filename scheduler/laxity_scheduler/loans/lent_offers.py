"""What lent GPUs would do for a deadline that is refused: a counter-offer that promises nothing.

The job would run as soft: it starts on its least width on lent nodes that are free, and widens after
an epoch. It is offered the fewest GPUs with which its best guess (P50) is in time, if inference is
forecast to leave these and all lent nodes in use alone until then. A job that would start on free
training nodes is offered none: it would not borrow. Ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from laxity_scheduler.capacity.ledger import OWN, Among, Ledger
from laxity_scheduler.frame.curve import Quantile
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import FLEET_POOLS, LENT_POOLS, ClusterState
from laxity_scheduler.model.decision import Decision, Refuse
from laxity_scheduler.model.job import FOREVER, Job, Offer
from laxity_scheduler.model.plan_application import apply_decisions

QUANTILES: Final[tuple[Quantile, Quantile]] = ("p50", "p90")
AFTER_START_S: Final = 1.0  # asked to widen so soon after its start, it does after an epoch


def offer_lent_gpus(
    state: ClusterState, visible: ClusterState, decisions: Sequence[Decision], forecasts: Forecasts
) -> tuple[Decision, ...]:
    """The decisions, each refusal with what lent GPUs would do, where they would do.

    `visible` is the snapshot that was decided on, without nodes that go back.
    """
    refused = [state.by_id[row.job] for row in decisions if isinstance(row, Refuse)]
    askers = [job for job in refused if _may_borrow(job) and forecasts.curve(job).known]
    if not askers or not visible.node_pools.lent:
        return tuple(decisions)
    after = apply_decisions(visible, decisions)
    own, lent = Ledger.of(after, pools=OWN), Ledger.of(after, pools=LENT_POOLS)
    borrowers = [job for job in askers if not _has_room(own, job, state.eligible_nodes(job))]
    offers = {
        job.id: offer
        for job in borrowers
        if (offer := _find_offer(job, state.eligible_nodes(job), after, lent, forecasts))
    }
    return tuple([_with_offer(row, offers) for row in decisions])


def _with_offer(decision: Decision, offers: dict[str, Offer]) -> Decision:
    if not isinstance(decision, Refuse) or decision.job not in offers:
        return decision
    refusal = decision.refusal
    all_offers = (*refusal.offers, offers[decision.job])
    return replace(decision, refusal=replace(refusal, offers=all_offers))


def _may_borrow(job: Job) -> bool:
    """Whether it would start on lent nodes if it were soft; a quota is its policy's to count."""
    waits = not (job.workers or job.promise)
    return waits and job.preemptible and not job.quota and job.deadline_at < FOREVER


def _has_room(ledger: Ledger, job: Job, among: Among) -> bool:
    """Whether its least width would start there; the ledger is left as it was."""
    nodes = ledger.place(job.widths[0], job.gpus_per_worker, among, needs=job.needs)
    if nodes is not None:
        ledger.give(nodes, job.gpus_per_worker, needs=job.needs)
    return nodes is not None


def _find_offer(
    job: Job, among: Among, after: ClusterState, ledger: Ledger, forecasts: Forecasts
) -> Offer | None:
    """On the least width that does; the ledger is left as it was."""
    for width in forecasts.curve(job).widths:
        nodes = ledger.place(width, job.gpus_per_worker, among, needs=job.needs)
        if nodes is None:
            return None
        ledger.give(nodes, job.gpus_per_worker, needs=job.needs)
        p50_at, p90_at = (_end_at(job, width, forecasts, quantile) for quantile in QUANTILES)
        if p50_at <= min(job.deadline_at, _idle_until_at(after, nodes)):
            gpus = width * job.gpus_per_worker
            return Offer("lent", job.deadline_at, job.widths, p90_at, after.now, gpus, p50_at)
    return None


def _end_at(job: Job, width: int, forecasts: Forecasts, quantile: Quantile) -> float:
    """When it ends if it starts now on its least width, and has this one an epoch later."""
    curve = forecasts.curve(job)
    widens_s = curve.start_s(curve.least, quantile) + AFTER_START_S
    steps = [(0.0, curve.least), (widens_s, width)]
    return forecasts.now + forecasts.finish_s(job, steps, quantile)


def _idle_until_at(after: ClusterState, nodes: Iterable[str]) -> float:
    """Until when inference is forecast to leave these lent nodes, and those in use, alone."""
    demand = after.inference
    if demand is None:
        return 0.0
    users = {name for job in after.running for name in job.nodes}.union(nodes)
    lent_users = users & after.node_pools.lent
    in_use = sum(node.gpus for node in after.nodes if node.id in lent_users)
    return demand.idle_until_at(in_use, after.count_gpus(FLEET_POOLS))
