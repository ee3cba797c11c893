"""A Prefect work pool whose base job template carries the deadline: the flow run itself is the Job.

What Prefect's worker does with a template is done with the machinery that all workers share; the
Job is then created as the worker would create it. test_workpool_worker has the worker itself.
"""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import prefect
import pytest

from laxity import QoSError, names
from laxity.job.work_pool import pool_template
from laxity.worker.sigterm import EXIT_STOPPED
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.poolrun import PoolRun, made_pool, rendered
from tests.support.kubernetes.trained import QUICK, each_once, right
from tests.support.programs import poolflows

ROOT = Path(__file__).parents[2]


def manifest_of(**variables: Any) -> dict[str, Any]:
    return asyncio.run(rendered(pool_template(), {"image": "train:1", **variables}))


def test_a_flow_runs_job_waits_for_laxity_and_is_retried_by_kubernetes() -> None:
    spec = manifest_of()["spec"]
    assert spec["suspend"] is True
    assert spec["completionMode"] == "Indexed"
    assert spec["backoffLimit"] >= 1
    assert spec["podReplacementPolicy"] == "Failed"


def test_what_a_deployment_says_becomes_the_jobs_annotations() -> None:
    job = manifest_of(deadline="2h", widths="1,2", model="mlp", epochs="30", epoch_estimate="4s")
    said = job["metadata"]["annotations"]
    assert said == {
        names.DEADLINE: "2h",
        names.WIDTHS: "1,2",
        names.MODEL: "mlp",
        names.EPOCHS: "30",
        names.EPOCH_ESTIMATE: "4s",
    }
    assert job["metadata"]["labels"][names.MANAGED] == "true"


def test_what_a_deployment_does_not_say_is_left_out() -> None:
    job = manifest_of()
    pod = job["spec"]["template"]["spec"]
    assert names.DEADLINE not in job["metadata"]["annotations"]
    assert "serviceAccountName" not in pod
    assert "{{" not in json.dumps(job)


def test_laxity_can_read_the_job_that_the_template_makes() -> None:
    from laxity.job.spec import TrainingSpec

    job = manifest_of(deadline="2h", widths="1,2", model="mlp", epochs="30")
    job["metadata"]["name"] = "mlp-7"
    spec = TrainingSpec.from_manifest(job)
    assert (spec.qos.widths, spec.epochs, spec.model) == ((1, 2), 30, "mlp")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, {"deadline": "2h", "epochs": "300"}, id="the declaration is said once"),
        pytest.param({"deadline": "3h"}, {"deadline": "3h", "epochs": "300"}, id="given ones win"),
        pytest.param(
            {"service_class": "best_effort"},
            {"service_class": "best_effort", "epochs": "300"},
            id="best_effort drops the declared deadline",
        ),
    ],
)
def test_a_deployment_hands_the_declaration_to_its_work_pool(
    prefect_api: str, given: dict[str, str], want: dict[str, str]
) -> None:
    from prefect.client.orchestration import get_client

    pool = f"pool-{uuid.uuid4().hex[:6]}"
    asyncio.run(made_pool(pool, pool_template()))
    flow: Any = poolflows.pooled
    deployment = flow.with_qos(deadline="2h").deploy(
        "in-a-pool", work_pool_name=pool, image="train:1", build=False, push=False,
        job_variables=given, print_next_steps=False,
    )  # fmt: skip
    with get_client(sync_client=True) as client:
        said = client.read_deployment(deployment).job_variables
    assert said == {
        **want, "widths": "1,2", "model": "pooled", "gpus_per_worker": "1", "image": "train:1",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_way_to_deploy_hands_on_what_a_job_carries_and_refuses_what_its_pod_would_lose(
    prefect_api: str,
) -> None:
    from prefect.client.orchestration import get_client

    pool = f"pool-{uuid.uuid4().hex[:6]}"
    asyncio.run(made_pool(pool, pool_template()))
    declared: Any = poolflows.pooled
    changed = declared.with_qos(deadline="2h")

    deployment = asyncio.run(
        changed.adeploy(
            "async", work_pool_name=pool, image="train:1", build=False, print_next_steps=False
        )
    )
    with get_client(sync_client=True) as client:
        said = client.read_deployment(deployment).job_variables
    assert said == {**changed.declaration.job_variables(), "image": "train:1"}
    by_hand = changed.to_deployment("by-hand", work_pool_name=pool)
    assert by_hand.job_variables == changed.declaration.job_variables()
    later = [declared.to_deployment(name) for name in ("first", "second")]
    there: Any = {"work_pool_name": pool, "image": "train:1", "build": False, "push": False}
    deployed: Any = prefect.deploy(*later, **there, print_next_steps_message=False)
    for told in deployed:
        with get_client(sync_client=True) as client:
            said = client.read_deployment(told).job_variables
        assert said == {**declared.declaration.job_variables(), "image": "train:1"}
    with pytest.raises(QoSError, match="epochs: what with_qos changed is lost"):
        changed.with_qos(epochs=7).to_deployment("by-hand", work_pool_name=pool)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_prefects_api_takes_the_template_and_refuses_a_deployment_without_an_image(
    prefect_api: str,
) -> None:
    from prefect.exceptions import PrefectHTTPStatusError

    pool = f"pool-{uuid.uuid4().hex[:6]}"
    asyncio.run(made_pool(pool, pool_template()))
    with pytest.raises(PrefectHTTPStatusError, match="image"):
        PoolRun.of(
            poolflows.pooled, pool, ROOT / "tests/support/programs/poolflows.py:pooled", {}, {}
        )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_cancelled_while_it_trains_ends_cancelled_and_not_crashed(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import flow
    from prefect.runtime import flow_run

    from laxity.flow import pod_run

    def stopped_by_a_cancellation(*_: Any) -> int:
        PoolRun(uuid.UUID(str(flow_run.id))).becomes("CANCELLING")
        return EXIT_STOPPED

    monkeypatch.setattr(pod_run, "_train_call", stopped_by_a_cancellation)
    declared: Any = poolflows.pooled

    @flow
    def pooled() -> Any:
        return pod_run.train_as_job(print, declared.declaration, {})

    state: Any = pooled(return_state=True)
    assert state.is_cancelled()


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_flow_run_survives_suspend_and_resume_as_one_run(
    pod_cluster: PodCluster, place: str
) -> None:
    folder = pod_cluster.folder / f"{place}-pooled"
    folder.mkdir()
    (folder / "pace").write_text("2.0")
    template = on_this_machine(pod_cluster)
    pool = f"pool-{uuid.uuid4().hex[:6]}"
    asyncio.run(made_pool(pool, template))
    by_template = (names.ENV_URL, names.ENV_CHECKPOINTS)
    said = {
        "image": "localhost/host:1",
        "image_pull_policy": "Never",
        "namespace": place,
        "laxity_url": pod_cluster.url,
        "widths": "2",
        "epochs": "300",
        "epoch_estimate": "2s",
        "model": f"{place}-pooled",
        "node_selector": {"type": "real"},
        "env": {
            **{name: text for name, text in pod_cluster.env().items() if name not in by_template},
            "PYTHONPATH": str(ROOT),
            "PREFECT_HOME": "/tmp/prefect",
        },
        "checkpoints": {"name": "checkpoints", "hostPath": {"path": str(folder)}},
    }
    entry = Path(poolflows.__file__).relative_to(ROOT)
    run = PoolRun.of(poolflows.pooled, pool, f"{entry}:pooled", {"folder": str(folder)}, said)
    run.create_job(pod_cluster.cluster, template, said)
    pooled = Run.seen(pod_cluster, "flow-run", place, folder)
    pooled.until_epoch(3)
    assert {one["width"] for one in pooled.notes("began", rank=1)} == {2}, "index 1 is a worker"
    high = Run(pod_cluster, "high", place, deadline="1h", workers=(2,), epochs=5)
    high.rush(pace_s=0.2)
    high.finished()
    pooled.pace(QUICK)
    pod_cluster.until(run.ended, "the flow run to end")
    assert run.state() == "COMPLETED"
    assert run.count() == 2, "entered again, not made again"
    assert [one["epoch"] for one in pooled.notes("trained")] == each_once(300)
    assert {one["start"] for one in pooled.notes("began")} == {1, 2}
    (result,) = folder.glob("*/result.json")
    assert right(json.loads(result.read_text()), 300)


def on_this_machine(pod_cluster: PodCluster) -> dict[str, Any]:
    """The template, with the host's folders in its pods: nothing can be pulled here."""
    template = pool_template()
    pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    pod["volumes"] += pod_cluster.host.volumes()
    pod["containers"][0]["volumeMounts"] += pod_cluster.host.mounts()
    pod["hostNetwork"] = True
    return template
