"""Declarative tools work: a file that is applied again neither stops, resizes nor pins a Job."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from laxity import names
from laxity_k8s.objects.size_owners import APPLIERS
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import kubectl, tried
from tests.support.kubernetes.place import HARD, MANIFESTS, Place, annotations, running
from tests.support.kubernetes.service import Json, training_job, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

KEEPS: Final = MANIFESTS / "mutating-v1beta1" / "applied.yaml"
DENIES: Final = MANIFESTS / "base" / "applied.yaml"
HOW: Final = {"client side": (), "server side": ("--server-side", "--force-conflicts")}
LATER: Final = {**HARD, "deadline": "45m"}


@pytest.fixture
def keeps(cluster: Cluster) -> Iterator[None]:
    yield from enforced(cluster, KEEPS)


@pytest.fixture
def denies(cluster: Cluster) -> Iterator[None]:
    yield from enforced(cluster, DENIES)


def enforced(cluster: Cluster, policy: Path) -> Iterator[None]:
    """A policy that already acts. It does so some moments after it was created, and after it is gone."""
    kubectl(cluster, "apply", "-f", str(policy))
    probe = training_job("default", "probe", HARD)
    kubectl(cluster, "apply", "-f", "-", text=json.dumps(probe))
    wider = json.loads(json.dumps(probe))
    wider["spec"] |= {"parallelism": 2, "completions": 2}

    def acts() -> bool:
        code, _ = tried(cluster, "apply", "-f", "-", text=json.dumps(wider))
        there = json.loads(kubectl(cluster, "get", "job", "probe", "-o", "json"))
        if there["spec"]["parallelism"] == 1:
            return True
        kubectl(cluster, "delete", "job", "probe")
        kubectl(cluster, "apply", "-f", "-", text=json.dumps(probe))
        return code != 0

    try:
        cluster.until(acts, 60.0, f"{policy.name} to be enforced")
        yield
    finally:
        kubectl(cluster, "delete", "-f", str(policy))
        cluster.until(lambda: not acts(), 60.0, f"{policy.name} to act no more")
        kubectl(cluster, "delete", "job", "probe", "--ignore-not-found")


def pods_of_a_running_job(there: Place, *how: str, asked: dict[str, str] = HARD) -> dict[str, str]:
    put(there, asked, *how)
    there.until_job("mine", running, "runs")
    return there.pods("mine")


def put(there: Place, asked: dict[str, str], *how: str) -> str:
    text = json.dumps(there.job("mine", asked))
    return kubectl(there.cluster, "apply", *how, "-f", "-", text=text)


def unharmed(there: Place, pods: dict[str, str]) -> Json:
    found = there.get("mine")
    assert there.pods("mine") == pods
    assert found["spec"]["suspend"] is False
    assert names.PIN not in annotations(found)
    return found


@pytest.mark.usefixtures("keeps")
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_applying_a_file_again_changes_its_deadline_and_no_running_pod(
    there: Place, how: tuple[str, ...]
) -> None:
    pods = pods_of_a_running_job(there, *how, asked={**HARD, "widths": "2"})
    before = verdict_of(there.get("mine"))["deadline_at"]
    put(there, {**HARD, "widths": "2"}, *how)
    unharmed(there, pods)
    put(there, {**LATER, "widths": "2"}, *how)
    moved = there.until_job(
        "mine", lambda job: verdict_of(job)["deadline_at"] > before, "has the new deadline"
    )
    assert verdict_of(moved)["deadline_at"] == pytest.approx(before + 35 * 60)
    unharmed(there, pods)


@pytest.mark.usefixtures("denies")
def test_without_that_policy_applying_a_file_again_is_refused_and_harms_nothing(
    there: Place,
) -> None:
    pods = pods_of_a_running_job(there)
    code, words = tried(there.cluster, "apply", "-f", "-", text=json.dumps(there.job("mine", HARD)))
    assert code != 0
    assert "would stop or resize a running Job" in words
    unharmed(there, pods)


def test_without_any_policy_a_job_that_a_file_stopped_starts_again_unpinned(there: Place) -> None:
    pods = pods_of_a_running_job(there)
    put(there, HARD)
    again = there.until_job(
        "mine",
        lambda job: running(job) and bool(there.pods("mine").keys() - pods.keys()),
        "runs anew",
    )
    assert names.PIN not in annotations(again)
    assert verdict_of(again)["kind"] == "promise"
    there.until(
        lambda: "AppliedAgain" in {event["reason"] for event in there.events("mine")}, "an Event"
    )


def test_a_job_that_somebody_suspends_by_hand_is_pinned(there: Place) -> None:
    pods_of_a_running_job(there)
    there.kubectl("patch", "job", "mine", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    there.until_job("mine", lambda job: names.PIN in annotations(job), "is pinned")


def test_policies_and_service_name_the_same_appliers() -> None:
    for path in (KEEPS, DENIES, MANIFESTS / "mutating-v1" / "applied.yaml"):
        policy: dict[str, Any] = next(yaml.safe_load_all(path.read_text()))
        condition = policy["spec"]["matchConditions"][1]["expression"]
        named = condition[condition.index("[") + 1 : condition.index("]")]
        assert {one.strip().strip("'") for one in named.split(",")} == APPLIERS, path
