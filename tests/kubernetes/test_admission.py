"""The shipped admission policies on a real API server: what a tenant may do to a labelled Job."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from tests.support.kubernetes.any_job import job
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import kubectl, tried

pytestmark = pytest.mark.cluster

MANIFESTS = Path(__file__).parents[2] / "k8s" / "manifests"
TENANT = "tenant"


@pytest.fixture(scope="module")
def policies(cluster: Cluster) -> Iterator[None]:
    """The policies, and a tenant who may do everything to Jobs that RBAC can allow."""
    for name in (
        "base/namespace.yaml",
        "base/rbac.yaml",
        "base/admission.yaml",
        "mutating-v1beta1/suspend.yaml",
    ):
        kubectl(cluster, "apply", "-f", str(MANIFESTS / name))
    kubectl(
        cluster, "create", "clusterrole", TENANT, "--verb=*",
        "--resource=jobs.batch,jobs.batch/status",
    )  # fmt: skip
    kubectl(
        cluster,
        "create",
        "clusterrolebinding",
        TENANT,
        f"--clusterrole={TENANT}",
        f"--user={TENANT}",
    )
    wait_until_enforced(cluster)
    yield
    for name in ("base/admission.yaml", "mutating-v1beta1/suspend.yaml"):
        kubectl(cluster, "delete", "-f", str(MANIFESTS / name))


def test_a_labelled_job_is_created_suspended_whatever_it_says(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    created = create(cluster, namespace, job("eager", suspend=False))
    assert created["spec"]["suspend"] is True


def test_an_unlabelled_job_and_one_for_kueue_are_left_alone(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    plain = create(cluster, namespace, job("plain", labels={}, suspend=False))
    kueues = job("kueues", suspend=False)
    kueues["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "theirs"
    assert plain["spec"]["suspend"] is False
    assert create(cluster, namespace, kueues, user="admin")["spec"]["suspend"] is False


@pytest.mark.parametrize("name", names.OUTPUTS)
def test_a_tenant_cannot_write_what_laxity_says(
    cluster: Cluster, policies: None, namespace: str, name: str
) -> None:
    for forged in (
        job("forged", annotations={name: "mine"}),
        job("forged", labels={}, annotations={name: "mine"}),
    ):
        assert "only laxity writes" in refused(cluster, namespace, forged)


def test_outputs_come_under_the_label_neither_before_nor_after_it(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    """A Job that carries them without the label, however it came to them, does not get it."""
    create(cluster, namespace, job("mine", labels={}))
    forge = {"metadata": {"annotations": {names.VERDICT: "mine", names.STATUS: "{}"}}}
    label = {"metadata": {"labels": {names.MANAGED: "true"}}}
    assert "only laxity writes" in patched(cluster, namespace, forge)
    assert "patched" in patched(cluster, namespace, forge, user="admin")
    assert "remove them, then add the label" in patched(cluster, namespace, label)
    assert "patched" in patched(
        cluster, namespace, {"metadata": {"annotations": None}}, user="admin"
    )
    assert "patched" in patched(cluster, namespace, label)


@pytest.mark.parametrize(
    "set_by_others",
    [
        pytest.param({"labels": {names.VERDICT_LABEL: "promised"}}, id="verdict label"),
        pytest.param({"labels": {names.CLASS_LABEL: "hard"}}, id="class label"),
        pytest.param({"annotations": {names.PIN: "mine"}}, id="pin"),
        pytest.param({"annotations": {names.SUBMITTED_AT: "2000-01-01T00:00:00Z"}}, id="place"),
        pytest.param({"annotations": {"laxity.dev/worker-token": "mine"}}, id="a worker's token"),
    ],
)
def test_a_tenant_sets_neither_place_nor_pin_nor_verdict_label(
    cluster: Cluster, policies: None, namespace: str, set_by_others: dict[str, dict[str, str]]
) -> None:
    forged = job("forged")
    for where, said in set_by_others.items():
        forged["metadata"][where] |= said
    assert "ValidatingAdmissionPolicy" in refused(cluster, namespace, forged)
    create(cluster, namespace, job("mine"))
    assert "denied" in patched(cluster, namespace, {"metadata": set_by_others})
    assert "patched" in patched(cluster, namespace, {"metadata": set_by_others}, user="admin")
    gone = {where: dict.fromkeys(said) for where, said in set_by_others.items()}
    let_go = patched(cluster, namespace, {"metadata": gone})
    assert ("patched" in let_go) is ("annotations" in set_by_others), "to lose a pin harms nobody"


def test_a_tenant_writes_no_worker_token_on_the_pods(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    forged = job("forged")
    forged["spec"]["template"]["metadata"] = {"annotations": {"laxity.dev/worker-token": "mine"}}
    assert "worker-token" in refused(cluster, namespace, forged)


def test_preemptible_is_declared_at_creation_and_not_taken_back_later(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    kept = {"metadata": {"annotations": {names.PREEMPTIBLE: "false"}}}
    create(cluster, namespace, job("firm", annotations={names.PREEMPTIBLE: "false"}))
    create(cluster, namespace, job("mine"))
    assert "others were promised" in patched(cluster, namespace, kept)
    given = {"metadata": {"annotations": {names.PREEMPTIBLE: "true"}}}
    assert "patched" in patched(cluster, namespace, given)


def test_a_controller_creates_no_more_for_a_tenant_than_the_tenant_may(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    """Out of a CronJob; it need not be suspended there, as laxity does that itself."""
    kubectl(cluster, "label", "namespace", namespace, "laxity.dev/max-class=soft")
    by = "system:serviceaccount:kube-system:cronjob-controller"
    promised = job("forged", annotations={names.VERDICT: "mine"})
    hard = job("hard", annotations={names.DEADLINE: "2h"})
    assert "only laxity writes" in refused(cluster, namespace, promised, user=by)
    assert "above what namespace" in refused(cluster, namespace, hard, user=by)
    assert create(cluster, namespace, job("plain", suspend=False), user=by)


def test_a_tenant_cannot_write_it_with_the_status_nor_take_it_away(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    create(cluster, namespace, job("mine", annotations={names.VERDICT: "no"}), user="admin")
    for forged in ("yes", None):
        body = {"metadata": {"annotations": {names.VERDICT: forged}}}
        for below in ([], ["--subresource=status"]):
            assert "only laxity writes" in patched(cluster, namespace, body, more=below)


def test_a_tenant_touches_no_job_of_another_namespace(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    """With the role that is shipped for tenants, bound in a namespace of their own."""
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "tenant.yaml"))
    kubectl(
        cluster, "create", "rolebinding", "theirs", "-n", namespace,
        "--clusterrole=laxity-tenant", "--user=neighbour",
    )  # fmt: skip
    create(cluster, "default", job("mine"), user="admin")
    try:
        create(cluster, namespace, job("theirs"), user="neighbour")
        for verb in (["get"], ["delete"], ["patch", "--type=merge", "-p", "{}"]):
            theirs = [verb[0], "job", "mine", "-n", "default", *verb[1:], "--as=neighbour"]
            code, said = tried(cluster, *theirs)
            assert (code != 0, "Forbidden" in said) == (True, True), said
    finally:
        kubectl(cluster, "delete", "job", "mine", "-n", "default")


def test_a_tenant_cannot_start_or_widen_a_job_but_may_move_its_deadline(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    create(cluster, namespace, job("mine"))
    assert "laxity owns spec.suspend" in patched(cluster, namespace, {"spec": {"suspend": False}})
    wider = {"spec": {"parallelism": 3, "completions": 3}}
    assert "laxity owns spec.suspend" in patched(cluster, namespace, wider)
    later = {"metadata": {"annotations": {"laxity.dev/deadline": "3h"}}}
    assert "patched" in patched(cluster, namespace, later)


def test_a_tenant_cannot_take_the_label_off(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    create(cluster, namespace, job("mine"))
    said = patched(cluster, namespace, {"metadata": {"labels": {"laxity.dev/managed": None}}})
    assert "cannot be taken off" in said


def test_laxitys_account_and_a_cluster_administrator_may(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    create(cluster, namespace, job("mine"))
    kubectl(
        cluster, "create", "rolebinding", "laxity", "-n", namespace,
        "--clusterrole=laxity-namespace", "--serviceaccount=laxity:laxity",
    )  # fmt: skip
    wider = {"spec": {"parallelism": 2, "completions": 2}}
    service = "system:serviceaccount:laxity:laxity"
    assert "patched" in patched(cluster, namespace, wider, user=service)
    assert "patched" in patched(cluster, namespace, {"spec": {"suspend": False}}, user="admin")


def test_a_namespace_can_cap_the_class_of_service(
    cluster: Cluster, policies: None, namespace: str
) -> None:
    kubectl(cluster, "label", "namespace", namespace, "laxity.dev/max-class=soft")
    hard = job("hard", annotations={"laxity.dev/deadline": "2h"})
    soft = job("soft", annotations={"laxity.dev/deadline": "2h", "laxity.dev/class": "soft"})
    assert "above what namespace" in refused(cluster, namespace, hard)
    assert create(cluster, namespace, soft)


def as_user(user: str) -> list[str]:
    return [] if user == "admin" else [f"--as={user}"]


def create(
    cluster: Cluster, namespace: str, made: dict[str, Any], *, user: str = TENANT
) -> dict[str, Any]:
    said = kubectl(
        cluster, "create", "-n", namespace, "-f", "-", "-o", "json", *as_user(user),
        text=json.dumps(made),
    )  # fmt: skip
    created: dict[str, Any] = json.loads(said)
    return created


def refused(cluster: Cluster, namespace: str, made: dict[str, Any], *, user: str = TENANT) -> str:
    code, said = tried(
        cluster, "create", "-n", namespace, "-f", "-", *as_user(user), text=json.dumps(made)
    )
    assert code != 0
    return said


def patched(
    cluster: Cluster,
    namespace: str,
    patch: dict[str, Any],
    *,
    user: str = TENANT,
    more: Sequence[str] = (),
) -> str:
    _, said = tried(
        cluster, "patch", "job", "mine", "-n", namespace, "--type=merge",
        "-p", json.dumps(patch), *as_user(user), *more,
    )  # fmt: skip
    return said


def wait_until_enforced(cluster: Cluster) -> None:
    """Policies take effect some moments after they are created."""
    probe = json.dumps(job("probe", annotations={"laxity.dev/verdict": "mine"}))
    dry = ["create", "-n", "default", "-f", "-", "--dry-run=server", *as_user(TENANT)]
    for _ in range(300):
        code, _said = tried(cluster, *dry, text=probe)
        unsuspended = json.dumps(job("probe", suspend=False))
        ok, made = tried(cluster, *dry, "-o", "json", text=unsuspended)
        if code != 0 and ok == 0 and json.loads(made)["spec"]["suspend"]:
            return
    raise AssertionError("the admission policies never took effect")
