"""The snapshot, kept between observations: only rows are rebuilt whose Job, pods or report changed.

With thousands of Jobs nearly all rows are the same from one look to the next, so everything here is
patched: rows by Job, busy GPUs by node, the order of jobs, which nodes do for whom. Time alone
changes a row once: when pods have had their time to run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import held_gpus, preempted_for
from laxity_k8s.objects.jobs import BadJob
from laxity_k8s.objects.node_rows.node_constraints import Asks
from laxity_k8s.objects.node_rows.scaling_pool import ScalingPool
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_k8s.observe.accelerator_counts import AcceleratorCounts
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.eligible import Eligible
from laxity_k8s.observe.entries import GroupEntry, foreign_busy
from laxity_k8s.observe.group_reader import GroupReader
from laxity_k8s.observe.inference_pods import InferencePods
from laxity_k8s.observe.namespace_bounds import Bounds, namespace_of
from laxity_k8s.observe.node_table import NodeTable
from laxity_k8s.observe.quota_watch import QuotaWatch
from laxity_k8s.observe.scaling_pools import ScalingPools
from laxity_scheduler.capacity.eligibility import has_nodes_now, lacks_nodes
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Preview, Reports
from laxity_scheduler.model.cluster import ClusterState, Hold, NodeSet, limit_holds
from laxity_scheduler.model.job import FOREVER, Job


class Snapshot:
    """Rows of a ClusterCache. `shown` are the Jobs behind the rows, `bad` those that could not be read."""

    def __init__(
        self,
        cache: ClusterCache,
        reports: Reports,
        *,
        fit_within_s: float,
        pools: Sequence[ScalingPool] = (),
        quotas: QuotaWatch | None = None,
        faults: JobFaults | None = None,
    ) -> None:
        self._cache, self._reports = cache, reports
        self._entries: dict[str, GroupEntry] = {}
        self._memory: dict[str, Any] = {}  # of who reads the rows
        self._started: set[str] = set()  # groups whose workers may have something to say
        self._lacking: set[str] = set()  # groups whose Job was refused for want of nodes
        self._stale: set[str] = set()  # groups whose entry has to be made anew
        self._guard = Guard("observation", faults)
        self.pools = ScalingPools(pools, cache.nodes)
        self._machines = self.pools.machines
        self._accelerators = AcceleratorCounts(self._machines)
        self._nodes = NodeTable(self._machines, self._entries, self._accelerators, self.pools)
        self._eligible = Eligible(self._accelerators, self.pools)
        self.inference = InferencePods(cache)
        self.bounds = Bounds(cache, quotas)
        self._reader = GroupReader(
            cache,
            reports,
            faults,
            nodes=self._nodes,
            eligible=self._eligible,
            bounds=self.bounds,
            pools=self.pools,
            fit_within_s=fit_within_s,
        )
        self.moved_promises = self._reader.moved_promises
        self.hanging = self._reader.hanging
        self._due: dict[str, float] = {}
        self._freed: dict[str, JobStatusRecord] = {}
        self._rows: dict[str, Job] = {}
        self._order: tuple[tuple[float, str], ...] | None = None
        self._jobs: tuple[Job, ...] = ()
        self._asked: Counter[Asks] = Counter()  # by Jobs that may use some nodes only
        self._sets: Mapping[str, NodeSet] | None = None
        self.shown: dict[str, Json] = {}
        self.bad: dict[str, BadJob] = {}
        self.untold: set[str] = set()  # of these, those that were found since somebody looked
        self.unnoted: set[str] = set()  # groups whose Job does not say yet whether it holds state

    @property
    def due_at(self) -> float:
        """When a row changes by itself."""
        machines_at = min(self._nodes.due_at, self._accelerators.due_at)
        return min((*self._due.values(), machines_at, self.inference.due_at, self.pools.due_at))

    def take_state(self, touched: set[str], *, nodes: bool, now: float, cycle: int) -> ClusterState:
        """The cluster now; `touched` groups, and nodes if `nodes`, changed since the last time."""
        with self._cache.lock:
            self._stale |= touched | self._recompute_bounds(touched)
            nodes |= bool(self.pools) and self._look_at_pools(now)
            if nodes or self._accelerators.due_at <= now:
                self._accelerators.look(now)
                self._stale |= self._nodes.look() | self._recompute_eligible()
            self._stale |= {group for group, instant in self._due.items() if instant <= now}
            self._stale |= self._reader.refused.last_taken()
            self._stale |= {group for group in self._started if self._has_news(group)}
            self._renew_stale(now)
            self._stale |= self._learn_taints(touched)
            self._renew_stale(now)
            self._stale |= self._nodes.look_at_rooms()
            self._renew_stale(now)
            self._nodes.renew(now)
            self.inference.update_groups(touched)
            demand = self.inference.demand(self._nodes.rows, now)
        state = ClusterState(
            now=now,
            nodes=self._nodes.rows,
            jobs=self._jobs,
            holds=self._find_holds(now) if self._freed else (),
            cycle=cycle,
            sets=self._sets_in_use(),
            quotas=self.bounds.count_quotas(self._jobs),
            inference=demand,
            memory=self._memory,
        )
        return self._ask_again(state)

    def _look_at_pools(self, now: float) -> bool:
        """Whether other nodes may come than at the last look."""
        self._renew_stale(now)
        started = [self._rows[group] for group in self._started if self._rows[group].workers]
        return self.pools.look(started, now)

    def _ask_again(self, state: ClusterState) -> ClusterState:
        """The state in which jobs ask again that were refused for want of nodes and have them now."""
        lacking = [self._rows[group] for group in sorted(self._lacking)]
        asking = {row.id: replace(row, asked=True) for row in lacking if has_nodes_now(state, row)}
        if not asking:
            return state
        return replace(state, jobs=tuple([asking.get(job.id, job) for job in state.jobs]))

    def reject(self, job_id: str, problem: str) -> None:
        """Leave this Job out from the next look on, until somebody else changes it."""
        self._reject_job(job_id, problem, 0.0, tries_again=False)

    def put_off(self, job_id: str, problem: str, now: float) -> None:
        """Leave this Job out for a while: the API server has refused its patch."""
        self._reject_job(job_id, problem, now, tries_again=True)

    def _reject_job(self, job_id: str, problem: str, now: float, *, tries_again: bool) -> None:
        with self._cache.lock:
            job = self._cache.jobs.get(job_id)
            if job is None:
                return
            job = self.bounds.complete(job)  # as it is read, too
            if self._reader.rejections.add(job, problem, now=now, tries_again=tries_again):
                self._cache.put_back(job_id)

    def wait_anew(self, now: float) -> Sequence[str]:
        """Jobs with workers that do not run: they have their time again, counted from now."""
        return self._reader.wait_anew(now)

    def read_events(self, find_words: Callable[[Json], str], now: float) -> None:
        """Have Events read of Jobs whose start hangs; the next look sees what they say."""
        for group in self.hanging.find_due(now):
            with self._cache.lock:
                job = self._cache.jobs.get(group)
            if job is None:
                self.hanging.forget(group)
                continue
            self.hanging.note(group, self._guard(group, find_words, job) or "", now)
            self._cache.put_back(group)

    def foreign_gpus(self, nodes: Iterable[str]) -> int:
        """GPUs of these nodes that pods hold which belong to no Job of laxity's."""
        with self._cache.lock:
            busy = foreign_busy(self._entries, self._cache.jobs)
        return sum(busy[node] for node in nodes)

    def product_label(self, job_id: str, nodes: Sequence[str]) -> tuple[str, str] | None:
        """The label of the product that these nodes share, where the Job may use others besides."""
        entry = self._entries.get(job_id)
        return None if entry is None else self._eligible.product_label(entry.asks, frozenset(nodes))

    def preview(self, job: Json, now: float) -> Preview:
        """A Job that does not exist yet, as the next snapshot would show it. QoSError."""
        with self._cache.lock:
            return self._reader.preview(job, now)

    def _recompute_eligible(self) -> set[str]:
        """Nodes changed: Jobs that may use others now."""
        if not self._eligible.update_nodes(self._machines):
            return set()
        self.inference.update_nodes(self._cache.nodes)
        return self._other_sites()

    def _learn_taints(self, touched: set[str]) -> set[str]:
        """Pods of these groups show what the cluster adds to pods: Jobs that may use others now."""
        news = False
        for group in touched & self._cache.jobs.keys():
            own = self._cache.pods_of.get(group, {}).values()
            template = json_tree.mapping_at(self._cache.jobs[group], "spec", "template")
            news |= bool(self._guard(group, self._eligible.learn_tolerations, template, own))
        return self._other_sites() if news else set()

    def _other_sites(self) -> set[str]:
        return {
            group
            for group, row in self._rows.items()
            if self._guard(group, self._eligible.name_of, self._entries[group].asks) != row.eligible
            or self._guard(group, self._reader.product_of, row, self._entries[group].asks)
            != row.workload.gpu_type
        }

    def _sets_in_use(self) -> Mapping[str, NodeSet] | None:
        """The sets that rows name; the same object as long as they are the same."""
        node_sets = dict(self._eligible.set_of(asks) for asks in self._asked) or None
        if node_sets != self._sets:
            self._sets = node_sets
        return self._sets

    def _has_news(self, group: str) -> bool:
        entry = self._entries[group]
        return self._reports(entry.uid) != entry.report

    def _renew_stale(self, now: float) -> None:
        if not self._stale:
            return
        for group in tuple(self._stale):
            entry = self._reader.read(group, now)
            self._forget_group(group)
            if entry is not None:
                self._add_entry(group, entry)
            self._stale.discard(group)
        self._renew_order()

    def _add_entry(self, group: str, entry: GroupEntry) -> None:
        self._entries[group] = entry
        self._nodes.add(group, entry)
        if entry.due_at < FOREVER:
            self._due[group] = entry.due_at
        if entry.bad is not None:
            self.bad[group] = entry.bad
            self.untold.add(group)
        if entry.row is None:
            return
        self._rows[group], self.shown[group] = entry.row, self._cache.jobs[group]
        if entry.row.eligible:
            self._asked[entry.asks] += 1
        if entry.row.workers or entry.row.resumed_at is not None:
            self._started.add(group)
        if lacks_nodes(entry.row.verdict):
            self._lacking.add(group)
        if entry.row.holds_state != entry.state.holds_state:
            self.unnoted.add(group)
        if entry.state.freed_for:
            self._freed[group] = entry.state

    def _forget_group(self, group: str) -> None:
        old = self._entries.pop(group, None)
        if old is not None:
            if old.row is not None and old.row.eligible:
                self._asked[old.asks] -= 1
                self._asked += Counter()  # those that nobody asks any more are dropped
            self._nodes.remove(group, old)
        for table in (self._rows, self.shown, self.bad, self._due, self._freed):
            table.pop(group, None)
        for groups in (self._started, self._lacking, self.untold, self.unnoted):
            groups.discard(group)

    def _recompute_bounds(self, touched: set[str]) -> set[str]:
        """Jobs of namespaces that allow something else now: a refused patch may be let through."""
        limits, uses = self.bounds.update_limits(touched)
        entries = self._entries if limits or uses else ()
        mine = {group for group in entries if namespace_of(group) in limits | uses}
        for group in mine:
            if namespace_of(group) in limits:
                self._reader.rejections.forget(group)
        return mine

    def _renew_order(self) -> None:
        """Jobs by submission, then id; most looks change rows and not their order."""
        order = self._order
        if order is None or len(order) != len(self._rows) or not self._same_order(order):
            order = tuple(sorted((row.submitted_at, group) for group, row in self._rows.items()))
            self._order = order
        self._jobs = tuple([self._rows[group] for _, group in order])

    def _same_order(self, order: tuple[tuple[float, str], ...]) -> bool:
        rows = self._rows
        return all(
            group in rows and rows[group].submitted_at == submitted_at
            for submitted_at, group in order
        )

    def _find_holds(self, now: float) -> tuple[Hold, ...]:
        """GPUs that stopped jobs freed, for those they were freed for, until these have started.

        As far as they are free: who is promised may have what was freed for a job without a promise.
        """
        holds, others = list[Hold](), dict[str, Job]()
        for group in sorted(self._freed):
            state, victim = self._freed[group], self._rows[group]
            other = self._rows.get(
                preempted_for.read_preempted_for(state.freed_for, self._cache.job_ids)
            )
            mine = self._guard(group, held_gpus.find_holds, victim, state, other, now)
            if mine and other is not None:
                holds += mine
                others[other.id] = other
        free = {node.id: node.free_gpus for node in self._nodes.rows} if holds else {}
        return tuple(limit_holds(holds, free, others))
