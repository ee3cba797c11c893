"""Beside controllers of others: owners of Jobs, appliers of files, and policies."""

import json

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import read_status
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.place import HARD, Place, annotations, judged, running
from tests.support.kubernetes.service import verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

KEEPS_SUSPENDED: list[Json] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1beta1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "keeps-suspended"},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["batch"],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["jobs"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "one", "expression": "object.metadata.name == 'kept-suspended'"}
            ],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{spec: Object.spec{suspend: true}}"
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1beta1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "keeps-suspended"},
        "spec": {"policyName": "keeps-suspended"},
    },
]


@pytest.mark.parametrize("suspend", [True, False])
def test_job_of_another_controller_is_refused_and_not_touched(
    there: Place, *, suspend: bool
) -> None:
    there.kubectl("create", "configmap", "jobset")
    owner = json.loads(there.kubectl("get", "configmap", "jobset", "-o", "json"))["metadata"]
    job = there.job("leader", HARD, suspend=suspend)
    job["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "jobset",
            "uid": owner["uid"],
            "controller": True,
        }
    ]

    there.apply(job)
    refused = there.until_job("leader", judged, "has a verdict")

    assert verdict_of(refused)["kind"] == "refusal"
    assert "ConfigMap jobset starts and stops this Job" in annotations(refused)[names.REASON]
    assert refused["spec"]["suspend"] is suspend


def test_applier_that_stops_each_start_has_to_be_silent_before_the_next(there: Place) -> None:
    there.apply(there.job("mine", HARD))
    there.until_job("mine", running, "runs")
    before = there.pods("mine").keys()
    there.apply(there.job("mine", HARD))
    there.until_job(
        "mine", lambda job: running(job) and bool(there.pods("mine").keys() - before), "runs anew"
    )

    there.apply(there.job("mine", HARD))
    stopped = there.until_job("mine", lambda job: read_status(job).applied == 2, "is stopped")

    status = read_status(stopped)
    assert status.not_before == pytest.approx(status.applied_at + 60.0)
    there.until(lambda: len(words_of(there, "AppliedAgain")) == 2, "both are told")
    assert any("ignoreDifferences" in words for words in words_of(there, "AppliedAgain"))
    assert there.get("mine")["spec"]["suspend"] is True
    assert not words_of(there, "PromiseInDanger"), "10 minutes are left"


def test_start_that_a_policy_puts_back_is_told_as_that(there: Place) -> None:
    probe = there.job("kept-suspended", {}, labels={}, suspend=True)
    apply(there.cluster, *KEEPS_SUSPENDED)
    try:
        there.apply(probe)
        there.until(lambda: stays_suspended(there), "the policy to be enforced")
        there.kubectl("delete", "job", "kept-suspended")
        there.apply(there.job("kept-suspended", HARD))
        told = there.until_job(
            "kept-suspended",
            lambda job: "puts back spec.suspend" in annotations(job).get(names.REASON, ""),
            "is told",
        )
    finally:
        for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
            kubectl(there.cluster, "delete", kind, "keeps-suspended")

    assert verdict_of(told)["kind"] == "promise"
    assert names.PIN not in annotations(told)


def stays_suspended(there: Place) -> bool:
    there.kubectl("patch", "job", "kept-suspended", "-p", '{"spec": {"suspend": false}}')
    return there.get("kept-suspended")["spec"]["suspend"] is True


def words_of(there: Place, reason: str) -> list[str]:
    return [event["message"] for event in there.events("mine") if event["reason"] == reason]


def test_backoff_limit_below_its_workers_is_a_warning_with_the_promise(there: Place) -> None:
    job = there.job("mine", {**HARD, "widths": "2"})
    job["spec"] |= {"parallelism": 2, "completions": 2, "backoffLimit": 1}

    there.apply(job)
    there.until(lambda: bool(words_of(there, "BackoffLimitTooLow")), "it is told")

    (words,) = words_of(there, "BackoffLimitTooLow")
    assert words.startswith("backoffLimit 1 is below its 2 workers")
