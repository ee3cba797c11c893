"""Which resources are accelerators, and how many of which a pod takes from its node.

Accelerators are counted by the name of their resource: an nvidia.com/gpu is no amd.com/gpu, and a MIG
slice no GPU. All containers of a pod count, by Kubernetes' own rule: containers and sidecars (init
containers that restart always) run together, any other init container runs before them and takes what
it needs beside the sidecars that were started earlier.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from laxity import json_tree, names
from laxity.job.qos import QoSError
from laxity.parsing import whole_number

GPU: Final = "nvidia.com/gpu"
KNOWN: Final = re.compile(
    r"[^/]+/(gpu(\.shared)?|mig-.+|gaudi|tpu|npu|mlu|dcu|neuron(core|device)?|Ascend.+)"
    r"|gpu\.intel\.com/(i915|xe)"
)
NAMED: Final = frozenset(os.environ.get(names.ENV_ACCELERATORS, "").split())
KINDS: Final = ("containers", "initContainers")


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    return resource in NAMED or KNOWN.fullmatch(resource) is not None


def count_accelerators(pod_spec: Any) -> dict[str, int]:
    """How many of each accelerator a pod of this spec takes; what is no whole number counts as 0."""
    together: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in _list_containers(pod_spec, "initContainers"):
        is_sidecar = container.get("restartPolicy") == "Always"
        beside = together + count_requests(container)
        peak |= beside
        together = beside if is_sidecar else together
    for container in _list_containers(pod_spec, "containers"):
        together += count_requests(container)
    return dict(together | peak) if peak else dict(together)


def main_accelerator(pod_spec: Any) -> tuple[str, int]:
    """The accelerator that its workers use, and how many each; (nvidia.com/gpu, 0) if there is none.

    QoSError if a container asks for anything but a whole number, or the pod for several kinds.
    """
    written = ""
    for kind in KINDS:
        for number, container in enumerate(_list_containers(pod_spec, kind)):
            for resource, quantity in _accelerator_quantities(container):
                written = resource
                if whole_number(quantity) is None:
                    where = f"spec.template.spec.{kind}[{number}].resources"
                    what = f"{quantity!r:.60} is no whole number of {resource:.60}; write 1, 2, ..."
                    raise QoSError(where, what)
    kinds = count_accelerators(pod_spec)
    if written and not kinds:
        what = (
            f"the pods ask for 0 of {written:.60}; laxity plans accelerators: ask for some, from 1"
        )
        raise QoSError("resources", what)
    if len(kinds) > 1:
        names = " and ".join(sorted(kinds))
        what = (
            f"the pods ask for {names}; laxity plans one kind of accelerator per Job: ask for one"
        )
        raise QoSError("resources", what)
    return next(iter(kinds.items()), (GPU, 0))


def count_requests(container: Mapping[str, Any]) -> Counter[str]:
    return Counter(
        {
            name: count
            for name, quantity in _accelerator_quantities(container)
            if (count := whole_number(quantity))
        }
    )


def _accelerator_quantities(container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Accelerators of one container by name, its limits before its requests."""
    names_seen = set()
    for kind in ("limits", "requests"):
        quantities: Mapping[Any, Any] = json_tree.mapping_at(container, "resources", kind)
        for name, quantity in quantities.items():
            if name not in names_seen and isinstance(name, str) and is_accelerator(name):
                names_seen.add(name)
                yield name, quantity


def _list_containers(pod_spec: Any, kind: str) -> list[Mapping[str, Any]]:
    containers = json_tree.list_at(pod_spec, kind)
    return [container for container in containers if isinstance(container, Mapping)]
