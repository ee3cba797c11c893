"""What may be created for a token: what the namespace allows whoever trains there, and no more."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from laxity import json_tree, names
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.namespace_limits import ENFORCED, Limits, harden_template
from laxity_k8s.cluster_api import ApiError, Json
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from tests.support import manifests as making
from tests.support.breaking import put, seen
from tests.support.manifests import EVER_SUSPENDED
from tests.support.pod_security import inside, secured, template
from tests.support.still_cluster import RUNNING, opened

OPEN_POD = {"name": "test", "image": "test"}
WARNING = 'would violate PodSecurity "{}:latest": a reason'


def namespaced(
    labels: dict[str, str] | None = None, *, status: int = 0, warns: tuple[str, ...] = ()
) -> Limits:
    """A namespace whose API server warns of these levels; laxity's own enforces `restricted`."""

    def read(name: str) -> Json:
        if status:
            raise ApiError("no", status=status)
        return {"metadata": {"name": name, "labels": labels or {}}}

    def try_create(job: Json) -> list[str]:
        containers = job["spec"]["template"]["spec"]["containers"]
        is_probe = job["metadata"]["namespace"] == "laxity" and containers == [OPEN_POD]
        return [WARNING.format(level) for level in (("restricted",) if is_probe else warns)]

    return Limits(read, try_create, "laxity")


def job(pod: Json | None = None, *, namespace: str = "research", **qos: str) -> Json:
    told: dict[str, Any] = {**(qos or {"deadline": "2h"})}
    asked = QoS.of(**told)
    made = TrainingSpec(name="a", namespace=namespace, qos=asked, entry="m:f").to_manifest()
    if pod is not None:
        made["spec"]["template"] = pod
    return made


def test_what_a_template_leaves_open_is_completed_to_restricted() -> None:
    made = job()
    namespaced().check_job(made)
    pod = json_tree.mapping_at(made, "spec", "template", "spec")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_template_is_left_alone_where_the_namespace_asks_for_less() -> None:
    untouched = job(template())
    namespaced({ENFORCED: "baseline"}).check_job(untouched)
    assert untouched["spec"]["template"] == template()


WARNED = [
    pytest.param("baseline", ("baseline",), True, id="of its level"),
    pytest.param("baseline", ("restricted",), False, id="of a stricter one"),
    pytest.param(None, ("restricted",), True, id="where it names none"),
    pytest.param("what", ("restricted",), True, id="where nobody can read it"),
    pytest.param("privileged", (), False, id="of nothing"),
]


@pytest.mark.parametrize(("level", "warns", "is_refused"), WARNED)
def test_a_job_is_refused_where_the_api_server_warns_of_its_level(
    level: str | None, warns: tuple[str, ...], *, is_refused: bool
) -> None:
    limits = namespaced({} if level is None else {ENFORCED: level}, warns=warns)
    if is_refused:
        with pytest.raises(QoSError, match="would violate PodSecurity"):
            limits.check_job(job())
    else:
        limits.check_job(job())


def test_no_level_anywhere_is_refused_with_what_to_do() -> None:
    limits = dataclasses.replace(namespaced(), try_create=lambda _: [])
    with pytest.raises(QoSError, match="kubectl label namespace research"):
        limits.check_job(job())


def test_what_the_api_server_refuses_is_refused_in_its_words() -> None:
    def refuse(_: Json) -> list[str]:
        raise ApiError("every Job needs label team", status=403)

    with pytest.raises(QoSError, match="every Job needs label team"):
        dataclasses.replace(namespaced(), try_create=refuse).check_job(job())


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
def test_values_of_any_type_are_completed_or_passed_and_raise_nothing(value: Any) -> None:
    for pod in (
        template(securityContext=value),
        inside(securityContext=value),
        secured(capabilities=value),
    ):
        harden_template(pod)
        assert pod["spec"]["containers"]


def test_start_whose_pods_are_refused_says_so_in_the_servers_words(tmp_path: Path) -> None:
    running = making.job("mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    running["metadata"]["annotations"][names.STATUS] = RUNNING.to_text()
    told = reason("pods_do_not_fit", running=0, workers=1, why="", then="")
    with opened(tmp_path) as world:
        put(world, running)
        seen(world, "default/mine")
        world._find_words = lambda job: f"{job['kind']} lacks a label team"
        world.observe()
        world.carry_out(Plan((Preempt("default/mine", "now", "", told),)))
        why = json_tree.annotations_of(world.api.get("jobs", "default/mine"))[names.REASON]
    assert why.endswith("ran in the time that they have for it: Job lacks a label team")
