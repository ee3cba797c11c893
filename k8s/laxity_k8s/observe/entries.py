"""What is known of one group of objects: a Job with its pods, or pods of somebody else."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import held_gpus, pods
from laxity_k8s.objects import jobs as objects
from laxity_k8s.objects.jobs import BadJob
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name, site_name
from laxity_k8s.objects.node_rows.affinity import preferred_nodes
from laxity_k8s.objects.node_rows.node_constraints import NOTHING, Asks
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_k8s.observe.unplaced import Unplaced, count_unseen
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job, Needs


@dataclass(slots=True)
class GroupEntry:
    """What was last made of one group of objects: a Job and its pods, or somebody else's pods."""

    uid: str
    row: Job | None
    state: JobStatusRecord
    busy: Counter[str]
    report: Report
    due_at: float
    sent: Counter[str] = field(default_factory=Counter)  # of `busy`: for workers not there yet
    meant_for: frozenset[str] = frozenset()  # sites that its pods lean to
    unseen_gpus: int = 0
    needs: Needs = ()  # what each of its workers requests beside accelerators
    requested: Counter[tuple[str, str]] = field(default_factory=Counter)  # by machine and resource
    asks: Asks = NOTHING
    bad: BadJob | None = None  # why a Job of laxity's has no row, or one by what it declared before


def own_pods(job: Json, all_pods: list[Json]) -> list[Json]:
    """Those of this Job, not of one that had its name before."""
    uid = str(job["metadata"].get("uid"))
    return [pod for pod in all_pods if pods.owner_of(pod)[1] == uid]


def count_earlier(job: Json, all_pods: list[Json]) -> int:
    """Workers of an earlier attempt by this Job's name that may still write into its folder."""
    if names.TRAINING not in json_tree.annotations_of(job):
        return 0
    uid = str(job["metadata"].get("uid"))
    return sum(pods.owner_of(pod)[1] != uid and not pods.is_finished(pod) for pod in all_pods)


def count_missing(
    entry: GroupEntry,
    job: Json,
    nodes: Sequence[str],
    size: int,
    own: list[Json],
    *,
    placeless: Collection[int] = (),
) -> None:
    """Add what is meant for its workers that are not there yet, unless no node was found for them."""
    entry.sent = held_gpus.gpus_reserved(job, nodes, size, own, placeless)
    entry.busy += entry.sent
    for site, gpus in entry.sent.items() if size else ():
        for resource, amount in entry.needs:
            entry.requested[machine_name(site), resource] += gpus // size * amount
    look_for_unseen(entry, job, own)


def count_sent(entry: GroupEntry, job: Json, own: list[Json]) -> None:
    """Add what is meant for the workers of a Job that has no row."""
    nodes = objects.find_places(job, own, objects.current_width(job))
    count_missing(
        entry, job, nodes, pods.count_gpus(json_tree.mapping_at(job, "spec", "template")), own
    )


def look_for_unseen(entry: GroupEntry, job: Json, own: list[Json]) -> None:
    template = json_tree.mapping_at(job, "spec", "template")
    size = pods.count_gpus(template) if entry.row is None else entry.row.gpus_per_worker
    awaited = entry.sent.total() // size if size else 0
    named = preferred_nodes(template)
    entry.meant_for = frozenset(site_name(name, entry.asks.resource) for name in named)
    entry.unseen_gpus = size * count_unseen(job, own, awaited)


def foreign_busy(entries: Mapping[str, GroupEntry], jobs: Mapping[str, Json]) -> Counter[str]:
    """GPUs by node of pods that belong to no Job of laxity's."""
    busy: Counter[str] = Counter()
    for group, entry in entries.items():
        if not objects.is_managed(jobs.get(group, {})):
            busy.update(entry.busy)
    return busy


def find_unplaced(
    entries: Mapping[str, GroupEntry],
    groups: Iterable[str],
    over: Mapping[str, int],
) -> Iterator[Unplaced]:
    """Workers that were not seen, and those whose place somebody else has taken.

    `groups` have workers that were not seen, `over` are GPUs more than a site has.
    """
    for group in sorted(groups):
        yield Unplaced(entries[group].unseen_gpus, entries[group].meant_for)
    for name, gpus in sorted(over.items()):
        left = gpus
        for group in sorted(entries):
            entry = entries[group]
            moved = min(left, entry.sent[name])
            if moved > 0:
                left -= moved
                yield Unplaced(moved, entry.meant_for)
