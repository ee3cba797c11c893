"""What may be created for a token: what the namespace allows whoever trains there, and no more."""

import copy
from pathlib import Path
from typing import Any

import pytest

from laxity import json_tree, names
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.namespace_limits import ENFORCED, Limits
from laxity_k8s.act.pod_security import find_violations, harden_template
from laxity_k8s.cluster_api import ApiError, Json
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from tests.support import manifests as making
from tests.support.breaking import put, seen
from tests.support.manifests import EVER_SUSPENDED
from tests.support.pod_security import BASELINE, RESTRICTED, inside, secured, template
from tests.support.still_cluster import RUNNING, opened


def namespaced(labels: dict[str, str] | None = None, *, status: int = 0) -> Limits:
    def read(name: str) -> Json:
        if status:
            raise ApiError("no", status=status)
        return {"metadata": {"name": name, "labels": labels or {}}}

    return Limits(read, "laxity")


def job(pod: Json | None = None, *, namespace: str = "research", **qos: str) -> Json:
    told: dict[str, Any] = {**(qos or {"deadline": "2h"})}
    asked = QoS.of(**told)
    made = TrainingSpec(name="a", namespace=namespace, qos=asked, entry="m:f").to_manifest()
    if pod is not None:
        made["spec"]["template"] = pod
    return made


@pytest.mark.parametrize("what", BASELINE)
def test_baseline_and_restricted_forbid_what_reaches_the_host(what: str) -> None:
    for level in ("baseline", "restricted"):
        pod = copy.deepcopy(BASELINE[what])
        harden_template(pod)
        assert find_violations(pod, level), level
    assert find_violations(BASELINE[what], "privileged") == []


@pytest.mark.parametrize("what", RESTRICTED)
def test_restricted_forbids_more_and_baseline_does_not(what: str) -> None:
    pod = copy.deepcopy(RESTRICTED[what])
    assert find_violations(pod, "baseline") == []
    harden_template(pod)
    assert find_violations(pod, "restricted")


def test_what_a_template_leaves_open_is_completed_to_restricted() -> None:
    made = job()
    assert find_violations(made["spec"]["template"], "restricted")
    namespaced().check_job(made)
    pod = json_tree.mapping_at(made, "spec", "template", "spec")
    assert find_violations(made["spec"]["template"], "restricted") == []
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_namespaces_own_level_is_what_counts() -> None:
    host = template(volumes=[{"name": "root", "hostPath": {"path": "/"}}])
    for level, is_refused in (("privileged", False), ("baseline", True), ("what", True)):
        limits, made = namespaced({ENFORCED: level}), job(copy.deepcopy(host))
        if is_refused:
            with pytest.raises(QoSError, match="root must be no hostPath"):
                limits.check_job(made)
        else:
            limits.check_job(made)
    untouched = job(template())
    namespaced({ENFORCED: "baseline"}).check_job(untouched)
    assert untouched["spec"]["template"] == template()


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "kube-node-lease", "laxity"])
def test_namespaces_of_the_cluster_are_closed_to_every_token(name: str) -> None:
    with pytest.raises(QoSError, match=f"{name} is not for trainings"):
        namespaced({ENFORCED: "privileged"}).check_job(job(namespace=name))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(404, "there is no namespace research", id="no namespace"),
        pytest.param(403, "create rolebinding laxity", id="no rights"),
    ],
)
def test_a_namespace_that_cannot_be_read_is_refused_with_what_to_do(
    status: int, words: str
) -> None:
    with pytest.raises(QoSError, match=words):
        namespaced(status=status).check_job(job())


@pytest.mark.parametrize(
    ("most", "qos", "is_refused"),
    [
        pytest.param("soft", {"deadline": "2h"}, True, id="hard where soft is the most"),
        pytest.param("soft", {"deadline": "2h", "service_class": "soft"}, False, id="soft"),
        pytest.param(
            "best_effort", {"deadline": "2h", "service_class": "soft"}, True, id="soft, too"
        ),
        pytest.param("best_effort", {"service_class": "best_effort"}, False, id="best effort"),
        pytest.param(None, {"deadline": "2h"}, False, id="no cap"),
    ],
)
def test_a_class_above_the_namespaces_is_refused(
    most: str | None, qos: dict[str, Any], *, is_refused: bool
) -> None:
    limits = namespaced({} if most is None else {"laxity.dev/max-class": most})
    if is_refused:
        with pytest.raises(QoSError, match="above what the namespace allows"):
            limits.check_job(job(**qos))
    else:
        limits.check_job(job(**qos))


def test_a_job_is_not_amended_above_its_namespaces_class() -> None:
    limits = namespaced({"laxity.dev/max-class": "soft"})
    made = job(deadline="2h", service_class="soft")
    limits.check_class(made, {"laxity.dev/deadline": "3h"})
    with pytest.raises(QoSError, match="hard is above"):
        limits.check_class(made, {"laxity.dev/class": "hard"})


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"priorityClassName": "system-node-critical"}, id="a priority of the cluster"),
        pytest.param({"serviceAccountName": "admin"}, id="an account"),
        pytest.param({"serviceAccount": "admin"}, id="an account, as it was spelt"),
    ],
)
def test_accounts_and_priorities_of_others_are_refused(spec: dict[str, str]) -> None:
    limits = namespaced({ENFORCED: "privileged"})
    with pytest.raises(QoSError, match=r"not open to trainings|are the cluster's"):
        limits.check_job(job(template(**spec)))


def test_a_namespace_opens_one_service_account_to_trainings() -> None:
    limits = namespaced({"laxity.dev/service-account": "trainer"})
    limits.check_job(job(template(serviceAccountName="trainer")))
    limits.check_job(job(template(serviceAccountName="default")))
    with pytest.raises(QoSError, match=r"laxity\.dev/service-account=admin"):
        limits.check_job(job(template(serviceAccountName="admin")))


@pytest.mark.parametrize("value", [1, "x", [], {"a": 1}, True])
def test_values_of_any_type_are_refused_or_passed_and_raise_nothing(value: Any) -> None:
    for pod in (
        template(securityContext=value),
        inside(securityContext=value),
        secured(capabilities=value),
    ):
        harden_template(pod)
        assert isinstance(find_violations(pod, "restricted"), list)
    for pod in (template(volumes=value), template(containers=value), inside(ports=[value])):
        assert isinstance(find_violations(pod, "restricted"), list)


def test_start_whose_pods_are_refused_says_so_in_the_servers_words(tmp_path: Path) -> None:
    running = making.job("mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    running["metadata"]["annotations"][names.STATUS] = RUNNING.to_text()
    told = reason("pods_do_not_fit", running=0, workers=1, why="", then="")
    with opened(tmp_path) as world:
        put(world, running)
        seen(world, "default/mine")
        world._find_pod_refusal = lambda job: f"{job['kind']} lacks a label team"
        world.observe()
        world.carry_out(Plan((Preempt("default/mine", "now", "", told),)))
        why = json_tree.annotations_of(world.api.get("jobs", "default/mine"))[names.REASON]
    assert why.endswith("ran in the time that they have for it: Job lacks a label team")
