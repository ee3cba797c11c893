"""A flow run of a Kubernetes work pool, as Prefect's worker would start it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.kubernetes.cluster import Cluster

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
SETTLED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


async def rendered(template: Json, variables: Mapping[str, Any], **flow_run: Any) -> Json:
    """The Job of a template, by the machinery of all of Prefect's workers."""
    from prefect.workers.base import BaseJobConfiguration

    class Configuration(BaseJobConfiguration):
        job_manifest: Json
        namespace: str
        annotations: dict[str, str]

    nobody: Any = object()  # is asked only for blocks, of which there are none
    found: Any = await Configuration.from_template_and_values(
        template, dict(variables), client=nobody
    )
    if flow_run:
        found.prepare_for_flow_run(**flow_run)
    return as_the_worker_does(
        found.job_manifest, dict(found.env), dict(found.labels), found.command
    )


def as_the_worker_does(job: Json, env: Json, labels: Json, command: str | None) -> Json:
    """What the Kubernetes worker adds: its variables before the template's, its labels, the command."""
    meta = job["metadata"]
    meta["labels"] = {**meta.get("labels", {}), **labels_of(labels)}
    meta["generateName"] = "flow-run-"
    container = job["spec"]["template"]["spec"]["containers"][0]
    own = [one for one in container["env"] if one["name"] not in env]
    container["env"] = [{"name": name, "value": value} for name, value in env.items()] + own
    container["args"] = (command or "prefect flow-run execute").split()
    return job


def labels_of(labels: Json) -> Json:
    wanted = ("prefect.io/flow-run-id",)
    return {name: value for name, value in labels.items() if name in wanted}


async def made_pool(name: str, template: Json) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    async with get_client() as client:
        made = WorkPoolCreate(name=name, type="kubernetes", base_job_template=template)
        await client.create_work_pool(made)


class PoolRun:
    """One flow run of a deployment in a pool."""

    def __init__(self, run_id: UUID) -> None:
        self.id = run_id

    @classmethod
    def of(
        cls, flow: Any, pool: str, entry: str | Path, parameters: Json, variables: Json
    ) -> "PoolRun":
        """Deploy the flow into the pool, and ask for a run."""
        return cls(asyncio.run(_asked(flow, pool, str(entry), parameters, variables)))

    def create_job(self, cluster: Cluster, template: Json, variables: Json) -> Json:
        """What the worker does when it sees the run."""
        self.becomes("PENDING")
        job = asyncio.run(self._job(template, variables))
        where = f"/apis/batch/v1/namespaces/{variables['namespace']}/jobs"
        made = cluster.ask("POST", where, job)
        assert made, "the API server refused the Job"
        self._runs_as(made["metadata"])
        return dict(made)

    def _runs_as(self, job: Json) -> None:
        """As prefect-kubernetes 0.6 to 0.8 write it down."""
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            pid = f"{job['namespace']}:{job['name']}"
            client.update_flow_run(self.id, infrastructure_pid=pid)

    async def _job(self, template: Json, variables: Json) -> Json:
        from prefect.client.orchestration import get_client

        async with get_client() as client:
            run = await client.read_flow_run(self.id)
        return await rendered(template, variables, flow_run=run)

    def state(self) -> str:
        return str(self._read().state_type.value)

    def shown(self) -> tuple[str, str, str]:
        """Type, name and message of its state."""
        state = self._read().state
        return str(state.type.value), str(state.name), str(state.message or "")

    def becomes(self, kind: str) -> None:
        """As somebody does it in Prefect."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.objects import State, StateType

        with get_client(sync_client=True) as client:
            client.set_flow_run_state(self.id, State(type=StateType(kind)))

    def count(self) -> int:
        """How often its process was started."""
        return int(self._read().run_count)

    def ended(self) -> bool:
        return self.state() in SETTLED

    def _read(self) -> Any:
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            return client.read_flow_run(self.id)


async def _asked(flow: Any, pool: str, entry: str, parameters: Json, variables: Json) -> UUID:
    from prefect.client.orchestration import get_client

    here = {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
    async with get_client() as client:
        flow_id = await client.create_flow(flow)
        deployment = await client.create_deployment(
            flow_id=flow_id,
            name="in-a-pool",
            work_pool_name=pool,
            entrypoint=entry,
            pull_steps=[here],
            job_variables=variables,
            enforce_parameter_schema=False,
        )
        run = await client.create_flow_run_from_deployment(deployment, parameters=parameters)
    return run.id
