"""Real pods train: flows with deadlines, in containers on a real node, with a real MLflow server."""

from datetime import UTC, datetime, timedelta

import pytest

from laxity.instants import format_instant
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.trained import QUICK, each_once, logged, right, starts, trained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_pod_that_is_deleted_in_the_middle_of_an_epoch_loses_that_epoch_at_most(
    pod_cluster: PodCluster, place: str
) -> None:
    run = Run(pod_cluster, "shot", place, deadline="20m", workers=(1,), epochs=20).start(pace_s=0.2)
    run.until_epoch(4)
    run.pace(1_000.0)
    (pod,) = run.pods()
    hit = run.notes("began")[-1]["epoch"]
    kubectl(pod_cluster.cluster, "-n", place, "delete", "pod", pod, "--wait=false")
    pod_cluster.until(lambda: 2 in starts(run), "another pod to go on")
    run.pace(QUICK)
    result = run.call.result(timeout=300)
    began = [one["epoch"] for one in run.notes("began")]
    assert [epoch for epoch in began if began.count(epoch) > 1] in ([], [hit, hit])
    assert trained(run) == each_once(20)
    assert logged(pod_cluster, run) == each_once(20)
    assert right(result, 20)


def test_a_best_effort_job_is_preempted_at_an_epochs_end_and_loses_none(
    pod_cluster: PodCluster, place: str
) -> None:
    low = Run(pod_cluster, "low", place, workers=(3,), epochs=200).start(pace_s=3.0)
    low.until_epoch(3)
    high = Run(pod_cluster, "high", place, deadline="1h", workers=(1,), epochs=5)
    high.rush(pace_s=0.2)
    assert right(high.finished(), 5)
    assert high.view().verdict == "promised"
    low.pace(QUICK)
    result = low.call.result(timeout=300)
    view = low.view()
    assert view.preemptions == 1
    assert trained(low) == each_once(200)
    assert logged(pod_cluster, low) == each_once(200)
    assert starts(low) == {1, 2}, "stopped once, and another pod went on"
    assert right(result, 200)


def test_a_job_grows_into_idle_gpus_and_gives_one_back_while_it_trains(
    pod_cluster: PodCluster, place: str
) -> None:
    """1 -> 3 -> 2, all decided by the policy: others come and go."""
    first = Run(pod_cluster, "first", place, workers=(2,), epochs=400).start(pace_s=2.0)
    first.until_epoch(1)
    wide = Run(
        pod_cluster, "wide", place,
        deadline="2h", workers=(1, 2, 3), epochs=400, epoch_estimate="3s",
    ).start(pace_s=3.0)  # fmt: skip
    wide.until_epoch(2)
    pod_cluster.client.cancel(first.id)
    wide.until(lambda run: 3 in widths(run), "three workers")
    between = needs_two(wide)
    assert pod_cluster.client.amend(wide.id, between).verdict == "promised"
    last = Run(pod_cluster, "last", place, deadline="3m", workers=(1,), epochs=5).start(pace_s=0.2)
    wide.until(lambda run: widths(run)[-1] == 2, "two workers again")
    assert right(last.call.result(timeout=300), 5)
    wide.pace(QUICK)
    result = wide.call.result(timeout=300)
    widest = widths(wide).index(3)
    assert widths(wide)[0] == 1
    assert widths(wide)[widest + 1] == 2
    assert starts(wide) == {1}, "worker 0 was never stopped"
    assert trained(wide) == each_once(400)
    assert logged(pod_cluster, wide) == each_once(400)
    assert right(result, 400)


def needs_two(run: Run) -> str:
    """A deadline that two workers meet and one does not, as the training goes now."""
    one_worker_s = 3.0 * (400 - len(trained(run)))
    return format_instant(datetime.now(UTC) + timedelta(seconds=0.8 * one_worker_s))


def widths(run: Run) -> list[int]:
    """The widths that its epochs were trained at, one after another."""
    each = [one["width"] for one in run.notes("trained")]
    return [width for number, width in enumerate(each) if number == 0 or each[number - 1] != width]
