"""Namespaces in which the service may not act: it is told once for each, with what to do.

Nothing can be written on a Job there, nor an Event about it, so it is an Event of the service's own
pod. Jobs there are tried again later and later, as all whose patch the API server refuses.

An API server that has just started knows no roles for a moment and refuses everything. So the first
refusals are told nobody: they have to last for SETTLE_S.
"""

import logging
from typing import Final

from laxity_k8s.act.event_writer import EventWriter, own_pod
from laxity_k8s.cluster_api import FORBIDDEN, PatchResult
from laxity_k8s.lease import own_namespace

LOG: Final = logging.getLogger(__name__)
NO_RIGHT: Final = "cannot patch resource"  # as the API server's RBAC says it
SETTLE_S: Final = 5.0
TRY_AGAIN_S: Final = 1.0


class Rights:
    """Which namespaces have refused the service itself."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._without: set[str] = set()
        self._refused_since: dict[str, float] = {}

    def is_settling(self, outcome: PatchResult, now: float) -> bool:
        """Whether a refusal may be that of an API server which does not know its roles yet."""
        namespace = outcome.patch.id.partition("/")[0]
        if not is_without_right(outcome) or namespace in self._without:
            return False
        return now < self._refused_since.setdefault(namespace, now) + SETTLE_S

    def note_outcome(self, outcome: PatchResult) -> None:
        """Note what became of a patch of a Job that was refused or done."""
        namespace = outcome.patch.id.partition("/")[0]
        if outcome.ok:
            self._without.discard(namespace)
            self._refused_since.pop(namespace, None)
        elif not is_without_right(outcome):
            LOG.warning(
                "the API server refuses a patch of %s: %s", outcome.patch.id, outcome.message
            )
        elif namespace not in self._without:
            self._without.add(namespace)
            message = (
                f"nothing is decided about Jobs there: {no_rights(namespace, own_namespace())}"
            )
            LOG.warning("%s", message)
            self._events.add_event(own_pod(), "namespace_not_bound", message, warning=True)


def refusal_text(outcome: PatchResult) -> str:
    """Why the patch of a Job was refused: what to do where rights are missing, else the server's words."""
    if not is_without_right(outcome):
        return outcome.message
    return no_rights(outcome.patch.id.partition("/")[0], own_namespace())


def is_without_right(outcome: PatchResult) -> bool:
    """Whether the service may patch nothing there."""
    return outcome.status == FORBIDDEN and NO_RIGHT in outcome.message


def no_rights(namespace: str, own: str) -> str:
    """That the service has no rights in a namespace, and how an administrator gives them."""
    return (
        f"laxity has no rights in {namespace}; an administrator gives them with: "
        f"kubectl -n {namespace} create rolebinding laxity "
        f"--clusterrole=laxity-namespace --serviceaccount={own}:laxity"
    )
