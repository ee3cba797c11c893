"""Reads one group of objects: a Job with its pods and report, or pods of somebody else.

A group that raises when it is read keeps its GPUs busy, and is read again later.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import held_gpus, jobs, pods, preempted_for
from laxity_k8s.objects.controller_seen import is_observed
from laxity_k8s.objects.jobs import NO_REPORT, NOBODY, BadJob
from laxity_k8s.objects.node_rows.node_constraints import Asks, asks_of
from laxity_k8s.objects.node_rows.nodes import read_assigned_nodes
from laxity_k8s.objects.pod_requests import requested_on, requests_of
from laxity_k8s.objects.size_owners import is_applied
from laxity_k8s.objects.status_annotation import JobStatusRecord, read_status
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.displaced import (
    UNSCHEDULABLE_S,
    find_placeless,
    lacks_overdue,
    unschedulable_since,
    without_place,
)
from laxity_k8s.observe.eligible import Eligible
from laxity_k8s.observe.entries import (
    GroupEntry,
    count_earlier,
    count_missing,
    count_sent,
    look_for_unseen,
    own_pods,
)
from laxity_k8s.observe.hanging_starts import HangingStarts
from laxity_k8s.observe.last_declared import LastDeclared
from laxity_k8s.observe.moved_promises import MovedPromises
from laxity_k8s.observe.namespace_bounds import Bounds
from laxity_k8s.observe.node_table import NodeTable
from laxity_k8s.observe.refused_deadlines import RefusedDeadlines
from laxity_k8s.observe.rejections import Rejections
from laxity_k8s.observe.scaling_pools import ScalingPools
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Preview, Report, Reports
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import format_duration

READ_AGAIN_S: Final = 30.0  # a group that could not be read
TAKEN_BACK_S: Final = 1.0  # until then the next look has taken a file's stop back


class GroupReader:
    """Makes entries of groups of a ClusterCache, with what is remembered of Jobs between two looks."""

    def __init__(
        self,
        cache: ClusterCache,
        reports: Reports,
        faults: JobFaults | None,
        *,
        nodes: NodeTable,
        eligible: Eligible,
        bounds: Bounds,
        pools: ScalingPools,
        fit_within_s: float,
    ) -> None:
        self._cache, self._reports = cache, reports
        self._guard = Guard("observation", faults)
        self._pods_guard = Guard("observation of pods", faults)  # where the Job cannot be read
        self._nodes, self._eligible, self._bounds = nodes, eligible, bounds
        self._pools, self._fit_within_s = pools, fit_within_s
        self._missing: dict[str, float] = {}  # jobs not all of whose workers run, and since when
        self._ran: dict[str, float | None] = {}  # the start after which all workers of a job ran
        self._declared = LastDeclared()
        self.rejections = Rejections()
        self.hanging = HangingStarts()
        self.refused = RefusedDeadlines()
        self.moved_promises = MovedPromises(cache.put_back)

    def read(self, group: str, now: float) -> GroupEntry | None:
        """What is known of the group now; None if it is no more."""
        found = self._cache.jobs.get(group)
        job = None if found is None else self._bounds.complete(found)
        own = list(self._cache.pods_of.get(group, {}).values())
        speaks = job is not None and self._guard(group, _may_have_reports, job)
        # Not guarded: when the store is away that is nobody's problem.
        report = (
            self._reports(str(json_tree.get_in(job, "metadata", "uid"))) if speaks else NO_REPORT
        )
        if job is None and not own:
            self._forget_job(group)
            return None
        entry = None
        if speaks is not None:
            entry = self._guard(group, self._read_entry, group, job, own, report, now)
        return self._unread_entry(group, job, own, now) if entry is None else entry

    def preview(self, job: Json, now: float) -> Preview:
        """A Job that does not exist yet, as it will be read once it does. QoSError names what is wrong."""
        job = self._bounds.complete(job)
        asks = asks_of(json_tree.mapping_at(job, "spec", "template"))
        eligible, nodes = self._eligible.look_up(asks)
        row = jobs.build_row(
            job,
            jobs.spec_of(job),
            largest=self._largest_width(job, asks),
            now=now,
            eligible=eligible,
        )
        row = _on_product(row, self._eligible.product_on(nodes.nodes))
        if self._nodes.rooms.matters:
            row = replace(row, needs=requests_of(json_tree.mapping_at(job, "spec", "template")))
        bounded = self._bounds.limit_row(row, job)
        if isinstance(bounded, BadJob):
            return Preview(row, nodes, bounded.refusal)
        return Preview(bounded, nodes)

    def product_of(self, row: Job, asks: Asks) -> str:
        """The product of the accelerators that it runs on, else of all that it may use; "": several.

        Where neither is known, that of its promise or of its last epochs.
        """
        sites = frozenset(row.nodes) or self._eligible.set_of(asks)[1].nodes
        promised = row.verdict.gpu_type if isinstance(row.verdict, Promise) else ""
        return self._eligible.product_on(sites) or promised or row.progress.gpu_type

    def _largest_width(self, job: Json, asks: Asks) -> int:
        """The cluster in workers of this Job."""
        gpus_per_worker = pods.count_gpus(json_tree.mapping_at(job, "spec", "template"))
        return self._nodes.gpus[asks.resource] // max(1, gpus_per_worker)

    def wait_anew(self, now: float) -> Sequence[str]:
        """Jobs with workers that do not run: they have their time again, counted from now."""
        self._missing = dict.fromkeys(self._missing, now)
        return tuple(self._missing)

    def _unread_entry(
        self, group: str, job: Json | None, all_pods: list[Json], now: float
    ) -> GroupEntry:
        entry = GroupEntry("", None, JobStatusRecord(), Counter(), NO_REPORT, now + READ_AGAIN_S)
        for pod in all_pods:
            entry.busy += self._pods_guard(group, held_gpus.pods_busy, [pod]) or {}
        if job is not None and jobs.is_managed(job):
            if self._pods_guard(group, jobs.is_live, job) is not False:
                entry.bad = BadJob(group, (self._guard.last_problem(group),))
            self._pods_guard(group, count_sent, entry, job, own_pods(job, all_pods))
        return entry

    def _read_entry(
        self, group: str, job: Json | None, all_pods: list[Json], report: Report, now: float
    ) -> GroupEntry:
        busy = held_gpus.pods_busy(all_pods)
        if job is None or not jobs.is_live(job):
            return self._read_ended(group, job, all_pods, busy)
        uid, own = str(job["metadata"].get("uid")), own_pods(job, all_pods)
        entry = GroupEntry(uid, None, read_status(job), busy, report, FOREVER)
        entry.needs = requests_of(json_tree.mapping_at(job, "spec", "template"))
        entry.requested = requested_on(all_pods)
        if problem := self.rejections.problem(job, now):
            entry.due_at = self.rejections.again_at(group)
            entry.bad = BadJob(group, (problem,), put_off=entry.due_at < FOREVER)
        else:
            self._read_row(entry, group, job, own, now)
        if entry.row is None:
            count_sent(entry, job, own)
            return entry
        if self._nodes.rooms.matters:
            entry.row = replace(entry.row, needs=entry.needs)
        if earlier := count_earlier(job, all_pods):
            leaving = entry.row.terminating_workers + earlier
            entry.row = replace(entry.row, terminating_workers=leaving)
        entry.busy = held_gpus.pods_busy(all_pods, gpus_per_worker=entry.row.gpus_per_worker)
        size, placeless = entry.row.gpus_per_worker, find_placeless(job, own, now)
        if self._nodes_due_at(job, own) > now:
            placeless = set()
        count_missing(entry, job, entry.row.nodes, size, own, placeless=placeless)
        return entry

    def _read_ended(
        self, group: str, job: Json | None, all_pods: list[Json], busy: Counter[str]
    ) -> GroupEntry:
        self._forget_job(group)
        entry = GroupEntry("", None, JobStatusRecord(), busy, NO_REPORT, FOREVER)
        entry.requested = requested_on(all_pods)
        if job is not None and jobs.is_managed(job):
            look_for_unseen(entry, job, own_pods(job, all_pods))
        return entry

    def _forget_job(self, group: str) -> None:
        """Drop what is remembered of a Job that is over."""
        for table in (self._missing, self._ran):
            table.pop(group, None)
        memories = (self._declared, self.rejections, self.refused, self.moved_promises)
        for memory in (*memories, self.hanging):
            memory.forget(group)

    def _read_row(
        self, entry: GroupEntry, group: str, job: Json, own: list[Json], now: float
    ) -> None:
        """Give the entry its row, or what is wrong with the Job, or both."""
        spec, entry.bad = self._declared.read(job)
        if spec is None:
            return
        entry.asks = asks_of(json_tree.mapping_at(job, "spec", "template"))
        due_at = self._due_at(group, job, own, now)
        row = jobs.job_row(
            job,
            own,
            entry.report,
            largest=self._largest_width(job, entry.asks),
            due_at=due_at,
            displaced=self._find_displaced(group, job, own, had_time=due_at <= now),
            now=now,
            eligible=self._eligible.name_of(entry.asks),
            spec=spec,
        )
        row = self._bounds.limit_row(row, job)
        if isinstance(row, BadJob):
            entry.bad = row
            return
        row = _until_taken_back(row, job, now)
        row = _on_product(row, self.product_of(row, entry.asks))
        row = self.hanging.apply_to(row, self._missing.get(group))
        row = self._with_coming_nodes(row, job, own)
        if entry.bad is not None:  # what it asks now makes no sense
            row = replace(row, asked=False)
        row = preempted_for.stopping_for(row, self._cache.job_ids, self._nodes.is_cordoned)
        entry.row = row = self.moved_promises.apply_to(self.refused.ask_again(job, row, now), job)
        entry.due_at = min(self.refused.due_at(group), self.moved_promises.due_at(group, now))
        entry.due_at = min(entry.due_at, pods.next_overdue_at(own, now))
        entry.due_at = min(entry.due_at, self.hanging.due_at(group, now))
        if row.workers and due_at > now:
            entry.due_at = min(entry.due_at, due_at)

    def _find_displaced(
        self, group: str, job: Json, own: list[Json], *, had_time: bool
    ) -> Mapping[int, str]:
        """Workers that cannot come back, by number. Where all have run, the start did not fail."""
        if not had_time or not jobs.current_width(job):
            return NOBODY
        ran = group in self._ran and self._ran[group] == read_status(job).resumed_at
        return without_place(job, own, ran=ran)

    def _with_coming_nodes(self, row: Job, job: Json, own: list[Json]) -> Job:
        """The row of a Job that was sent to nodes which have to come: its start counts from then."""
        assigned = read_assigned_nodes(job) if row.workers and self._pools else ()
        coming = self._pools.coming_for(assigned)
        if coming is None or row.restarted_at is not None:
            return row
        if self._pools.coming_for(row.nodes) is None:
            return replace(row, restarted_at=max(pods.bound_at(pod) or 0.0 for pod in own))
        if row.fitting_workers is not None and row.pending:
            late = f"no node of pool {coming.pool} came within {format_duration(coming.within_s)}"
            row = replace(row, pending=f"{late}; {row.pending}")
        return replace(row, restarted_at=(row.resumed_at or 0.0) + coming.within_s)

    def _nodes_due_at(self, job: Json, own: list[Json]) -> float:
        """When nodes are there that its workers wait for; 0 if they wait for none."""
        if not self._pools or not jobs.current_width(job):
            return 0.0
        coming = self._pools.coming_for(jobs.find_places(job, own, jobs.current_width(job)))
        return 0.0 if coming is None else jobs.start_instant(job) + coming.within_s

    def _due_at(self, group: str, job: Json, own: list[Json], now: float) -> float:
        """Until when its workers have time to run: less where no node is found for one of them."""
        missing_since = self._missing_since(group, job, own, now)
        due_at = max(jobs.start_instant(job), missing_since) + self._fit_within_s
        if missing_since:
            placeless_at = max(missing_since, unschedulable_since(job, own)) + UNSCHEDULABLE_S
            due_at = min(due_at, placeless_at)
            if lacks_overdue(job, own, now):
                due_at = min(due_at, missing_since)
        return max(due_at, self._nodes_due_at(job, own))

    def _missing_since(self, group: str, job: Json, own: list[Json], now: float) -> float:
        """Since when not all its workers run: one that is lost later has its time to come again."""
        if jobs.count_fitting(job, own, now=now) is None:
            self._missing.pop(group, None)
            if jobs.current_width(job) and is_observed(job):
                self._ran[group] = read_status(job).resumed_at
            return 0.0
        if not is_observed(job):  # its controller does not know yet that it should make them
            self._missing.pop(group, None)
            return now
        return self._missing.setdefault(group, now)


def _until_taken_back(row: Job, job: Json, now: float) -> Job:
    """The row of a Job that a file has stopped: it waits for the correction that takes this back.

    The file may have come between the corrections and this look, and the Job is pinned by nobody.
    """
    if row.workers or not row.pinned or not is_applied(job):
        return row
    return replace(row, pinned=False, not_before=max(row.not_before, now + TAKEN_BACK_S))


def _on_product(row: Job, product: str) -> Job:
    """The row of a Job whose workers use this product of accelerator."""
    if row.workload.gpu_type == product:
        return row
    return replace(row, workload=jobs.intern_workload(replace(row.workload, gpu_type=product)))


def _may_have_reports(job: Json) -> bool:
    """Whether its workers may have said something: a job that never ran has nothing to say."""
    ran = read_status(job).resumed_at is not None or jobs.current_width(job) > 0
    return ran and jobs.is_live(job)
