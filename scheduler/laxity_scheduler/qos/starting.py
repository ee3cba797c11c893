"""Who starts now, on which nodes; and who is stopped for whom.

Waiting jobs are taken in order. What does not fit is passed over, so that a later, smaller one may
start; but a promised or aged job that has to wait keeps the free GPUs it will need, and if it
cannot wait, running jobs are told to stop at the end of their epochs, cheapest first.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from laxity_scheduler.allocation.victims import Need, Victim, gpus_freed_by, gpus_of
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import WAITING
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import hold_s
from laxity_scheduler.promising.queueing import RANKS, Waiting, build_queue, slack
from laxity_scheduler.promising.reserve import SLOTS, find_slot
from laxity_scheduler.qos.coming_nodes import ComingNodes
from laxity_scheduler.qos.context import MOST_DISPLACING, THETA, DecisionContext, Start
from laxity_scheduler.qos.left_by_claims import LeftByClaims
from laxity_scheduler.qos.preemption import ask_in_time, carry_out, choose, preempt_as_planned
from laxity_scheduler.qos.sizing import awaits_growth
from laxity_scheduler.qos.start_widths import (
    find_kept_out,
    order_by_plan,
    tries_with_claim,
    tries_without_claim,
    wake_for_unclaimed,
)

PLANNED_AGAIN_S: Final = 60.0  # between two looks at one that waits for the start of its plan


class Starts:
    """Walks the queue of a context once."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._forecasts = context.forecasts
        self._reservations = context.reservations
        self._served: set[str] = set()  # others are stopped for these, or need not be
        self._displaced = 0  # jobs for which others are stopped
        self._kept: dict[str, Counter[str]] = {}  # what is kept free for whom, by node
        self._left = LeftByClaims(context)
        for name in context.releases.asked_for:
            self._share_surplus(context.state.by_id[name])
        for job in context.releases.held_for_running:
            if not awaits_growth(context, job):
                context.ledger.open_holds(job.id)
        self._coming = ComingNodes(context)
        self.queue = build_queue(context.waiting, _startable(context), self._reservations)
        last = RANKS["due"]
        self._claims = bisect_right(self.queue, last, key=lambda one: RANKS[one.rank])

    def _share_surplus(self, job: Job) -> None:
        """Who was stopped for a job with a plan may free more than it needs."""
        share = self._reservations.shares.get(job.id)
        if share is not None:
            self._context.releases.share_surplus(job, max(0, share.widest - job.workers))

    def reserve_for_restarts(self) -> None:
        """Keep free what jobs with a deadline will need that were stopped only to start again elsewhere.

        They will be wider, or leave a cordoned node: what they have there nobody can use.
        """
        context = self._context
        for job in context.releases.restarting:
            if job.deadline_at < FOREVER:
                _, width = slack(job, self._forecasts)
                reused = sum(map(context.ledger.knows, job.nodes))
                self._set_aside(job, width - min(width, reused))

    def start_claimed(self) -> None:
        """Jobs with a claim: those that are planned to start now before those that must wait."""
        claimed = self.queue[: self._claims]
        waits = [False] * len(claimed)
        if not self._reservations.roomy:
            claimed, waits = order_by_plan(self._context, claimed)
        tries = tries_with_claim(self._context, claimed)
        for entry in self._start_in_order(claimed, tries, waits, [not wait for wait in waits]):
            if not self._await_nodes(entry):
                self._hold_claimed(entry)
        later = [
            entry
            for entry, wait in zip(claimed, waits, strict=True)
            if wait and not self._await_nodes(entry)
        ]
        self._served |= ask_in_time(self._context, later, self._need)

    def preempt_as_planned(self) -> None:
        """Promised jobs that, as planned, make way for others and start again later, in time."""
        preempt_as_planned(self._context, self._served, self._kept)

    def start_unclaimed(self) -> None:
        """Jobs without one."""
        others = self.queue[self._claims :]
        wake_for_unclaimed(self._context, others)
        tries, out = (
            tries_without_claim(self._context, others),
            find_kept_out(self._context, others, self._left.gpus),
        )
        together = [self._left.rest is None and entry.job.preemptible for entry in others]
        for entry in self._start_in_order(others, tries, out, together):
            if not self._await_nodes(entry):
                self._hold_unclaimed(entry)
        for entry, kept_out in zip(others, out, strict=True):
            if kept_out:
                self._await_nodes(entry)

    def _await_nodes(self, one: Waiting) -> bool:
        """Start a blocked job on nodes that may come, if it is not planned to start before; whether."""
        if not self._coming.pools:
            return False
        claimed, share = _has_claim(one), self._reservations.shares.get(one.job.id)
        workers = share.workers if claimed and share is not None else one.workers
        hold_s = self._hold_s(one, workers)
        for coming in self._coming.pools:
            after_s = coming.within_s
            if claimed and share is not None and share.starts_s < after_s - TINY_S:
                return False
            if not (claimed or self._left.is_enough_for(one.job, after_s)):
                continue
            nodes = self._coming.place(coming, one.job, workers, hold_s, claimed=claimed)
            if nodes:
                start = Start(one, workers, nodes, workers, workers, coming)
                self._context.starts[one.job.id] = start
                self._context.blocked.remove(one)
                if not claimed:
                    self._left.take(one.job, workers, after_s)
                return True
        return False

    def _start_in_order(
        self, ones: Sequence[Waiting], tries: Ints, waits: Sequence[bool], together: Sequence[bool]
    ) -> Iterator[Waiting]:
        """Start what fits, and yield who does not, unless it `waits` anyway; each in its turn.

        Those that may start `together` are placed at once, twice as many each time.
        """
        done, most = 0, len(ones)
        while done < len(ones):
            count = 1
            if self._context.starts_at_once and together[done]:
                ahead = together[done : done + most]
                count = ahead.index(False) if False in ahead else len(ahead)
            mine = slice(done, done + count)
            started = 0 if waits[done] else self._start(ones[mine], tries[mine])
            done, most = done + started, 2 * count if started == count else 1
            if started < count:
                self._context.blocked.append(ones[done])
                if not waits[done]:
                    yield ones[done]
                done += 1

    def _start(self, ones: Sequence[Waiting], tries: Ints) -> int:
        """Start the first of these, each on its first width that fits; how many until one has none."""
        context, jobs = self._context, [entry.job for entry in ones]
        claimed = _has_claim(ones[0])
        beside = not claimed and not self._left.is_enough_for(jobs[0])
        if beside:
            placed = self._place_held(ones[0], tries[0].tolist(), beside=True)
        elif context.starts_at_once:
            sizes = np.array([job.gpus_per_worker for job in jobs], dtype=np.int64)
            placed = context.placement.place_all(
                context.ledger, jobs, tries, sizes, claimed=claimed
            )
        else:
            placed = self._place_held(ones[0], tries[0].tolist())
        started, widths = ones[: len(placed)], list(map(len, placed))
        if started:
            wanted = tries[np.arange(len(tries)), (tries > 0).argmax(axis=1)].tolist()
            starts = map(Start, started, widths, placed, widths, wanted)
            context.starts.update(zip([job.id for job in jobs], starts, strict=False))
        if not claimed:
            for job, width in zip(jobs, widths, strict=False):
                self._left.take(job, width, beside=beside)
        return len(placed)

    def _place_held(
        self, one: Waiting, widths: Sequence[int], *, beside: bool = False
    ) -> list[tuple[str, ...]]:
        """Its nodes on the first of these widths that fits; its holds count for it alone."""
        context, job = self._context, one.job
        context.ledger.open_holds(job.id)
        for width in filter(None, widths):
            hold_s = self._hold_s(one, width)
            if beside:
                nodes = self._left.place_beside(job, width, hold_s)
            else:
                claimed = _has_claim(one)
                patience_s = one.slack_s if claimed and one.rank != "aged" else FOREVER
                nodes = context.placement.place(
                    context.ledger, job, width, hold_s, claimed=claimed, patience_s=patience_s
                )
            if nodes is not None:
                return [nodes]
        context.ledger.close_holds(job.id)
        return []

    def _hold_claimed(self, one: Waiting) -> None:
        """Keep free what a blocked job with a claim will need, or have others stopped for it."""
        if not self._can_wait(one):
            self._displace(one)
        elif self._reservations.roomy:
            # where its quota is used up free GPUs help it no sooner: others may have them
            most = self._context.placement.quota_left(one.job) // one.job.gpus_per_worker
            self._set_aside(one.job, int(min(one.workers, most)))

    def _hold_unclaimed(self, one: Waiting) -> None:
        """The same for a soft one that is about to be late; the others wait."""
        if one.rank == "soft" and one.slack_s < THETA * _window_s(one.job):
            self._displace_for_soft(one)

    def _can_wait(self, one: Waiting) -> bool:
        """Whether it needs nobody to stop yet; who is planned to start later is not asked."""
        context, job = self._context, one.job
        if one.rank == "aged" or job.id not in self._reservations.shares:
            return False
        if not self._reservations.roomy:
            context.wake(context.now + PLANNED_AGAIN_S)
            return False
        window_s = context.deadline_at(job) - job.submitted_at
        drain_s = self._reservations.room.drain_s
        least_s = max(context.rules.patience * window_s, 2.0 * drain_s)
        context.wake(context.now + one.slack_s - least_s)
        return one.slack_s > least_s

    def _set_aside(self, job: Job, workers: int) -> int:
        """Keep as many free GPUs as it will need from those that come after it; workers left."""
        ledger, may = self._context.ledger, self._context.state.eligible_nodes(job)
        kept_gpus, placement = self._kept.setdefault(job.id, Counter()), self._context.placement
        for placed in range(workers):
            nodes = ledger.place(1, job.gpus_per_worker, may, needs=job.needs)
            if nodes is None:
                return workers - placed
            kept_gpus.update(gpus_of(job, nodes))
            placement.spend_quota(job, 1)
        return 0

    def _hold_s(self, one: Waiting, workers: int) -> float:
        """How long it will be in the way of others, if it starts now."""
        if _has_claim(one):
            return self._forecasts.rest_s(one.job, workers)
        return hold_s(self._forecasts, one.job, workers)

    def _need(self, one: Waiting, coming: Counter[str]) -> Need | None:
        """What it needs, on the nodes that it may take by then; None if these are none at all."""
        context, job, from_s = self._context, one.job, 0.0
        hold_s, claimed = self._hold_s(one, one.workers), _has_claim(one)
        if not self._reservations.roomy:
            share = self._reservations.shares.get(job.id)
            from_s = share.starts_s if share else self._reservations.room.drain_s
        among = context.placement.open_to(job, hold_s, claimed=claimed, from_s=from_s)
        if among is not None and not among:
            return None
        return context.need(job, one.workers, among or frozenset(), coming)

    def _displace(self, one: Waiting) -> None:
        """Tell the cheapest jobs to stop so that it fits, unless enough is on its way already."""
        context, job = self._context, one.job
        own = context.releases.own(job)
        need = self._need(one, own + context.releases.shared)
        if need is None:
            return
        victims = context.releases.victims_for(job)
        context.releases.use(replace(need, coming=own))
        ending = self._ending(job, need)
        need = replace(need, coming=Counter(need.coming) + ending)
        chosen: tuple[Victim, ...] = ()
        if need.workers_fitting >= one.workers:
            context.waits_for[job.id] = victims
        elif self._displaced < MOST_DISPLACING:
            self._displaced += 1
            patience_s = FOREVER if one.rank == "aged" else one.slack_s
            chosen = choose(
                context, job, need, patience_s, tiers=4 if one.rank == "promised" else 2
            )
            carry_out(context, chosen, job, need.workers * job.gpus_per_worker, one.rank)
            context.waits_for[job.id] = victims + tuple(victim.job for victim in chosen)
        left = self._set_aside(job, one.workers)
        if need.workers_fitting >= one.workers or chosen:
            self._served.add(job.id)
            context.keep_parts(need, gpus_freed_by(chosen), left)

    def _ending(self, job: Job, need: Need) -> Counter[str]:
        """GPUs by node of jobs that will have ended when it is planned to start, each once.

        Only as many as it needs: others wait as well.
        """
        share = self._reservations.shares.get(job.id)
        gpus, missing = Counter[str](), need.workers - need.workers_fitting
        if share is None or self._reservations.roomy or missing <= 0:
            return gpus
        profile = self._reservations.profile()
        until_s = profile.edges[min(find_slot(profile, share.starts_s) + 1, SLOTS)]
        candidates: list[tuple[str, Counter[str]]] = []
        for other in self._context.state.running:
            if need.gain_with(gpus) >= missing:
                break
            if self._forecasts.trajectory_s(other) <= until_s and self._context.is_settled(other):
                candidates.append(
                    (other.id, gpus_of(other, other.nodes[: other.resize_to or None]))
                )
                gpus += candidates[-1][1]
        for name, freed in candidates:
            if need.gain_with(gpus - freed) < need.gain_with(gpus):
                self._context.ends.add(name)
            else:
                gpus -= freed
        return gpus

    def _displace_for_soft(self, one: Waiting) -> None:
        """Stop best-effort jobs for a soft one that is about to be late, if it gains by that."""
        context, job = self._context, one.job
        if context.releases.victims_for(job) or self._displaced >= MOST_DISPLACING:
            self._set_aside(job, one.workers)
            return
        own = context.releases.own(job)
        need = self._need(one, own + context.releases.shared)
        if need is None:
            return
        context.releases.use(replace(need, coming=own))
        if need.workers_fitting >= one.workers:
            context.keep_parts(need, {}, self._set_aside(job, one.workers))
            return
        chosen = choose(context, job, need, FOREVER, tiers=2)
        loss_s = sum(victim.loss_s for victim in chosen)
        waits_s = max((victim.delay_s for victim in chosen), default=0.0)
        if chosen and loss_s + waits_s < self._forecasts.curve(job).total_s(one.workers, "mean"):
            self._displaced += 1
            carry_out(context, chosen, job, need.workers * job.gpus_per_worker, one.rank)
            context.waits_for[job.id] = tuple(victim.job for victim in chosen)
            left = self._set_aside(job, one.workers)
            context.keep_parts(need, gpus_freed_by(chosen), left)


def _startable(context: DecisionContext) -> list[Job]:
    """Queued jobs; also those refused before whose new deadline was just promised."""
    shares, frame = context.reservations.shares, context.forecasts.frame
    return [
        job
        for job in frame.where(frame.column(WAITING) > 0.0)
        if job.id not in context.acted
        and (not job.refused or job.id in shares)
        and (not job.eligible or may_ever_start(context.state, job))
    ]


def _has_claim(one: Waiting) -> bool:
    return RANKS[one.rank] <= RANKS["due"]


def _window_s(job: Job) -> float:
    return max(0.0, job.deadline_at - job.submitted_at)
