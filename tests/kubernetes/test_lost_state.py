"""Real pods of a training that holds no state: what they lose is trained again, all of it."""

import json

import pytest

from laxity import names
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.trained import QUICK, each_once, logged, right, trained
from tests.support.programs.podtrainings import forgetful

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCHS = 12
SLOW = 5.0


@pytest.mark.parametrize(
    ("width", "lost"),
    [
        pytest.param(1, 0, id="the only one"),
        pytest.param(2, 0, id="worker 0 of two"),
        pytest.param(2, 1, id="worker 1 of two"),
    ],
)
def test_after_a_lost_pod_all_epochs_are_trained_again_by_the_workers_that_finish(
    pod_cluster: PodCluster, place: str, width: int, lost: int
) -> None:
    run = Run(
        pod_cluster, "lost", place, forgetful, deadline="20m", workers=(width,), epochs=EPOCHS
    ).start(pace_s=0.2 * width)
    run.until_epoch(4)
    run.pace(1_000.0)
    pod_cluster.until(lambda: run.view().raw["holds_state"] is False, "the service to know")
    said = kubectl(pod_cluster.cluster, "-n", place, "get", "events", "-o", "json")
    kept = json.loads(run.job()["metadata"]["annotations"][names.STATUS])
    (pod,) = (name for name in run.pods() if name.rsplit("-", 2)[1] == str(lost))
    known = run.view().epochs_done
    run.pace(SLOW)  # the other worker hears of it at its epoch's end
    kubectl(pod_cluster.cluster, "-n", place, "delete", "pod", pod, "--wait=false")
    pod_cluster.until(lambda: begun_anew(run), "epoch 1 again")
    pod_cluster.until(lambda: run.view().epochs_done < known, "its epochs to be lost")
    run.pace(QUICK)
    result = run.call.result(timeout=300)

    assert known == 3
    assert kept["holds_state"] is False
    assert [one["reason"] for one in json.loads(said)["items"]].count("HoldsNoState") == 1
    assert trained(run)[-EPOCHS:] == each_once(EPOCHS)
    assert logged(pod_cluster, run) == each_once(EPOCHS)
    assert run.view().epochs_done == EPOCHS
    assert right(result, EPOCHS)


def begun_anew(run: Run) -> bool:
    return [one["epoch"] for one in run.notes("began")].count(1) > 1
