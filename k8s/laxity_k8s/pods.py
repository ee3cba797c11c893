"""Reading a Pod: whose it is, which index, where, how many GPUs, and whether it still counts."""

from collections.abc import Iterable

from laxity_k8s import merge
from laxity_k8s.api import Json
from laxity_k8s.podenv import COMPLETION_INDEX

GPU = "nvidia.com/gpu"
TERMINAL = ("Succeeded", "Failed")


def phase(pod: Json) -> str:
    return str(merge.dig(pod, "status", "phase") or "Pending")


def over(pod: Json) -> bool:
    """Its processes are gone: it holds no GPUs any more."""
    return phase(pod) in TERMINAL


def leaving(pod: Json) -> bool:
    return bool(merge.dig(pod, "metadata", "deletionTimestamp"))


def node(pod: Json) -> str:
    """Where it is bound, "" if it is not."""
    return str(merge.dig(pod, "spec", "nodeName") or "")


def index(pod: Json) -> int | None:
    text = merge.annotations(pod).get(COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def gpus(pod: Json) -> int:
    """GPUs that a pod (or a pod template) takes from its node."""
    total = 0
    for container in merge.items(pod, "spec", "containers"):
        asked = merge.dig(container, "resources", "limits", GPU)
        if asked is None:
            asked = merge.dig(container, "resources", "requests", GPU)
        total += count(asked)
    return total


def count(quantity: object) -> int:
    """A whole Kubernetes quantity; 0 for none or nonsense."""
    text = str(quantity or "0")
    return int(text) if text.isdigit() else 0


def owner(pod: Json) -> tuple[str, str]:
    """(id, uid) of the Job it belongs to, or two empty strings."""
    for reference in merge.items(pod, "metadata", "ownerReferences"):
        if reference.get("kind") == "Job" and reference.get("controller"):
            namespace = merge.dig(pod, "metadata", "namespace")
            return f"{namespace}/{reference.get('name')}", str(reference.get("uid"))
    return "", ""


def ready(pod: Json) -> bool:
    for one in merge.items(pod, "status", "conditions"):
        if one.get("type") == "Ready":
            return bool(one.get("status") == "True")
    return False


def disrupted(pod: Json) -> bool:
    return any(
        one.get("type") == "DisruptionTarget" and one.get("status") == "True"
        for one in merge.items(pod, "status", "conditions")
    )


def exit_code(pod: Json) -> int | None:
    for one in merge.items(pod, "status", "containerStatuses"):
        code = merge.dig(one, "state", "terminated", "exitCode")
        if isinstance(code, int):
            return code
    return None


def ranges(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} as "0-2,5", the way a Job's completedIndexes are written."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def numbers(text: str) -> set[int]:
    """The indexes of "0-2,5"."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found
