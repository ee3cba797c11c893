"""Which Jobs the cluster on this machine takes: those that laxity writes; the rest is refused in words."""

from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_k8s.cluster_api import ApiError
from laxity_k8s.local.job_admission import admit_job
from tests.support.manifests import job


def rules(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [*rows]}}


NOT_HERE = [
    pytest.param({"completionMode": "NonIndexed"}, "write Indexed", id="not indexed"),
    pytest.param({"completionMode": None}, "write Indexed", id="says nothing, so not indexed"),
    pytest.param({"completions": None, "parallelism": 2}, "completions: Required", id="a queue"),
    pytest.param({"successPolicy": {}}, "successPolicy: on this machine", id="a success policy"),
    pytest.param({"backoffLimitPerIndex": 1}, "backoffLimitPerIndex: on", id="failures by index"),
    pytest.param({"maxFailedIndexes": 1}, "maxFailedIndexes: on this", id="a few may fail"),
    pytest.param({"managedBy": "other/one"}, "managedBy: on this", id="another controller's"),
    pytest.param(
        rules({"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}),
        r"rules\[0\]: on this machine", id="another action",
    ),
    pytest.param(
        rules({"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}),
        r"rules\[0\]: on this machine", id="all codes but some",
    ),
    pytest.param(
        rules({"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]}),
        r"rules\[0\]: on this machine", id="another condition",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), NOT_HERE)
def test_a_job_of_another_form_is_refused_with_what_to_write(
    changes: dict[str, Any], words: str
) -> None:
    made = job(spec=changes)
    with pytest.raises(ApiError, match=words) as refused:
        admit_job(made)
    assert refused.value.status == 422


def test_a_worker_that_kubernetes_restarts_in_its_pod_is_refused() -> None:
    made = job()
    made["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    with pytest.raises(ApiError, match='on this machine it is "Never"'):
        admit_job(made)


def test_what_laxity_writes_is_taken() -> None:
    made = TrainingSpec(name="a", qos=QoS.of(deadline="2h"), entry="m:f").to_manifest()
    assert made["spec"]["podFailurePolicy"]["rules"]
    assert admit_job(made)["spec"]["suspend"] is True
