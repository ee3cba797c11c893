"""Growth that waits a moment, so that it takes no GPU that is meant for somebody else.

The affinity of a running Job is fixed: a new worker goes to whichever of its nodes the default
scheduler likes best, which need not be the one that the plan has meant for it. (Tried, two half-full
nodes: a Job on `a` that grew by two on `b` while another one started on `a` took that one's GPU in
one of three times; it then waited for a minute.) That does harm only while a worker of another Job
is on its way to such a node and has no pod bound there. The next cycle, a moment later, sees it
bound, and decides on the growth anew.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.accelerator_nodes import machine_name, resource_of
from laxity_k8s.objects.affinity import node_names_for, preference_weights
from laxity_scheduler.model.decision import Admit, Decision, Resize
from laxity_scheduler.model.job import Job

Jobs = Mapping[str, Json]
Rows = Mapping[str, Job]


def jobs_to_postpone(
    by_job: Mapping[str, Sequence[Decision]],
    rows: Rows,
    jobs: Jobs,
    on_its_way: Callable[[str], Collection[str]],
    guard: Guard,
) -> set[str]:
    """Jobs whose growth has to wait. `on_its_way(job)`: nodes that workers of others were sent to."""
    growing = {
        job: new
        for job, mine in by_job.items()
        for decision in mine
        if isinstance(decision, Resize) and (new := _find_new_nodes(decision, rows))
    }
    if not growing:
        return set()
    meant = nodes_in_plan(by_job, rows)
    postponed = set()
    for job, new in growing.items():
        others = {node for node, whose in meant.items() if whose - {job}}
        taken = others | set(on_its_way(job))
        template = json_tree.mapping_at(jobs.get(job), "spec", "template")
        if job in jobs and guard(job, may_stray, template, new, taken):
            postponed.add(job)
    return postponed


def may_stray(template: Json, new: Collection[str], taken: Iterable[str]) -> bool:
    """Whether workers meant for the nodes `new` might be sent to one of `taken` instead."""
    may, likes = node_names_for(template), preference_weights(template)
    return any(
        other != node and likes.get(machine_name(other), 0) >= likes.get(machine_name(node), 0)
        for other in taken
        if may is None or machine_name(other) in may
        for node in new
        if resource_of(other) == resource_of(node)
    )


def _find_new_nodes(one: Decision, rows: Rows) -> tuple[str, ...]:
    """Nodes of the workers that are started by this decision."""
    if isinstance(one, Admit):
        return one.nodes
    if isinstance(one, Resize) and one.at == "now" and one.job in rows:
        return one.nodes[rows[one.job].workers :]
    return ()


def nodes_in_plan(by_job: Mapping[str, Sequence[Decision]], rows: Rows) -> Mapping[str, set[str]]:
    """For whose new workers this plan means each node."""
    meant: defaultdict[str, set[str]] = defaultdict(set)
    for job, mine in by_job.items():
        for node in (node for decision in mine for node in _find_new_nodes(decision, rows)):
            meant[node].add(job)
    return meant
