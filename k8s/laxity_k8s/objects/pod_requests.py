"""What a pod requests of its node beside accelerators, as Kubernetes' scheduler counts it.

CPUs are in thousandths, memory and storage in bytes, all else in whole units. Each pod is one of those
that a node may have, and takes the host ports that its containers name; with the node's own network
all ports that they declare.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil
from typing import Any, Final

import orjson

from laxity import json_tree
from laxity.job.accelerators import is_accelerator
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.quantities import parse_quantity
from laxity_scheduler.model.job import PORT, Needs

PODS: Final = "pods"
BASIC: Final = ("cpu", "memory", "ephemeral-storage", PODS)
PLENTY: Final = 1 << 62  # of what a node does not list


def requests_of(pod: Json) -> Needs:
    """What a pod, or each pod of a template, requests."""
    spec = json_tree.mapping_at(pod, "spec")
    fields = [
        [_fields_of(item) for item in json_tree.list_at(spec, "containers")],
        [_fields_of(item) for item in json_tree.list_at(spec, "initContainers")],
        spec.get("overhead"),
        json_tree.get_in(spec, "resources", "requests"),
        bool(spec.get("hostNetwork")),
    ]
    return _read_cached(orjson.dumps(fields, default=repr))


def _fields_of(container: Any) -> list[Any]:
    return [json_tree.get_in(container, key) for key in ("resources", "ports", "restartPolicy")]


@lru_cache(maxsize=4096)
def _read_cached(text: bytes) -> Needs:
    containers, before, overhead, of_pod, on_host = orjson.loads(text)
    together: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for resources, _, restarts in before:
        beside = together + _read_amounts(resources)
        peak |= beside
        together = beside if restarts == "Always" else together
    for resources, *_ in containers:
        together += _read_amounts(resources)
    amounts = {**(together | peak), **_parse(of_pod)}
    for resource, amount in _parse(overhead).items():
        amounts[resource] = amounts.get(resource, 0) + amount
    running = [*containers, *(item for item in before if item[2] == "Always")]
    amounts |= dict.fromkeys(_read_ports(running, on_host=on_host), 1)
    return tuple(sorted({**amounts, PODS: 1}.items()))


def _read_amounts(resources: Any) -> Counter[str]:
    """Requests of one container; a limit is one where it requests nothing."""
    limits = _parse(json_tree.get_in(resources, "limits"))
    return Counter(limits | _parse(json_tree.get_in(resources, "requests")))


def _parse(quantities: Any) -> dict[str, int]:
    table = quantities if isinstance(quantities, dict) else {}
    parsed = {name: _parse_amount(name, table[name]) for name in table if not is_accelerator(name)}
    return {name: amount for name, amount in parsed.items() if amount > 0}


def _parse_amount(name: str, text: object) -> int:
    quantity = parse_quantity(text) or 0.0
    return ceil(quantity * 1000.0 - 1e-6) if name == "cpu" else ceil(quantity)


def _read_ports(containers: Iterable[list[Any]], *, on_host: bool) -> Iterator[str]:
    for _, ports, _ in containers:
        for port in ports if isinstance(ports, list) else ():
            number = json_tree.get_in(port, "hostPort")
            if on_host:
                number = number or json_tree.get_in(port, "containerPort")
            if number:
                yield f"{PORT}{number}/{json_tree.get_in(port, 'protocol') or 'TCP'}"


def amounts_of(node: Json) -> dict[str, int] | None:
    """What a node has for pods beside accelerators; None where it is no kubelet's, and bounds no pods."""
    status = json_tree.mapping_at(node, "status")
    listed = status.get("allocatable") or status.get("capacity") or {}
    if PODS not in listed:
        return None
    amounts = {
        name: _parse_amount(name, listed[name])
        for name in listed
        if not is_accelerator(name) and parse_quantity(listed[name]) is not None
    }
    return dict.fromkeys(BASIC, PLENTY) | amounts


def requested_on(own: Iterable[Json]) -> Counter[tuple[str, str]]:
    """What pods that are not over take, by machine and resource; nominated ones, too."""
    taken: Counter[tuple[str, str]] = Counter()
    for pod in own:
        node = pods.target_node_of(pod)
        if node and not pods.is_finished(pod):
            for resource, amount in requests_of(pod):
                taken[node, resource] += amount
    return taken
