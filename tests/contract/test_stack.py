"""The pinned libraries work together: one real flow, one metric, one patch.

An index drifts: versions that install together may still break at run time. This fails first.
"""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer


def test_a_flow_runs_and_the_api_remembers_it(prefect_api: str) -> None:
    from prefect import flow, get_client, task
    from prefect.runtime import flow_run

    @task
    def double(number: int) -> int:
        return 2 * number

    @flow
    def doubling(number: int) -> tuple[UUID, int]:
        return UUID(flow_run.get_id()), double(number)

    run_id, doubled = doubling(21)

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/api", prefect_api)
    assert doubled == 42
    assert run.state_name == "Completed"
    assert run.parameters == {"number": 21}


def test_metrics_logged_in_a_batch_are_read_back(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=mlflow_uri)
    experiment = client.create_experiment("smoke", artifact_location=str(tmp_path / "artifacts"))
    run_id = client.create_run(experiment).info.run_id

    client.log_batch(
        run_id,
        metrics=[
            Metric("epoch_s/actual", 60.0 + epoch, 1_000 + epoch, epoch) for epoch in range(3)
        ],
    )

    history = client.get_metric_history(run_id, "epoch_s/actual")
    assert [(point.step, point.value) for point in history] == [(0, 60.0), (1, 61.0), (2, 62.0)]


@pytest.mark.asyncio
async def test_a_job_is_patched_by_the_kubernetes_client() -> None:
    from kubernetes.aio import client

    job: dict[str, Any] = {
        "metadata": {"name": "train", "resourceVersion": "7"},
        "spec": {"suspend": True},
    }
    content_types: list[str] = []

    async def patch_job(request: web.Request) -> web.Response:
        content_types.append(request.content_type)
        patch = json.loads(await request.read())
        if patch["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]:
            return web.json_response({"kind": "Status", "code": 409}, status=409)
        job["spec"] |= patch["spec"]
        job["metadata"]["resourceVersion"] = "8"
        return web.json_response(job)

    app = web.Application()
    app.router.add_patch("/apis/batch/v1/namespaces/team/jobs/train", patch_job)
    patch = {
        "metadata": {"resourceVersion": "7"},
        "spec": {"suspend": False, "parallelism": 4, "completions": 4},
    }

    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
        async with client.ApiClient(configuration) as api:
            answers = [
                await client.BatchV1Api(api).patch_namespaced_job_without_preload_content(
                    "train", "team", patch, _content_type="application/merge-patch+json"
                )
                for _ in range(2)
            ]

    assert [answer.status for answer in answers] == [200, 409]
    assert content_types == ["application/merge-patch+json"] * 2
    assert job["spec"] == {"suspend": False, "parallelism": 4, "completions": 4}
