"""Pods that cannot reach the service obey all the same: by an annotation, which they see as a file.

These pods have a network of their own, in which nothing listens at the service's address.
"""

import json

import pytest

from laxity import names
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.trained import starts, trained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_worker_out_of_reach_is_preempted_at_an_epochs_end_and_loses_none(
    pod_cluster: PodCluster, place: str
) -> None:
    alone = pod_cluster.template(hostNetwork=False)
    env = pod_cluster.env() | {"MLFLOW_TRACKING_URI": ""}
    far = Run(pod_cluster, "far", place, workers=(3,), epochs=400, template=alone, env=env)
    far.start(pace_s=3.0)
    far.until_epoch(2)
    assert far.view().epochs_done == 0, "the service has heard nothing"
    near = Run(pod_cluster, "near", place, deadline="1h", workers=(1,), epochs=5)
    near.rush(pace_s=0.2)
    far.until(lambda run: any(map(told_to_stop, run.pods().values())), "told by an annotation")
    near.finished()
    far.until(lambda run: 2 in starts(run), "another start")
    done = trained(far)
    assert done == list(range(1, len(done) + 1)), "no epoch was lost or trained twice"
    events = kubectl(pod_cluster.cluster, "-n", place, "get", "events", "-o", "json")
    reasons = {event["reason"] for event in json.loads(events)["items"]}
    assert {"PreemptFor", "StoppedAtEpoch"} <= reasons
    pod_cluster.client.cancel(far.id)


def told_to_stop(pod: dict[str, dict[str, dict[str, str]]]) -> bool:
    said = pod["metadata"].get("annotations", {}).get(names.SIGNAL, "{}")
    return bool(json.loads(said).get("stop"))
