"""What Prefect has of a flow run, and processes that run flows."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID


def latest_run() -> Any:
    from prefect import get_client
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as api:
        return api.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0]


def artifacts_of(run_id: UUID) -> dict[str, list[Any]]:
    from prefect import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

    of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    with get_client(sync_client=True) as api:
        found = api.read_artifacts(artifact_filter=of_run)
    keys = sorted({row.key for row in found if row.key})
    return {key: [row for row in found if row.key == key] for key in keys}


def lines_of(run_id: UUID) -> list[str]:
    """What Prefect has of a run's log, once everything is sent."""
    from prefect import get_client
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all()

    async def read() -> list[str]:
        async with get_client() as api:
            of_run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))
            return [line.message for line in await api.read_logs(log_filter=of_run)]

    return asyncio.run(read())


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive its test."""
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(manifest: dict[str, Any], annotation: str) -> Any:
    return manifest["metadata"]["annotations"].get(f"laxity.dev/{annotation}")
