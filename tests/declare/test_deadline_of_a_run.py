"""The deadline of one run: its own, the declared one, or none; counted from the scheduled start."""

import json
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest

from laxity import QoSError, deadline_workflow
from tests.support.flow_runs import said
from tests.support.job_service import StandIn


def test_one_run_of_a_deployment_takes_a_deadline_of_its_own(
    trainings: ModuleType, service: StandIn, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import get_client
    from prefect.flow_engine import run_flow

    deployment_id = trainings.train_digits.to_deployment("hourly").apply()
    with get_client(sync_client=True) as api:
        run = api.create_flow_run_from_deployment(deployment_id, parameters={"deadline": "1h"})

    run_flow(trainings.train_digits, flow_run=run, parameters=run.parameters)

    (manifest,) = service.manifests
    assert said(manifest, "deadline") == "1h"
    assert json.loads(said(manifest, "parameters")) == {"hidden": 64, "name": "x"}


def test_a_deadline_as_a_job_variable_is_not_dropped_in_silence_where_the_flow_submits_the_job(
    trainings: ModuleType, service: StandIn, prefect_api: str
) -> None:
    from prefect import get_client
    from prefect.flow_engine import run_flow

    deployment_id = trainings.train_digits.to_deployment("hourly").apply()
    with get_client(sync_client=True) as api:
        run = api.create_flow_run_from_deployment(deployment_id, job_variables={"deadline": "1h"})

    with pytest.raises(QoSError, match="give the run --param deadline=1h"):
        run_flow(trainings.train_digits, flow_run=run, parameters=run.parameters)

    assert service.manifests == []


def test_a_deadline_among_the_job_variables_of_a_workflow_is_not_dropped_in_silence(
    service: StandIn, processes: str
) -> None:
    from prefect import get_client
    from prefect.flow_engine import run_flow

    @deadline_workflow(deadline="1h")
    def release() -> None:
        pass

    with get_client(sync_client=True) as api:
        run = api.create_flow_run(
            release, work_pool_name=processes, job_variables={"deadline": "2h"}
        )

    with pytest.raises(QoSError, match="take it out, and declare deadline in deadline_workflow"):
        run_flow(release, flow_run=run)


def test_a_deadline_of_one_run_that_cannot_be_meant_is_told_before_anything_is_submitted(
    trainings: ModuleType, service: StandIn
) -> None:
    with pytest.raises(QoSError, match="deadline"):
        trainings.train_digits(deadline="20")

    assert service.manifests == []


def test_a_run_takes_a_deadline_by_the_clock_in_the_zone_of_its_submitter(
    trainings: ModuleType, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laxity.clock_time.local_zone_name", lambda: "Europe/Berlin")

    trainings.train_digits(deadline="Fri 18:00")

    (manifest,) = service.manifests
    assert said(manifest, "deadline") == "Fri 18:00 Europe/Berlin"


def test_a_function_with_a_deadline_parameter_keeps_it(
    trainings: ModuleType, service: StandIn
) -> None:
    trainings.train_until(deadline="soon")

    (manifest,) = service.manifests
    assert said(manifest, "deadline") is None
    assert json.loads(said(manifest, "parameters")) == {"deadline": "soon"}


def test_best_effort_drops_the_declared_deadline(trainings: ModuleType, service: StandIn) -> None:
    trainings.train_digits.with_qos(service_class="best_effort")()

    (manifest,) = service.manifests
    assert (said(manifest, "class"), said(manifest, "deadline")) == ("best_effort", None)


def test_a_deadline_counts_from_the_scheduled_start(
    trainings: ModuleType, service: StandIn
) -> None:
    from prefect import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Scheduled

    scheduled_at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    with get_client(sync_client=True) as api:
        run = api.create_flow_run(
            trainings.train_digits, state=Scheduled(scheduled_time=scheduled_at)
        )

    run_flow(trainings.train_digits, flow_run=run)

    (manifest,) = service.manifests
    assert datetime.fromisoformat(said(manifest, "submitted-at")) == scheduled_at


def test_a_schedule_creates_runs_at_its_times(trainings: ModuleType, prefect_api: str) -> None:
    """Which needs an SQLAlchemy that Prefect's server can work with."""
    from prefect import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    deployment_id = trainings.train_digits.to_deployment("daily", cron="0 6 * * *").apply()
    this_one = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id]))
    with get_client(sync_client=True) as api:
        api.request(
            "POST", "/deployments/{id}/schedule", path_params={"id": deployment_id}, json={}
        )
        runs = api.read_flow_runs(deployment_filter=this_one)
        api.delete_deployment(deployment_id)

    assert {run.expected_start_time.hour for run in runs if run.expected_start_time} == {6}
