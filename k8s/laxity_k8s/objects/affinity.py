"""Node affinity: the only way to tell the default scheduler where a Job's pods go.

Left alone it spreads pods over all nodes, and jobs whose workers need whole nodes then wait with
half of the GPUs free. So a start names its nodes, one required term each (terms are alternatives),
joined with whatever the user's own terms demand. Where that leaves a choice, as a Job may grow onto
other nodes later, a preference says how many of its workers the plan has meant for which.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_scheduler.model.cluster import CLOSED_POOLS, Node
from laxity_scheduler.model.decision import Admit, Decision
from laxity_scheduler.model.job import Job

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAME = "metadata.name"
HEAVIEST = 100  # weight of a preference, by the API


def affinity_patch(job: Json, nodes: Sequence[str], roomy: Sequence[str] = ()) -> Json | None:
    """The patch of spec.template that sends its pods to these nodes; None if they go there already.

    `nodes` has one entry per worker; to `roomy` ones it may grow later.
    """
    spec = json_tree.mapping_at(job, "spec", "template", "spec")
    old = json_tree.list_at(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms = [
        {**term, "matchFields": [*term.get("matchFields", []), name_field(node)]}
        for term in own_terms(old)
        for node in sorted({*nodes, *roomy})
    ]
    preferred = json_tree.list_at(spec, "affinity", "nodeAffinity", PREFERRED)
    wished = [*_own_preferences(preferred), *_build_preferences(nodes, roomy)]
    if terms == old and wished == preferred:
        return None
    affinity: Json = {REQUIRED: {"nodeSelectorTerms": terms}}
    if wished != preferred:
        affinity[PREFERRED] = wished or None
    return {"spec": {"affinity": {"nodeAffinity": affinity}}}


def find_roomy(
    nodes: Mapping[str, Node], freest: Iterable[Node], row: Job, decisions: Sequence[Decision]
) -> list[str]:
    """Nodes that an elastic job may grow onto later: as few as hold its greatest width.

    `freest` are those that its pods may use, those with most free GPUs first.
    """
    admit = next((decision for decision in decisions if isinstance(decision, Admit)), None)
    if admit is None or max(row.widths) <= admit.workers:
        return []
    size = row.gpus_per_worker
    named = set(admit.nodes)
    missing = max(row.widths) - sum(nodes[name].gpus // size for name in named if name in nodes)
    preferred_nodes = []
    for node in freest:
        if missing <= 0:
            break
        if node.id not in named and node.gpus >= size and node.pool not in CLOSED_POOLS:
            preferred_nodes.append(node.id)
            missing -= node.gpus // size
    return preferred_nodes


def _build_preferences(nodes: Sequence[str], roomy: Sequence[str]) -> list[Json]:
    """The more workers are meant for a node the heavier; none where all nodes are alike."""
    if not roomy and len(set(nodes)) < 2:  # as nearly always: no need to count
        return []
    workers = Counter(nodes)
    if len({workers[node] for node in (*nodes, *roomy)}) < 2:
        return []
    most = max(workers.values())
    return [
        {
            "weight": max(1, HEAVIEST * workers_there // most),
            "preference": {"matchFields": [name_field(node)]},
        }
        for node, workers_there in sorted(workers.items())
    ]


def preference_weights(template: Json) -> dict[str, int]:
    """Our preferences of a template: the weight of each node that has one."""
    preferred = json_tree.list_at(template, "spec", "affinity", "nodeAffinity", PREFERRED)
    return {
        str(node): pods.count_of(item.get("weight"))
        for item in preferred
        for field in json_tree.list_at(item, "preference", "matchFields")
        if field.get("key") == NAME
        for node in field.get("values", ())
    }


def _own_preferences(preferences: Sequence[Json]) -> list[Json]:
    """The user's own: ours name a node."""
    return [
        item
        for item in preferences
        if not any(
            field.get("key") == NAME
            for field in json_tree.list_at(item, "preference", "matchFields")
        )
    ]


def own_terms(terms: Sequence[Json]) -> list[Json]:
    """The user's own terms: ours, which name a node, taken off. One empty term where there is none."""
    kept_terms: list[Json] = []
    for term in terms:
        fields = [item for item in term.get("matchFields", []) if not _names_one(item)]
        own: dict[str, Any] = {key: term[key] for key in term if key != "matchFields"}
        if fields:
            own["matchFields"] = fields
        if own not in kept_terms:
            kept_terms.append(own)
    return kept_terms or [{}]


def _names_one(field: Json) -> bool:
    return bool(field.get("key") == NAME and field.get("operator", "In") == "In")


def name_field(node: str) -> Json:
    return {"key": NAME, "operator": "In", "values": [node]}


def node_names_for(template: Json) -> frozenset[str] | None:
    """Names of the nodes that a pod or a template may go to; None if any will do."""
    terms = json_tree.list_at(
        template,
        "spec",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    if not terms or not all(_read_names(term) for term in terms):
        return None
    return frozenset(name for term in terms for name in _read_names(term))


def _read_names(term: Mapping[str, Any]) -> list[str]:
    return [
        str(name)
        for field in term.get("matchFields", [])
        if field.get("key") == "metadata.name" and field.get("operator") == "In"
        for name in field.get("values", [])
    ]
