"""Nodes are lent and given back: one label of each, `laxity.dev/pool`, and nothing else of it.

Taints stay as they are. Who keeps trainings off the fleet taints its nodes, and trainings that may
be lent them tolerate that taint from creation: so nobody else's pods come there while they are lent,
and inference, which tolerates it in any case, finds its nodes open with laxity or without it.

A patch holds only for the node that was looked at: whoever has labelled it since is not overruled.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from laxity import json_tree
from laxity_k8s.act.event_writer import EventWriter, own_pod
from laxity_k8s.cluster_api import FORBIDDEN, NOT_FOUND, ClusterApi, Patch, PatchResult
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.model.decision import Decision, Loan, Reclaim
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.service_clock import CLOCK

LOG: Final = logging.getLogger(__name__)
TRY_AGAIN_S: Final = 300.0
NO_RIGHTS: Final = (
    "inference nodes are not lent: laxity may not patch nodes; an administrator gives it that right "
    "with the component k8s/manifests/loans"
)


class NodeLoans:
    """Moves nodes between the pools inference and loaned.

    `stop_lending(until)` is called when the API server says that it may not, and on a release.
    """

    def __init__(
        self,
        api: ClusterApi,
        cache: ClusterCache,
        events: EventWriter,
        stop_lending: Callable[[float], None],
    ) -> None:
        self._api, self._cache, self._events = api, cache, events
        self._stop_lending = stop_lending
        self._refused = False

    def move_nodes(self, decisions: Sequence[Decision]) -> None:
        """Carry out the loans and reclaims of a plan."""
        for decision in decisions:
            if isinstance(decision, Loan | Reclaim):
                code, text = decision.reason.code, decision.reason.text
                for outcome in self._label(decision.nodes, lends=isinstance(decision, Loan)):
                    if outcome.object is not None:
                        self._events.add_event(outcome.object, code, text)

    def give_back_all(self) -> dict[str, str]:
        """Label all lent nodes as they were; none is lent again as long as this service runs.

        Why the others, by name, stay labelled as lent.
        """
        self._stop_lending(FOREVER)
        with self._cache.lock:
            nodes = list(self._cache.nodes.items())
        lent = [name for name, node in nodes if json_tree.labels_of(node).get(POOL) == "loaned"]
        refused = {}
        for outcome in self._label(lent, lends=False):
            if outcome.object is not None:
                self._events.add_event(
                    outcome.object, "released", "laxity was told to let go of all it manages"
                )
            elif outcome.status != NOT_FOUND:
                refused[outcome.patch.id] = outcome.message
        return refused

    def _label(self, sites: Iterable[str], *, lends: bool) -> Iterator[PatchResult]:
        """What became of the patches; those that went well have the node."""
        machines = sorted({*map(machine_name, sites)})
        patches = [self._build_patch(name, lends=lends) for name in machines]
        for outcome in self._api.patch_many([patch for patch in patches if patch]):
            if outcome.ok and outcome.object is not None:
                self._cache.put_object("nodes", outcome.object)
                self._note_outcome(refused=False)
            elif outcome.status == FORBIDDEN:
                self._note_outcome(refused=True)
            else:
                LOG.info("node %s keeps its pool: %s", outcome.patch.id, outcome.message)
            yield outcome

    def _build_patch(self, name: str, *, lends: bool) -> Patch | None:
        """None if the node is gone, or is by now labelled by somebody else."""
        before, after = ("inference", "loaned") if lends else ("loaned", "inference")
        with self._cache.lock:
            node = self._cache.nodes.get(name)
        if node is None or json_tree.labels_of(node).get(POOL) != before:
            return None
        revision = json_tree.get_in(node, "metadata", "resourceVersion")
        return Patch(
            "nodes", name, {"metadata": {"resourceVersion": revision, "labels": {POOL: after}}}
        )

    def _note_outcome(self, *, refused: bool) -> None:
        if refused:
            self._stop_lending(CLOCK.now() + TRY_AGAIN_S)
        if refused and not self._refused:
            LOG.warning("%s", NO_RIGHTS)
            self._events.add_event(own_pod(), "nodes_not_lent", NO_RIGHTS, warning=True)
        self._refused = refused
