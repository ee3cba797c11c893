"""What `kubectl apply -k k8s/manifests/...` would create is taken by a real API server."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from laxity.cli.exit_codes import USAGE
from laxity_scheduler.service.exported.metrics import Metrics
from tests.learn.test_training import run_command
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import kubectl

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "k8s" / "manifests"
SHARED = {
    "ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "Role",
    "RoleBinding", "Service", "ServiceAccount", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "own", "replicas"),
    [("sqlite", set[str](), 1), ("postgres", {"PodDisruptionBudget"}, 2)],
)
def test_manifests_build_and_are_accepted(
    cluster: Cluster, kind: str, own: set[str], replicas: int
) -> None:
    built = kubectl(cluster, "kustomize", str(MANIFESTS / kind))
    objects = list(yaml.safe_load_all(built))
    assert {one["kind"] for one in objects} == SHARED | own
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == replicas
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    said = kubectl(cluster, "apply", "--dry-run=server", "-f", "-", text=built).splitlines()
    assert len(said) == len(objects), said
    assert all(line.endswith("(server dry run)") for line in said), said


def test_one_file_holds_all_that_a_cluster_needs(cluster: Cluster) -> None:
    """`make manifest`, as a release attaches it."""
    image = f"registry.example/laxity@sha256:{'0' * 64}"
    assert make_manifest(cluster, "registry.example/laxity:latest").returncode != 0
    assert make_manifest(cluster, image).returncode == 0
    built = (ROOT / "dist" / "laxity.yaml").read_text()
    objects = list(yaml.safe_load_all(built))
    assert {one["kind"] for one in objects} == SHARED | {"Namespace", "PersistentVolumeClaim"}
    assert objects[0]["kind"] == "Namespace"
    assert re.findall(r"^ +image: (.*)$", built, re.MULTILINE) == [image]
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    answer = kubectl(cluster, "apply", "--dry-run=server", "-f", "-", text=built).splitlines()
    assert len(answer) == len(objects), answer


def make_manifest(cluster: Cluster, image: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "manifest", f"IMAGE={image}", f"KUBECTL={cluster.binaries / 'kubectl'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


LEARNED = ("base/namespace.yaml", "sqlite/volume.yaml")


def test_uninstalling_keeps_what_was_learned_and_a_second_install_finds_it(
    cluster: Cluster,
) -> None:
    first = [word for name in LEARNED for word in ("-f", str(MANIFESTS / name))]
    kubectl(cluster, "apply", *first)
    volume = ["-n", "laxity", "get", "pvc", "laxity", "-o", "jsonpath={.metadata.uid}"]
    before = kubectl(cluster, *volume)
    whole = ["-k", str(MANIFESTS / "sqlite")]
    kubectl(cluster, "apply", *whole)
    kubectl(cluster, "delete", *whole, "--wait=false")
    try:
        assert not kubectl(cluster, "-n", "laxity", "get", "deployments", "-o", "name")
        assert kubectl(cluster, *volume) == before
        kubectl(cluster, "apply", *first)
        kubectl(cluster, "apply", *whole)
        assert kubectl(cluster, *volume) == before
    finally:  # the policies would hold for other tests
        kubectl(cluster, "delete", *whole, "--wait=false")
        kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "rbac.yaml"))


def test_alerts_ask_only_for_what_a_service_exports(cluster: Cluster, tmp_path: Path) -> None:
    objects = built_with(cluster, tmp_path, "sqlite", "prometheus")
    rules = next(one for one in objects if one["kind"] == "PrometheusRule")["spec"]["groups"]
    asked = {
        name
        for group in rules
        for rule in group["rules"]
        for name in re.findall(r"\blaxity_\w+", rule["expr"])
    }
    exported = {line.split()[2] for line in exposition() if line.startswith("# TYPE")}
    assert asked
    assert {name.removesuffix("_total") for name in asked} <= {
        name.removesuffix("_total") for name in exported
    }
    monitor = next(one for one in objects if one["kind"] == "ServiceMonitor")
    service = next(one for one in objects if one["kind"] == "Service")
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def exposition() -> list[str]:
    return Metrics().exposition().decode().splitlines()


def test_replicas_are_given_the_same_tokens(cluster: Cluster) -> None:
    """Whatever each has to know of the other stands in one secret, and cannot be left out."""
    built = yaml.safe_load_all(kubectl(cluster, "kustomize", str(MANIFESTS / "postgres")))
    deployment = next(one for one in built if one["kind"] == "Deployment")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    secret = [one["valueFrom"]["secretKeyRef"] for one in env if "secretKeyRef" in str(one)]
    shared = ["LAXITY_STORE", "LAXITY_TOKEN", "LAXITY_WORKER_SECRET"]
    assert secret == [{"name": "laxity", "key": key} for key in shared]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_labelled_jobs_can_be_suspended_by_adding_a_component(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    """The mutating policy of the cluster's version is a component beside the base."""
    objects = built_with(cluster, tmp_path, kind, "mutating-v1beta1")
    built = yaml.safe_dump_all(objects)
    kinds = [one["kind"] for one in objects]
    assert {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} <= set(kinds)
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    kubectl(cluster, "apply", "--dry-run=server", "-f", "-", text=built)


def test_inference_nodes_can_be_lent_by_adding_a_component(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its rights are beside those of the base, which can patch no node."""
    objects = built_with(cluster, tmp_path, "sqlite", "loans")
    roles = {
        (one["kind"], one["metadata"].get("namespace")): one["rules"]
        for one in objects
        if one["kind"] in {"ClusterRole", "Role"} and one["metadata"]["name"] == "laxity-loans"
    }
    assert set(roles) == {("ClusterRole", None), ("Role", "default")}
    (nodes,) = roles["ClusterRole", None]
    assert (nodes["resources"], nodes["verbs"]) == (["nodes"], ["patch"])
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    kubectl(cluster, "apply", "--dry-run=server", "-f", "-", text=yaml.safe_dump_all(objects))


def test_the_learned_policy_can_be_trained_on_a_schedule_by_adding_a_component(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Pod gets no calls for the service, and its command is one that laxity has."""
    objects = built_with(cluster, tmp_path, "postgres", "learning")
    (cron,) = (each for each in objects if each["kind"] == "CronJob")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]
    (service,) = (each for each in objects if each["kind"] == "Service")
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    policies = {
        (*policy["spec"]["policyTypes"], "ingress" in policy["spec"])
        for policy in (each for each in objects if each["kind"] == "NetworkPolicy")
        if policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    }
    assert policies == {("Ingress", "Egress", False)}, "nothing in, and named ports out"
    (container,) = pod["spec"]["containers"]
    said = {row["name"]: row.get("valueFrom") for row in container["env"]}
    assert said["LAXITY_JOURNAL"] == {"secretKeyRef": {"name": "laxity", "key": "LAXITY_STORE"}}
    monkeypatch.setenv("LAXITY_JOURNAL", str(tmp_path / "absent"))
    words = [word.replace("models:/widths@champion", "learned") for word in container["args"]]
    code, _, error = run_command(*words)
    assert (code, "there is no journal at" in error) == (USAGE, True)
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    kubectl(cluster, "apply", "--dry-run=server", "-f", "-", text=yaml.safe_dump_all(objects))


def built_with(cluster: Cluster, tmp_path: Path, kind: str, component: str) -> list[dict[str, Any]]:
    """The objects of a kustomization of one's own: a base, and a component beside it."""
    there = Path("..", *[".."] * len(tmp_path.parts))
    root = [str(there / MANIFESTS.relative_to("/") / part) for part in (kind, component)]
    chosen = {"resources": root[:1], "components": root[1:]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
    return list(yaml.safe_load_all(kubectl(cluster, "kustomize", str(tmp_path))))


def test_the_shipped_role_may_write_events_about_laxity_itself(cluster: Cluster) -> None:
    """Of a namespace without rights, and of cycles that fail, there is nothing else to write on."""
    (role,) = (
        document
        for document in yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
        if document["kind"] == "Role"
    )
    rights = {
        (r, verb) for rule in role["rules"] for r in rule["resources"] for verb in rule["verbs"]
    }
    assert {("events", "create"), ("events", "patch")} <= rights
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "rbac.yaml"))
    asked = ["--as=system:serviceaccount:laxity:laxity", "-n", "laxity"]
    assert kubectl(cluster, "auth", "can-i", "create", "events", *asked).strip() == "yes"
