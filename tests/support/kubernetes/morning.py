"""A cluster on which a platform team has a morning: what it does there, and what it counts at noon.

One real node trains; two simulated ones carry what only has to run. The shipped policies are in force.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from laxity import names
from laxity_k8s.objects.conditions import end_instant
from tests.support.kubernetes.as_written import changed
from tests.support.kubernetes.history import GPU, History, annotations, lost, misread
from tests.support.kubernetes.kubectl import apply, kubectl, tried
from tests.support.kubernetes.place import MANIFESTS, Place
from tests.support.kubernetes.pod_cluster import PodCluster
from tests.support.kubernetes.priority import FOREIGN, priority_class
from tests.support.kubernetes.service import Json, training_job, verdict_of

POLICIES: Final = ("base/admission", "mutating-v1beta1/applied")
SIMULATED: Final = {"gpu-0": 4, "gpu-1": 4}
TENANT: Final = "tenant"
FIXED: Final = {
    "deadline": "20m", "epochs": "3", "epoch-estimate": "5s", "widths": "1", "preemptible": "false",
}  # fmt: skip


class Morning:
    """Two namespaces of one team, and the service that serves them."""

    def __init__(self, pod_cluster: PodCluster, place: str, team: str) -> None:
        assert pod_cluster.service is not None
        self.pod_cluster, self.cluster, self.service = (
            pod_cluster,
            pod_cluster.cluster,
            pod_cluster.service,
        )
        self.place = Place(self.cluster, self.service, place)
        self.team = Place(self.cluster, self.service, team)
        self.history = History(self.cluster)

    def close(self) -> None:
        self.history.close()

    def simulated(
        self, there: Place, name: str, asked: Mapping[str, str], *, run_s: float, gpus: int = 1
    ) -> Json:
        """A Job on a simulated node that says nothing but what is asked of it."""
        job = training_job(there.namespace, name, asked, run_s=run_s)
        pod = job["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"type": "kwok"}
        pod["containers"][0]["resources"]["limits"][GPU] = str(gpus)
        return job

    def neighbour(self, name: str, *, node: str) -> None:
        """A Deployment without pods yet, whose pods preempt others; each takes one GPU."""
        app, where = {"app": name}, {"kubernetes.io/hostname": node}
        container = {"name": "serve", "image": "none", "resources": {"limits": {GPU: "1"}}}
        pod = {"priorityClassName": FOREIGN, "nodeSelector": where, "containers": [container]}
        spec = {
            "replicas": 0,
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app}, "spec": pod},
        }
        meta = {"name": name, "namespace": self.place.namespace}
        made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        apply(self.cluster, priority_class(), made)

    def reasons(self, there: Place, name: str) -> set[str]:
        return {event["reason"] for event in there.events(name)}

    def until_told(self, there: Place, name: str, why: str) -> None:
        there.until(lambda: why in self.reasons(there, name), f"{name} to be told {why}")

    def as_tenant(self, *words: str, text: str | None = None) -> tuple[int, str]:
        who = (f"--as={TENANT}", "--as-group=system:authenticated")
        return tried(self.cluster, "-n", self.place.namespace, *who, *words, text=text)

    def latest(self) -> dict[str, Json]:
        """Each Job of the two namespaces as it was last seen, by name."""
        return {job["metadata"]["name"]: job for job in self._seen()}

    def _seen(self) -> Iterator[Json]:
        mine = {self.place.namespace, self.team.namespace}
        for kind, change in self.history.events():
            if kind == "jobs" and change.object["metadata"]["namespace"] in mine:
                yield change.object

    def problems(self, amended: frozenset[str]) -> list[str]:
        """What was not as it should be at noon; the writers of `amended` Jobs changed their minds."""
        written: dict[str, Json] = {}
        for job in self._seen():
            written.setdefault(job["metadata"]["name"], job)
        found = misread(self.history)
        found += [one for one in lost(self.history) if not any(name in one for name in amended)]
        for name, job in self.latest().items():
            told = [*changed(written[name], job), *self._ended(job)]
            told = [one for one in told if not (name in amended and one.startswith("metadata"))]
            found += [f"{name}: {problem}" for problem in told]
        return found

    def _ended(self, job: Json) -> list[str]:
        """Why it has not ended as it should have."""
        verdict, how = verdict_of(job), end(job)
        warned = self._warnings(job)
        if verdict.get("kind") == "refusal":
            is_told = bool(warned) and names.REASON in annotations(job)
            return [] if is_told else ["it was refused without a word"]
        if how != "Complete":
            return [f"it ended {how!r}: {annotations(job).get(names.REASON)}"]
        done, asked = job["status"].get("succeeded", 0), job["spec"].get("completions")
        found = [] if done == (asked or done) > 0 else [f"{done} of {asked} completions"]
        if verdict.get("kind") == "promise" and end_instant(job) > verdict["deadline_at"]:
            found += [] if "PromiseBroken" in warned else [f"late, and nobody was told: {warned}"]
        return found

    def _warnings(self, job: Json) -> set[str]:
        there = Place(self.cluster, self.service, job["metadata"]["namespace"])
        events = there.events(job["metadata"]["name"])
        return {event["reason"] for event in events if event["type"] == "Warning"}


@contextmanager
def furnished(pod_cluster: PodCluster, team: str) -> Iterator[None]:
    """Simulated nodes, the policies and the tenant's rights; all gone afterwards."""
    files = [word for name in POLICIES for word in ("-f", str(MANIFESTS / f"{name}.yaml"))]
    pod_cluster.cluster.add_nodes(len(SIMULATED), gpus=4)
    kubectl(pod_cluster.cluster, "apply", *files, "-f", str(MANIFESTS / "base" / "tenant.yaml"))
    bound = ("rolebinding", "tenant", "--clusterrole=laxity-tenant", f"--user={TENANT}")
    kubectl(pod_cluster.cluster, "-n", team, "create", *bound)
    try:
        yield
    finally:
        kubectl(pod_cluster.cluster, "delete", *files)
        kubectl(pod_cluster.cluster, "delete", "priorityclass", FOREIGN, "--ignore-not-found")
        for name in SIMULATED:
            kubectl(pod_cluster.cluster, "delete", "node", name)


def end(job: Json) -> str:
    for one in job["status"].get("conditions") or ():
        if one["type"] in ("Complete", "Failed") and one["status"] == "True":
            return str(one["type"])
    return ""
