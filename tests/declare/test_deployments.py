"""What a deployment's runs get of a declaration: all of it, or the deployment is a QoSError."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laxity import DeadlineRefused, QoSError
from tests.support.flow_runs import lines_of, said
from tests.support.job_service import StandIn

LOST = "lost in runs of a deployment, which import train_digits again"


def test_runs_of_a_changed_flow_find_it_by_its_name(
    trainings: ModuleType, service: StandIn, processes: str
) -> None:
    """Also where the deployment is made in a coroutine, and loaded from a source."""
    from prefect import get_client
    from prefect.flow_engine import run_flow
    from prefect.flows import Flow, load_flow_from_entrypoint

    async def in_a_coroutine(flow: Any) -> Any:
        return await flow.to_deployment("async", work_pool_name=processes)

    file = Path(str(trainings.__file__))
    from_source: Any = Flow.from_source(str(file.parent), f"{file.name}:train_digits_overnight")
    deployments = [
        trainings.train_digits_overnight.to_deployment("nightly"),
        asyncio.run(in_a_coroutine(trainings.train_digits_overnight)),
        from_source.to_deployment("stored", work_pool_name=processes),
    ]

    assert [one.entrypoint.split(":")[-1] for one in deployments] == ["train_digits_overnight"] * 3
    with get_client(sync_client=True) as api:
        run = api.create_flow_run_from_deployment(deployments[0].apply())
    run_flow(load_flow_from_entrypoint(deployments[0].entrypoint), flow_run=run)
    (manifest,) = service.manifests
    assert (said(manifest, "deadline"), said(manifest, "widths")) == ("8h", "2")


def test_a_name_with_an_annotation_is_found_as_well(trainings: ModuleType) -> None:
    deployment = trainings.train_digits_weekend.to_deployment("monthly")

    assert deployment.entrypoint.split(":")[-1] == "train_digits_weekend"


@pytest.mark.parametrize("kind", ["to_deployment", "ato_deployment", "deploy", "adeploy"])
def test_a_changed_flow_without_a_name_is_not_deployed_with_the_old_declaration(
    trainings: ModuleType, processes: str, kind: str
) -> None:
    async def made(flow: Any) -> Any:
        return await getattr(flow, kind)("nightly", work_pool_name=processes)

    changed = trainings.train_digits.with_qos(epochs=30)
    for flow in (changed, changed.with_options(retries=1)):
        with pytest.raises(QoSError, match=f"^epochs: what with_qos changed is {LOST}"):
            asyncio.run(made(flow))


def test_a_name_under_main_is_none_for_the_runs_of_a_deployment(
    trainings: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = trainings.train_digits.with_qos(deadline="2h")
    monkeypatch.setattr(trainings, "changed", changed, raising=False)

    with pytest.raises(QoSError, match=f"^deadline: .* {LOST}"):
        changed.to_deployment("nightly")


def test_served_runs_call_the_changed_flow_itself(
    trainings: ModuleType, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import get_client
    from prefect.runner import Runner

    serve_runs = Runner.start

    async def serve_one_run(runner: Runner, **_: Any) -> None:
        async with get_client() as api:
            served = await api.read_deployment_by_name("train-digits/served")
            await api.create_flow_run_from_deployment(served.id)
        await serve_runs(runner, run_once=True)

    monkeypatch.setattr(Runner, "start", serve_one_run)
    trainings.train_digits.with_qos(deadline="2h").serve("served", print_starting_message=False)

    (manifest,) = service.manifests
    assert said(manifest, "deadline") == "2h"


@pytest.mark.parametrize("kind", ["to_deployment", "ato_deployment", "deploy", "adeploy"])
@pytest.mark.parametrize(
    ("variable", "instead"),
    [
        ("deadline", "give the run --param deadline=1h, or the deployment the parameter deadline"),
        ("widths", "declare workers in deadline_flow"),
        ("service_class", "declare service_class in deadline_flow"),
        ("restarts", "declare restarts in deadline_flow"),
    ],
)
def test_a_deployment_is_refused_job_variables_that_its_work_pool_would_drop(
    trainings: ModuleType, processes: str, kind: str, variable: str, instead: str
) -> None:
    async def made(flow: Any) -> Any:
        variables = {"env": {"A": "1"}, variable: "1"}
        return await getattr(flow, kind)(
            "nightly", work_pool_name=processes, job_variables=variables
        )

    with pytest.raises(
        QoSError, match=f"no job variable {variable} here: take it out, and {instead}"
    ):
        asyncio.run(made(trainings.train_digits))


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"deadline": "1h"}, "or the deployment the parameter deadline"),
        ({"widths": "1"}, "declare workers in deadline_flow"),
        ({"deadline": "20m", "epochs": "3", "env": {}}, None),
    ],
    ids=["another deadline", "other workers", "what is declared"],
)
def test_a_run_whose_deployment_has_other_job_variables_is_not_submitted_without_them(
    trainings: ModuleType,
    service: StandIn,
    processes: str,
    variables: dict[str, Any],
    match: str | None,
) -> None:
    """As `prefect.yaml` makes one."""
    from prefect import get_client
    from prefect.flow_engine import run_flow

    deployment = trainings.train_digits.to_deployment("by-hand", work_pool_name=processes)
    deployment.job_variables = variables
    with get_client(sync_client=True) as api:
        run = api.create_flow_run_from_deployment(deployment.apply())

    with pytest.raises(QoSError, match=match) if match else nullcontext():
        run_flow(trainings.train_digits, flow_run=run, parameters=run.parameters)

    assert len(service.manifests) == (0 if match else 1)


def test_the_log_of_a_refused_run_of_a_deployment_has_no_traceback(
    trainings: ModuleType, service: StandIn
) -> None:
    from prefect import get_client
    from prefect.flow_engine import run_flow
    from prefect.logging.loggers import flow_run_logger

    service.will({"state": "refused", "verdict": "refused", "reason_code": "r", "reason": "late"})
    with get_client(sync_client=True) as api:
        run = api.create_flow_run(trainings.train_digits)
    log: Any = flow_run_logger(run)

    with pytest.raises(DeadlineRefused):
        run_flow(trainings.train_digits, flow_run=run, error_logger=log)

    lines = lines_of(run.id)
    assert [line for line in lines if "Traceback" in line] == []
    assert any(line.endswith("deadline refused [r]: late") for line in lines)
