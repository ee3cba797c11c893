"""What laxity's own account may do on a real API server: its role's verbs, on its own Jobs and fields."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

import pytest

from laxity import names
from laxity_k8s.cluster_api import ApiError, Kind, Patch
from laxity_k8s.http.api_cluster import KubernetesApi
from tests.support.kubernetes.any_job import job
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import apply, kubectl, tried

pytestmark = pytest.mark.cluster

LAXITY: Final = "--as=system:serviceaccount:laxity:laxity"
Json = dict[str, Any]


@pytest.fixture
def place(cluster: Cluster, account: None, namespace: str) -> Iterator["Place"]:
    with Place(cluster, namespace) as made:
        cluster.until(made.is_enforced, 60.0, "the policy to be enforced")
        yield made


class Place:
    """A namespace with a Job of laxity's and one of somebody else, and laxity's account in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        ours, theirs = job("ours"), job("theirs", labels={"team": "a"})
        ours["metadata"]["labels"]["team"] = "a"
        for one in (ours, theirs):
            one["metadata"]["namespace"] = namespace
        apply(cluster, ours, theirs)
        self._api = KubernetesApi(cluster.service_kubeconfig)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    def is_enforced(self) -> bool:
        return "denied" in self.patch("theirs", {"metadata": {"annotations": {"a": "b"}}})

    def patch(self, name: str, body: Json, *, status: bool = False, kind: Kind = "jobs") -> str:
        """What the API server says to a patch by laxity's account; "" if it takes it."""
        patch = Patch(kind, f"{self.namespace}/{name}", body, "status" if status else "")
        return self._told(lambda: self._api.patch(patch))

    def create(self, made: Json, *, namespace: str = "") -> str:
        made["metadata"]["namespace"] = namespace or self.namespace
        return self._told(lambda: self._api.create("jobs", made))

    def try_create(self, made: Json, *, namespace: str) -> str:
        made["metadata"]["namespace"] = namespace
        return self._told(lambda: self._api.try_create_job(made))

    def delete(self, name: str) -> str:
        return self._told(lambda: self._api.delete("jobs", f"{self.namespace}/{name}"))

    def _told(self, work: Callable[[], object]) -> str:
        try:
            work()
        except ApiError as error:
            return str(error)
        return ""


def test_what_laxity_writes_on_its_own_job_is_allowed(place: Place) -> None:
    spec = {"suspend": False, "parallelism": 2, "completions": 2, "activeDeadlineSeconds": 60}
    terms = {"nodeSelectorTerms": [{"matchFields": [node_is("a")]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    token = {"annotations": {names.WORKER_TOKEN: "t"}}
    notes = {"annotations": {names.REASON: "why"}, "labels": {names.VERDICT_LABEL: "promised"}}
    template = {"metadata": token, "spec": {"affinity": affinity}}

    freed = {"metadata": {"labels": dict.fromkeys((names.MANAGED, names.VERDICT_LABEL))}}

    told = place.patch("ours", {"metadata": notes, "spec": {**spec, "template": template}})

    assert told == ""
    assert place.patch("ours", freed) == "", "and so it may let a Job go"


def node_is(name: str) -> Json:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


CHANGES: Final = {
    "another label": {"metadata": {"labels": {"team": "b"}}},
    "a label less": {"metadata": {"labels": {"team": None}}},
    "another annotation": {"metadata": {"annotations": {"note": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
    "an owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
        }
    },
    "another back-off limit": {"spec": {"backoffLimit": 0}},
    "a selector of its own": {"spec": {"manualSelector": True}},
    "a time to live": {"spec": {"ttlSecondsAfterFinished": 1}},
    "a node selector": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    "a toleration": {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}},
    "a label of pods": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}},
    "an annotation of pods": {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_other_field_of_its_own_job_is_denied(place: Place, change: Json) -> None:
    assert "laxity's account may change" in place.patch("ours", change)


def test_status_of_its_own_job_is_reset_and_its_counts_stay(place: Place) -> None:
    only = "may change startTime and conditions only"
    assert only in place.patch("ours", {"status": {"succeeded": 1}}, status=True)
    reset = {"status": {"startTime": None}, "metadata": {"annotations": {names.REASON: "a"}}}
    assert place.patch("ours", reset, status=True) == ""


def test_jobs_of_others_are_neither_written_nor_deleted(place: Place) -> None:
    claim = {"metadata": {"labels": {names.MANAGED: "true"}}, "spec": {"suspend": False}}
    only = "Jobs with label laxity.dev/managed only"

    assert only in place.patch("theirs", claim)
    assert only in place.patch("theirs", {"status": {"failed": 1}}, status=True)
    assert only in place.delete("theirs")
    assert place.delete("ours") == ""


def test_jobs_of_kueue_are_not_written(place: Place) -> None:
    kueues = {"metadata": {"labels": {names.KUEUE_QUEUE: "q"}}}
    where = ("-n", place.namespace, "patch", "job", "ours")
    kubectl(place.cluster, *where, "-p", json.dumps(kueues))

    assert "none of Kueue's" in place.patch("ours", {"spec": {"suspend": False}})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (job("new"), ""),
        (job("new", labels={}), "Jobs with label laxity.dev/managed only"),
        (job("new", suspend=False), "suspended Jobs only"),
    ],
    ids=["of its own", "without the label", "that runs"],
)
def test_only_suspended_jobs_of_its_own_are_created(place: Place, made: Json, words: str) -> None:
    told = place.create(made)

    assert words in told
    assert bool(words) == bool(told)


def test_in_its_own_namespace_jobs_are_created_as_dry_runs_only(place: Place) -> None:
    made = job("asked")

    assert "as dry runs only" in place.create(made, namespace="laxity")
    assert place.try_create(made, namespace="laxity") == ""


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"metadata": {"annotations": {names.SIGNAL: "{}"}}}, True),
        ({"metadata": {"annotations": {"note": "b"}}}, False),
        ({"metadata": {"labels": {"batch.kubernetes.io/job-name": "b"}}}, False),
        ({"spec": {"containers": [{"name": "c", "image": "evil"}]}}, False),
    ],
    ids=["the signal", "another annotation", "a label", "its image"],
)
@pytest.mark.parametrize("of_job", [True, False], ids=["a Job's", "a lonely one"])
def test_of_pods_only_the_signal_of_a_jobs_own_is_written(
    place: Place, change: Json, *, allowed: bool, of_job: bool
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "ours", "controller": True}
    where = ("-n", place.namespace, "get", "job", "ours", "-o", "jsonpath={.metadata.uid}")
    owner["uid"] = kubectl(place.cluster, *where)
    metadata: Json = {"name": "one", "namespace": place.namespace}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    pod["spec"] = {"containers": [{"name": "c", "image": "none"}]}
    if of_job:
        metadata["ownerReferences"] = [owner]
    apply(place.cluster, pod)

    told = place.patch("one", change, kind="pods")

    words = "" if allowed and of_job else "may change annotation laxity.dev/signal only"
    assert words in told
    assert bool(words) == bool(told)


def test_no_secret_but_the_seal_is_created(place: Place) -> None:
    for name in ("token", "laxity-seal2"):
        told = tried(place.cluster, LAXITY, "-n", "laxity", "create", "secret", "generic", name)[1]
        assert "may create the secret laxity-seal only" in told
