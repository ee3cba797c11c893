"""Why a Job's pods are refused, or cannot be made, as its controller and the kubelet write it into Events."""

import pytest

from laxity_k8s.objects.controller_events import pod_refusal, volume_failure
from laxity_k8s.objects.pods import is_being_made
from tests.support.manifests import pod

WORDS = "ValidatingAdmissionPolicy 'team' denied request: every pod needs label team"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param('Error creating: pods "a-0-kj8rg" is forbidden: ', id="a policy"),
        pytest.param("Error creating: ", id="a webhook"),
        pytest.param(
            '(combined from similar events): Error creating: pods "a-0-kj8rg" is forbidden: ',
            id="the tenth in a row",
        ),
    ],
)
def test_a_refusal_is_told_without_the_name_of_the_pod(before: str) -> None:
    event = {"type": "Warning", "message": before + WORDS}
    assert pod_refusal([event]) == WORDS


MISSING = 'MountVolume.SetUp failed for volume "data" : secret "missing" not found'


def test_what_a_kubelet_cannot_mount_is_told_by_the_event_that_names_the_cause() -> None:
    said = [
        ("FailedMount", 'MountVolume.SetUp failed for volume "data" : timed out', 1),
        ("FailedMount", MISSING, 2),
        ("FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data]", 3),
        ("MissingClusterDNS", "kubelet does not have ClusterDNS IP configured", 4),
    ]
    events = [
        {"reason": why, "message": text, "lastTimestamp": f"2026-11-21T08:00:0{second}Z"}
        for why, text, second in said
    ]
    assert volume_failure(events) == MISSING
    assert volume_failure(events[2:]) == said[2][1]
    assert volume_failure(events[3:]) == ""


@pytest.mark.parametrize(
    ("node", "why", "is_made"),
    [
        pytest.param("a", "ContainerCreating", True, id="its status says no more"),
        pytest.param("a", "ErrImagePull", False, id="its status says why"),
        pytest.param("", "", False, id="it has no node"),
    ],
)
def test_events_are_asked_of_pods_whose_status_says_nothing(
    node: str, why: str, *, is_made: bool
) -> None:
    made = pod(node=node, phase="Pending")
    made["status"]["containerStatuses"] = [{"name": "train", "state": {"waiting": {"reason": why}}}]
    assert is_being_made(made) is is_made
