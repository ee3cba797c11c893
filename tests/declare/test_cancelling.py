"""Whoever ends a flow run decides over its job: cancelled with it, or left to be attached to."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.flow_runs import latest_run, said, started
from tests.support.job_service import StandIn

SCRIPT = Path(__file__).parents[1] / "support/programs/flows.py"


def test_with_options_keeps_the_declaration_and_the_hook_that_cancels(
    trainings: ModuleType, service: StandIn
) -> None:
    from laxity.flow.prefect_flow import DeadlineFlow, cancel_job

    renamed = trainings.train_by_seed.with_options(
        name="renamed", on_cancellation=[trainings.hear], on_completion=[trainings.hear]
    )
    result = renamed.with_options(retries=0).with_qos(workers="1..3", deadline="5m")(seed=9)

    (manifest,) = service.manifests
    assert isinstance(renamed, DeadlineFlow)
    assert renamed.on_cancellation_hooks == [cancel_job, trainings.hear]
    assert result is None
    assert (said(manifest, "widths"), said(manifest, "class")) == ("1..3", "hard")
    assert said(manifest, "idempotency-key") == "nightly-9"
    assert latest_run().state_name == "Completed"
    assert trainings.HEARD == ["Running", "Completed"]


def test_the_plain_prefect_way_of_copying_a_flow_keeps_the_declaration_too(
    trainings: ModuleType,
) -> None:
    from prefect import Flow

    copied: Any = Flow.with_options(trainings.train_digits, name="copied")

    assert copied.fn.__laxity__ is trainings.train_digits.declaration


def test_a_runner_that_cancels_calls_our_hook_before_the_users(
    trainings: ModuleType, service: StandIn
) -> None:
    from prefect import get_client

    flow = trainings.train_by_seed
    service.will({"state": "running"}, {"state": "finished"})
    flow(seed=4)
    run = latest_run()

    with get_client(sync_client=True) as api:
        for hook in flow.on_cancellation_hooks:
            hook(flow, api.read_flow_run(run.id), run.state)

    assert service.cancelled == [*service.jobs]
    assert trainings.HEARD[-1] == "Completed"


def test_cancelling_the_flow_run_cancels_the_job(trainings: ModuleType, service: StandIn) -> None:
    from prefect import get_client
    from prefect.exceptions import CancelledRun
    from prefect.states import Cancelling

    service.will({"state": "running", "workers": 1})

    def cancel_it() -> None:
        service.wait_until(lambda: service.polls > 2)
        with get_client(sync_client=True) as api:
            api.set_flow_run_state(latest_run().id, Cancelling(), force=True)

    canceller = threading.Thread(target=cancel_it)
    canceller.start()
    with pytest.raises(CancelledRun):
        trainings.train_by_seed(seed=1)
    canceller.join()

    assert service.cancelled == [*service.jobs]
    assert latest_run().state_name == "Cancelled"
    assert trainings.HEARD == ["Running", "Cancelling"]


@pytest.mark.parametrize(
    ("number", "want"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGINT, None, id="Control-C"),
    ],
)
def test_the_job_outlives_the_flows_process_and_the_next_run_attaches_to_it(
    *,
    trainings: ModuleType,
    service: StandIn,
    prefect_api: str,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    want: int | None,
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PYTHONPATH", ".", prepend=os.pathsep)
    service.will({"state": "running", "workers": 1})
    with started([sys.executable, str(SCRIPT), "5"]) as process:
        service.wait_until(lambda: service.polls > 3)

        process.send_signal(number)
        code = process.wait()
    (job_id,) = service.jobs
    service.update(job_id, state="finished", result=55)
    result = trainings.train_by_seed(seed=5)

    assert want is None or code in {want, -number}
    assert code != 0
    assert service.cancelled == []
    assert [*service.jobs] == [job_id]
    assert result == 55


@pytest.mark.soak  # Prefect's runner looks for a cancellation every half minute
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cancelled", "want"),
    [
        pytest.param(True, "Cancelled", id="cancelled in the UI"),
        pytest.param(False, "Running", id="evicted with its pod"),
    ],
)
def test_a_deployed_run_that_is_stopped_takes_its_job_along_only_if_it_was_cancelled(
    *,
    trainings: ModuleType,
    service: StandIn,
    prefect_api: str,
    monkeypatch: pytest.MonkeyPatch,
    cancelled: bool,
    want: str,
) -> None:
    from prefect import get_client
    from prefect.states import Cancelling

    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PYTHONPATH", ".", prepend=os.pathsep)
    monkeypatch.setenv("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR", "relinquish")
    service.will({"state": "running", "workers": 1})
    deployment_id = trainings.train_by_seed.to_deployment("evictable").apply()
    with get_client(sync_client=True) as api:
        run = api.create_flow_run_from_deployment(deployment_id, parameters={"seed": 6})
        command = [sys.executable, "-m", "prefect", "flow-run", "execute", str(run.id)]
        with started(command) as process:
            service.wait_until(lambda: service.polls > 3, timeout_s=240.0)
            if cancelled:
                api.set_flow_run_state(run.id, Cancelling(), force=True)
            else:
                process.send_signal(signal.SIGTERM)
            process.wait()
        state = api.read_flow_run(run.id).state_name

    assert state == want
    assert {*service.cancelled} == ({*service.jobs} if cancelled else set())
