"""What a random Job may be told: for each thing that laxity cannot do the words, for each code its ground.

A Job that is refused for another reason than its own is as wrong as one that is not refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from laxity import names
from tests.support.kubernetes.as_written import is_elastic, most_at_once
from tests.support.kubernetes.random_jobs import accelerators, is_offered

Json = dict[str, Any]
NODES: Final = 4  # of the cluster, each of so many nvidia.com/gpu
GPUS: Final = 4


def invalid_words(job: Json, wrong: Collection[str]) -> dict[str, str]:
    """The words for each thing about this Job that makes it invalid, by what it is."""
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    said, kinds = job["metadata"]["annotations"], accelerators(pod)
    sized = names.WIDTHS in said and is_elastic(job)
    stated = str(most_at_once(spec) or 1)
    found = {key: f"{key}: " for key in wrong}
    if "deadline" in wrong:  # what does not go with it cannot be told
        found.pop("class", None)
    for field in ("parallelism", "completions"):
        if spec.get(field) == 0 and not sized:
            found[f"no {field}"] = f"{field}: 0: this Job asks for no pod"
    if spec.get("managedBy") == "example.com/other":
        found["managedBy"] = "managedBy: 'example.com/other' runs the pods of this Job"
    sizes = names.WIDTHS in said and "widths" not in wrong and not is_elastic(job)
    if sizes and said[names.WIDTHS] != stated:
        found["widths"] = f"widths: this Job runs as it is written, on {stated}"
    if not kinds:
        zero = any("/" in key for one in _limits(pod) for key in one)
        found["no GPU"] = "the pods ask for 0 of" if zero else "no container asks for a GPU"
    if len(kinds) > 1:
        found["kinds of GPU"] = "one kind of accelerator per Job"
    return found


def _limits(pod: Json) -> list[Json]:
    containers = (*pod["containers"], *pod.get("initContainers", ()))
    return [one.get("resources", {}).get("limits", {}) for one in containers]


def has_deadline(job: Json) -> bool:
    return names.DEADLINE in job["metadata"]["annotations"]


def is_unknown(job: Json) -> bool:
    return has_deadline(job) and names.EPOCH_ESTIMATE not in job["metadata"]["annotations"]


def has_no_node(job: Json) -> bool:
    pod = job["spec"]["template"]["spec"]
    return pod.get("nodeSelector") == {"zone": "nowhere"} or not accelerators(pod) <= {
        "nvidia.com/gpu"
    }


def is_too_large(job: Json) -> bool:
    """Whether its pods, as many as must run at once, do not fit the nodes that they may use."""
    annotations, pod = job["metadata"]["annotations"], job["spec"]["template"]["spec"]
    size, least = gpus(pod), most_at_once(job["spec"])
    if is_elastic(job):
        least = min(map(int, re.findall(r"\d+", annotations[names.WIDTHS])), default=1)
    terms = str(pod.get("nodeSelector")) + str(pod.get("affinity", {}).get("nodeAffinity"))
    nodes = 1 if "hostname" in terms and "preferred" not in terms else NODES
    return nodes * (GPUS // size) < least if size else False


def gpus(pod: Json) -> int:
    """What a pod takes of its node: init containers run before the others, or beside them."""
    main = sum(map(_gpus, pod["containers"]))
    for first in pod.get("initContainers", ()):
        beside = first.get("restartPolicy") == "Always"
        main = main + _gpus(first) if beside else max(main, _gpus(first))
    return main


def _gpus(container: Json) -> int:
    return int(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))


GROUNDS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "capacity_promised_to_others": has_deadline,
    "capacity_freed_too_late": has_deadline,
    "deadline_before_fastest_finish": has_deadline,
    "deadline_in_the_past": has_deadline,
    "does_not_fit_any_node": lambda job: not is_offered(job["spec"]["template"]["spec"]),
    "does_not_fit_cluster": is_too_large,
    "does_not_fit_eligible_nodes": is_too_large,
    "missed_and_stopped": has_deadline,
    "no_eligible_node": has_no_node,
    "unknown_model_needs_profiling": is_unknown,
}


def wrong_reason(job: Json, wrong: Collection[str], code: str, words: str) -> list[str]:
    """Why this refusal does not fit this Job."""
    expected = invalid_words(job, wrong)
    if code == "invalid":
        missing = [what for what, text in expected.items() if text not in words]
        if not expected:
            return [f"it makes sense, and is told: {words}"]
        return [f"its {what} is not named: {words}" for what in missing]
    if expected:
        return [f"its {', '.join(expected)} cannot be meant; it is told {code}: {words}"]
    if code not in GROUNDS or not GROUNDS[code](job):
        return [f"it has no ground for {code}: {words}"]
    return []
