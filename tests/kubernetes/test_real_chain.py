"""A chain of Jobs whose links are real containers, beside pods of others on the same GPUs."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from laxity import names
from tests.support.kubernetes.job_chain import JobChain
from tests.support.kubernetes.pod_cluster import PodCluster
from tests.support.kubernetes.realnode import IMAGE
from tests.support.kubernetes.trained import each_once

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

TRAINING: Final = Path(__file__).parents[1] / "support" / "programs" / "link_training.py"
EPOCHS, EPOCH_S = 60, 0.5
LIMIT: Final = "20s"  # a link trains some ten seconds, and leaves in time
END_S: Final = 300.0
NEEDLESS: Final = "cancelled: the chain is complete"  # still waited for a GPU, and was deleted
GPU: Final = {"limits": {"nvidia.com/gpu": "1"}}


def job_of(pod_cluster: PodCluster, namespace: str, name: str, *command: str, **spec: Any) -> Any:
    """A Job of one-GPU pods that are this machine's own containers."""
    chains = {"name": names.ENV_CHAIN_FOLDER, "value": str(pod_cluster.folder / "chains")}
    env = [{"name": key, "value": value} for key, value in pod_cluster.env().items()]
    worker = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [*(row for row in env if not row["name"].startswith("LAXITY_")), chains],
        "volumeMounts": pod_cluster.host.mounts(),
        "resources": GPU,
    }
    pod = {
        "restartPolicy": "Never",
        "hostNetwork": True,  # MLflow listens on loopback
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"type": "real"},
        "containers": [worker],
        "volumes": pod_cluster.host.volumes(),
    }
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": {"spec": pod}, **spec},
    }


@pytest.fixture
def chain(real_pod_cluster: PodCluster, place: str, tmp_path: Path) -> Iterator[JobChain]:
    """Among three GPUs for which up to three pods of others ask all the time."""
    others = job_of(
        real_pod_cluster, place, "others", "sleep", "3", parallelism=3, completions=1000
    )
    where = f"/apis/batch/v1/namespaces/{place}/jobs"
    assert real_pod_cluster.cluster.ask("POST", where, others)
    program = (sys.executable, str(TRAINING), str(EPOCHS), str(EPOCH_S))
    begun = JobChain(
        real_pod_cluster.cluster, job_of(real_pod_cluster, place, "train", *program), tmp_path
    )
    yield begun
    begun.kill()


def epochs_of(pod_cluster: PodCluster, chain: JobChain) -> list[tuple[int, int, float, float]]:
    """Number, link, start and end of each epoch, in the order in which they were trained."""
    path = pod_cluster.folder / "chains" / chain.state["chain_id"] / "epochs"
    rows = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
    return [(int(n), int(link), float(start), float(end)) for n, link, start, end in rows]


def logged_runs(pod_cluster: PodCluster, chain: JobChain) -> list[list[int]]:
    """The epochs of each MLflow run of this chain, as MLflow's REST API tells."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=pod_cluster.tracking_uri)
    uid = pod_cluster.folder / "chains" / chain.state["chain_id"] / "checkpoints"
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`{names.TAG_UID}` = '{uid}'")
    histories = (client.get_metric_history(run.info.run_id, names.EPOCH_ACTUAL) for run in runs)
    return [sorted(point.step for point in history) for history in histories]


def test_real_links_beside_pods_of_others_train_each_epoch_once_though_laxity_is_killed(
    real_pod_cluster: PodCluster, chain: JobChain
) -> None:
    first = chain.start(submission="after 2", limit=LIMIT)
    assert first.wait(timeout=60) == -9  # with a successor in the queue, not yet written down
    second = chain.start(limit=LIMIT)
    chain.until(
        lambda: len(epochs_of(real_pod_cluster, chain)) > EPOCHS // 3, "a third of the epochs"
    )
    second.kill()
    second.wait()
    chain.until(lambda: not chain.pod_of("1"), "the first link to end while nobody follows it")

    assert chain.start(limit=LIMIT).wait(timeout=END_S) == 0, chain.words

    epochs = epochs_of(real_pod_cluster, chain)
    assert [number for number, *_ in epochs] == each_once(EPOCHS)
    spans = [(start, end) for _, _, start, end in epochs]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert "waits again" not in chain.words, "whose pod has ended waits for nothing"
    links = chain.state["links"]
    assert len({link for _, link, _, _ in epochs}) >= 3
    assert len(links) >= 4
    needed = [link["seq"] for link in links if link["outcome"] != NEEDLESS]
    assert sorted(map(int, chain.jobs())) == needed, "one Job of each link that was needed"
    ended_at = {link: end for _, link, _, end in epochs}
    early = [link for link in links[1:] if link["started_at"] < ended_at.get(link["seq"] - 1, 0.0)]
    assert early, "a successor had its GPU before the predecessor ended, and waited for the lock"
    assert logged_runs(real_pod_cluster, chain) == [each_once(EPOCHS)], "in one MLflow run"
