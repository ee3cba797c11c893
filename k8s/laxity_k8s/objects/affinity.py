"""Node affinity: the only way to tell the default scheduler where a Job's pods go.

Left alone it spreads pods over all nodes, and jobs whose workers need whole nodes then wait with
half of the GPUs free. So a start names its nodes, one required term each (terms are alternatives),
joined with whatever the user's own terms demand. Where that leaves a choice, as a Job may grow onto
other nodes later, a preference says how many of its workers the plan has meant for which.

Nodes of the inference fleet are named long before they are lent: their terms hold only while they
are not labelled as inference's own.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.pool_label import POOL
from laxity_scheduler.model.cluster import FLEET_POOLS, Node
from laxity_scheduler.model.decision import Admit, Decision
from laxity_scheduler.model.job import Job

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAME = "metadata.name"
OURS: Final = ("matchExpressions", "matchFields")  # of a term, where we add
HEAVIEST = 100  # weight of a preference, by the API
WHILE_LENT: Final[Json] = {"key": POOL, "operator": "NotIn", "values": ["inference"]}
MOST_FLEET: Final = 100  # nodes of the fleet that are all named: about 20 kB of a Job
FLEET_SHARE: Final = 2  # in a larger one as many as hold so many times the workers that it may get


class Reach(NamedTuple):
    """Nodes that a Job may grow onto later, and which are inference's, lent or not."""

    roomy: Sequence[str] = ()
    fleet: Collection[str] = ()


def affinity_patch(
    job: Json, nodes: Sequence[str], roomy: Sequence[str] = (), fleet: Collection[str] = ()
) -> Json | None:
    """The patch of spec.template that sends its pods to these nodes; None if they go there already.

    `nodes` has one entry per worker; to `roomy` ones it may grow later. Those in `fleet` are
    inference's, lent or not.
    """
    spec = json_tree.mapping_at(job, "spec", "template", "spec")
    old = json_tree.list_at(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms = [
        _name_node(term, node, while_lent=node in fleet)
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

    `freest` are those that its pods may use, those with most free GPUs first. Which nodes of the
    inference fleet will be lent is not known at its start, and a template that runs cannot be
    changed: so all of them are named, of a fleet that is too large for that some, lent ones first.
    """
    admit = next((decision for decision in decisions if isinstance(decision, Admit)), None)
    if admit is None or max(row.widths) <= admit.workers:
        return []
    size = row.gpus_per_worker
    named = set(admit.nodes)
    missing = max(row.widths) - sum(nodes[name].gpus // size for name in named if name in nodes)
    others = [node for node in freest if node.id not in named and node.gpus >= size]
    own = [node for node in others if node.pool == "training"]
    fleet = [node for node in others if node.pool in FLEET_POOLS]
    fleet.sort(key=lambda node: (node.pool != "loaned", node.id))
    flexible = FLEET_SHARE * (max(row.widths) - min(row.widths))
    enough = max(MOST_FLEET, len(_first_that_hold(fleet, flexible, size)))
    lendable = [node.id for node in fleet[:enough]]
    return [*_first_that_hold(own, missing, size), *lendable]


def _first_that_hold(nodes: Iterable[Node], workers: int, gpus_per_worker: int) -> list[str]:
    """The first nodes, as few as hold so many workers when they are empty; all if none do."""
    names = []
    for node in nodes:
        if workers <= 0:
            break
        names.append(node.id)
        workers -= node.gpus // gpus_per_worker
    return names


def _name_node(term: Json, node: str, *, while_lent: bool) -> Json:
    """The user's term, for this node only."""
    named = {**term, "matchFields": [*term.get("matchFields", []), name_field(node)]}
    if while_lent:
        named["matchExpressions"] = [*term.get("matchExpressions", []), WHILE_LENT]
    return named


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
        labels = [item for item in term.get("matchExpressions", []) if item != WHILE_LENT]
        own: dict[str, Any] = {key: term[key] for key in term if key not in OURS}
        own |= {key: items for key, items in zip(OURS, (labels, fields), strict=True) if items}
        if own not in kept_terms:
            kept_terms.append(own)
    return kept_terms or [{}]


def _names_one(field: Json) -> bool:
    return bool(field.get("key") == NAME and field.get("operator", "In") == "In")


def name_field(node: str) -> Json:
    return {"key": NAME, "operator": "In", "values": [node]}


def node_names_for(template: Json) -> frozenset[str] | None:
    """Names of the nodes that a pod or a template may go to; None if any will do."""
    affinity = json_tree.mapping_at(template, "spec", "affinity", "nodeAffinity")
    terms = json_tree.list_at(affinity, REQUIRED, "nodeSelectorTerms")
    if not terms or not all(_read_names(term) for term in terms):
        return None
    return frozenset(name for term in terms for name in _read_names(term))


def _read_names(term: Mapping[str, Any]) -> list[str]:
    return [
        str(name)
        for field in term.get("matchFields", [])
        if field.get("key") == NAME and field.get("operator") == "In"
        for name in field.get("values", [])
    ]
