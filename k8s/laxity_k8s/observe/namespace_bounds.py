"""Rows of Jobs within what their namespaces allow: followed as quotas and pods change.

Widths end at what a quota leaves to laxity's Jobs. Where these use all of it, the others wait until
one of them ends. Nothing is reserved for them meanwhile, but for promises: the policy plans these
within what a quota allows over time, as far as accelerators go (`quotas`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from laxity import json_tree
from laxity.human_time import count_noun
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs as objects
from laxity_k8s.objects import pods
from laxity_k8s.objects.jobs import BadJob
from laxity_k8s.objects.limit_ranges import complete_job, find_breach
from laxity_k8s.objects.quotas import (
    NamespaceLimits,
    Used,
    add_to,
    demand_of,
    limits_of,
)
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.quota_watch import QuotaWatch, Specs
from laxity_scheduler.model.decision import Admit, Decision, Resize
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.reasons import Reason, reason


class Bounds:
    """What namespaces allow; everything where no quotas are watched."""

    def __init__(self, cache: ClusterCache, quotas: QuotaWatch | None) -> None:
        self._cache, self._quotas = cache, quotas
        self._seen: Specs = ((), ())
        self._limits: Mapping[str, NamespaceLimits] = {}  # by namespace
        self._ranges: Mapping[str, Sequence[Json]] = {}  # LimitRanges, by namespace
        self._used: Mapping[str, Used] = {}  # by laxity's own Jobs, by namespace

    def update_limits(self, touched: Collection[str]) -> tuple[set[str], set[str]]:
        """Namespaces that allow something else now, and those whose own Jobs use something else.

        `touched` groups have changed.
        """
        if self._quotas is None:
            return set(), set()
        answer = self._quotas.found
        bounded = {str(quota["metadata"]["namespace"]) for quota in answer[0]}
        if answer == self._seen and bounded.isdisjoint(map(namespace_of, touched)):
            return set(), set()
        limits, ranges, used, self._seen = self._limits, self._ranges, self._used, answer
        self._ranges = _group_by_namespace(answer[1])  # what is counted depends on them
        self._used, foreign = self._count_used(bounded)
        self._limits = limits_of(answer[0], foreign)
        allowed = _find_differing(limits, self._limits) | _find_differing(ranges, self._ranges)
        return allowed, _find_differing(used, self._used)

    def complete(self, job: Json) -> Json:
        """The Job with the template that its pods get: LimitRanges of its namespace give defaults."""
        ranges = self._ranges.get(namespace_of(json_tree.object_id(job)))
        return complete_job(job, ranges) if ranges else job

    def limit_row(self, row: Job | BadJob, job: Json) -> Job | BadJob:
        """The row of a completed Job with the widths that its namespace allows.

        It keeps the width that it has.
        """
        if isinstance(row, BadJob):
            return row
        template = json_tree.mapping_at(job, "spec", "template")
        breach = find_breach(template, self._ranges.get(row.namespace, ()))
        if breach:
            widths = tuple(width for width in row.widths if width <= row.workers)
            if not widths:
                return _put_off(row, reason("namespace_limits", problem=breach))
            row = replace(row, widths=widths)
        limits = self._limits.get(row.namespace)
        return row if limits is None else self._limit_width(row, template, limits)

    def _limit_width(self, row: Job, template: Json, limits: NamespaceLimits) -> Job | BadJob:
        row = replace(row, quota=limits.quota_of(row.namespace, template))
        widest, limit_text = limits.find_widest(template)
        widths = tuple(width for width in row.widths if width <= max(widest, row.workers))
        if not widths:
            workers = count_noun(row.widths[0], "worker")
            problem = f"{limit_text}, and it needs at least {workers}"
            return _put_off(row, reason("namespace_limits", problem=problem))
        is_refused = isinstance(row.verdict, Refusal)  # for its own reason: it does not start
        if not (row.workers or row.terminating_workers or row.asked or is_refused):
            demand = demand_of(template)
            if row.promise is not None:  # its accelerators are planned for when the quota has them
                for kind in pods.accelerators_of(template):
                    demand.pop(f"requests.{kind}", None)
            room, resource = limits.find_room(demand, self._used.get(row.namespace, {}))
            if room < widths[0]:
                quota = limits.name_quota(row.namespace, resource)
                return _put_off(row, reason("quota_used_up", quota=quota))
        return row if widths == row.widths else replace(row, widths=widths)

    def count_quotas(self, rows: Iterable[Job]) -> Mapping[str, int] | None:
        """How many accelerators the Jobs of each quota may have, by its name; None: all they like.

        What is used by pods of Jobs that have no row is not theirs.
        """
        left = {
            name: (namespace, resource, most)
            for namespace, limits in self._limits.items()
            for name, (resource, most) in limits.accelerators_left(namespace).items()
        }
        if not left:
            return None
        gpus_by_quota: Counter[str] = Counter()
        for row in rows:
            gpus_by_quota[row.quota] += (
                row.workers + row.terminating_workers
            ) * row.gpus_per_worker
        return {
            name: int(
                most
                - max(0.0, self._used.get(namespace, {}).get(resource, 0.0) - gpus_by_quota[name])
            )
            for name, (namespace, resource, most) in left.items()
        }

    def without_room(
        self, decisions: Iterable[Decision], rows: Mapping[str, Job], jobs: Mapping[str, Json]
    ) -> set[str]:
        """Jobs whose start or growth, after those before it, is more than a quota leaves."""
        if not self._limits:
            return set()
        spent = {namespace: dict(used) for namespace, used in self._used.items()}
        blocked = set()
        for decision in decisions:
            row = rows.get(decision.job) if isinstance(decision, Admit | Resize) else None
            if row is None or not isinstance(decision, Admit | Resize):
                continue
            more, limits = decision.workers - row.workers, self._limits.get(row.namespace)
            if more <= 0 or limits is None or row.id not in jobs:
                continue
            job = self.complete(jobs[row.id])
            demand_of_pod = demand_of(json_tree.mapping_at(job, "spec", "template"))
            mine = spent.setdefault(row.namespace, {})
            if limits.find_room(demand_of_pod, mine)[0] < more:
                blocked.add(row.id)
            else:
                add_to(mine, demand_of_pod, more)
        return blocked

    def _count_used(self, namespaces: Collection[str]) -> tuple[dict[str, Used], dict[str, Used]]:
        """What laxity's Jobs use in these namespaces, and what pods of others do."""
        own: dict[str, Used] = {}
        foreign: dict[str, Used] = {}
        jobs = self._cache.jobs
        for group in self._cache.pods_of.keys() | jobs.keys():
            namespace = namespace_of(group)
            if namespace not in namespaces:
                continue
            job, there = jobs.get(group), self._cache.pods_of.get(group, {}).values()
            alive = [pod for pod in there if not pods.is_finished(pod)]
            is_ours = job is not None and objects.is_managed(job)
            used = (own if is_ours else foreign).setdefault(namespace, {})
            for pod in alive:
                add_to(used, demand_of(pod), 1)
            awaited = objects.due_workers(job) - len(alive) if job and objects.is_live(job) else 0
            if job and is_ours and awaited > 0:
                template = json_tree.mapping_at(self.complete(job), "spec", "template")
                add_to(used, demand_of(template), awaited)
        return own, foreign


def _group_by_namespace(things: Iterable[Json]) -> dict[str, list[Json]]:
    groups: dict[str, list[Json]] = {}
    for thing in things:
        groups.setdefault(str(json_tree.get_in(thing, "metadata", "namespace")), []).append(thing)
    return groups


def _put_off(row: Job, why: Reason) -> BadJob:
    return BadJob(row.id, (why.text,), put_off=True, why=why)


def _find_differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def namespace_of(group: str) -> str:
    return group.removeprefix("pod:").partition("/")[0]
