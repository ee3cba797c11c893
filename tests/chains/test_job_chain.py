"""`laxity chain` on a real API server, in a namespace whose pods are limited by another's quota.

Nodes are simulated: the test itself says how a link's pod ends, as a kubelet would.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.job_chain import JobChain

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def manifest(namespace: str, gpus: int = 4) -> dict[str, Any]:
    worker = {
        "name": "train",
        "image": "none",
        "command": ["python", "train.py"],
        "env": [{"name": "LAXITY_CHAIN_FOLDER", "value": "/shared/chains"}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod = {"restartPolicy": "Never", "containers": [worker]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }


@pytest.fixture
def chain(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[JobChain]:
    """In a namespace where another has put a quota of 4 GPUs: one link's."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "4", "count/jobs.batch": "20"}},
    }
    where = f"/api/v1/namespaces/{namespace}/resourcequotas"
    assert cluster.ask("POST", where, quota)
    counted = f"{where}/team"
    cluster.until(
        lambda: "used" in (cluster.ask("GET", counted) or {}).get("status", {}), 120.0, "the quota"
    )
    begun = JobChain(cluster, manifest(namespace), tmp_path)
    yield begun
    begun.kill()


def test_successors_are_created_ahead_once_each_though_the_chain_is_killed(
    chain: JobChain,
) -> None:
    first = chain.start(submission="after 2")
    assert first.wait(timeout=120) == -9  # the successor is created, and not yet written down
    second = chain.start(submission="before 1")
    chain.until(lambda: "it was submitted before" in chain.words, "the successor is known")
    assert sorted(chain.jobs()) == ["1", "2"]
    assert chain.pod_of("2") is None  # it waits for the quota of GPUs

    chain.end_pod("1", 7)
    assert second.wait(timeout=120) == -9  # before it creates the third
    third = chain.start("--links", "3")
    chain.until(lambda: "3" in chain.jobs(), "the third link, ahead")
    chain.end_pod("2", 137, reason="DeadlineExceeded")
    chain.end_pod("3", 0)

    assert third.wait(timeout=120) == 0
    assert "link 1: job" in chain.words
    assert "ended with exit code 7" in chain.words
    assert "reached its time limit" in chain.words
    left = {
        name: job["status"].get("conditions", [{}])[-1].get("type")
        for name, job in chain.jobs().items()
    }
    assert left == {"1": "Failed", "2": "Failed", "3": "Complete"}
    pod = chain.jobs()["1"]["spec"]["template"]["spec"]
    assert pod["activeDeadlineSeconds"] == 1800


def test_a_failing_link_takes_its_successor_out_of_the_queue(chain: JobChain) -> None:
    process = chain.start()
    chain.until(lambda: "2" in chain.jobs(), "a successor ahead")

    chain.end_pod("1", 3)

    assert process.wait(timeout=120) == 1
    assert "failed with exit code 3" in chain.words
    chain.until(lambda: sorted(chain.jobs()) == ["1"], "no successor waits")


def test_a_link_that_loses_its_node_trains_on_another_one(chain: JobChain) -> None:
    process = chain.start("--links", "1")
    chain.end_pod("1", 143, disrupted="EvictionByEvictionAPI")
    chain.until(lambda: chain.pod_of("1"), "it runs again")
    chain.end_pod("1", 0)

    assert process.wait(timeout=120) == 0
    assert sorted(chain.jobs()) == ["1"]


def test_a_successor_deleted_by_hand_is_created_once_more_and_links_end_at_their_cap(
    chain: JobChain,
) -> None:
    process = chain.start("--links", "2")
    second = chain.until(lambda: chain.jobs().get("2"), "a successor ahead")

    chain.delete(second["metadata"]["name"])
    chain.until(lambda: "2-2" in chain.jobs(), "another one")
    chain.end_pod("1", 7)
    chain.end_pod("2", 7)

    assert process.wait(timeout=120) == 7
    assert "was deleted before it started: submitted once more" in chain.words
    assert sorted(chain.jobs()) == ["1", "2-2"]


def test_a_follower_that_gets_sigterm_names_the_jobs_that_go_on_and_may_follow_again(
    chain: JobChain,
) -> None:
    process = chain.start("--links", "2")
    chain.until(lambda: "2" in chain.jobs() and chain.pod_of("1"), "a successor ahead")

    process.terminate()

    assert process.wait(timeout=120) == 143
    names = {link: job["metadata"]["name"] for link, job in chain.jobs().items()}
    assert f"link 2: job {names['2']} waits" in chain.words
    assert "no further link is submitted until you run the same command again" in chain.words
    assert chain.pod_of("1"), "the first link trains on"
    process = chain.start("--links", "2")
    chain.end_pod("1", 7)
    chain.end_pod("2", 0)
    assert process.wait(timeout=120) == 0
    assert sorted(chain.jobs()) == ["1", "2"]


def test_a_refused_creation_is_said_in_the_api_servers_words(chain: JobChain) -> None:
    where = f"/api/v1/namespaces/{chain.namespace}/resourcequotas"
    none = {"hard": {"count/jobs.batch": "1"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": none}
    assert chain.cluster.ask("POST", where, quota)
    chain.until(
        lambda: "used" in (chain.cluster.ask("GET", f"{where}/one") or {}).get("status", {}),
        "the quota",
    )

    process = chain.start("--links", "2")
    chain.until(lambda: "refused, to be tried again" in chain.words, "the successor is refused")

    assert "403" in chain.words
    assert "exceeded quota: one" in chain.words
    chain.cluster.ask("DELETE", f"{where}/one")
    chain.end_pod("1", 7)
    chain.end_pod("2", 0)
    assert process.wait(timeout=120) == 0


def point_context(chain: JobChain, namespace: str, place: Path) -> Path:
    """A kubeconfig whose current context is in this namespace."""
    kubeconfig = json.loads(chain.cluster.kubeconfig.read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = namespace
    path = place / f"context-{namespace}"
    path.write_text(json.dumps(kubeconfig))
    return path


def test_jobs_of_a_manifest_without_namespace_stay_where_the_context_was_at_the_beginning(
    chain: JobChain, tmp_path: Path
) -> None:
    unnamed = manifest(chain.namespace)
    del unnamed["metadata"]["namespace"]
    (chain.folder.parent / "train.yaml").write_text(json.dumps(unnamed))
    chain.kubeconfig = point_context(chain, chain.namespace, tmp_path)
    assert chain.start(submission="after 1").wait(timeout=60) == -9

    chain.kubeconfig = point_context(chain, "default", tmp_path)
    process = chain.start("--links", "1")
    chain.end_pod("1", 0)

    assert process.wait(timeout=60) == 0, chain.words
    assert sorted(chain.jobs()) == ["1"]


RIGHTS = [  # all that `laxity chain` needs
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]


def bind_user(cluster: Cluster, namespace: str, place: Path) -> Path:
    """The kubeconfig of somebody with a Role in this namespace, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    where = f"/apis/{rbac}/v1/namespaces/{namespace}"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    named = {"metadata": {"name": "user"}}
    account = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    bound = {"apiGroup": rbac, "kind": "Role", "name": "user"}
    assert cluster.ask("POST", accounts, named)
    assert cluster.ask("POST", f"{where}/roles", {**named, "rules": RIGHTS})
    binding = {**named, "subjects": [account], "roleRef": bound}
    assert cluster.ask("POST", f"{where}/rolebindings", binding)
    kubeconfig = json.loads(cluster.kubeconfig.read_text())
    token = cluster.ask("POST", f"{accounts}/user/token", {"spec": {"expirationSeconds": 3600}})
    kubeconfig["users"][0]["user"]["token"] = token["status"]["token"]
    path = place / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    return path


def test_with_a_role_in_its_own_namespace_a_chain_runs_and_sees_no_other_namespace(
    chain: JobChain, tmp_path: Path
) -> None:
    elsewhere = manifest("default")
    elsewhere["spec"]["suspend"] = True
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    assert chain.cluster.ask("POST", jobs, elsewhere)
    chain.kubeconfig = bind_user(chain.cluster, chain.namespace, tmp_path)

    process = chain.start("--links", "2")
    chain.until(lambda: "2" in chain.jobs(), "the successor, ahead")
    chain.end_pod("1", 7)
    chain.end_pod("2", 0)

    assert process.wait(timeout=120) == 0, chain.words
    lines = (chain.folder / "queue.jsonl").read_text().splitlines()[1:]
    decisions = [json.loads(line) for line in lines]
    assert {(row["waiting"], row["running"]) for row in decisions} == {(0, 1)}
    chain.cluster.ask("DELETE", f"{jobs}/train", {"propagationPolicy": "Background"})


def test_why_no_pod_of_a_link_can_be_created_is_said_and_shown(
    chain: JobChain,
) -> None:
    (chain.folder.parent / "train.yaml").write_text(json.dumps(manifest(chain.namespace, gpus=8)))

    chain.start()
    refusal = "no pod can be created: exceeded quota: team, requested: requests.nvidia.com/gpu=8"
    chain.until(lambda: refusal in chain.words, "the reason")

    name = chain.jobs()["1"]["metadata"]["name"]
    assert chain.words.count(refusal) == 1
    assert f"link 1: job {name} waits: {refusal}" in chain.words
    assert chain.start("--status").wait(timeout=120) == 0
    assert chain.words.splitlines()[-1].startswith(f"link 1: job {name} waits: {refusal}")
