"""Reading a Pod: whose it is, which index, where, how many GPUs, and whether it still counts."""

from collections.abc import Iterable
from textwrap import shorten
from typing import Final

from laxity import json_tree
from laxity.instants import instant_at
from laxity.job.accelerators import GPU, count_accelerators
from laxity.job.worker_exits import SIGNALLED, USAGE, signal_text
from laxity.parsing import whole_number
from laxity.safe_text import without_secrets
from laxity.stderr import MARK
from laxity.worker.sigterm import EXIT_RESTART, EXIT_STOPPED
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.conditions import find_condition, read_condition
from laxity_k8s.objects.containers import (
    BEING_MADE,
    count_restarts,
    end_instant,
    end_of,
    failed_end,
    is_held_up,
    what_it_waits_for,
)
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import format_utc

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

TERMINAL = ("Succeeded", "Failed")
# Exit codes of workers that start again.
MAKING_WAY: Final = frozenset({EXIT_RESTART, EXIT_STOPPED})
LONGEST_WORD: Final = 300
LONGEST_REASON: Final = 900  # of the scheduler, whose words are told whole
OVERDUE_S: Final = 15.0  # so long after its grace a pod may take to be gone
MOST_NAMED: Final = 3
REJECTED: Final = "Pod was rejected"  # begins what a kubelet says of a pod that it does not take
TRACKING: Final = "batch.kubernetes.io/job-tracking"  # finalizer by which Jobs count their pods
MOST_INDEXES: Final = 100_000  # of an Indexed Job, by Kubernetes


def phase_of(pod: Json) -> str:
    return str(json_tree.get_in(pod, "status", "phase") or "Pending")


def is_finished(pod: Json) -> bool:
    """Its processes are gone: it holds no GPUs any more."""
    return phase_of(pod) in TERMINAL


def is_terminating(pod: Json) -> bool:
    return bool(json_tree.get_in(pod, "metadata", "deletionTimestamp"))


def node_of(pod: Json) -> str:
    """Where it is bound, "" if it is not."""
    return str(json_tree.get_in(pod, "spec", "nodeName") or "")


def bound_at(pod: Json) -> float | None:
    """When it got its node; None if it has none. Its creation, if no condition says it."""
    if not node_of(pod):
        return None
    scheduled = find_condition(pod, "PodScheduled")
    since = scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None
    return instant_at(since) or created_at(pod)


def created_at(pod: Json) -> float:
    return instant_at(json_tree.get_in(pod, "metadata", "creationTimestamp")) or 0.0


def end_due_at(pod: Json) -> float:
    """When a pod that was told to end should have ended; never if it was not, or has ended."""
    if is_finished(pod):
        return FOREVER
    return instant_at(json_tree.get_in(pod, "metadata", "deletionTimestamp")) or FOREVER


def is_overdue(pod: Json, now: float) -> bool:
    """Whether it should have ended and has not."""
    return end_due_at(pod) + OVERDUE_S <= now


def describe_overdue(own: Iterable[Json], now: float) -> str:
    """Pods that should have ended and have not: where, since when, and what else keeps them; or ""."""
    overdue = [pod for pod in own if is_overdue(pod, now)]
    texts = [_describe_overdue(pod) for pod in sorted(overdue, key=json_tree.object_id)]
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return "; ".join(texts[:MOST_NAMED]) + more


def _describe_overdue(pod: Json) -> str:
    grace_s = count_of(json_tree.get_in(pod, "metadata", "deletionGracePeriodSeconds"))
    since = format_utc(end_due_at(pod) - grace_s)
    where = f" on node {node_of(pod)}" if node_of(pod) else ""
    held = [name for name in json_tree.list_at(pod, "metadata", "finalizers") if name != TRACKING]
    kept = f", kept by finalizer {', '.join(map(str, held))}" if held else ""
    return f"pod {json_tree.get_in(pod, 'metadata', 'name')}{where} has been ending since {since}{kept}"


def next_overdue_at(own: Iterable[Json], now: float) -> float:
    """When the next of them counts as such."""
    instants = (end_due_at(pod) + OVERDUE_S for pod in own)
    return min((instant for instant in instants if instant > now), default=FOREVER)


def target_node_of(pod: Json) -> str:
    """The node that it is bound to, or nominated for while others make way."""
    return node_of(pod) or str(json_tree.get_in(pod, "status", "nominatedNodeName") or "")


def index_of(pod: Json) -> int | None:
    return whole_number(json_tree.annotations_of(pod).get(COMPLETION_INDEX), most=MOST_INDEXES)


def accelerators_of(pod: Json) -> dict[str, int]:
    """Accelerators that a pod (or a pod template) takes from its node, by the resource's name."""
    return count_accelerators(json_tree.mapping_at(pod, "spec"))


def count_gpus(pod: Json) -> int:
    """How many of them, whatever they are called."""
    return sum(accelerators_of(pod).values())


def resource_of(pod: Json) -> str:
    """The name of its accelerator, nvidia.com/gpu for a pod that asks for none."""
    return next(iter(accelerators_of(pod)), GPU)


def count_of(quantity: object) -> int:
    """A whole Kubernetes quantity; 0 for none or nonsense."""
    return whole_number(quantity) or 0 if quantity else 0  # most are not there


def owner_of(pod: Json) -> tuple[str, str]:
    """(id, uid) of the Job it belongs to, or two empty strings."""
    for reference in json_tree.list_at(pod, "metadata", "ownerReferences"):
        if json_tree.get_in(reference, "kind") == "Job" and reference.get("controller"):
            namespace = json_tree.get_in(pod, "metadata", "namespace")
            return f"{namespace}/{reference.get('name')}", str(reference.get("uid"))
    return "", ""


def is_ready(pod: Json) -> bool:
    return read_condition(pod, "Ready") == "True"


def disruption_reason(pod: Json) -> str:
    """Why it has to go for no fault of its own, as its condition says; "" if it has not."""
    target = find_condition(pod, "DisruptionTarget")
    is_target = target.get("status") == "True"
    return str(target.get("reason") or "DisruptionTarget") if is_target else ""


def exit_code(pod: Json) -> int | None:
    for status in json_tree.list_at(pod, "status", "containerStatuses"):
        code = end_of(status).get("exitCode")
        if isinstance(code, int):
            return code
    return None


def has_failed(pod: Json) -> bool:
    """Whether it failed by itself: it was not told to go, and does not make way to start again.

    With `restartPolicy: OnFailure` the kubelet starts its container again, and the pod stays.
    """
    ended = phase_of(pod) == "Failed" or (not is_finished(pod) and count_restarts(pod) > 0)
    if not ended or disruption_reason(pod) or _was_told_to_end(pod):
        return False
    return exit_code(pod) not in MAKING_WAY


def _was_told_to_end(pod: Json) -> bool:
    """Whether it ended because it was deleted; of a container that never ran nobody knows when."""
    due_at = instant_at(json_tree.get_in(pod, "metadata", "deletionTimestamp"))
    if due_at is None:
        return False
    grace_s = count_of(json_tree.get_in(pod, "metadata", "deletionGracePeriodSeconds"))
    return not 0.0 < end_instant(pod) < due_at - grace_s


def was_turned_away(pod: Json) -> bool:
    """Whether its node did not take it. A kubelet that starts anew may turn away one that ran, too."""
    if phase_of(pod) != "Failed":
        return False
    message = str(json_tree.get_in(pod, "status", "message") or "")
    return message.startswith(REJECTED) or (exit_code(pod) is None and not failed_end(pod)[1])


def worker_failure(pod: Json) -> str:
    """Why a worker failed: its exit code or signal, and the last line that it wrote.

    What laxity notes in the middle of its output is no reason, but where laxity itself ended it.
    """
    number = index_of(pod) or 0
    by_node = _describe_node_end(pod)
    if was_turned_away(pod):
        why = by_node or "nothing is said of why"
        return f"worker {number} was turned away by {node_of(pod) or 'any node'}: {why}"
    init, end = failed_end(pod)
    output = without_secrets(str(end.get("message") or ""))
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if end.get("exitCode") != USAGE:
        lines = [line for line in lines if not line.startswith(MARK)]
    # From outside: what it wrote last is not why.
    killed = f" ({by_node})" if by_node else kill_reason(end)
    before = "; last output: " if killed else ": "
    last = f"{before}{lines[-1][:LONGEST_WORD]}" if lines else ""
    code = end.get("exitCode") if init else exit_code(pod)
    where = f" in its init container {init}" if init else ""
    return f"worker {number} failed{where} with exit code {code}{killed}{last}"


def _describe_node_end(pod: Json) -> str:
    """Why its kubelet ended the whole pod: a volume over its limit, a time limit; "" if it did not."""
    words = [json_tree.get_in(pod, "status", name) for name in ("reason", "message")]
    return ": ".join(str(word).strip() for word in words if word)[:LONGEST_WORD]


def failure_reason(own: Iterable[Json], workers: int) -> str:
    """Why the first of these workers that has failed did; "" if all run or only make way.

    Each index is judged by its newest pod. The others of a training fail for want of the first.
    """
    newest: dict[int, Json] = {}
    for pod in sorted(own, key=creation_text):
        newest[index_of(pod) or 0] = pod
    failed = [pod for number, pod in newest.items() if number < workers and has_failed(pod)]
    return worker_failure(min(failed, key=end_text)) if failed else ""


def leader_began_at(own: Iterable[Json]) -> float:
    """When the newest pod of worker 0 was created, if it has not failed; never without one."""
    leaders = [pod for pod in own if (index_of(pod) or 0) == 0 and phase_of(pod) != "Failed"]
    return max(map(created_at, leaders), default=FOREVER)


def leader_runs(own: Iterable[Json]) -> bool:
    """Whether a pod of worker 0 is running."""
    return any((index_of(pod) or 0) == 0 and phase_of(pod) == "Running" for pod in own)


def pending_reason(own: Iterable[Json], workers: int, *, had_time: bool = True) -> str:
    """Why the first of these workers that has not started has not; "" if no pod says.

    Of pods that have not had their time, only what not every start passes through.
    """
    for pod in sorted(own, key=lambda pod: index_of(pod) or 0):
        number = index_of(pod) or 0
        if number >= workers or phase_of(pod) != "Pending" or not (had_time or is_blocked(pod)):
            continue
        if cause := waits_for(pod) or unanswered(pod):
            return shorten(f"worker {number} {cause}", LONGEST_REASON, placeholder=" ...")
    return ""


def waits_for(pod: Json) -> str:
    """Its node, or something on it, in the words of the scheduler or the kubelet."""
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"has no node: {scheduled.get('message') or scheduled.get('reason')}"
    cause = what_it_waits_for(pod)
    return f"waits on {node_of(pod)}: {cause}" if cause else ""


def is_blocked(pod: Json) -> bool:
    """Whether the scheduler finds no node for it, or the kubelet cannot start a container of it."""
    return find_condition(pod, "PodScheduled").get("status") == "False" or is_held_up(pod)


def is_being_made(pod: Json) -> bool:
    """Whether it has a node and waits for its containers there, and its status says no more."""
    waits = phase_of(pod) == "Pending" and node_of(pod) and not is_terminating(pod)
    return bool(waits) and what_it_waits_for(pod) in ("", *BEING_MADE)


def unanswered(pod: Json) -> str:
    """That its scheduler has not looked at it; "" if it has."""
    name = json_tree.get_in(pod, "spec", "schedulerName")
    if not name or node_of(pod) or find_condition(pod, "PodScheduled"):
        return ""
    return f"has no node: scheduler {name} has not answered"


def kill_reason(end: Json) -> str:
    """What a signal or the kubelet ended; "" if the worker exited by itself."""
    if end.get("reason") == "OOMKilled":
        return " (out of memory)"
    by = signal_text((end.get("exitCode") or 0) - SIGNALLED)
    return f" ({by})" if by else ""


def creation_text(pod: Json) -> str:
    return str(json_tree.get_in(pod, "metadata", "creationTimestamp") or "")


def end_text(pod: Json) -> str:
    statuses = json_tree.list_at(pod, "status", "containerStatuses")
    ends = (end_of(status).get("finishedAt") for status in statuses)
    return min((str(end) for end in ends if end), default="")


def format_ranges(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} as "0-2,5", the way a Job's completedIndexes are written."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def parse_ranges(text: str) -> set[int]:
    """The indexes of "0-2,5"; parts that are none are passed over."""
    numbers_read: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        first = whole_number(low, most=MOST_INDEXES)
        last = whole_number(high or low, most=MOST_INDEXES)
        if first is not None and last is not None:
            numbers_read.update(range(first, last + 1))
    return numbers_read
