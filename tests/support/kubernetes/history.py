"""All that happened to Jobs and Pods, in the order of the API server's own revisions.

What must never have been so, at any moment: a GPU given to two, a worker that runs twice, a promise
that is lost. A GPU is given from the patch that starts a Job on a node until its pod is gone there.
The cluster's scheduler chooses the nodes: until a pod has one it counts in all, then by node, too.
"""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import Change, Kind
from laxity_k8s.http.api_cluster import KubernetesApi
from tests.support.kubernetes.cluster import Cluster

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
ALL: Final = "all nodes"
SOMEWHERE: Final = "some node"
INDEX: Final = "batch.kubernetes.io/job-completion-index"


class History:
    """Follows Jobs and Pods from now on; `closed` histories can be asked about."""

    def __init__(self, cluster: Cluster, namespace: str = "") -> None:
        self._namespace = namespace
        self._api = KubernetesApi(cluster.kubeconfig)
        self._changes: list[tuple[int, int, str, Change]] = []
        self._newest = 0
        self._lock = threading.Lock()
        self.jobs: dict[str, Json] = {}  # as they are now, by name
        self.latest: dict[str, Json] = {}  # Jobs as they were last seen, also those that are gone
        self.pods: dict[str, Json] = {}
        self._watches = [self._follow(kind) for kind in ("jobs", "pods")]

    def close(self) -> None:
        for watch in self._watches:
            watch.stop()
        self._api.close()

    def events(self) -> Iterator[tuple[str, Change]]:
        """(kind, change) in the order in which the cluster changed."""
        with self._lock:
            changes = sorted(self._changes, key=lambda one: one[:2])
        for _, _, kind, change in changes:
            yield kind, change

    def now(self) -> tuple[list[Json], list[Json]]:
        with self._lock:
            return list(self.jobs.values()), list(self.pods.values())

    def _follow(self, kind: Kind) -> Any:
        listing = self._api.list(kind)
        take = self._taker(kind)
        for thing in listing.items:
            take(Change("ADDED", thing))
        return self._api.watch(kind, since=listing.resource_version, on_change=take)

    def _taker(self, kind: str) -> Callable[[Change], None]:
        table = self.jobs if kind == "jobs" else self.pods

        def take(change: Change) -> None:
            meta = change.object["metadata"]
            if change.type == "BOOKMARK" or self._namespace not in ("", meta["namespace"]):
                return
            with self._lock:
                known = table.get(meta["name"])
                revision = int(meta["resourceVersion"])
                if change.type == "DELETED":
                    table.pop(meta["name"], None)
                    if known is not None and known["metadata"]["resourceVersion"] == str(revision):
                        revision = self._newest  # found out by listing anew
                else:
                    table[meta["name"]] = change.object
                if kind == "jobs":
                    self.latest[meta["name"]] = change.object
                self._newest = max(self._newest, revision)
                self._changes.append((revision, len(self._changes), kind, change))

        return take


@dataclass
class _Moment:
    """The cluster at one revision, and what each Job holds of which node."""

    jobs: dict[str, Json] = field(default_factory=dict)  # by uid
    pods: dict[str, dict[str, Json]] = field(default_factory=lambda: defaultdict(dict))
    # Of workers that succeeded: their indexes, or uids of pods without one.
    done: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    born: dict[str, tuple[str, int]] = field(default_factory=dict)  # index, generation of its Job
    twins: set[str] = field(default_factory=set)  # uids of pods
    held: dict[str, Counter[str]] = field(default_factory=dict)  # GPUs by node, by uid
    given: Counter[str] = field(default_factory=Counter)  # GPUs by node, and in ALL

    def take(self, kind: str, change: Change) -> str:
        """The uid of the Job that it is about; "" for none."""
        thing = change.object
        uid = str(thing["metadata"]["uid"]) if kind == "jobs" else owner(thing)
        if kind == "jobs" and change.type == "DELETED":
            self.jobs.pop(uid, None)
        elif kind == "jobs":
            self.jobs[uid] = thing
        else:
            self._take_pod(uid, change)
        self.given.subtract(self.held.pop(uid, Counter()))
        self.held[uid] = self._held(uid)
        self.given.update(self.held[uid])
        return uid

    def holders(self, node: str) -> str:
        """Jobs with what they hold there, in words."""
        found = []
        for uid, held in self.held.items():
            job = self.jobs.get(uid)
            if held[node] and job is not None:
                here = sorted(
                    (index(pod), pod["spec"].get("nodeName", ""), pod["status"].get("phase"),
                     "leaving" if "deletionTimestamp" in pod["metadata"] else "")
                    for pod in self.pods[uid].values()
                )  # fmt: skip
                found.append(f"{job['metadata']['name']} {held[node]} (width {width(job)}: {here})")
        return "; ".join(found)

    def _take_pod(self, uid: str, change: Change) -> None:
        pod = change.object
        self._note_birth(uid, pod)
        if pod["status"].get("phase") == "Succeeded":
            self.done[uid].add(index(pod) or pod["metadata"]["uid"])
        if change.type == "DELETED" or over(pod):
            self.pods[uid].pop(pod["metadata"]["name"], None)
        else:
            self.pods[uid][pod["metadata"]["name"]] = pod

    def _note_birth(self, uid: str, pod: Json) -> None:
        """It is a twin if its Job was not changed since a living one of the same index was made.

        A job controller makes one when it has not seen its own first: Kubernetes says of Indexed
        Jobs that it may. Nobody else has a part in that. Pods of a NonIndexed Job have no index: of
        these, one is a twin that is more than the Job's parallelism.
        """
        own = pod["metadata"]["uid"]
        if own in self.born:
            return
        job = self.jobs.get(uid, pod)
        self.born[own] = index(pod), int(job["metadata"].get("generation", 0))
        others = (one["metadata"]["uid"] for one in self.pods[uid].values())
        alike = sum(self.born[other] == self.born[own] for other in others)
        if alike >= (1 if index(pod) else job["spec"].get("parallelism", 1)):
            self.twins.add(own)

    def _held(self, uid: str) -> Counter[str]:
        """By pods that are there, and by workers that were sent there."""
        found = self._by_node(uid)
        found[ALL] = found.total()
        return found

    def _by_node(self, uid: str) -> Counter[str]:
        bound = [pod for pod in self.pods[uid].values() if pod["spec"].get("nodeName")]
        found: Counter[str] = Counter()
        for pod in bound:
            found[pod["spec"]["nodeName"]] += gpus(pod)
        job = self.jobs.get(uid)
        for pod in self.pods[uid].values():
            if pod not in bound and pod["metadata"]["uid"] in self.twins:
                found[SOMEWHERE] += gpus(pod)
        if job is None or not ours(job) or job["spec"].get("suspend") or ended(job):
            return found
        found[SOMEWHERE] += self._missing(job, bound) * gpus(job["spec"]["template"])
        return found

    def _missing(self, job: Json, bound: list[Json]) -> int:
        """Workers that its controller has yet to make, or that have no node yet."""
        spec, done = job["spec"], self.done[job["metadata"]["uid"]]
        if spec.get("completionMode") == "Indexed":
            here = {index(pod) for pod in bound} | done
            return sum(str(number) not in here for number in range(int(spec["parallelism"])))
        completions = spec.get("completions")  # none: after the first success no pod is made
        most, left = int(spec["parallelism"]), int(completions or 0) - len(done)
        if completions is None and not done:
            left = most
        return max(0, min(most, left) - len(bound))


def given_twice(history: History, nodes: Mapping[str, int]) -> list[str]:
    """Moments at which a node's GPUs were given to more workers than it has GPUs.

    A twin counts from its birth on; that it is born is no fault of laxity's.
    """
    moment, found = _Moment(), []
    most = {**nodes, ALL: sum(nodes.values())}
    for kind, change in history.events():
        before, twins = moment.given.copy(), len(moment.twins)
        moment.take(kind, change)
        if len(moment.twins) > twins:
            continue
        for node, many in moment.given.items():
            if node != SOMEWHERE and many > max(most.get(node, 0), before[node]):
                who = moment.holders(node)
                found.append(f"{many} GPUs on {node} by {_words(kind, change)}; held by {who}")
    return found


def _ends_link(job: Json) -> bool:
    """Whether it has made way for its own next start within its limit, which is no preemption."""
    limited = names.WALL_LIMIT in annotations(job) or "activeDeadlineSeconds" in job["spec"]
    return limited and kept(job).get("freed_for") == json_tree.object_id(job)


def run_twice(history: History, *, twins: bool = False) -> list[str]:
    """Workers of which two lived at once or that were begun again with no reason to, and stops that
    the Job's own status does not count.

    Where the job controller was cut off as well it may have made `twins`: they are passed over.
    """
    moment, found = _Moment(), []
    left: Counter[str] = Counter()  # times that a Job was stopped or made narrower
    stops: Counter[str] = Counter()
    births: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for kind, change in history.events():
        old = moment.jobs.get(uid_of(kind, change))
        uid = moment.take(kind, change)
        if kind == "pods" and uid:
            which = index(change.object)
            spared = moment.twins if twins else set()
            births[uid, which] |= {change.object["metadata"]["uid"]} - spared
            alive = sum(
                index(pod) == which and pod["metadata"]["uid"] not in spared
                for pod in moment.pods[uid].values()
            )
            if alive > 1 or len(births[uid, which]) > 1 + left[uid]:
                begun = len(births[uid, which])
                found.append(f"{alive} at once, begun {begun} times: {_words(kind, change)}")
        elif kind == "jobs" and change.type != "DELETED" and ours(change.object):
            wide = width(old) if old is not None else 0
            left[uid] += width(change.object) < wide
            stops[uid] += width(change.object) == 0 < wide and not _ends_link(change.object)
            if stops[uid] != kept(change.object).get("preemptions", 0):
                found.append(f"{stops[uid]} stops, but not by its status: {_words(kind, change)}")
    return found


def lost(history: History) -> list[str]:
    """Promises that were taken back or moved, and counters that went back."""
    told: dict[str, Json] = {}
    counted: dict[str, int] = {}
    found = []
    for kind, change in history.events():
        if kind != "jobs" or change.type == "DELETED":
            continue
        uid = change.object["metadata"]["uid"]
        verdict = json.loads(annotations(change.object).get(names.VERDICT, "{}"))
        before = told.get(uid, {})
        if before.get("kind") == "promise" and verdict.get("deadline_at") != before["deadline_at"]:
            found.append(f"a promise became {verdict}: {_words(kind, change)}")
        told[uid] = verdict
        stopped = kept(change.object).get("preemptions", 0)
        if stopped < counted.get(uid, 0):
            found.append(f"{counted[uid]} stops became {stopped}: {_words(kind, change)}")
        counted[uid] = stopped
    return found


def misread(history: History) -> list[str]:
    """Jobs that make sense and were told that they make none."""
    told: dict[str, str] = {}
    for kind, change in history.events():
        if kind == "jobs":
            verdict = json.loads(annotations(change.object).get(names.VERDICT, "{}"))
            if verdict.get("kind") == "refusal" and verdict["reason"]["code"] == "invalid":
                told.setdefault(change.object["metadata"]["name"], f"{verdict['reason']['facts']}")
    return [f"{name} was told: {facts}" for name, facts in told.items()]


def uid_of(kind: str, change: Change) -> str:
    return str(change.object["metadata"]["uid"]) if kind == "jobs" else owner(change.object)


def ours(job: Json) -> bool:
    return names.MANAGED in labels(job) and names.KUEUE_QUEUE not in labels(job)


def width(job: Json) -> int:
    """Workers that should run: 0 while it is suspended."""
    return 0 if job["spec"].get("suspend") else int(job["spec"]["parallelism"])


def annotations(thing: Json) -> dict[str, str]:
    found: dict[str, str] = thing["metadata"].get("annotations") or {}
    return found


def labels(thing: Json) -> dict[str, str]:
    found: dict[str, str] = thing["metadata"].get("labels") or {}
    return found


def kept(job: Json) -> Json:
    found: Json = json.loads(annotations(job).get(names.STATUS, "{}"))
    return found


def ended(job: Json) -> bool:
    return any(
        one["type"] in ("Complete", "Failed", "SuccessCriteriaMet") and one["status"] == "True"
        for one in job["status"].get("conditions") or ()
    )


def owner(pod: Json) -> str:
    return next((str(one["uid"]) for one in pod["metadata"].get("ownerReferences") or ()), "")


def index(pod: Json) -> str:
    return labels(pod).get(INDEX, "")


def over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def gpus(pod: Json) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in containers)


def _words(kind: str, change: Change) -> str:
    thing = change.object
    spec = {key: thing["spec"].get(key) for key in ("suspend", "parallelism", "nodeName")}
    meta = thing["metadata"]
    return f"{kind} {change.type} {meta['name']} at {meta['resourceVersion']}: {spec}"
