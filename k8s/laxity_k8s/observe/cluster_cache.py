"""A copy of the cluster's Jobs, Pods and Nodes that follows it by watching.

Answers to our own patches are put in at once, so that the next look sees what was just done, and a
watch that comes later with the same or an older revision changes nothing.

Each kind has a watch of its own. When one is cut, what is here is of several moments: Jobs of now
beside pods of seconds ago look as if finished jobs held GPUs. It stays so for a while after all
watches are back, as what one has missed comes later than what another has. So the cache counts as
`torn` from the first cut until all kinds were listed anew, one right after the other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Change, ClusterApi, Json, Kind, Listing, Watch
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import pods
from laxity_k8s.objects.size_owners import keep_size_owners
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.service_clock import CLOCK

FOLLOWED: Final[tuple[Kind, ...]] = ("jobs", "pods", "nodes")


class ClusterCache:
    """Objects by kind and id, and the ids of Jobs that something happened to since the last take."""

    def __init__(
        self,
        api: ClusterApi,
        on_change: Callable[[], None],
        believed: Callable[[Json], Json] = lambda job: job,
        *,
        faults: JobFaults | None = None,
    ) -> None:
        self.lock = RLock()
        self.jobs: dict[str, Json] = {}
        self.job_ids: dict[str, str] = {}  # by uid
        self.pods: dict[str, Json] = {}
        self.nodes: dict[str, Json] = {}
        self.pods_of: defaultdict[str, dict[str, Json]] = defaultdict(dict)
        self._group_of: dict[str, str] = {}  # of each pod: the only one that it is counted in
        self._gone: dict[tuple[str, str], int] = {}
        self._touched: set[str] = set()
        self._nodes_touched = True
        self._on_change = on_change
        self._believed = believed
        self.forged: set[str] = set()  # Jobs with outputs not laxity's; here they have none
        self._guards = {
            kind: Guard("watch", faults if kind == "jobs" else None) for kind in FOLLOWED
        }
        self._cut: set[Kind] = set()
        self._cuts = 0
        self.torn_at = 0.0  # when the first watch was cut since all was seen together
        self._whole_at = 0  # how many cuts there had been when all was listed together
        self._watches: list[Watch] = [self._follow_kind(api, kind) for kind in FOLLOWED]

    @property
    def cut(self) -> list[Kind]:
        """Kinds that cannot be followed now."""
        with self.lock:
            return sorted(self._cut)

    @property
    def torn(self) -> bool:
        """Whether this may be objects of several moments."""
        with self.lock:
            return self._whole_at < self._cuts

    @contextmanager
    def take_dirty(self) -> Iterator[tuple[set[str], bool]]:
        """Groups (Job ids, or "pod:id" for pods without one) that changed, and whether nodes did.

        If what is done with them ends in an exception they count as changed the next time, too.
        """
        with self.lock:
            touched, nodes = self._touched, self._nodes_touched
            self._touched, self._nodes_touched = set(), False
        try:
            yield touched, nodes
        except BaseException:
            with self.lock:
                self._touched |= touched
                self._nodes_touched |= nodes
            raise

    def put_back(self, group: str) -> None:
        """Look at a group again next time."""
        with self.lock:
            self._touched.add(group)

    def put_object(self, kind: Kind, thing: Json) -> None:
        """What the cluster answered; older than what is known, it is passed over."""
        keep_size_owners(thing)  # also of what is passed over: the watch keeps it
        key = json_tree.object_id(thing)
        with self.lock:
            table = self._table_of(kind)
            revision = json_tree.revision_of(thing)
            previous = self._gone.get((kind, key), -1)
            if key in table:
                previous = json_tree.revision_of(table[key])
            if revision <= previous:
                return
            if kind == "jobs":
                thing = self._check_seal(key, thing)
                self.job_ids.pop(json_tree.uid_of(table.get(key, {})), None)
                self.job_ids[json_tree.uid_of(thing)] = key
            if kind == "pods":
                self._move_pod(key, thing)
            table[key] = thing
            self._mark_dirty(kind, key)

    def drop_object(self, kind: Kind, key: str, revision: int = 0) -> None:
        """It is gone, since this revision if one is named: a later one by its name stays."""
        with self.lock:
            thing = self._table_of(kind).get(key)
            if thing is None or 0 < revision < json_tree.revision_of(thing):
                return
            del self._table_of(kind)[key]
            if kind == "jobs":
                self.forged.discard(key)
                self.job_ids.pop(json_tree.uid_of(thing), None)
            if kind == "pods":
                self._move_pod(key, None)
            self._gone[kind, key] = max(revision, json_tree.revision_of(thing))
            if len(self._gone) > 10_000:
                self._gone.pop(next(iter(self._gone)))
            self._mark_dirty(kind, key)

    def resync(self, api: ClusterApi) -> None:
        """See all objects of all kinds as they are now. ApiError if one kind cannot be listed."""
        with self.lock:
            cuts = self._cuts
        for kind in FOLLOWED:
            self._replace_all(kind, api.list(kind))
        with self.lock:
            self._whole_at = cuts

    def close(self) -> None:
        for watch in self._watches:
            watch.stop()

    def _follow_kind(self, api: ClusterApi, kind: Kind) -> Watch:
        listing = api.list(kind)
        for thing in listing.items:
            self._guards[kind](json_tree.object_id(thing), self.put_object, kind, thing)

        def on_change(change: Change) -> None:
            if change.type == "BOOKMARK":
                return
            key = json_tree.object_id(change.object)
            if change.type == "DELETED":
                self._guards[kind](
                    key, self.drop_object, kind, key, json_tree.revision_of(change.object)
                )
            else:
                self._guards[kind](key, self.put_object, kind, change.object)
            self._on_change()

        def on_cut(cut: bool, /) -> None:  # noqa: FBT001 - as a watch calls it
            with self.lock:
                if cut and self._whole_at == self._cuts:
                    self.torn_at = CLOCK.now()
                self._cuts += cut
                (self._cut.add if cut else self._cut.discard)(kind)
            self._on_change()

        return api.watch(kind, since=listing.resource_version, on_change=on_change, on_cut=on_cut)

    def _replace_all(self, kind: Kind, listing: Listing) -> None:
        """This is all there was at that revision; what is newer is known better here."""
        listed = {"metadata": {"resourceVersion": listing.resource_version}}
        revision = json_tree.revision_of(listed)
        there = set()
        for thing in listing.items:
            there.add(json_tree.object_id(thing))
            self._guards[kind](json_tree.object_id(thing), self.put_object, kind, thing)
        with self.lock:
            for key in self._table_of(kind).keys() - there:
                self.drop_object(kind, key, revision)

    def _check_seal(self, key: str, job: Json) -> Json:
        believed = self._believed(job)
        (self.forged.discard if believed is job else self.forged.add)(key)
        return believed

    def _table_of(self, kind: Kind) -> dict[str, Json]:
        return {"jobs": self.jobs, "pods": self.pods, "nodes": self.nodes}[kind]

    def _mark_dirty(self, kind: Kind, key: str) -> None:
        if kind == "nodes":
            self._nodes_touched = True
        elif kind == "jobs":
            self._touched.add(key)

    def _move_pod(self, key: str, pod: Json | None) -> None:
        """Count a pod where its controller reference says now, and nowhere else; None: it is gone."""
        old = self._group_of.pop(key, "")
        new = "" if pod is None else pods.owner_of(pod)[0] or f"pod:{key}"
        self._touched |= {old, new} - {""}
        if old and old != new:
            del self.pods_of[old][key]
            if not self.pods_of[old]:
                del self.pods_of[old]
        if pod is not None:
            self._group_of[key] = new
            self.pods_of[new][key] = pod
