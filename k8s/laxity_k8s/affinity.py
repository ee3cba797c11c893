"""Required node affinity: the only way to tell the default scheduler where a Job's pods go.

Left alone it spreads pods over all nodes, and jobs whose workers need whole nodes then wait with
half of the GPUs free. So a start names its nodes, one term each (terms are alternatives), joined
with whatever the user's own terms demand.
"""

from collections.abc import Sequence
from typing import Any

from laxity_k8s import merge
from laxity_k8s.api import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAME = "metadata.name"


def onto(job: Json, nodes: Sequence[str]) -> Json | None:
    """The patch of spec.template that sends its pods to these nodes; None if they go there already."""
    spec = merge.table(job, "spec", "template", "spec")
    old = merge.items(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms = [
        {**term, "matchFields": [*term.get("matchFields", []), _named(node)]}
        for term in own_terms(old)
        for node in sorted(set(nodes))
    ]
    if terms == old:
        return None
    return {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}}


def own_terms(terms: Sequence[Json]) -> list[Json]:
    """The user's own terms: ours, which name a node, taken off. One empty term where there is none."""
    found: list[Json] = []
    for term in terms:
        fields = [one for one in term.get("matchFields", []) if one.get("key") != NAME]
        own: dict[str, Any] = {key: term[key] for key in term if key != "matchFields"}
        if fields:
            own["matchFields"] = fields
        if own not in found:
            found.append(own)
    return found or [{}]


def _named(node: str) -> Json:
    return {"key": NAME, "operator": "In", "values": [node]}
