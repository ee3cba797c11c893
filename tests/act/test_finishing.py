"""A suspended Job whose training has returned is complete, and any other one is left as it is."""

from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.finishing import GRACE_S, RESULT_IS_IN, Finisher, find_completion
from laxity_k8s.cluster_api import Json
from laxity_scheduler.live import Report
from tests.support.manifests import pod

NOW = 1_700_000_000.0
RETURNED = Report(finished=True)


def training(*conditions: str, suspend: bool = True, mode: str = "Indexed") -> Json:
    made = TrainingSpec(name="train", qos=QoS.of(deadline="1h"), entry="m:f").to_manifest()
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    made["spec"] |= {"suspend": suspend, "completionMode": mode}
    made["status"] = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return made


def test_a_suspended_job_whose_result_is_in_is_completed_by_its_status() -> None:
    completion = find_completion(training("Suspended"), RETURNED, now=NOW)

    assert completion is not None
    patch = completion.patch
    assert (patch.subresource, patch.body["metadata"]["resourceVersion"]) == ("status", "7")
    suspended, met = patch.body["status"]["conditions"]
    assert suspended["type"] == "Suspended"
    assert (met["type"], met["status"], met["message"]) == (
        "SuccessCriteriaMet",
        "True",
        RESULT_IS_IN,
    )


@pytest.mark.parametrize(
    ("job", "report"),
    [
        pytest.param(training(), Report(), id="no result yet"),
        pytest.param(training(suspend=False), RETURNED, id="its workers still close"),
        pytest.param(training("Complete"), RETURNED, id="complete"),
        pytest.param(training("SuccessCriteriaMet"), RETURNED, id="said before"),
        pytest.param(training("FailureTarget"), RETURNED, id="about to fail"),
        pytest.param(training(mode="NonIndexed"), RETURNED, id="Kubernetes would refuse it"),
    ],
)
def test_any_other_job_is_left_as_it_is(job: Any, report: Report) -> None:
    assert find_completion(job, report, now=NOW) is None


def sidecar_pod(*, code: int | None = 0, beside: str = "running", index: int = 0) -> Json:
    """A worker of `training` whose proxy is in that state."""
    made = pod(index, of="train")
    state = {} if code is None else {"terminated": {"exitCode": code}}
    made["status"]["containerStatuses"] = [
        {"name": "proxy", "state": {beside: {}}},
        {"name": container_name(), "state": state or {"running": {}}},
    ]
    return made


def container_name() -> str:
    return str(training()["spec"]["template"]["spec"]["containers"][0]["name"])


def watched(job: Json, report: Report, own: list[Json], *, after_s: float = 60.0) -> Any:
    """What is found when the training has just ended, and so much later."""
    finisher = Finisher(lambda _: None)
    first = finisher.find(job, report, own, now=NOW)
    return first, finisher.find(job, report, own, now=NOW + after_s), finisher


def test_training_beside_a_container_that_stays_completes_after_its_grace() -> None:
    running = training(suspend=False)

    first, late, finisher = watched(running, RETURNED, [sidecar_pod()])

    assert first is None
    assert finisher.due_at == NOW + GRACE_S
    assert late.patch.subresource == "status"
    assert "ended with exit code 0, and container proxy still ran 30s later" in late.words


@pytest.mark.parametrize(
    ("mode", "report", "code"),
    [
        pytest.param("NonIndexed", RETURNED, 0, id="Kubernetes would not complete it"),
        pytest.param("Indexed", Report(), 0, id="no result is known"),
        pytest.param("Indexed", Report(), 3, id="it has failed"),
    ],
)
def test_container_that_keeps_any_other_job_is_named_once(
    mode: str, report: Report, code: int
) -> None:
    running, own = training(suspend=False, mode=mode), [sidecar_pod(code=code)]

    _, late, finisher = watched(running, report, own)

    assert (late.code, late.patch.subresource) == ("container_keeps_pod", "")
    assert f"ended with exit code {code}, and container proxy still ran" in late.words
    assert finisher.find(running, report, own, now=NOW + 90.0) is None


@pytest.mark.parametrize(
    "own",
    [
        pytest.param([sidecar_pod(code=None)], id="it trains"),
        pytest.param([sidecar_pod(beside="terminated")], id="all containers ended"),
        pytest.param([sidecar_pod(), sidecar_pod(code=None, index=1)], id="another worker trains"),
        pytest.param([pod(0, of="train", leaving=True)], id="its pods end"),
    ],
)
def test_training_that_runs_or_ends_by_itself_is_left_alone(own: list[Json]) -> None:
    _, late, finisher = watched(training(suspend=False), RETURNED, own)

    assert late is None
    assert finisher.due_at == float("inf")


def test_job_that_is_completed_already_is_not_told_of_its_container() -> None:
    ending = training("SuccessCriteriaMet", suspend=False)

    assert watched(ending, RETURNED, [sidecar_pod()])[1] is None
