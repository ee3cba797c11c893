"""The snapshot, kept between observations: only rows are rebuilt whose Job, pods or report changed.

With thousands of Jobs nearly all rows are the same from one look to the next, so everything here is
patched: rows by Job, busy GPUs by node, the order of jobs, which nodes do for whom. Time alone
changes a row once: when pods have had their time to run. GPUs that are busy nobody knows where are
set aside at the end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import jobs, pods, preempted_for
from laxity_k8s.objects.accelerator_nodes import machine, offers
from laxity_k8s.objects.controller_seen import is_observed
from laxity_k8s.objects.jobs import NO_REPORT, NOBODY, BadJob
from laxity_k8s.objects.node_constraints import Asks, asks_of
from laxity_k8s.objects.nodes import is_cordoned
from laxity_k8s.objects.status_annotation import JobStatusRecord, read_status
from laxity_k8s.observe.cluster_cache import Mirror
from laxity_k8s.observe.displaced import UNSCHEDULABLE_S, displacements, unschedulable_since
from laxity_k8s.observe.eligible import Eligible
from laxity_k8s.observe.entries import (
    Entry,
    count,
    count_sent,
    find_unplaced,
    foreign_busy,
    look_for_unseen,
    own_pods,
)
from laxity_k8s.observe.moved_promises import MovedPromises
from laxity_k8s.observe.namespace_bounds import Bounds, namespace_of
from laxity_k8s.observe.quota_watch import QuotaWatch
from laxity_k8s.observe.refused_deadlines import RefusedDeadlines
from laxity_k8s.observe.rejections import Rejections
from laxity_k8s.observe.unplaced import Unplaced, set_aside
from laxity_scheduler.live import Report, Reports
from laxity_scheduler.model.cluster import ClusterState, Hold, Node, NodeSet
from laxity_scheduler.model.job import FOREVER, Job

READ_AGAIN_S = 30.0  # a group that could not be read


class Snapshot:
    """Rows of a Mirror. `shown` are the Jobs behind the rows, `bad` those that could not be read."""

    def __init__(
        self,
        mirror: Mirror,
        reports: Reports,
        *,
        fit_within_s: float,
        quotas: QuotaWatch | None = None,
    ) -> None:
        self._mirror, self._reports, self._fit_within_s = mirror, reports, fit_within_s
        self._entries: dict[str, Entry] = {}
        self._memory: dict[str, Any] = {}  # of who reads the rows
        self._started: set[str] = set()  # groups whose workers may have something to say
        self._stale: set[str] = set()  # groups whose entry has to be made anew
        self._guard = Guard()
        self._rejections = Rejections()
        self._refused = RefusedDeadlines()
        self.moved_promises = MovedPromises(mirror.put_back)
        self.bounds = Bounds(mirror, quotas)
        self._due: dict[str, float] = {}
        self._missing: dict[str, float] = {}  # jobs not all of whose workers run, and since when
        self._freed: dict[str, JobStatusRecord] = {}
        self._rows: dict[str, Job] = {}
        self._order: tuple[tuple[float, str], ...] | None = None
        self._jobs: tuple[Job, ...] = ()
        self._busy: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()  # of these, for workers that are not there yet
        self._unseen: set[str] = set()  # groups with workers that were not seen on any node
        self._over: dict[str, int] = {}  # GPUs more than a node has, for workers not there yet
        self._unplaced: tuple[Unplaced, ...] = ()
        self._moved: set[str] = set()  # sites or machines whose busy GPUs may have changed
        self._nodes: dict[str, Node] = {}  # by site
        self._sites: dict[str, list[str]] = {}  # of each machine
        self._cordoned: set[str] = set()  # machines
        self._gone_at: dict[str, float] = {}  # nodes that are not ready, and when they are lost
        self._node_tuple: tuple[Node, ...] = ()
        self._gpus: Counter[str] = Counter()  # by resource
        self._eligible = Eligible()
        self._asked: Counter[Asks] = Counter()  # by Jobs that may use some nodes only
        self._sets: Mapping[str, NodeSet] | None = None
        self.shown: dict[str, Json] = {}
        self.bad: dict[str, BadJob] = {}
        self.untold: set[str] = set()  # of these, those that were found since somebody looked

    @property
    def due_at(self) -> float:
        """When a row changes by itself."""
        return min((*self._due.values(), *self._gone_at.values()), default=FOREVER)

    def take(self, touched: set[str], *, nodes: bool, now: float, cycle: int) -> ClusterState:
        """The cluster now; `touched` groups, and nodes if `nodes`, changed since the last time."""
        with self._mirror.lock:
            self._stale |= touched | self._recompute_bounds(touched)
            if nodes:
                self._stale |= (
                    self._resize_rows() | self._recompute_eligible() | self._on_cordoned()
                )
            self._stale |= {group for group, instant in self._due.items() if instant <= now}
            self._stale |= self._refused.taken()
            self._stale |= {group for group in self._started if self._has_news(group)}
            self._renew_stale(now)
            self._stale |= self._learn_taints(touched)
            self._renew_stale(now)
            self._moved |= {name for name, instant in self._gone_at.items() if instant <= now}
            self._renew_nodes(now)
        return ClusterState(
            now=now,
            nodes=self._node_tuple,
            jobs=self._jobs,
            holds=tuple(self._holds(now)) if self._freed else (),
            cycle=cycle,
            sets=self._sets_in_use(),
            quotas=self.bounds.quotas(self._jobs),
            memory=self._memory,
        )

    def reject(self, job_id: str, problem: str) -> None:
        """Leave this Job out from the next look on, until somebody else changes it."""
        self._reject(job_id, problem, 0.0, tries_again=False)

    def put_off(self, job_id: str, problem: str, now: float) -> None:
        """The same for a while only: the API server has refused its patch."""
        self._reject(job_id, problem, now, tries_again=True)

    def _reject(self, job_id: str, problem: str, now: float, *, tries_again: bool) -> None:
        with self._mirror.lock:
            job = self._mirror.jobs.get(job_id)
            if job is None:
                return
            if self._rejections.add(job, problem, now=now, tries_again=tries_again):
                self._mirror.put_back(job_id)

    def wait_anew(self, now: float) -> Sequence[str]:
        """Jobs with workers that do not run: they have their time again, counted from now."""
        self._missing = dict.fromkeys(self._missing, now)
        return tuple(self._missing)

    def on_its_way(self, job_id: str) -> set[str]:
        """Nodes that workers of other Jobs were sent to and are not bound to yet."""
        own = self._entries[job_id].sent if job_id in self._entries else Counter[str]()
        return {node for node, gpus in self._sent.items() if gpus > own[node]}

    def foreign_gpus(self, nodes: Iterable[str]) -> int:
        """GPUs of these nodes that pods hold which belong to no Job of laxity's."""
        with self._mirror.lock:
            busy = foreign_busy(self._entries, self._mirror.jobs)
        return sum(busy[node] for node in nodes)

    def eligible(self, template: Json) -> tuple[str, NodeSet]:
        """The set of nodes for pods of this template, and its name; "" if all do."""
        with self._mirror.lock:
            return self._eligible.look_up(asks_of(template))

    def quota_of(self, namespace: str, job: Json) -> str:
        """The quota that bounds a Job there, by its name; or ""."""
        with self._mirror.lock:
            return self.bounds.quota_of(namespace, job)

    def _recompute_eligible(self) -> set[str]:
        """Nodes changed: Jobs that may use others now."""
        return self._others() if self._eligible.look(self._mirror.nodes) else set()

    def _learn_taints(self, touched: set[str]) -> set[str]:
        """The same, as pods of these groups have shown what the cluster adds to pods."""
        news = False
        for group in touched & self._mirror.jobs.keys():
            own = self._mirror.pods_of.get(group, {}).values()
            template = json_tree.table(self._mirror.jobs[group], "spec", "template")
            news |= bool(self._guard(group, self._eligible.learn, template, own))
        return self._others() if news else set()

    def _others(self) -> set[str]:
        return {
            group
            for group, row in self._rows.items()
            if self._guard(group, self._eligible.name, self._entries[group].asks) != row.eligible
        }

    def _sets_in_use(self) -> Mapping[str, NodeSet] | None:
        """The sets that rows name; the same object as long as they are the same."""
        node_sets = dict(self._eligible.set_of(asks) for asks in self._asked) or None
        if node_sets != self._sets:
            self._sets = node_sets
        return self._sets

    def _resize_rows(self) -> set[str]:
        """Nodes changed: look at all of them; Jobs without widths depend on the cluster's size."""
        gpus: Counter[str] = Counter()
        for node in self._mirror.nodes.values():
            gpus.update(offers(node))
        self._moved |= self._mirror.nodes.keys() | self._nodes.keys()
        if gpus == self._gpus:
            return set()
        self._gpus = gpus
        return set(self._entries)

    def _on_cordoned(self) -> set[str]:
        """Nodes were cordoned, or are no longer: groups with workers there."""
        cordoned = set(filter(self._is_cordoned, self._mirror.nodes))
        changed, self._cordoned = cordoned ^ self._cordoned, cordoned
        if not changed:
            return set()
        entries = self._entries.items()
        return {
            group for group, entry in entries if not changed.isdisjoint(map(machine, entry.busy))
        }

    def _has_news(self, group: str) -> bool:
        entry = self._entries[group]
        return self._reports(entry.uid) != entry.report

    def _renew_stale(self, now: float) -> None:
        if not self._stale:
            return
        for group in tuple(self._stale):
            self._renew(group, now)
            self._stale.discard(group)
        self._renew_order()

    def _renew(self, group: str, now: float) -> None:
        job = self._mirror.jobs.get(group)
        own = list(self._mirror.pods_of.get(group, {}).values())
        speaks = job is not None and self._guard(group, _speaks, job)
        # Not guarded: when the store is away that is nobody's problem.
        report = self._reports(str(json_tree.dig(job, "metadata", "uid"))) if speaks else NO_REPORT
        self._forget(group)
        if job is None and not own:
            return
        entry = None
        if speaks is not None:
            entry = self._guard(group, self._entry, group, job, own, report, now)
        if entry is None:
            entry = self._unread(group, job, own, now)
        self._entries[group] = entry
        self._busy.update(entry.busy)
        self._sent.update(entry.sent)
        self._moved |= entry.busy.keys()
        if entry.unseen_gpus:
            self._unseen.add(group)
        if entry.due_at < FOREVER:
            self._due[group] = entry.due_at
        if entry.row is None or job is None:
            return
        self._rows[group], self.shown[group] = entry.row, job
        if entry.row.eligible:
            self._asked[entry.asks] += 1
        if entry.row.workers or entry.row.resumed_at is not None:
            self._started.add(group)
        if entry.state.freed_for:
            self._freed[group] = entry.state

    def _forget(self, group: str) -> None:
        old = self._entries.pop(group, None)
        if old is not None:
            if old.row is not None and old.row.eligible:
                self._asked[old.asks] -= 1
                self._asked += Counter()  # those that nobody asks any more are dropped
            self._busy.subtract(old.busy)
            self._sent.subtract(old.sent)
            self._moved |= old.busy.keys()
        for table in (self._rows, self.shown, self.bad, self._due, self._freed):
            table.pop(group, None)
        for groups in (self._started, self._unseen, self.untold):
            groups.discard(group)

    def _unread(self, group: str, job: Json | None, all_pods: list[Json], now: float) -> Entry:
        """A group that raises when it is read: its GPUs are busy, and it is tried again later."""
        entry = Entry("", None, JobStatusRecord(), Counter(), NO_REPORT, now + READ_AGAIN_S)
        for pod in all_pods:
            entry.busy += self._guard(f"pod {json_tree.identity(pod)}", jobs.pods_busy, [pod]) or {}
        if job is not None and jobs.is_managed(job):
            if self._guard(f"life of {group}", jobs.live, job) is not False:
                self._set_bad(BadJob(group, (self._guard.problems[group],)))
            own = [pod for pod in all_pods if pods.owner(pod)[1] == job["metadata"].get("uid")]
            self._guard(f"workers of {group}", count_sent, entry, job, own)
        return entry

    def _entry(
        self, group: str, job: Json | None, all_pods: list[Json], report: Report, now: float
    ) -> Entry:
        busy = jobs.pods_busy(all_pods)
        if job is None or not jobs.live(job):
            self._missing.pop(group, None)
            self._rejections.forget(group)
            self._refused.forget(group)
            gone = Entry("", None, JobStatusRecord(), busy, NO_REPORT, FOREVER)
            if job is not None and jobs.is_managed(job):
                look_for_unseen(gone, job, own_pods(job, all_pods))
            return gone
        uid, own = str(job["metadata"].get("uid")), own_pods(job, all_pods)
        entry = Entry(uid, None, read_status(job), busy, report, FOREVER)
        if problem := self._rejections.problem(job, now):
            entry.due_at = self._rejections.again_at(group)
            self._set_bad(BadJob(group, (problem,), put_off=entry.due_at < FOREVER))
            count_sent(entry, job, own)
            return entry
        size = max(1, pods.gpus(json_tree.table(job, "spec", "template")))
        entry.asks = asks_of(json_tree.table(job, "spec", "template"))
        due_at = self._due_at(group, job, own, now)
        row = jobs.job_row(
            job,
            own,
            entry.report,
            largest=self._gpus[entry.asks.resource] // size,
            due_at=due_at,
            displaced=displacements(job, own, self._is_cordoned) if jobs.width(job) else NOBODY,
            now=now,
            eligible=self._eligible.name(entry.asks),
        )
        row = self.bounds.bound_row(row, job)
        if isinstance(row, BadJob):
            self._set_bad(row)
            count_sent(entry, job, own)
            return entry
        row = preempted_for.stopping_for(row, self._mirror.job_ids, self._is_cordoned)
        row = self.moved_promises.onto(self._refused.ask_again(job, row, now), job)
        entry.row = row
        entry.due_at = min(self._refused.due_at(group), self.moved_promises.due_at(group, now))
        entry.busy = jobs.pods_busy(all_pods, gpus_per_worker=row.gpus_per_worker)
        count(entry, job, row.nodes, row.gpus_per_worker, own)
        if row.workers and due_at > now:
            entry.due_at = min(entry.due_at, due_at)
        return entry

    def _recompute_bounds(self, touched: set[str]) -> set[str]:
        """Jobs of namespaces that allow something else now: a refused patch may be let through."""
        limits, uses = self.bounds.look(touched)
        entries = self._entries if limits or uses else ()
        mine = {group for group in entries if namespace_of(group) in limits | uses}
        for group in mine:
            if namespace_of(group) in limits:
                self._rejections.forget(group)
        return mine

    def _set_bad(self, bad: BadJob) -> None:
        self.bad[bad.id] = bad
        self.untold.add(bad.id)

    def _due_at(self, group: str, job: Json, own: list[Json], now: float) -> float:
        """Until when its workers have time to run: less where no node is found for one of them."""
        missing_since = self._missing_since(group, job, own, now)
        due_at = max(jobs.start_instant(job), missing_since) + self._fit_within_s
        if not missing_since:
            return due_at
        return min(due_at, max(missing_since, unschedulable_since(job, own)) + UNSCHEDULABLE_S)

    def _is_cordoned(self, name: str) -> bool:
        node = self._mirror.nodes.get(name)
        return node is not None and is_cordoned(node)

    def _missing_since(self, group: str, job: Json, own: list[Json], now: float) -> float:
        """Since when not all its workers run: one that is lost later has its time to come again."""
        if jobs.fitting(job, own) is None:
            self._missing.pop(group, None)
            return 0.0
        if not is_observed(job):  # its controller does not know yet that it should make them
            self._missing.pop(group, None)
            return now
        return self._missing.setdefault(group, now)

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

    def _renew_nodes(self, now: float) -> None:
        for name in set(map(machine, self._moved)):
            self._guard(f"node {name}", self._renew_node, name, now)
        unplaced = self._find_unplaced() if self._over or self._unseen else ()
        if self._moved or unplaced != self._unplaced:
            self._moved, self._unplaced = set(), unplaced
            nodes: Mapping[str, Node] = self._nodes
            nodes = set_aside(nodes, unplaced) if unplaced else nodes
            self._node_tuple = tuple([nodes[name] for name in sorted(nodes)])

    def _renew_node(self, name: str, now: float) -> None:
        self._gone_at.pop(name, None)
        for table in (self._nodes, self._over):
            for mine in self._sites.get(name, ()):
                table.pop(mine, None)
        self._sites.pop(name, None)
        node = self._mirror.nodes.get(name)
        rows = [] if node is None else jobs.node_rows(node, self._busy, now=now)
        if not rows or node is None:
            return
        self._sites[name] = [row.id for row in rows]
        for row in rows:
            over = max(0, min(self._sent[row.id], -row.free_gpus))
            if over:
                self._over[row.id] = over
            self._nodes[row.id] = replace(row, free_gpus=row.free_gpus + over) if over else row
        if jobs.loss_instant(node) < FOREVER:
            self._gone_at[name] = jobs.loss_instant(node)

    def _find_unplaced(self) -> tuple[Unplaced, ...]:
        return tuple(find_unplaced(self._entries, self._unseen, self._over, self._nodes))

    def _holds(self, now: float) -> Iterator[Hold]:
        """GPUs that stopped jobs freed, for those they were freed for, until these have started."""
        for group in sorted(self._freed):
            state, victim = self._freed[group], self._rows[group]
            other = self._rows.get(preempted_for.read(state.freed_for, self._mirror.job_ids))
            yield from self._guard(group, jobs.holds, victim, state, other, now) or ()


def _speaks(job: Json) -> bool:
    """Whether its workers may have said something: a job that never ran has nothing to say."""
    ran = read_status(job).resumed_at is not None or jobs.width(job) > 0
    return ran and jobs.live(job)
