"""A namespace of the test cluster with a service beside it, looked at with kubectl."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.service import MINE, Json, Service, training_job

MANIFESTS: Final = Path(__file__).parents[3] / "k8s" / "manifests"
PATIENCE_S: Final = 120.0
HARD: Final = {
    "class": "hard", "epochs": "3", "epoch-estimate": "5s", "deadline": "10m", "widths": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def service(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with Service(cluster, folder, service_forker=service_forker).running() as made:
        yield made


@pytest.fixture
def there(cluster: Cluster, service: Service, namespace: str) -> "Place":
    return Place(cluster, service, namespace)


class Place:
    """A namespace of the cluster, looked at with kubectl."""

    def __init__(self, cluster: Cluster, service: Service, namespace: str) -> None:
        self.cluster, self.service, self.namespace = cluster, service, namespace

    def apply(self, *jobs: Json) -> None:
        apply(self.cluster, *jobs)

    def job(
        self,
        name: str,
        asked: Mapping[str, str],
        *,
        labels: Mapping[str, str] = MINE,
        run_s: float | None = None,
        suspend: bool = True,
    ) -> Json:
        return training_job(
            self.namespace, name, asked, labels=labels, run_s=run_s, suspend=suspend
        )

    def get(self, name: str) -> Json:
        found: Json = json.loads(self.kubectl("get", "job", name, "-o", "json"))
        return found

    def pods(self, name: str) -> dict[str, str]:
        """Node by uid of all pods of a Job that are there."""
        said = self.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json")
        return {
            pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")
            for pod in json.loads(said)["items"]
        }

    def events(self, name: str) -> list[Json]:
        return events_about(self.cluster, self.namespace, name)

    def jobs(self) -> list[Json]:
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        found: list[Json] = (self.cluster.ask("GET", where) or {}).get("items", [])
        return found

    def judged(self) -> int:
        return sum(map(judged, self.jobs()))

    def succeeded(self) -> int:
        return sum(map(complete, self.jobs()))

    def kubectl(self, *words: str) -> str:
        return kubectl(self.cluster, "-n", self.namespace, *words)

    def until(self, done: Callable[[], bool], what: str) -> None:
        try:
            self.cluster.until(done, PATIENCE_S, what)
        except TimeoutError as late:
            late.add_note(f"the service's log: {self.service.log.read_text()[-6000:]}")
            late.add_note(self.kubectl("get", "jobs,pods", "-o", "yaml")[-12000:])
            raise

    def until_job(self, name: str, done: Callable[[Json], bool], what: str) -> Json:
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}"

        def is_so() -> bool:
            job = self.cluster.ask(
                "GET", where
            )  # a kubectl for every look takes longer than the job
            return job is not None and done(job)

        self.until(is_so, f"{name} {what}")
        return self.get(name)


def events_about(cluster: Cluster, namespace: str, name: str) -> list[Json]:
    """laxity's Events about an object of this name."""
    about = f"involvedObject.name={name}"
    said = kubectl(
        cluster, "-n", namespace, "get", "events", "--field-selector", about, "-o", "json"
    )
    items = json.loads(said)["items"]
    return [event for event in items if event["source"].get("component") == "laxity"]


def annotations(job: Json) -> dict[str, str]:
    found: dict[str, str] = job["metadata"].get("annotations", {})
    return found


def labels(job: Json) -> dict[str, str]:
    found: dict[str, str] = job["metadata"].get("labels", {})
    return found


def running(job: Json) -> bool:
    return bool(job["status"].get("ready"))


def complete(job: Json) -> bool:
    return bool(job["status"].get("succeeded") == job["spec"]["completions"])


def judged(job: Json) -> bool:
    return names.VERDICT_LABEL in labels(job)
