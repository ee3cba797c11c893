"""Nodes as plans count them: one for each kind of accelerator that a machine offers.

Accelerators of different names do not stand in for one another. So a machine with NVIDIA GPUs is a
node by its own name, and what it has of other kinds is a node `MACHINE/RESOURCE`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from laxity import json_tree, names
from laxity.job.accelerators import GPU, is_accelerator
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods

NOT_COUNTED_ON: Final = "laxity.dev/not-counted-on"  # a taint of such a node, whose pool is late
COMING: Final = "+"  # in the name of a node that may come (`scaling_pool`), and in no other
NAMED: Final = tuple(os.environ.get(names.ENV_PRODUCT_LABELS, "").split())
GKE: Final = "cloud.google.com/gke-accelerator"


def is_coming(name: str) -> bool:
    """Whether a node is one that may come."""
    return COMING in name


def names_there(names: Iterable[str]) -> list[str]:
    """Without nodes that may come: no pod can name them."""
    return [name for name in names if not is_coming(name)]


def site_name(machine: str, resource: str) -> str:
    """The node that plans know for this accelerator of a machine."""
    return machine if resource == GPU else f"{machine}/{resource}"


def machine_name(name: str) -> str:
    """The machine of a site."""
    return name.partition("/")[0]


def resource_of(name: str) -> str:
    return name.partition("/")[2] or GPU


def machine_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(machine_name, names))


def find_product(labels: Mapping[str, str], resource: str) -> tuple[str, str]:
    """The label of a machine that says which product its accelerators are, and that product.

    Without such a label NVIDIA GPUs are of one kind, "", and others are by their resource.
    """
    for label in _product_labels(resource):
        if product := labels.get(label):
            return label, product
    return "", "" if resource == GPU else resource


def _product_labels(resource: str) -> Iterator[str]:
    """The labels of NVIDIA's, AMD's and GKE's discovery; those of the setting come first."""
    yield from NAMED
    yield f"{resource}.product"
    yield f"{resource}.product-name"
    if resource.startswith(GPU):  # shared ones as well
        yield f"{GPU}.product"
        yield GKE


def count_offered(node: Json) -> dict[str, int]:
    """How many of each accelerator a machine has for pods; none where it has 0 of them.

    Kubernetes takes the capacity where a machine lists nothing as allocatable.
    """
    listed = json_tree.mapping_at(node, "status", "allocatable")
    return _count_accelerators(listed) if listed else count_capacity(node)


def count_capacity(node: Json) -> dict[str, int]:
    """How many of each accelerator the kubelet knows of, healthy or not."""
    return _count_accelerators(json_tree.mapping_at(node, "status", "capacity"))


def _count_accelerators(listed: Mapping[str, Any]) -> dict[str, int]:
    counts = {name: pods.count_of(listed[name]) for name in listed if is_accelerator(name)}
    return {name: count for name, count in counts.items() if count}
