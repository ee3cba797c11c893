"""A real node is lent to a real training, and a real Deployment takes it back, again and again."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.realnode import IMAGE, RealNode
from tests.support.kubernetes.serving import TOLERATES, Deployment, label_fleet, node_specs, pools
from tests.support.kubernetes.trained import QUICK, each_once, logged, right, starts, trained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

LENT = ("lent",)
EPOCHS = 300
GRACE_S = 30.0  # of pods that are told to go; inference waits at most 15 s more
WAITS_S = GRACE_S + 15.0
OVERLAY = ("rights", "label-only", "priority")


@pytest.fixture
def fleet(real_pod_cluster: PodCluster) -> Iterator[dict[str, Any]]:
    """A second node that is this machine, of one GPU, kept for inference."""
    cluster = real_pod_cluster.cluster
    files = [word for name in OVERLAY for word in ("-f", str(MANIFESTS / "loans" / f"{name}.yaml"))]
    kubectl(cluster, "apply", *files)
    node = RealNode(cluster, gpus=1, name=LENT[0], number=1)
    try:
        node.up()
        yield label_fleet(cluster, LENT)
    finally:
        kubectl(cluster, "delete", "node", LENT[0])
        node.down()
        kubectl(cluster, "delete", *files)


def post(pod_cluster: PodCluster, path: str, body: dict[str, Any]) -> None:
    assert pod_cluster.service is not None
    pod_cluster.service.ask("POST", path, body).raise_for_status()


def waits_s(serving: Deployment) -> list[float]:
    """How long each of its pods waited, from its creation until it ran."""
    spans = []
    for pod in serving.pods():
        state = pod["status"]["containerStatuses"][0]["state"]
        ran_at = datetime.fromisoformat(state["running"]["startedAt"])
        created_at = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        spans.append((ran_at - created_at).total_seconds())
    return spans


def serves(serving: Deployment) -> bool:
    """Whether all of its pods run."""
    return serving.serves() and all(
        status["state"].get("running")
        for pod in serving.pods()
        for status in pod["status"].get("containerStatuses") or [{"state": {}}]
    )


def pool(pod_cluster: PodCluster) -> str:
    return pools(pod_cluster.cluster, LENT).get(LENT[0], "")


def last_width(run: Run) -> int:
    """Of the last epoch that was trained; 0 before the first."""
    return max((0, *(int(note["width"]) for note in run.notes("trained")[-1:])))


def until_wide(run: Run, *, epochs: int) -> None:
    """Until it trains on the lent node as well, for some epochs."""
    run.until(lambda run: last_width(run) == 4, "four workers")
    seen = len(trained(run))
    run.until(lambda run: len(trained(run)) >= seen + epochs, "epochs on four workers")


def test_a_training_grows_into_a_lent_node_and_leaves_it_whatever_happens(
    pod_cluster: PodCluster, place: str, fleet: dict[str, Any]
) -> None:
    container = {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "100000"]}
    mounts = {"volumeMounts": pod_cluster.host.mounts()}
    serving = Deployment(pod_cluster.cluster, place, container={**container, **mounts})
    serving.volumes = pod_cluster.host.volumes()
    serving.scale(0)
    post(pod_cluster, "/v1/loans", {"loan": 1})
    run = Run(
        pod_cluster, "grows", place, deadline="2h", workers=(3, 4), epochs=EPOCHS,
        template=pod_cluster.template(tolerations=TOLERATES), epoch_estimate="2s",
    ).start(pace_s=6.0)  # fmt: skip
    waited_s: list[float] = []
    for _ in range(2):
        until_wide(run, epochs=2)
        assert pool(pod_cluster) == "loaned"
        serving.scale(1)
        pod_cluster.until(lambda: serves(serving), "the inference pod to run")
        waited_s += waits_s(serving)
        pod_cluster.until(lambda: pool(pod_cluster) == "inference", "the node to be given back")
        run.until(lambda run: last_width(run) == 3, "three workers again")
        serving.scale(0)
    until_wide(run, epochs=2)
    assert pod_cluster.service is not None
    pod_cluster.service.kill()
    serving.scale(1)
    pod_cluster.until(lambda: serves(serving), "the inference pod to run though laxity is dead")
    waited_s += waits_s(serving)
    pod_cluster.service.start()
    pod_cluster.until(lambda: pool(pod_cluster) == "inference", "the node to be given back")
    run.until(lambda run: last_width(run) == 3, "three workers again")
    assert len(waited_s) == 3
    assert max(waited_s) < WAITS_S
    serving.scale(0)
    until_wide(run, epochs=1)
    run.pace(QUICK)
    assert right(run.finished(), EPOCHS)
    assert logged(pod_cluster, run) == each_once(EPOCHS)
    twice = [epoch for epoch in set(trained(run)) if trained(run).count(epoch) > 1]
    assert len(twice) <= 3, "only those in flight when a pod had to go were begun again"
    assert starts(run) == {1}, "worker 0 was never stopped"
    view = run.view()
    assert (view.verdict, view.kept) == ("promised", True)
    assert view.raw["borrowed_gpu_h"] > 0.0
    pod_cluster.until(lambda: pool(pod_cluster) == "loaned", "the node to be lent")
    post(pod_cluster, "/v1/release", {})
    assert node_specs(pod_cluster.cluster, LENT) == fleet
