"""Tenants on a real API server: what they forge does not count, and no token opens more than they have.

The service acts as its own account. No admission policy is installed here: what laxity believes must
hold without one.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.job.qos import QoSError
from laxity_k8s.act.namespace_limits import ENFORCED, Limits
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms, verdict_text
from laxity_scheduler.model.job import Promise
from laxity_scheduler.model.reasons import reason
from tests.support.kubernetes.cluster import ACCOUNT, Cluster
from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.killable_services import End, ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl, tried
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, Service, training_job
from tests.support.pod_security import BASELINE, RESTRICTED, template

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "/api/v1/namespaces/laxity/secrets/laxity-seal"
GPUS = 16
HARD = {"epochs": "3", "epoch-estimate": "5s", "deadline": "10m", "widths": "1"}
GREEDY = {"epochs": "100", "epoch-estimate": "700h", "deadline": "720h", "widths": str(GPUS)}


@pytest.fixture
def service(
    account: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Any
) -> Iterator[Service]:
    with Service(cluster, tmp_path, service_forker=service_forker).running() as made:
        yield made


def forged(namespace: str) -> Json:
    """A Job that says of itself that it was promised all GPUs for a month, since 1970."""
    made = training_job(namespace, "forged", GREEDY)
    why = reason("fits", p90_at=60.0, slack_s=5.0, workers=GPUS)
    told = Promise(4e9, 4e9 - 10, 4e9 - 5, ((4e9, GPUS),), why)
    status = JobStatusRecord(queued_at=1.0, terms=digest_terms(made), wanted=0)
    made["metadata"]["annotations"] |= {
        names.VERDICT: verdict_text(told), names.STATUS: status.to_text(), names.RUN_ID: "deadbeef",
        names.SEAL: "00.00", names.PROMISED_FINISH: "2096-10-02T07:06:40Z",
    }  # fmt: skip
    return made


def job_of(cluster: Cluster, namespace: str, name: str) -> Json:
    found: Json = cluster.ask("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    return found


def verdict_of(job: Json) -> str:
    """The label and the annotation say the same."""
    kind = json.loads(job["metadata"]["annotations"].get(names.VERDICT, "{}")).get("kind")
    label = job["metadata"]["labels"].get(names.VERDICT_LABEL)
    agree = {("promise", "promised"), ("refusal", "refused"), ("forecast", "forecast")}
    return str(label) if (kind, label) in agree else ""


def until(cluster: Cluster, namespace: str, name: str, verdict: str) -> Json:
    def is_so() -> bool:
        return verdict_of(job_of(cluster, namespace, name)) == verdict

    cluster.until(is_so, 60.0, f"{name} to be {verdict}")
    return job_of(cluster, namespace, name)


def test_a_forged_promise_takes_nothing_from_anybody(
    cluster: Cluster, service: Service, namespace: str
) -> None:
    unlabelled = forged(namespace)
    unlabelled["metadata"]["labels"] = {names.VERDICT_LABEL: "promised"}
    apply(cluster, unlabelled)
    kubectl(cluster, "-n", namespace, "label", "job", "forged", f"{names.MANAGED}=true")
    refused = until(cluster, namespace, "forged", "refused")
    apply(cluster, training_job(namespace, "honest", HARD))
    until(cluster, namespace, "honest", "promised")

    said = refused["metadata"]["annotations"]
    assert json.loads(said[names.VERDICT])["reason"]["code"] == "deadline_before_fastest_finish"
    assert names.RUN_ID not in said
    assert names.PROMISED_FINISH not in said
    assert "queued_at" not in json.loads(said[names.STATUS])


def test_promises_stand_when_store_or_seal_is_lost(
    cluster: Cluster, service: Service, namespace: str
) -> None:
    """The store is lost: the seal knows its own. The seal's key is lost: the store knows them."""
    apply(cluster, training_job(namespace, "kept", HARD))
    first = until(cluster, namespace, "kept", "promised")["metadata"]["annotations"]
    service.kill()
    service.start("another-home")
    cluster.until(lambda: is_acted_on(service), 60.0, "a cycle after the store was lost")
    second = job_of(cluster, namespace, "kept")["metadata"]["annotations"]
    service.kill()
    cluster.ask("DELETE", SECRET)
    service.start("another-home")
    cluster.until(lambda: is_acted_on(service), 60.0, "a cycle after the key was lost")
    third = job_of(cluster, namespace, "kept")["metadata"]["annotations"]

    assert cluster.ask("GET", SECRET)["data"]["key"]
    deadlines = [json.loads(one[names.VERDICT])["deadline_at"] for one in (first, second, third)]
    assert len(set(deadlines)) == 1
    assert second[names.SEAL] == first[names.SEAL] != third[names.SEAL]
    assert verdict_of(job_of(cluster, namespace, "kept")) == "promised"


def is_acted_on(service: Service) -> bool:
    """A cycle has ended: a snapshot is shown before the store knows what was seen in it."""
    answer = service.ask("GET", "/v1/cluster")
    return answer.is_success and not answer.json()["failure"] and ended_cycles(service) > 0


def ended_cycles(service: Service) -> float:
    lines = service.ask("GET", "/metrics").text.splitlines()
    return sum(
        float(line.split()[1]) for line in lines if line.startswith("laxity_cycle_seconds_count")
    )


def test_a_token_creates_no_more_than_its_namespace_allows(
    cluster: Cluster, service: Service, namespace: str
) -> None:
    kubectl(cluster, "label", "namespace", namespace, "laxity.dev/max-class=soft")
    hard = training_job(namespace, "hard", HARD)
    privileged = training_job(namespace, "privileged", {**HARD, "class": "soft"})
    container = privileged["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True}
    system = training_job("kube-system", "system", HARD)
    nowhere = training_job("no-such-namespace", "nowhere", HARD)
    for where in ("/v1/jobs", "/v1/whatif"):
        for body, words in (
            (hard, "above what the namespace allows"),
            (privileged, "securityContext.privileged"),
            (system, "kube-system is not for trainings"),
            (nowhere, "there is no namespace"),
        ):
            answer = service.ask("POST", where, body)
            assert (answer.status_code, words in answer.text) == (422, True), answer.text
    soft = training_job(namespace, "soft", {**HARD, "class": "soft"})
    assert service.ask("POST", "/v1/jobs", soft).status_code == 201
    made = job_of(cluster, namespace, "soft")["spec"]["template"]
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("level", ["baseline", "restricted", None])
def test_a_token_gets_no_pod_that_breaks_the_level_of_its_namespace(
    account: None, cluster: Cluster, namespace: str, level: str | None
) -> None:
    """Without a level it is laxity's own namespace that says what is restricted."""
    if level is not None:
        kubectl(cluster, "label", "namespace", namespace, f"{ENFORCED}={level}")
    broken = {**BASELINE, **({} if level == "baseline" else RESTRICTED)}
    passed: list[str] = []
    api = KubernetesApi(cluster.service_kubeconfig)
    try:
        limits = Limits(api.get_namespace, api.try_create_job, "laxity")
        limits.check_job(tried_job(namespace, template()))
        for what, pod in broken.items():
            try:
                limits.check_job(tried_job(namespace, copy.deepcopy(pod)))
            except QoSError:
                continue
            passed.append(what)
    finally:
        api.close()
    assert passed == []
    assert kubectl(cluster, "-n", namespace, "get", "jobs", "-o", "name") == ""


def tried_job(namespace: str, pod: Json) -> Json:
    for container in pod["spec"].get("initContainers", ()):
        container.setdefault("image", "init:1")
    made = training_job(namespace, "asked", {**HARD, "class": "soft"})
    made["spec"] |= {"template": pod, "suspend": True}
    return made


def test_a_job_where_the_service_has_no_rights_is_explained_in_a_line_and_then_as_decided(
    account: None, cluster: Cluster, service_forker: ServiceForker, namespace: str, tmp_path: Any
) -> None:
    kubectl(cluster, "delete", "clusterrolebinding", "laxity-namespace")
    service = Service(cluster, tmp_path, service_forker=service_forker)
    try:
        service.start()
        apply(cluster, training_job(namespace, "waits", HARD))

        def chain() -> list[Json]:
            where = f"/v1/jobs/{namespace}/waits/explain"
            return list(service.ask("GET", where).json().get("chain", ()))

        cluster.until(lambda: "undone" in kinds(chain()), 60.0, "what was refused to be told")
        assert kinds(chain()) == ["undone"]
        assert f"kubectl -n {namespace} create rolebinding laxity" in chain()[0]["reason"]
        kubectl(
            cluster, "create", "rolebinding", "laxity", "-n", namespace,
            "--clusterrole=laxity-namespace", "--serviceaccount=laxity:laxity",
        )  # fmt: skip
        kubectl(
            cluster, "annotate", "job", "waits", "-n", namespace, f"{names.EPOCHS}=4", "--overwrite"
        )
        cluster.until(lambda: "admit" in kinds(chain()), 60.0, "the job to start")
        assert kinds(chain()) == ["undone", "promised", "admit"]
    finally:
        service.stop()
        kubectl(cluster, "apply", "-f", str(MANIFESTS / "cluster-wide" / "binding.yaml"))


def test_a_service_leads_again_where_it_has_lost_its_rights_to_a_job_that_it_moved_last(
    account: None, cluster: Cluster, service_forker: ServiceForker, namespace: str, tmp_path: Path
) -> None:
    replica = Replica(cluster, service_forker, tmp_path / "service")
    try:
        replica.begin(End("after journal", 1))
        replica.until_ready()
        apply(cluster, training_job(namespace, "moved", HARD))
        cluster.until(replica.dead, 60.0, "the service to die once it has decided")
        kubectl(cluster, "delete", "clusterrolebinding", "laxity-namespace")
        replica.start()
        cluster.until(replica.leads, 60.0, f"it to lead; its log is {replica.log}")
    finally:
        replica.end()
        kubectl(cluster, "apply", "-f", str(MANIFESTS / "cluster-wide" / "binding.yaml"))


def kinds(chain: list[Json]) -> list[str]:
    return [row["decision"]["kind"] for row in chain]


def test_the_service_acts_only_in_namespaces_where_it_is_bound(
    account: None, cluster: Cluster, namespace: str
) -> None:
    """As the documentation says, for an account of one's own; elsewhere it only sees."""
    other = "system:serviceaccount:laxity:other"
    for role, kind in (("laxity", "clusterrolebinding"), ("laxity-namespace", "rolebinding")):
        where = ["-n", namespace] if kind == "rolebinding" else []
        kubectl(
            cluster, "create", kind, "other", *where,
            f"--clusterrole={role}", "--serviceaccount=laxity:other",
        )  # fmt: skip
    try:
        for verb, what in (
            ("create", "jobs"), ("patch", "jobs"), ("delete", "jobs"), ("patch", "pods"),
            ("get", "namespaces"), ("create", "events"),
        ):  # fmt: skip
            for place, may in ((namespace, True), ("kube-system", False)):
                code, _ = tried(cluster, "auth", "can-i", verb, what, "-n", place, f"--as={other}")
                assert (code == 0) is may, (verb, what, place)
        for what in ("jobs", "pods"):
            code, _ = tried(cluster, "auth", "can-i", "list", what, "-A", f"--as={other}")
            assert code == 0
        code, _ = tried(
            cluster, "auth", "can-i", "get", "secrets", "-n", "laxity", f"--as={ACCOUNT}"
        )
        assert code != 0, "its own key by name, and no other secret"
    finally:
        kubectl(cluster, "delete", "clusterrolebinding", "other")
