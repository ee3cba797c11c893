"""A what-if answers what the Job gets that is submitted: on the world that runs on this machine."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import LocalCluster, stop_workers
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job
from tests.support.builders import Curve
from tests.support.services import manifest, staged, wait_until
from tests.support.still_cluster import standing_still

pytestmark = pytest.mark.slow
GPUS_BY_NODE = {"small": 1, "large": 2}
QUOTA: Json = {
    "metadata": {"namespace": "bounded", "name": "team"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveCluster]:
    """Three GPUs, two of them in the quota of a namespace. No worker is started."""
    with standing_still():
        api = LocalCluster(tmp_path / "cluster", GPUS_BY_NODE)
        api.rows.put("resourcequotas", QUOTA)
        made = LiveCluster(api, lambda _: Report(), quotas=True)
        wait_until(lambda: made.observe().quotas is not None, "the quota")
        yield made
        made.close()
        stop_workers(tmp_path / "cluster")


def asking(
    *,
    gpus: int | None = 1,
    on: str = "",
    widths: str = "auto",
    service_class: str = "",
    **said: Any,
) -> Json:
    """A Job for a few minutes on one GPU; `gpus` None: its containers ask for none."""
    job = manifest("asked", widths=widths, **said)
    if service_class:
        job["metadata"]["annotations"][names.CLASS] = service_class
    pod = job["spec"]["template"]["spec"]
    limits = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    pod["containers"][0]["resources"] = {"limits": limits}
    if on:
        pod["nodeSelector"] = {"kubernetes.io/hostname": on}
    return job


JOBS = [
    pytest.param(asking(), id="best effort"),
    pytest.param(asking(deadline="1h"), id="no widths"),
    pytest.param(asking(deadline="1h", gpus=2), id="two GPUs per worker, no widths"),
    pytest.param(asking(deadline="1h", gpus=4), id="more GPUs per worker than a node has"),
    pytest.param(asking(deadline="1h", gpus=None), id="no GPU asked for"),
    pytest.param(asking(deadline="1h", widths="2..4096"), id="wider than the cluster"),
    pytest.param(asking(deadline="1h", widths="512"), id="no width fits"),
    pytest.param(asking(deadline="1h", on="large"), id="one node only"),
    pytest.param(asking(deadline="1h", on="none"), id="no node at all"),
    pytest.param(asking(deadline="10s"), id="too soon"),
    pytest.param(asking(deadline="5m", service_class="soft"), id="soft"),
    pytest.param(asking(deadline="1h", submitted_at="2026-01-01T00:00:00Z"), id="asked long ago"),
    pytest.param(asking(deadline="1h", namespace="bounded"), id="a quota"),
    pytest.param(asking(deadline="1h", namespace="bounded", widths="3"), id="beyond its quota"),
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_whatif_answers_what_the_submitted_job_gets(
    tmp_path: Path, world: LiveCluster, job: Json
) -> None:
    job_id = f"{job['metadata']['namespace']}/asked"
    with staged(tmp_path, world, predictor=Curve(epoch_s=100.0)) as stage:  # type: ignore[arg-type]
        told = stage.http.post("/v1/whatif", json=job).json()
        stage.http.post("/v1/jobs", json=job).raise_for_status()
        got = stage.until(
            job_id, lambda view: view["verdict"] != "none" or view["workers"], "judged"
        )
    assert told["verdict"] == got["verdict"]
    assert told["starts_now"] is bool(got["workers"])
    if told["verdict"] == "refused":  # else the Job's reason is that of its start
        assert told["reason_code"] == got["reason_code"]
    assert [offer["kind"] for offer in told["offers"]] == [offer["kind"] for offer in got["offers"]]


@pytest.mark.parametrize("job", JOBS)
def test_a_preview_is_the_row_that_the_next_snapshot_shows(world: LiveCluster, job: Json) -> None:
    state = world.observe()
    preview = world.preview(job, state.now)
    job_id = preview.row.id
    if preview.refusal is None:
        world.submit(job)
        state = world.observe()
        row = state.by_id[job_id]
        assert timeless(preview.row) == timeless(row)
        assert preview.row.deadline_at == pytest.approx(row.deadline_at, abs=60.0)
        assert preview.row.eligible in ("", *(state.sets or {}))
    else:
        world.submit(job)
        assert job_id not in world.observe().by_id
        assert names.REASON in world.job(job_id)["metadata"]["annotations"]


def timeless(row: Job) -> Job:
    return replace(row, submitted_at=0.0, queued_at=0.0, since=0.0, deadline_at=0.0)
