"""A suspended Job whose training has returned is complete, and any other one is left as it is."""

from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.finishing import RESULT_IS_IN, find_completion
from laxity_k8s.cluster_api import Json
from laxity_scheduler.live import Report

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
