"""Where the flow run is the Job, Prefect shows what laxity decided, also before there is any pod."""

import asyncio
import uuid
from collections.abc import Callable, Iterator

import pytest

from laxity import names
from laxity.job.work_pool import pool_template
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.poolrun import PoolRun, made_pool
from tests.support.kubernetes.service import Json, Service
from tests.support.programs import poolflows

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 120.0
WHOLE = "4"  # GPUs of each of the session's cluster's four nodes


class Pool:
    """A work pool of this cluster, and runs of its deployments."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.template = pool_template()
        self.name = f"pool-{uuid.uuid4().hex[:6]}"
        asyncio.run(made_pool(self.name, self.template))

    def run(self, **said: str) -> "Pooled":
        said = {
            "image": "none", "namespace": self.namespace, "epochs": "10", "epoch_estimate": "60s",
            "model": self.name, **said,
        }  # fmt: skip
        run = PoolRun.of(
            poolflows.pooled, self.name, "tests/support/programs/poolflows.py:pooled", {}, said
        )
        made = run.create_job(self.cluster, self.template, said)
        return Pooled(self, run, made["metadata"]["name"])


class Pooled:
    """One flow run, and its Job."""

    def __init__(self, pool: Pool, run: PoolRun, job: str) -> None:
        self.pool, self.run, self.job = pool, run, job
        self.where = f"/apis/batch/v1/namespaces/{pool.namespace}/jobs"

    def shows(self, *state: str) -> str:
        """Wait for this state (type and name); its message."""
        seen: list[tuple[str, ...]] = []

        def so() -> bool:
            seen[:] = [self.run.shown()]
            return seen[0][: len(state)] == state

        self.until(so, f"{self.job} to be {state}")
        return seen[0][-1]

    def until(self, so: Callable[[], bool], what: str) -> None:
        self.pool.cluster.until(so, PATIENCE_S, what)

    def spec(self) -> Json:
        found: Json = self.pool.cluster.ask("GET", f"{self.where}/{self.job}")["spec"]
        return found

    def jobs_of_run(self) -> list[str]:
        """Names of all Jobs of this flow run."""
        found = self.pool.cluster.ask("GET", f"{self.where}?labelSelector={names.FLOW_RUN}")
        return [
            one["metadata"]["name"]
            for one in found["items"]
            if one["metadata"]["labels"][names.FLOW_RUN] == str(self.run.id)
        ]

    def asks_for(self, deadline: str) -> None:
        """As somebody with kubectl takes a counter-offer."""
        kubectl(
            self.pool.cluster, "annotate", "job", self.job, "-n", self.pool.namespace,
            "--overwrite", f"{names.DEADLINE}={deadline}",
        )  # fmt: skip


@pytest.fixture(scope="module")
def service(
    account: None, cluster: Cluster, prefect_api: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("told")
    with Service(cluster, folder, prefect_api=prefect_api).running() as made:
        yield made


@pytest.fixture
def pool(service: Service, namespace: str) -> Pool:
    return Pool(service.cluster, namespace)


def test_a_refused_run_ends_there_with_the_reason_and_goes_on_when_an_offer_is_taken(
    pool: Pool,
) -> None:
    refused = pool.run(deadline="60s")
    message = refused.shows("FAILED", "Refused")
    for words in ("deadline_before_fastest_finish", "offer 1: deadline", "laxity accept"):
        assert words in message
    assert refused.jobs_of_run() == [refused.job], "no second Job was started"
    assert refused.spec()["suspend"] is True

    refused.asks_for("5h")
    assert "promised" in refused.shows("PENDING", "Promised")
    assert refused.jobs_of_run() == [refused.job]


def test_one_that_waits_says_for_what_and_is_gone_when_it_is_cancelled(pool: Pool) -> None:
    fills = pool.run(widths="3", gpus_per_worker=WHOLE, epochs="1000")
    fills.shows("PENDING", "Waiting")
    fills.until(lambda: fills.spec()["parallelism"] == 3, "it to start")
    waits = pool.run(widths="2", gpus_per_worker=WHOLE, epochs="1000")
    assert "it needs 8 GPUs" in waits.shows("PENDING", "Waiting")
    waits.run.becomes("CANCELLING")
    waits.until(lambda: waits.jobs_of_run() == [], "its Job to be deleted")
    assert "cancelled" in waits.shows("CANCELLED", "Cancelled")


def test_an_annotation_that_makes_no_sense_ends_the_run_with_what_is_wrong(pool: Pool) -> None:
    wrong = pool.run(deadline="soonish")
    assert "soonish" in wrong.shows("FAILED", "Refused")
