"""The cheapest set of running jobs to stop so that something fits, counted per node.

PickyMan's ordered division (algorithms.md 2.5) for one beneficiary. It waits for the slowest victim and
each victim loses a checkpoint and a restart, so a set costs

    max(delay) + sum(loss)        loss = T_ckpt + R;  stopped at once: phi * T_ep + R

in seconds; who holds no state loses all its epochs as well. GPUs that two victims free on two nodes
are no place for one worker of two GPUs: what a set is worth is the number of workers that fit then.
Up to 12 candidates the best set is found by looking at all; above that by a greedy (cheapest per
useful worker, then without those that are no longer needed, then against the best single one), under
a few limits of the delay.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.decision import When
from laxity_scheduler.model.job import FOREVER, Job, Needs

MAX_EXACT: Final = 12
SHORTLIST: Final = 64  # so many of the cheapest, and some more per worker, are enough as a rule
MAX_DELAYS: Final = 6  # how many limits of the delay a greedy set is sought under


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that may be stopped, or narrowed to `keeps` workers: what it frees, when, at what loss."""

    job: str
    frees: tuple[tuple[str, int], ...]  # (node or quota, GPUs)
    delay_s: float
    loss_s: float
    moment: When = "epoch"
    keeps: int = 0

    @property
    def cost_s(self) -> float:
        return self.delay_s + self.loss_s


@dataclass(frozen=True)
class Need:
    """So many workers must fit on free GPUs, on those that come anyway, and on what victims free.

    `nodes` restricts where they may go (a running job grows on its own nodes, another may use some
    nodes only); empty: anywhere. Where a `quota` bounds them, they also need what it leaves now, what
    comes in it and what victims free in it.
    """

    workers: int
    gpus_per_worker: int
    ledger: Ledger
    nodes: frozenset[str] = frozenset()
    coming: Mapping[str, int] = field(default_factory=dict)  # GPUs by node and by quota
    quota: str = ""
    quota_left: float = FOREVER
    needs: Needs = ()

    @cached_property
    def workers_fitting(self) -> int:
        """Workers that fit without stopping anybody (else)."""
        return min(self._on_nodes, self._in_quota({})) if self.quota else self._on_nodes

    @property
    def exceeds_quota(self) -> bool:
        """Whether so many are more than the quota allows without stopping anybody (else)."""
        return bool(self.quota) and self._in_quota({}) < self.workers

    @cached_property
    def _on_nodes(self) -> int:
        slots = self.ledger.slots(self.gpus_per_worker, self.nodes or None, needs=self.needs)
        return slots + self._extra_workers({}, self.coming)

    def gain_from(self, victims: Iterable[Victim]) -> int:
        """How many more workers fit once these have stopped."""
        return self.gain_with(gpus_freed_by(victims))

    def gain_with(self, freed: Mapping[str, int]) -> int:
        """How many more workers fit with so many GPUs more, by node and by quota."""
        more = self._extra_workers(self.coming, freed)
        if not self.quota:
            return more
        return min(self._on_nodes + more, self._in_quota(freed)) - self.workers_fitting

    def _in_quota(self, freed: Mapping[str, int]) -> int:
        gpus = self.quota_left + self.coming.get(self.quota, 0) + freed.get(self.quota, 0)
        return max(0, int(gpus // self.gpus_per_worker))

    def _extra_workers(self, before: Mapping[str, int], freed: Mapping[str, int]) -> int:
        size, more = self.gpus_per_worker, 0
        for node, gpus in freed.items():
            if (not self.nodes or node in self.nodes) and self.ledger.knows(node):
                free = self.ledger.balance_on(node) + before.get(node, 0)
                more += max(0, free + gpus) // size - max(0, free) // size
        return more


def gpus_of(job: Job, nodes: Sequence[str]) -> Counter[str]:
    """GPUs of workers on these nodes, by node and by quota."""
    gpus: Counter[str] = Counter()
    for node in nodes:
        gpus[node] += job.gpus_per_worker
    if job.quota and nodes:
        gpus[job.quota] = len(nodes) * job.gpus_per_worker
    return gpus


def gpus_freed_by(victims: Iterable[Victim]) -> Counter[str]:
    """GPUs by node and by quota."""
    freed: Counter[str] = Counter()
    for victim in victims:
        for node, gpus in victim.frees:
            freed[node] += gpus
    return freed


def victim_by_shrinking(job: Job, keeps: int, forecasts: Forecasts) -> Victim:
    """How this job would give up all workers but the first `keeps`, at its epoch's end."""
    curve = forecasts.curve(job)
    reform_s = curve.reform_s(keeps if keeps in curve.stops else job.workers, "p90")
    frees = tuple(sorted(gpus_of(job, job.nodes[keeps:]).items()))
    return Victim(job.id, frees, forecasts.boundary_s(job) + reform_s, reform_s, keeps=keeps)


def victim_by_stopping(job: Job, forecasts: Forecasts, patience_s: float) -> Victim:
    """How this job would be stopped for somebody who can wait `patience_s`.

    At its epoch's end, unless that is too late and stopping at once costs less in all.
    """
    curve = forecasts.curve(job)
    again_s = curve.start_s(job.workers, "mean")
    save_s = curve.stop_s(job.workers, "mean")
    delay_s = forecasts.time_to_free_s(job)
    frees = tuple(sorted(gpus_of(job, job.nodes).items()))
    epoch_s = curve.epoch_s(job.formed or job.workers, "mean")
    redo_s, lost_s = forecasts.phi(job, "mean") * epoch_s, forecasts.lost_s(job)
    if delay_s > patience_s and save_s + redo_s + again_s < delay_s + save_s + again_s:
        return Victim(job.id, frees, save_s, lost_s + redo_s + again_s, "now")
    if not job.holds_state:
        lost_s += epoch_s
    return Victim(job.id, frees, delay_s, lost_s + save_s + again_s)


def total_cost_s(victims: Sequence[Victim]) -> float:
    return max((victim.delay_s for victim in victims), default=0.0) + sum(
        victim.loss_s for victim in victims
    )


def cheapest_victims(candidates: Iterable[Victim], need: Need) -> tuple[Victim, ...] | None:
    """The set to stop, () if nothing must be stopped, None if stopping all would not do."""
    missing = need.workers - need.workers_fitting
    if missing <= 0:
        return ()
    useful = sorted(
        (victim for victim in candidates if victim.frees),
        key=lambda victim: (victim.cost_s, victim.job),
    )
    if need.nodes:
        useful = [
            victim
            for victim in useful
            if any(node in need.nodes or node == need.quota for node, _ in victim.frees)
        ]
    short = useful[: SHORTLIST + 8 * missing]
    if need.gain_from(short) >= missing:
        useful = short
    elif need.gain_from(useful) < missing:
        return None
    if len(useful) <= MAX_EXACT:
        return exact_victims(useful, need, missing)
    return greedy_victims(useful, need, missing)


def exact_victims(candidates: Sequence[Victim], need: Need, missing: int) -> tuple[Victim, ...]:
    """All subsets, cut where a subset already costs more than the best one."""
    best: tuple[Victim, ...] = tuple(candidates)
    best_s = total_cost_s(best)
    stack: list[tuple[int, tuple[Victim, ...]]] = [(0, ())]
    while stack:
        index, chosen = stack.pop()
        cost_s = total_cost_s(chosen)
        if cost_s > best_s:
            continue
        if need.gain_from(chosen) >= missing:
            if cost_s < best_s or len(chosen) < len(best):
                best, best_s = chosen, cost_s
            continue
        if index < len(candidates):
            stack.extend(((index + 1, chosen), (index + 1, (*chosen, candidates[index]))))
    return best


def greedy_victims(candidates: Sequence[Victim], need: Need, missing: int) -> tuple[Victim, ...]:
    """The best of a few greedy sets, each from candidates that are done within some delay."""
    best: tuple[Victim, ...] = tuple(candidates)
    delays = sorted({victim.delay_s for victim in candidates})
    picks = {round(number * (len(delays) - 1) / MAX_DELAYS) for number in range(MAX_DELAYS + 1)}
    for pick in sorted(picks, reverse=True):
        quick = [victim for victim in candidates if victim.delay_s <= delays[pick]]
        if need.gain_from(quick) < missing:
            break
        chosen = _cover_greedily(quick, need, missing)
        if (total_cost_s(chosen), len(chosen)) < (total_cost_s(best), len(best)):
            best = chosen
    return best


def _cover_greedily(candidates: Sequence[Victim], need: Need, missing: int) -> tuple[Victim, ...]:
    """Cheapest per useful worker first; then without the dearest that are not needed."""
    chosen: list[Victim] = []
    freed: Counter[str] = Counter()
    got = 0
    for bundle in sorted(
        _candidate_bundles(candidates, need),
        key=lambda bundle: _price_of_bundle(bundle, need, missing),
    ):
        if got >= missing:
            break
        new = [victim for victim in bundle if victim not in chosen]
        more = freed + gpus_freed_by(new)
        if need.gain_with(more) > got:
            chosen, freed, got = [*chosen, *new], more, need.gain_with(more)
    if got < missing:
        chosen = list(candidates)
    for victim in sorted(chosen, key=lambda victim: (-victim.loss_s, victim.job)):
        rest = [other for other in chosen if other is not victim]
        if need.gain_from(rest) >= missing:
            chosen = rest
    enough = (victim for victim in candidates if need.gain_from((victim,)) >= missing)
    single = min(enough, key=lambda victim: (victim.cost_s, victim.job), default=None)
    if single is not None and single.cost_s < total_cost_s(chosen):
        return (single,)
    return tuple(chosen)


def _candidate_bundles(candidates: Sequence[Victim], need: Need) -> list[tuple[Victim, ...]]:
    """Each candidate alone; and on each node the cheapest few that make room for one worker."""
    alone = [(victim,) for victim in candidates if need.gain_from((victim,))]
    if need.gpus_per_worker == 1:
        return list(alone)
    by_node: dict[str, list[Victim]] = {}
    for victim in candidates:
        for node, _ in victim.frees:
            by_node.setdefault(node, []).append(victim)
    together: list[tuple[Victim, ...]] = []
    for node, on_node in sorted(by_node.items()):
        gpus = 0
        for number, victim in enumerate(on_node, start=1):
            gpus += dict(victim.frees)[node]
            if need.gain_with({node: gpus}):
                together.append(tuple(on_node[:number]))
                break
    return [*alone, *together]


def _price_of_bundle(bundle: Sequence[Victim], need: Need, missing: int) -> tuple[float, int, str]:
    gain = max(1, min(need.gain_from(bundle), missing))
    return (sum(victim.loss_s for victim in bundle) / gain, len(bundle), bundle[0].job)
