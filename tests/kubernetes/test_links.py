"""Links of a chain on a real API server: Kubernetes kills each start by its own clock, laxity before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity import names
from laxity.instants import instant_at
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.history import labels
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.namespace_jobs import NamespaceJobs, done, open_namespace_jobs
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job
from tests.support.kubernetes.trained import QUICK, each_once, logged, right, starts, trained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT_S = 30  # a link is stopped three seconds before
CHAIN = {"epochs": "1000", "epoch-estimate": "1s", "widths": "1", "wall-limit": f"{LIMIT_S}s"}


@pytest.fixture
def links(
    account: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Path, namespace: str
) -> Iterator[NamespaceJobs]:
    replica = Replica(cluster, service_forker, tmp_path / "service")
    with replica, open_namespace_jobs(cluster, namespace, replica) as there:
        yield there


def begun_at(there: NamespaceJobs, name: str) -> list[float]:
    """When each start of the Job began, by the Job controller's own word."""
    changes = [change.object for kind, change in there.history.events() if kind == "jobs"]
    mine = [job for job in changes if job["metadata"]["name"] == name]
    instants = (instant_at(job.get("status", {}).get("startTime")) for job in mine)
    return sorted({at for at in instants if at is not None})


def failure_of(job: Json) -> str:
    conditions = job["status"].get("conditions", [])
    return next((row["reason"] for row in conditions if row["type"] == "Failed"), "")


def test_each_link_has_the_whole_limit_again_and_is_stopped_before_it_is_killed(
    links: NamespaceJobs,
) -> None:
    (name,) = links.apply(1, CHAIN, run_s=None)

    links.until(lambda: len(begun_at(links, name)) >= 4, "the fourth link")

    job, begun = links.named(name), begun_at(links, name)
    assert job["spec"]["activeDeadlineSeconds"] == LIMIT_S
    assert begun[-1] - begun[0] > 2 * LIMIT_S, "longer than one clock would have allowed"
    assert not failure_of(job)
    assert links.problems() == []


def test_a_link_that_nobody_stops_is_killed_by_the_clock_of_its_own_start(
    links: NamespaceJobs,
) -> None:
    """The service is gone: Kubernetes ends the chain, and says why."""
    (name,) = links.apply(1, CHAIN, run_s=None)
    links.until(lambda: len(begun_at(links, name)) >= 2, "the second link")
    links.replicas[0].end()

    links.until(lambda: bool(failure_of(links.named(name))), "the Job to fail")

    ended_at = next(
        instant_at(row["lastTransitionTime"]) or 0.0
        for row in links.named(name)["status"]["conditions"]
        if row["type"] == "Failed"
    )
    assert failure_of(links.named(name)) == "DeadlineExceeded"
    assert ended_at - begun_at(links, name)[-1] >= LIMIT_S


def test_a_promised_training_outlasts_its_own_active_deadline_and_completes(
    links: NamespaceJobs,
) -> None:
    """Nobody declared a wall limit: the Job's own activeDeadlineSeconds is the limit of a start."""
    asked = {"class": "hard", "deadline": "30m", "epochs": "10", "epoch-estimate": "1s"}
    job = training_job(links.namespace, "own", asked)
    job["spec"]["activeDeadlineSeconds"] = LIMIT_S
    apply(links.cluster, job)

    links.until(
        lambda: len(begun_at(links, "own")) >= 3 or bool(failure_of(links.named("own"))),
        "the third start",
    )
    assert not failure_of(links.named("own"))

    def completes() -> bool:
        end_pods(links)  # a pod that was not running yet ends as soon as it is
        return done(links.named("own"))

    links.until(completes, "the Job to be complete")

    begun = begun_at(links, "own")
    assert begun[-1] - begun[0] > LIMIT_S, "longer than Kubernetes allows one start"
    assert labels(links.named("own"))[names.VERDICT_LABEL] == "promised"
    assert links.named("own")["spec"]["activeDeadlineSeconds"] == LIMIT_S
    assert links.problems() == []


def end_pods(there: NamespaceJobs) -> None:
    """The simulated pods that run have done their work."""
    _, pods = there.history.now()
    for pod in pods:
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            kubectl(
                there.cluster, "-n", there.namespace, "patch", "pod", pod["metadata"]["name"],
                "--subresource=status", "-p", '{"status": {"phase": "Succeeded"}}',
            )  # fmt: skip


def test_real_pods_train_each_epoch_once_over_at_least_three_links(
    pod_cluster: PodCluster, place: str
) -> None:
    run = Run(
        pod_cluster, "linked", place, deadline="6h", workers=(1,), epochs=110, wall_limit="45s"
    ).start(pace_s=1.0)  # fmt: skip

    run.until(lambda run: len(starts(run)) >= 3, "the third link")
    run.pace(QUICK)
    result = run.call.result(timeout=300)

    assert right(result, 110)
    assert trained(run) == each_once(110)
    assert logged(pod_cluster, run) == each_once(110), "in one MLflow run"
    assert len(starts(run)) >= 3
    assert (run.view().verdict, run.view().preemptions) == ("promised", 0)
