"""What Events say: why the API server refuses pods of a Job, and what a kubelet cannot mount."""

import re
from collections.abc import Iterable
from typing import Final

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json

# The pod has another name each time, and so has who refuses it where that is no policy of the server.
_PREFIX: Final = re.compile(
    r'^(?:\(combined from similar events\): )?Error creating: (?:pods "[^"]*" is forbidden: )?'
)

# What a pod hangs on while its status says no more than ContainerCreating.
_HANGS_ON: Final = frozenset(
    {"FailedAttachVolume", "FailedCreatePodSandBox", "FailedMapVolume", "FailedMount"}
)
_NAMES_NO_CAUSE: Final = "Unable to attach or mount volumes"


def pod_refusal(events: Iterable[Json], since: float = 0.0) -> str:
    """The last refusal of a pod since an instant, in the API server's words; "" without any."""
    warnings = [
        event
        for event in events
        if json_tree.get_in(event, "type") == "Warning" and _instant_of(event) >= since
    ]
    last = max(warnings, key=_instant_of, default={})
    return _PREFIX.sub("", str(json_tree.get_in(last, "message") or ""))


def volume_failure(events: Iterable[Json]) -> str:
    """The last that keeps a pod's containers from being made, in the kubelet's words; "" if none does."""
    found = [event for event in events if json_tree.get_in(event, "reason") in _HANGS_ON]
    last = max(found, key=lambda event: (_names_cause(event), _instant_of(event)), default={})
    return str(json_tree.get_in(last, "message") or "")


def _names_cause(event: Json) -> bool:
    return not str(json_tree.get_in(event, "message")).startswith(_NAMES_NO_CAUSE)


def _instant_of(event: Json) -> float:
    created_at = json_tree.get_in(event, "metadata", "creationTimestamp")
    return instant_at(event.get("lastTimestamp") or event.get("eventTime") or created_at) or 0.0
