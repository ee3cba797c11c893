"""Which nodes each Job may use: worked out anew when labels or taints of nodes change, and only then.

Jobs that ask the same share one set of nodes. A Job that may use every node with GPUs has none: it
is as if it asked for nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from laxity import json_tree
from laxity.job.accelerators import GPU
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.node_rows.accelerator_nodes import find_product, site_name
from laxity_k8s.objects.node_rows.node_constraints import NOTHING, Asks, adds_tolerations, shut_out
from laxity_k8s.observe.accelerator_counts import AcceleratorCounts
from laxity_k8s.observe.scaling_pools import ScalingPools
from laxity_scheduler.model.cluster import NodeSet

MOST_REASONS: Final = 5
MOST_NAMED: Final = 5
POOL_ADVICE: Final = "where an autoscaler adds such nodes, name their pool in LAXITY_POOLS"
Seen = tuple[Mapping[str, str], list[Any], tuple[str, ...]]  # labels, taints, accelerators


class Eligible:
    """The nodes with GPUs as they are labelled and tainted, and the sets that follow from it.

    Whether the cluster lets pods tolerate taints of the GPUs that they ask for shows in the first
    pod that such a taint concerns; until then it is taken for granted, as a pod that has to wait
    for it can be taken back, and a refused Job would be wronged.
    """

    def __init__(self, accelerators: AcceleratorCounts, pools: ScalingPools) -> None:
        self._accelerators, self._pools = accelerators, pools
        self._nodes: dict[str, Json] = {}  # all that were looked at
        self._seen: dict[str, Seen] = {}
        self._sets: dict[Asks, tuple[str, NodeSet]] = {}
        self._labels: dict[str, tuple[str, str]] = {}  # that say the product, by site
        self._products_of: dict[frozenset[str], str] = {}
        self._gpu_taints = True
        self._plain = True  # no node has a taint or an accelerator that is no nvidia.com/gpu
        self._guard = Guard("taints of a node")

    def update_nodes(self, nodes: Mapping[str, Json]) -> bool:
        """Take in the nodes; whether anything that matters here is different."""
        changed = {name for name, node in nodes.items() if self._nodes.get(name) is not node}
        changed |= self._accelerators.changed & nodes.keys()
        gone = self._nodes.keys() - nodes.keys()
        self._nodes = dict(nodes)
        before = {name: self._seen.pop(name, None) for name in (*changed, *gone)}
        for name in changed:
            if offered := tuple(sorted(self._accelerators.counts(name))):
                taints = json_tree.list_at(nodes[name], "spec", "taints")
                self._seen[name] = (json_tree.labels_of(nodes[name]), taints, offered)
        if all(self._seen.get(name) == old for name, old in before.items()):
            return False
        self._rebuild_sets()
        return True

    def learn_tolerations(self, template: Json, own: Iterable[Json]) -> bool:
        """See in a Job's pods whether they were let tolerate taints of GPUs; whether that is news."""
        if self._plain:
            return False
        shown = [adds_tolerations(template, pod) for pod in own]
        taints = next(
            (taints_shown for taints_shown in shown if taints_shown is not None), self._gpu_taints
        )
        if taints == self._gpu_taints:
            return False
        self._gpu_taints = taints
        self._rebuild_sets()
        return True

    def name_of(self, asks: Asks) -> str:
        """The set of nodes that do for pods that ask so, by its name; "" if all do."""
        if self._plain and asks is NOTHING:
            return ""
        return self.set_of(asks)[0]

    def look_up(self, asks: Asks) -> tuple[str, NodeSet]:
        """The name and the set for a question: they are not kept, as questions may be any."""
        return self._sets.get(asks) or self._compute_set(asks)

    def set_of(self, asks: Asks) -> tuple[str, NodeSet]:
        node_set = self._sets.get(asks)
        if node_set is None:
            node_set = self._sets[asks] = self._compute_set(asks)
        return node_set

    def product_on(self, sites: frozenset[str]) -> str:
        """The product of the accelerators of all these nodes; "" if there are several."""
        product = self._products_of.get(sites)
        if product is None:
            products = {product for _, product in map(self._label_of, sites)} - {""}
            product = products.pop() if len(products) == 1 else ""
            self._products_of[sites] = product
        return product

    def product_label(self, asks: Asks, sites: frozenset[str]) -> tuple[str, str] | None:
        """The label that these nodes share, and no other product has that such pods may go to."""
        labels = set(map(self._label_of, sites))
        if len(labels) != 1 or self.product_on(self.set_of(asks)[1].nodes):
            return None
        label, product = labels.pop()
        return (label, product) if label else None

    def _label_of(self, site: str) -> tuple[str, str]:
        return self._labels.get(site, ("", ""))

    def _rebuild_sets(self) -> None:
        self._sets.clear()
        self._products_of.clear()
        self._labels = {
            site_name(name, resource): find_product(labels, resource)
            for name, (labels, _, offered) in self._seen.items()
            for resource in offered
        }
        self._plain = not any(
            taints or offered != (GPU,) for _, taints, offered in self._seen.values()
        )

    def _compute_set(self, asks: Asks) -> tuple[str, NodeSet]:
        nodes_by_reason: dict[str, list[str]] = {}
        for name in sorted(self._seen):
            problem = self._shut_out(asks, name)
            for resource in self._seen[name][2]:
                other = f"it offers {resource}, {asks.resource} is asked"
                shown_problem = problem if resource == asks.resource else other
                nodes_by_reason.setdefault(shown_problem, []).append(site_name(name, resource))
        mine = frozenset(nodes_by_reason.pop("", ()))
        bare = [name for name in sorted(self._nodes) if self._is_bare(asks, name)]
        parts = [f"{list_names(bare)}: it lists 0 {asks.resource}"] if bare else []
        parts += [summarize_reasons(nodes_by_reason)] if nodes_by_reason else []
        late = [
            problem
            for node, problem in self._pools.describe_late()
            if not shut_out(asks, node, gpu_taints=self._gpu_taints)
        ]
        parts += late or ([] if mine else [POOL_ADVICE])
        is_named = nodes_by_reason or (late and not mine)
        return asks.text if is_named else "", NodeSet(mine, "; ".join(parts))

    def _shut_out(self, asks: Asks, name: str) -> str:
        node = self._nodes[name]
        problem = self._guard(name, shut_out, asks, node, gpu_taints=self._gpu_taints)
        return "it cannot be read" if problem is None else problem

    def _is_bare(self, asks: Asks, name: str) -> bool:
        """Whether these pods could go there if it did not list 0 of what they ask for."""
        if name in self._seen:
            return False
        listed = json_tree.mapping_at(self._nodes[name], "status", "allocatable")
        return asks.resource in listed and not self._shut_out(asks, name)


def summarize_reasons(why: Mapping[str, list[str]]) -> str:
    """The reasons with the nodes that they shut out, the most frequent first."""
    ordered = sorted(why.items(), key=lambda one: (-len(one[1]), one[0]))
    parts = [f"{list_names(nodes)}: {problem}" for problem, nodes in ordered[:MOST_REASONS]]
    more = len(ordered) - MOST_REASONS
    return "; ".join(parts) + (f"; and {more} other reasons" if more > 0 else "")


def list_names(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:MOST_NAMED])
    return f"{shown} and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else shown
