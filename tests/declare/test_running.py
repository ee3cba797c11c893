"""A declared flow is a real Prefect flow: called, it submits a job, follows it and tells of it."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from laxity import DeadlineRefused, QoSError, TrainingFailed
from tests.support.job_service import StandIn, story_of

SCRIPT = Path(__file__).parents[1] / "support/programs/flows.py"
DUE_AT = datetime(2026, 11, 21, 18, tzinfo=UTC).timestamp()


@pytest.fixture
def trainings(prefect_api: str, service: StandIn) -> ModuleType:
    from tests.support.programs import flows as trainings

    trainings.HEARD.clear()
    return trainings


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


def test_a_call_submits_the_declared_job_and_returns_the_result_of_worker_0(
    trainings: ModuleType, service: StandIn
) -> None:
    service.will(*story_of(3, result={"loss": 0.5}))

    result = trainings.train_digits(hidden=128)

    (manifest,) = service.manifests
    assert result == {"loss": 0.5}
    assert said(manifest, "deadline") == "20m"
    assert said(manifest, "widths") == "1,2,4"
    assert said(manifest, "model") == "mlp"
    assert json.loads(said(manifest, "parameters")) == {"hidden": 128, "name": "x"}
    assert said(manifest, "entry") == "tests.support.programs.flows:train_digits"


def test_the_flow_run_shows_the_job_as_tags_labels_and_two_artifacts(
    trainings: ModuleType, service: StandIn
) -> None:
    service.will(*story_of(3, deadline_at=DUE_AT, run_id="run-7"))

    trainings.train_digits()

    run = latest_run()
    found = artifacts_of(run.id)
    assert {"laxity", "class:hard", "nightly", "deadline:2026-11-21T18:00:00Z"} <= {*run.tags}
    assert run.labels["laxity.job"] in service.jobs
    assert run.labels["laxity.standing"] == "kept"
    assert [row.data for row in found["laxity-progress"]] == [100.0]
    assert [row.type for row in found["laxity-verdict"]] == ["markdown"]
    assert "run-7" in found["laxity-verdict"][0].data
    assert {*found} == {"laxity-progress", "laxity-verdict"}


def test_every_change_of_the_verdict_is_one_event(trainings: ModuleType, service: StandIn) -> None:
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker

    late = {"deadline_at": DUE_AT, "p90_at": DUE_AT + 60, "reason": "a node is gone"}
    service.will(*story_of(2, deadline_at=DUE_AT, p90_at=DUE_AT - 60)[:3], late, {"epochs_done": 2})
    AssertingEventsClient.reset()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventsWorker, "_client_override", (AssertingEventsClient, ()), raising=False)
        EventsWorker.drain_all()
        service.stories[0].append({"state": "finished", "finished_at": DUE_AT + 30})
        trainings.train_digits()
        EventsWorker.drain_all()

    sent = [event for client in AssertingEventsClient.all for event in client.events]
    ours = [event.event for event in sent if event.event.startswith("laxity.")]
    assert ours == [
        "laxity.job.promised",
        "laxity.job.endangered",
        "laxity.job.broken",
    ]


def test_a_refusal_fails_the_flow_with_its_reason_and_offers(
    trainings: ModuleType, service: StandIn
) -> None:
    offers = [{"kind": "deadline", "deadline_at": DUE_AT, "widths": [4], "p90_at": DUE_AT - 60}]
    service.will(
        {
            "state": "refused",
            "verdict": "refused",
            "reason_code": "deadline_before_fastest_finish",
            "reason": "even alone it takes 3h05m",
            "offers": offers,
        }
    )

    with pytest.raises(DeadlineRefused) as refusal:
        trainings.train_digits()

    run = latest_run()
    assert refusal.value.reason_code == "deadline_before_fastest_finish"
    assert refusal.value.offers[0].widths == (4,)
    assert "laxity accept" in str(refusal.value)
    assert (run.state_name, run.state_type.value) == ("Refused", "FAILED")
    assert "even alone it takes 3h05m" in run.state.message
    assert "Traceback" not in run.state.message
    assert [line for line in lines_of(run.id) if "Traceback" in line] == []
    assert "2026-11-21T18:00:00Z" in artifacts_of(run.id)["laxity-verdict"][0].data


REFUSED = {"state": "refused", "verdict": "refused", "reason_code": "r", "reason": "too late"}


def test_a_parent_flow_catches_the_refusal_of_a_training_and_goes_on(
    trainings: ModuleType, service: StandIn
) -> None:
    from prefect import flow

    @flow
    def parent() -> str:
        try:
            trainings.train_digits()
        except DeadlineRefused as refusal:
            return refusal.reason_code
        return "not refused"

    service.will(REFUSED)

    assert parent() == "r"


@pytest.mark.parametrize(
    ("reason_code", "times"),
    [
        pytest.param("capacity_promised_to_others", 2, id="capacity may come free"),
        pytest.param("quota_promised_to_others", 2, id="quota may come free"),
        pytest.param("deadline_before_fastest_finish", 1, id="time only makes it worse"),
    ],
)
def test_a_retry_asks_again_only_where_the_answer_may_be_another_one(
    trainings: ModuleType, service: StandIn, reason_code: str, times: int
) -> None:
    service.will(REFUSED | {"reason_code": reason_code})

    with pytest.raises(DeadlineRefused):
        trainings.train_again()

    run = latest_run()
    assert (run.state_name, run.run_count) == ("Refused", times)
    assert len(service.manifests) == times
    assert [line for line in lines_of(run.id) if "Traceback" in line] == []


def test_a_flow_without_a_service_fails_with_a_sentence_and_a_hint(
    trainings: ModuleType, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laxity.api import job_follower
    from laxity.api.client import ServiceError
    from laxity.flow import prefect_flow

    service.stop()
    monkeypatch.setattr(prefect_flow, "FOLLOW_PATIENCE_S", 0.0)
    monkeypatch.setattr(job_follower, "START_S", 0.0)  # it is one on this machine

    with pytest.raises(ServiceError, match="laxity up"):
        trainings.train_again.with_options(retries=1)()

    run = latest_run()
    assert (run.state_name, run.run_count) == ("Failed", 2)
    assert run.state.message.startswith("no laxity service answers at")
    assert [line for line in lines_of(run.id) if "Traceback" in line] == []


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


def test_a_deadline_of_one_run_that_cannot_be_meant_is_told_before_anything_is_submitted(
    trainings: ModuleType, service: StandIn
) -> None:
    with pytest.raises(QoSError, match="deadline"):
        trainings.train_digits(deadline="20")

    assert service.manifests == []


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


def test_the_log_has_a_line_for_each_tenth_and_says_broken_when_it_happens(
    trainings: ModuleType, service: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    ends = {"state": "finished", "finished_at": DUE_AT + 90, "verdict": "promised"}
    service.will(
        {"verdict": "promised", "state": "running", "epochs": 40, "deadline_at": DUE_AT},
        *({"epochs_done": done} for done in (1, 4, 5, 8)),
        {"p90_at": DUE_AT + 90},
        {"broken": True},
        {"epochs_done": 40, **ends},
    )

    with caplog.at_level(logging.INFO, logger="prefect.flow_runs"):
        trainings.train_digits()

    run = latest_run()
    lines = [line.partition(": ")[2] for line in lines_of(run.id)]
    due = "2026-11-21T18:00:00Z"
    assert [line for line in lines if line.startswith(("endangered", "broken"))] == [
        f"endangered: P90 finish 2026-11-21T18:01:30Z is 1m30s after the deadline {due}",
        f"broken: the deadline {due} has passed; P90 finish 2026-11-21T18:01:30Z",
        f"broken: finished 1m30s after the deadline {due}",
    ]
    assert [line.split(",")[0] for line in lines if "of 40 epochs, running" in line] == [
        f"{done} of 40 epochs" for done in (0, 4, 8)
    ]
    assert "broken: finished 1m30s after" in artifacts_of(run.id)["laxity-verdict"][0].data


def test_a_retry_of_the_flow_starts_the_next_attempt_with_the_first_submission(
    trainings: ModuleType, service: StandIn
) -> None:
    service.will({"state": "failed", "error": "exit code 1"})
    service.will({"state": "finished", "result": 7})

    result = trainings.train_again()

    first, second = service.manifests
    assert result == 7
    assert said(first, "idempotency-key") == said(second, "idempotency-key")
    assert said(first, "submitted-at") == said(second, "submitted-at")
    assert [job["attempt"] for job in service.jobs.values()] == [1, 2]
    assert trainings.HEARD == ["Completed"]


def test_a_job_that_fails_for_good_fails_the_flow_and_the_users_hook_runs(
    trainings: ModuleType, service: StandIn
) -> None:
    service.will({"state": "failed", "error": "exit code 1"})

    with pytest.raises(TrainingFailed, match="exit code 1"):
        trainings.train_again.with_options(retries=0)()

    assert latest_run().state_name == "Failed"
    assert trainings.HEARD == ["Failed"]


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


def test_a_service_that_is_away_is_waited_for(trainings: ModuleType, service: StandIn) -> None:
    service.will({"state": "running", "workers": 1}, {"epochs_done": 1})

    def go_away() -> None:
        service.wait_until(lambda: service.polls > 3)
        service.stop()
        (job_id,) = service.jobs
        service.update(job_id, state="finished", result=1)
        service.start()

    away = threading.Thread(target=go_away)
    away.start()
    result = trainings.train_digits()
    away.join()

    assert result == 1


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


def test_a_deployment_names_the_users_file_and_loads_the_declared_flow(
    trainings: ModuleType,
) -> None:
    from prefect.flows import load_flow_from_entrypoint
    from prefect.utilities.hashing import file_hash

    deployment = trainings.train_digits.to_deployment("nightly", cron="0 3 * * *")

    loaded: Any = load_flow_from_entrypoint(str(deployment.entrypoint))
    assert str(deployment.entrypoint).endswith("tests/support/programs/flows.py:train_digits")
    assert type(loaded).__name__ == "DeadlineFlow"
    assert loaded.version == file_hash(str(trainings.__file__))
    assert {*loaded.parameters.properties} == {"hidden", "name", "deadline"}


def test_ci_gives_one_key_to_the_flows_of_a_commit(
    trainings: ModuleType, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAXITY_IDEMPOTENCY_KEY", "repo@abc123")

    for hidden in (1, 1, 2):
        trainings.train_digits(hidden=hidden)

    keys = [said(manifest, "idempotency-key") for manifest in service.manifests]
    assert keys[0].startswith("repo@abc123/train-digits/")
    assert keys[0] == keys[1] != keys[2]
    assert len(service.jobs) == 2


def test_a_caller_is_told_of_a_wrong_parameter_before_anything_is_submitted(
    trainings: ModuleType, service: StandIn
) -> None:
    with pytest.raises(Exception, match="hidden"):
        trainings.train_digits(hidden="many")

    assert service.manifests == []


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
