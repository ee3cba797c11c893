"""The worker of prefect-kubernetes itself: the Job that it makes, and the run that it writes down.

The pods are simulated; what is seen here is what worker, Prefect, API server and laxity tell each other.
"""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from laxity import names
from laxity.job.work_pool import pool_template
from tests.support.kubernetes.cluster import DIES_WITH_US, Cluster
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.place import Place, running
from tests.support.kubernetes.poolrun import ROOT, PoolRun, made_pool
from tests.support.kubernetes.service import Json, Service, verdict_of
from tests.support.programs import poolflows

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
GPUS: Final = 16
WHENEVER: Final = {"epochs": "1000", "epoch-estimate": "10s", "widths": "1"}
PREFECT: Final = Path(sys.executable).with_name("prefect")


@pytest.fixture(scope="module")
def service(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    prefect_api: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    made = Service(cluster, folder, service_forker=service_forker, PREFECT_API_URL=prefect_api)
    with made.running():
        yield made


@pytest.fixture
def pool(
    cluster: Cluster, prefect_api: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A work pool with laxity's template, and a worker that serves it."""
    name = f"pool-{uuid.uuid4().hex[:6]}"
    asyncio.run(made_pool(name, pool_template()))
    folder = tmp_path_factory.mktemp("worker")
    env = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PREFECT_API_URL": prefect_api,
        "PREFECT_HOME": str(folder),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(
            [*DIES_WITH_US, str(PREFECT), "worker", "start", "--pool", name, "--type", "kubernetes"],
            env=env, stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
        try:
            yield name
        finally:
            worker.terminate()
            worker.wait(timeout=60)


def ask_for_run(pool: str, there: Place, **variables: str) -> PoolRun:
    wished = {
        "image": "none",
        "namespace": there.namespace,
        "widths": "1",
        "epochs": "100",
        "epoch_estimate": "5s",
        "model": there.namespace,
        "checkpoints": {"name": "checkpoints", "emptyDir": {}},
        **variables,
    }
    entry = Path(poolflows.__file__).relative_to(ROOT)
    return PoolRun.of(poolflows.pooled, pool, f"{entry}:pooled", {}, wished)


def job_of_run(there: Place, run: PoolRun) -> Json | None:
    """The Job that the worker has made for this run; None before that, or when it is gone."""
    return next(
        (
            job
            for job in there.jobs()
            if job["metadata"]["labels"].get(names.FLOW_RUN) == str(run.id)
        ),
        None,
    )


def verdict_of_run(there: Place, run: PoolRun) -> str:
    job = job_of_run(there, run)
    return str(verdict_of(job).get("kind")) if job and verdict_of(job) else ""


def message_of(there: Place, run: PoolRun, kind: str, name: str) -> str:
    """Wait until Prefect shows this state of the run; its message."""
    there.until(lambda: run.shown()[:2] == (kind, name), f"Prefect to show {name}")
    return run.shown()[2]


def test_a_promised_run_has_its_pod_and_loses_its_job_once_it_has_ended_cancelled(
    there: Place, pool: str
) -> None:
    run = ask_for_run(pool, there, deadline="2h")
    there.until(lambda: verdict_of_run(there, run) == "promise", "its Job to be promised")
    job = job_of_run(there, run)
    assert job is not None
    there.until(lambda: bool(there.pods(job["metadata"]["name"])), "its pod")
    run.becomes("CANCELLED")  # as its pod does
    there.until(lambda: job_of_run(there, run) is None, "its Job to be deleted")


def test_a_run_that_waits_is_shown_as_waiting_and_ends_when_it_is_cancelled(
    there: Place, pool: str
) -> None:
    there.apply(*[there.job(f"runs-{number}", WHENEVER) for number in range(GPUS)])
    there.until(lambda: sum(map(running, there.jobs())) == GPUS, "all GPUs to be taken")
    run = ask_for_run(pool, there, service_class="best_effort")
    assert "it needs 1 GPU" in message_of(there, run, "PENDING", "Waiting")
    assert job_of_run(there, run)
    run.becomes("CANCELLING")
    there.until(lambda: job_of_run(there, run) is None, "its Job to be deleted")
    assert "cancelled" in message_of(there, run, "CANCELLED", "Cancelled")


def test_a_refused_run_fails_with_the_reason_and_goes_on_when_an_offer_is_taken(
    there: Place, pool: str
) -> None:
    run = ask_for_run(pool, there, deadline="60s")
    message = message_of(there, run, "FAILED", "Refused")
    for words in ("DeadlineRefused", "before_fastest_finish", "offer 1: deadline", "laxity accept"):
        assert words in message
    (job,) = there.jobs()
    assert job["spec"]["suspend"] is True

    name = job["metadata"]["name"]
    there.kubectl("annotate", "job", name, "--overwrite", f"{names.DEADLINE}=5h")
    assert "promised" in message_of(there, run, "PENDING", "Promised")
    assert [one["metadata"]["name"] for one in there.jobs()] == [name], "no second Job was started"


def test_an_annotation_that_makes_no_sense_ends_the_run_with_what_is_wrong(
    there: Place, pool: str
) -> None:
    run = ask_for_run(pool, there, deadline="soonish")
    assert "soonish" in message_of(there, run, "FAILED", "Refused")
