"""Node affinity: laxity names the nodes that it would choose, and the cluster's scheduler places.

Left alone it spreads pods over all nodes, and jobs whose workers need whole nodes then wait with half
of the GPUs free. So a start makes its nodes the preferred ones, the more workers are meant for one the
heavier. Required stays what the Job itself says, and that its pods keep off nodes whose GPUs are held
for somebody else, off those that inference keeps to itself, and on GPUs of one product. So a volume's zone, spread
constraints and whatever else laxity does not count is the scheduler's to obey.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import names_there
from laxity_k8s.objects.node_rows.pool_label import POOL

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAME = "metadata.name"
OURS: Final = ("matchExpressions", "matchFields")  # of a term, where we add
HEAVIEST: Final = 100  # weight of a preference, by the API
HELD: Final = (
    f"{names.DOMAIN}/held-for-others"  # no node has this label: it tells our names from others
)
# Beside the product that we ask for, with its label: it tells ours from what the user asks.
ON_PRODUCT: Final = f"{names.DOMAIN}/on-product"
NOT_OF_INFERENCE: Final[Json] = {"key": POOL, "operator": "NotIn", "values": ["inference"]}


class Lean(Protocol):
    """Makes the patch of a template, for pods that lean to these nodes."""

    def __call__(
        self, job: Json, nodes: Sequence[str], *, avoided: Sequence[str]
    ) -> Json | None: ...


def affinity_patch(
    job: Json,
    nodes: Sequence[str],
    kept_off: Collection[str] = (),
    *,
    has_fleet: bool = False,
    product: tuple[str, str] | None = None,
    avoided: Sequence[str] = (),
) -> Json | None:
    """The patch of spec.template that leans its pods to these nodes; None if it does so already.

    `nodes` has one entry per worker. Pods stay off the nodes `kept_off`, and off those that inference
    keeps to itself if the cluster `has_fleet`. They go to nodes that are `avoided` only if no other will do.
    `product` is the label, and its value, of the nodes that they stay on.
    """
    spec = json_tree.mapping_at(job, "spec", "template", "spec")
    old = json_tree.list_at(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    kept_off = sorted(names_there(kept_off))
    ours: list[Json] = [NOT_OF_INFERENCE] if has_fleet else []
    ours += _stay_on(*product) if product else []
    terms = [_keep_off(term, kept_off, ours) for term in own_terms(old)]
    terms = [] if terms == [{}] else terms
    preferred = json_tree.list_at(spec, "affinity", "nodeAffinity", PREFERRED)
    wished = [*_own_preferences(preferred), *_prefer(names_there(nodes), names_there(avoided))]
    affinity: Json = {}
    if terms != old:
        affinity[REQUIRED] = {"nodeSelectorTerms": terms} if terms else None
    if wished != preferred:
        affinity[PREFERRED] = wished
    return {"spec": {"affinity": {"nodeAffinity": affinity}}} if affinity else None


def _stay_on(label: str, product: str) -> list[Json]:
    return [
        {"key": ON_PRODUCT, "operator": "NotIn", "values": [_as_value(label), product]},
        {"key": label, "operator": "In", "values": [product]},
    ]


def _as_value(label: str) -> str:
    return label.replace("/", "_")


def _keep_off(term: Json, nodes: Sequence[str], ours: Sequence[Json]) -> Json:
    """The user's term, for pods that keep off these nodes besides, and do what is `ours`."""
    labels = [*ours]
    if nodes:
        labels.append({"key": HELD, "operator": "NotIn", "values": [*nodes]})
    fields = [item for item in map(_avoid, nodes) if item not in term.get("matchFields", [])]
    more = zip(OURS, (labels, fields), strict=True)
    return {**term, **{key: [*term.get(key, []), *items] for key, items in more if items}}


def _avoid(node: str) -> Json:
    return {"key": NAME, "operator": "NotIn", "values": [node]}


def _prefer(nodes: Sequence[str], avoided: Sequence[str]) -> list[Json]:
    workers = Counter([node for node in nodes if node not in avoided])
    most = max(workers.values(), default=1)
    others = {"weight": HEAVIEST, "preference": {"matchFields": [*map(_avoid, avoided)]}}
    named = [
        {
            "weight": max(1, HEAVIEST * workers_there // most),
            "preference": {
                "matchFields": [{"key": NAME, "operator": "In", "values": [node]}],
            },
        }
        for node, workers_there in sorted(workers.items())
    ]
    return [*named, others] if avoided else named


def _own_preferences(preferences: Sequence[Json]) -> list[Json]:
    """The user's own: ours name a node."""
    return [item for item in preferences if not _name_fields(item)]


def _name_fields(preference: Json) -> list[Json]:
    fields = json_tree.list_at(preference, "preference", "matchFields")
    return [field for field in fields if field.get("key") == NAME]


def preferred_nodes(template: Json) -> frozenset[str]:
    """Names of the nodes that a template leans to."""
    affinity = json_tree.mapping_at(template, "spec", "affinity", "nodeAffinity")
    preferred = json_tree.list_at(affinity, PREFERRED)
    fields = [field for item in preferred for field in _name_fields(item)]
    named = [field for field in fields if field.get("operator") == "In"]
    return frozenset(str(name) for field in named for name in json_tree.list_at(field, "values"))


def own_terms(terms: Iterable[Json]) -> list[Json]:
    """The user's own terms, ours taken off. One empty term where there is none."""
    kept_terms: list[Json] = []
    for term in terms:
        ours = [_avoid(node) for node in _held_nodes(term)]
        fields = [item for item in term.get("matchFields", []) if item not in ours]
        labels = [item for item in term.get("matchExpressions", []) if not _is_ours(item, term)]
        own: dict[str, Any] = {key: term[key] for key in term if key not in OURS}
        own |= {key: items for key, items in zip(OURS, (labels, fields), strict=True) if items}
        if own not in kept_terms:
            kept_terms.append(own)
    return kept_terms or [{}]


def _is_ours(item: Json, term: Json) -> bool:
    """Whether laxity has added this about labels to the term."""
    if item == NOT_OF_INFERENCE or item.get("key") in (HELD, ON_PRODUCT):
        return True
    product = [_as_value(str(item.get("key"))), *json_tree.list_at(item, "values")]
    marks = [
        json_tree.list_at(mark, "values")
        for mark in json_tree.list_at(term, "matchExpressions")
        if mark.get("key") == ON_PRODUCT
    ]
    return item.get("operator") == "In" and product in marks


def _held_nodes(term: Json) -> list[str]:
    """The nodes that laxity's part of a term keeps off."""
    labels = json_tree.list_at(term, "matchExpressions")
    return [str(name) for item in labels if item.get("key") == HELD for name in item["values"]]


def held_nodes(template: Json) -> frozenset[str]:
    """The nodes that laxity keeps a pod or a template off."""
    affinity = json_tree.mapping_at(template, "spec", "affinity", "nodeAffinity")
    terms = json_tree.list_at(affinity, REQUIRED, "nodeSelectorTerms")
    return frozenset(name for term in terms for name in _held_nodes(term))
