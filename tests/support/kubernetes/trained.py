"""What a training on real pods has done."""

import math
from typing import Any

from laxity import names
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.programs.podtrainings import weights_after

QUICK = 0.0


def each_once(epochs: int) -> list[int]:
    return list(range(1, epochs + 1))


def trained(run: Run) -> list[int]:
    return [one["epoch"] for one in run.notes("trained")]


def logged(pod_cluster: PodCluster, run: Run) -> list[int]:
    """The epochs whose time MLflow has, as its REST API tells."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=pod_cluster.tracking_uri)
    history = client.get_metric_history(run.view().run_id, names.EPOCH_ACTUAL)
    return sorted(one.step for one in history)


def starts(run: Run) -> set[int]:
    return {one["start"] for one in run.notes("began")}


def right(result: Any, epochs: int) -> bool:
    """As if it had never been disturbed, on one worker."""
    pairs = zip(result["weights"], weights_after(epochs), strict=True)
    return all(math.isclose(one, other, rel_tol=1e-9) for one, other in pairs)
