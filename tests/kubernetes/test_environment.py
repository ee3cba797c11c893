"""A bare annotated Job, created with kubectl: its workers are told their Job by an admission policy."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from laxity import names
from laxity.job.complete_manifest import WORKER_SECRET, complete_manifest
from laxity.job.pod_template import LAST_WORDS
from tests.support.kubernetes.any_job import job
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.kubectl import kubectl, tried

Json = dict[str, Any]
POLICY = MANIFESTS / "mutating-v1beta1" / "environment.yaml"
ASKED = {
    names.EPOCHS: "90",
    names.MODEL: "res$net(50)",
    names.PARAMETERS: '{"rate": "$(HOME)"}',
    names.RESUMES: "true",
}
SECRET = {"secretRef": {"name": WORKER_SECRET, "optional": True}}


@pytest.fixture(scope="module")
def policy(cluster: Cluster) -> Iterator[None]:
    """Enforced: some moments after it was created."""
    kubectl(cluster, "apply", "-f", str(POLICY))
    cluster.until(
        lambda: bool(containers(dry(cluster, "default", asked()))[0].get("env")), 60.0, "the policy"
    )
    yield
    kubectl(cluster, "delete", "-f", str(POLICY))


def asked(**more: str) -> Json:
    return job("bare", annotations={**ASKED, **more})


def dry(cluster: Cluster, namespace: str, made: Json) -> Json:
    """What the API server would make of it."""
    options = ["create", "-n", namespace, "-f", "-", "--dry-run=server", "-o", "json"]
    found: Json = json.loads(kubectl(cluster, *options, text=json.dumps(made)))
    return found


def containers(made: Json) -> list[Json]:
    found: list[Json] = made["spec"]["template"]["spec"]["containers"]
    return found


def literals(container: Json) -> dict[str, str]:
    return {row["name"]: row["value"] for row in container["env"] if "value" in row}


def fields(container: Json) -> dict[str, str]:
    rows = (row for row in container["env"] if "valueFrom" in row)
    return {row["name"]: row["valueFrom"]["fieldRef"]["fieldPath"] for row in rows}


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
def test_its_containers_are_told_what_a_submitted_job_is_told(
    cluster: Cluster, namespace: str
) -> None:
    submitted = asked()
    submitted["metadata"]["namespace"] = namespace
    complete_manifest(submitted)
    (wanted,) = containers(submitted)
    (found,) = containers(dry(cluster, namespace, asked()))
    told = literals(found)
    assert told.pop(names.ENV_JOB) == "$(LAXITY_JOB_NAMESPACE)/$(LAXITY_JOB_NAME)"
    assert told == {k: v for k, v in literals(wanted).items() if k != names.ENV_JOB}
    assert fields(wanted).items() <= fields(found).items()
    assert found["envFrom"] == wanted["envFrom"] == [SECRET]
    assert found["terminationMessagePolicy"] == wanted["terminationMessagePolicy"] == LAST_WORDS


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
def test_a_variable_comes_after_those_that_it_is_made_of(cluster: Cluster, namespace: str) -> None:
    made = asked()
    folder = {"name": names.ENV_CHECKPOINTS, "value": f"/ck/$({names.ENV_JOB_UID})"}
    containers(made)[0]["env"] = [folder]
    (found,) = containers(dry(cluster, namespace, made))
    order = [row["name"] for row in found["env"]]
    for early, late in (
        ("LAXITY_JOB_NAME", names.ENV_JOB),
        ("LAXITY_JOB_NAMESPACE", names.ENV_JOB),
        (names.ENV_JOB_UID, names.ENV_CHECKPOINTS),
    ):
        assert order.index(early) < order.index(late)


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
def test_what_the_manifest_says_wins_in_each_container(cluster: Cluster, namespace: str) -> None:
    made = asked()
    own = [
        {"name": names.ENV_EPOCHS, "value": "7"},
        {"name": names.ENV_POD_IP, "value": "127.0.0.1"},
        {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}},
    ]
    theirs = {"configMapRef": {"name": "mine"}}
    side = {"name": "side", "image": "none", "env": own, "envFrom": [theirs]}
    containers(made).append(side)
    first, second = containers(dry(cluster, namespace, made))
    assert literals(first)[names.ENV_EPOCHS] == "90"
    assert [row for row in second["env"] if row in own] == own
    given = [row["name"] for row in second["env"]]
    assert len(given) == len(set(given)), "each variable once"
    assert names.ENV_MODEL in given
    assert second["envFrom"] == [SECRET, theirs], "later sources win"


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
def test_the_lines_written_by_hand_stay_as_they_are(cluster: Cluster, namespace: str) -> None:
    by_hand = asked()
    by_hand["metadata"]["namespace"] = namespace
    complete_manifest(by_hand)
    (wanted,), (found,) = (
        containers(one) for one in (by_hand, dry(cluster, namespace, copy.deepcopy(by_hand)))
    )
    assert literals(found) == literals(wanted)
    assert found["envFrom"] == wanted["envFrom"]


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": {}}, id="one without the label"),
        pytest.param({"labels": {names.MANAGED: "true", names.KUEUE_QUEUE: "q"}}, id="Kueue's"),
        pytest.param({"annotations": {}}, id="one that runs a worker and says nothing"),
    ],
)
def test_other_jobs_are_left_alone(cluster: Cluster, namespace: str, change: Json) -> None:
    made = asked()
    made["metadata"] |= change
    containers(made)[0]["args"] = ["-m", "laxity.worker", "train:main"]
    (found,) = containers(dry(cluster, namespace, made))
    assert "env" not in found
    assert "envFrom" not in found
    assert found["terminationMessagePolicy"] == "File"


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_script_is_told_what_a_submitted_one_is_told(
    cluster: Cluster, namespace: str, mode: str
) -> None:
    made = job("script", annotations={names.DEADLINE: "1h"})
    made["metadata"]["namespace"], made["spec"]["completionMode"] = namespace, mode
    pod = made["spec"]["template"]["spec"]
    pod["containers"] += [{"name": "side", "image": "none"}]
    pod["containers"][0] |= {
        "command": ["bash", "train.sh"],
        "env": [{"name": "MINE", "value": "1"}],
        "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
    }
    pod["volumes"] = [{"name": "mine", "emptyDir": {}}]
    submitted = copy.deepcopy(made)
    complete_manifest(submitted)
    found = dry(cluster, namespace, made)

    (wanted, _), (first, second) = containers(submitted), containers(found)
    assert literals(first) == literals(wanted)
    assert fields(first) == fields(wanted)
    assert first["volumeMounts"] == wanted["volumeMounts"]
    assert first["envFrom"] == wanted["envFrom"]
    assert not {"env", "envFrom", "volumeMounts"} & second.keys()
    for row in (submitted, found):
        _, volume = row["spec"]["template"]["spec"]["volumes"]
        (item,) = volume["downwardAPI"]["items"]
        assert item["path"] == "token"
        assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{names.WORKER_TOKEN}']"
    again = dry(cluster, namespace, submitted)
    assert containers(again)[0]["volumeMounts"] == wanted["volumeMounts"], "once"


@pytest.mark.cluster
@pytest.mark.usefixtures("policy")
def test_a_job_that_kubectl_applies_is_created_so_and_can_be_applied_again(
    cluster: Cluster, namespace: str
) -> None:
    made = json.dumps(asked())
    for said in ("created", "unchanged"):
        code, answer = tried(cluster, "apply", "-n", namespace, "-f", "-", text=made)
        assert (code, said in answer) == (0, True), answer
    where = f"/apis/batch/v1/namespaces/{namespace}/jobs/bare"
    (found,) = containers(cluster.ask("GET", where))
    assert literals(found)[names.ENV_MODEL] == "res$$net(50)"


@pytest.mark.parametrize("name", ["environment.yaml", "suspend.yaml"])
def test_both_versions_of_a_policy_say_the_same(name: str) -> None:
    """The v1 one cannot be tried on a cluster of 1.35."""
    group = "admissionregistration.k8s.io"
    stable, beta = (
        list(yaml.safe_load_all(Path(MANIFESTS / f"mutating-{version}" / name).read_text()))
        for version in ("v1", "v1beta1")
    )
    assert {one.pop("apiVersion") for one in stable} == {f"{group}/v1"}
    assert {one.pop("apiVersion") for one in beta} == {f"{group}/v1beta1"}
    assert stable == beta
