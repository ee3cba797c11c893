"""Two kinds of GPUs: Jobs run on those that they ask for, and promises rest on no others.

The two nodes of this test are tainted, so that nobody else comes there; the other nodes of the
cluster are the wrong ones, and free.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import apply
from tests.support.kubernetes.mortal import Nursery
from tests.support.kubernetes.service import Service, training_job, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
HOURS = 8
KIND, EXAM = "example.com/gpu", "example.com/exam"
TOLERATES = [{"key": EXAM, "operator": "Exists"}]
LONG = {"class": "hard", "epochs": "60", "epoch-estimate": "20s", "widths": "1"}
STAYS = {"preemptible": "false"}  # else it would make way and start again later, in time
Json = dict[str, Any]


@pytest.fixture(scope="module")
def service(
    cluster: Cluster, account: None, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    made = Service(cluster, tmp_path_factory.mktemp("service"), nursery=nursery)
    for kind in ("a100", "t4"):
        node = simulated_node(f"exam-{kind}", 2)
        node["metadata"]["labels"] |= {KIND: kind}
        node["spec"] = {"taints": [{"key": EXAM, "value": "yes", "effect": "NoSchedule"}]}
        assert cluster.ask("POST", "/api/v1/nodes", node)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        for kind in ("a100", "t4"):
            cluster.ask("DELETE", f"/api/v1/nodes/exam-{kind}")


class Place:
    """A namespace in which Jobs are applied and looked at."""

    def __init__(self, cluster: Cluster, service: Service, namespace: str) -> None:
        self.cluster, self.service, self.namespace = cluster, service, namespace

    def apply(
        self, name: str, kind: str = "", *, tolerates: bool = True, due: str = f"{HOURS}h"
    ) -> None:
        made = training_job(self.namespace, name, {**LONG, **STAYS, "deadline": due})
        pod = made["spec"]["template"]["spec"]
        if kind:
            pod["nodeSelector"] = {KIND: kind}
        if tolerates:
            pod["tolerations"] = TOLERATES
        apply(self.cluster, made)

    def judged(self, name: str) -> Json:
        self._until(lambda: bool(verdict_of(self._job(name))), f"a verdict on {name}")
        return verdict_of(self._job(name))

    def node_of(self, name: str) -> str:
        """Where its one worker runs."""
        self._until(lambda: bool(self._job(name)["status"].get("ready")), f"{name} to run")
        where = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=job-name={name}"
        pods = (self.cluster.ask("GET", where) or {})["items"]
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"]
        assert len(nodes) == 1
        return str(nodes[0])

    def said(self, name: str) -> str:
        return str(self._job(name)["metadata"]["annotations"].get(names.REASON))

    def _job(self, name: str) -> Json:
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}"
        found: Json = self.cluster.ask("GET", where)
        assert found
        return found

    def _until(self, done: Any, what: str) -> None:
        self.cluster.until(done, PATIENCE_S, f"{what}; the service's log is {self.service.log}")


@pytest.fixture
def there(cluster: Cluster, service: Service, namespace: str) -> Place:
    return Place(cluster, service, namespace)


def test_jobs_run_on_the_gpus_that_they_ask_for_and_promises_rest_on_these_alone(
    there: Place,
) -> None:
    there.apply("small", "t4")
    assert there.node_of("small") == "exam-t4"
    for name in ("first", "second"):
        there.apply(name, "a100")
        assert there.judged(name)["kind"] == "promise"
        assert there.node_of(name) == "exam-a100"
    there.apply("plain", tolerates=False)
    assert not there.node_of("plain").startswith("exam-")

    first = there.judged("first")
    whole_s = first["p90_at"] - (first["deadline_at"] - HOURS * 3600.0)
    there.apply("third", "a100", due=f"{int(1.4 * whole_s)}s")
    refused = there.judged("third")
    assert refused["kind"] == "refusal", "sixteen GPUs are free, and none of them will do"
    assert refused["reason"]["code"] == "capacity_promised_to_others"
    there.apply("third-anywhere", tolerates=False, due=f"{int(1.4 * whole_s)}s")
    assert there.judged("third-anywhere")["kind"] == "promise"


def test_who_can_use_no_node_is_told_which_labels_and_taints_shut_it_out(there: Place) -> None:
    there.apply("other-kind", "h100")
    assert there.judged("other-kind")["reason"]["code"] == "no_eligible_node"
    said = there.said("other-kind")
    assert f"the pods ask for {KIND}=h100" in said
    assert f"exam-a100: label {KIND} is a100, h100 is asked" in said

    there.apply("untolerating", "a100", tolerates=False)
    assert there.judged("untolerating")["reason"]["code"] == "no_eligible_node"
    assert f"exam-a100: taint {EXAM}=yes:NoSchedule is not tolerated" in there.said("untolerating")
