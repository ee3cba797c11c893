"""A declared flow is a real Prefect flow: called, it submits a job, follows it and tells of it."""

import json
import logging
import threading
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from laxity import DeadlineRefused, TrainingFailed
from tests.support.flow_runs import artifacts_of, latest_run, lines_of, said
from tests.support.job_service import StandIn, story_of

DUE_AT = datetime(2026, 11, 21, 18, tzinfo=UTC).timestamp()


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
        pytest.param("capacity_freed_too_late", 2, id="the other job may end"),
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


def test_a_flow_of_a_script_travels_to_the_process_that_a_runner_starts(
    trainings: ModuleType,
) -> None:
    cloudpickle.register_pickle_by_value(trainings)  # as what `python served.py` defines
    try:
        sent = cloudpickle.loads(cloudpickle.dumps(trainings.train_again))
    finally:
        cloudpickle.unregister_pickle_by_value(trainings)

    assert sent.declaration == trainings.train_again.declaration


def test_a_caller_gets_the_error_of_the_last_try(trainings: ModuleType, service: StandIn) -> None:
    service.will({"state": "failed", "error": "exit code 1"})
    service.will(REFUSED)

    with pytest.raises(DeadlineRefused):
        trainings.train_again()

    assert latest_run().state_name == "Refused"


def test_a_job_that_fails_for_good_fails_the_flow_and_the_users_hook_runs(
    trainings: ModuleType, service: StandIn
) -> None:
    service.will({"state": "failed", "error": "exit code 1"})

    with pytest.raises(TrainingFailed, match="exit code 1"):
        trainings.train_again.with_options(retries=0)()

    assert latest_run().state_name == "Failed"
    assert trainings.HEARD == ["Failed"]


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
