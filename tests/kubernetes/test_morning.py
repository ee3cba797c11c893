"""A morning of a platform team on a real cluster: what it does there harms no Job and no promise."""

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from laxity import names
from tests.support.kubernetes.cron import condition, cron_job
from tests.support.kubernetes.documented import EPOCHS, ROOT, at_home, documented_job, laid_out
from tests.support.kubernetes.history import annotations
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.morning import FIXED, Morning, end, furnished
from tests.support.kubernetes.place import complete, running
from tests.support.kubernetes.pod_cluster import PodCluster, Run
from tests.support.kubernetes.realnode import NODE
from tests.support.kubernetes.restoring import Sqlite, outcomes
from tests.support.kubernetes.service import Json, verdict_of
from tests.support.kubernetes.trained import trained
from tests.support.programs.podtrainings import weights_after

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(900)]

PACE_S: Final = 4.0
AMENDED: Final = frozenset({"first", "nightly"})
NAMES: Final = {
    "fan-out", "queue", "plain", "train", "first", "moved", "uses", "waits", "wide", "overrun",
    "after-the-api-server", "meanwhile", "since", "hopes",
}  # fmt: skip


@pytest.fixture
def team(real_pod_cluster: PodCluster) -> Iterator[str]:
    yield from real_pod_cluster.namespace()


@pytest.fixture
def morning(real_pod_cluster: PodCluster, place: str, team: str) -> Iterator[Morning]:
    with furnished(real_pod_cluster, place):
        made = Morning(real_pod_cluster, place, team)
        yield made
        made.close()


def test_a_morning_of_a_platform_team(morning: Morning) -> None:
    """In the order in which it happens; at noon every Job is counted."""
    others_work(morning)
    training = starts_training(morning)
    applies_first_again(morning)
    drains_a_node(morning)
    drains_the_real_node(morning, training)
    reaches_and_raises_a_quota(morning)
    a_neighbour_scales_over_a_promised_job(morning)
    the_api_server_restarts(morning, training)
    upgrades_the_service(morning, training)
    restores_the_store(morning)
    a_tenant_cheats(morning)
    the_nightly_goes_on(morning)
    all_end(morning, training)
    assert morning.latest().keys() >= NAMES
    problems = morning.problems(AMENDED)
    assert not problems, "\n".join(problems)


def others_work(morning: Morning) -> None:
    """A fan-out, a queue, a Job that is not laxity's; a CronJob whose run cannot be in time; a quota."""
    there = morning.place
    fan_out = morning.simulated(there, "fan-out", {**ESTIMATE, "deadline": "20m"}, run_s=4.0)
    fan_out["spec"] |= {"parallelism": 2, "completions": 6}
    queue = morning.simulated(there, "queue", ESTIMATE, run_s=4.0)
    queue["spec"] |= {"completionMode": "NonIndexed", "parallelism": 2}
    del queue["spec"]["completions"]
    plain = morning.simulated(there, "plain", {}, run_s=4.0)
    plain["metadata"]["labels"] = {}
    plain["spec"] |= {"suspend": False, "completions": 3}
    there.apply(fan_out, queue, plain, nightly(morning, "5s"))
    morning.team.kubectl("create", "quota", "team", "--hard=requests.nvidia.com/gpu=2")


ESTIMATE: Final = {"epochs": "3", "epoch-estimate": "5s"}


def nightly(morning: Morning, deadline: str) -> Json:
    """Every minute is a night."""
    made = cron_job(morning.place, "Forbid", deadline)
    made["spec"]["schedule"] = "* * * * *"
    made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeSelector"] = {"type": "kwok"}
    return made


def starts_training(morning: Morning) -> Run:
    """The Job of docs/manifest.md, in real pods."""
    pod_cluster, there = morning.pod_cluster, morning.place
    folder = laid_out(pod_cluster, there.namespace)
    job = at_home(documented_job(), pod_cluster, folder, there.namespace)
    job["metadata"]["name"] = "train"
    for row in job["spec"]["template"]["spec"]["containers"][0]["env"]:
        if row["name"] == names.ENV_JOB:
            row["value"] = f"{there.namespace}/train"
    training = Run.seen(pod_cluster, "train", there.namespace, folder)
    training.pace(PACE_S)
    there.apply(job)
    training.until_epoch(2)
    assert verdict_of(there.get("train"))["kind"] == "promise"
    return training


def first(morning: Morning, deadline: str) -> Json:
    """The Job of docs/kubernetes/first-job.md, with this node's image."""
    text = (ROOT / "docs/kubernetes/first-job.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert found
    job: Json = yaml.safe_load(found[1])
    job["metadata"]["namespace"] = morning.place.namespace
    job["metadata"]["annotations"][names.DEADLINE] = deadline
    pod, template = job["spec"]["template"]["spec"], morning.pod_cluster.template()
    pod |= {"nodeSelector": {"type": "real"}, "volumes": template["volumes"]}
    pod["containers"][0] |= {
        key: template[key] for key in ("image", "imagePullPolicy", "volumeMounts")
    }
    return job


def applies_first_again(morning: Morning) -> None:
    """From both sides, as administrator and as tenant; the deadline in the file is another one then."""
    there = morning.place
    there.apply(first(morning, "10m"))
    there.until_job("first", running, "runs")
    pods, deadline_at = there.pods("first"), verdict_of(there.get("first"))["deadline_at"]
    there.apply(first(morning, "10m"))
    later = json.dumps(first(morning, "30m"))
    sides: tuple[tuple[str, ...], ...] = ((), ("--server-side", "--force-conflicts"))
    for how in sides:
        code, words = morning.as_tenant("apply", *how, "-f", "-", text=later)
        assert code == 0, words
    moved = there.until_job(
        "first", lambda job: verdict_of(job)["deadline_at"] > deadline_at, "has the new deadline"
    )
    assert there.pods("first") == pods
    assert names.PIN not in annotations(moved)


def drains_a_node(morning: Morning) -> None:
    there = morning.place
    there.apply(morning.simulated(there, "moved", FIXED, run_s=25.0))
    there.until_job("moved", running, "runs")
    (node,) = there.pods("moved").values()
    kubectl(morning.cluster, "drain", node, "--force", "--ignore-daemonsets", "--grace-period=2")
    there.until_job(
        "moved",
        lambda job: running(job) and node not in there.pods("moved").values(),
        "runs elsewhere",
    )
    assert "WorkerDisplaced" in morning.reasons(there, "moved")
    kubectl(morning.cluster, "uncordon", node)


def drains_the_real_node(morning: Morning, training: Run) -> None:
    """The training stops at its epoch's end; when the node is back both Jobs go on there.

    At first somebody thinks better of it in time.
    """
    there = morning.place
    training.pace(30.0)
    pods = there.pods("train")
    kubectl(morning.cluster, "cordon", NODE)
    morning.until_told(there, "train", "NodeCordoned")
    kubectl(morning.cluster, "uncordon", NODE)
    morning.until_told(there, "train", "StopTakenBack")
    assert there.pods("train") == pods
    training.pace(PACE_S)
    kubectl(morning.cluster, "cordon", NODE)
    there.until(lambda: not there.pods("train"), "the training to leave its node")
    assert {"NodeCordoned", "StoppedAtEpoch"} <= morning.reasons(there, "train")
    kubectl(morning.cluster, "drain", NODE, "--force", "--ignore-daemonsets", "--grace-period=2")
    seen = len(trained(training))
    kubectl(morning.cluster, "uncordon", NODE)
    training.until(lambda run: len(trained(run)) > seen, "another epoch")
    there.until_job("first", lambda job: running(job) or complete(job), "runs again")


def reaches_and_raises_a_quota(morning: Morning) -> None:
    """One Job uses it up, one waits for it, one is wider than all of it."""
    there = morning.team
    for name, gpus in (("uses", 2), ("waits", 2), ("wide", 3)):
        there.apply(morning.simulated(there, name, FIXED, run_s=15.0, gpus=gpus))
    refused = there.until_job("wide", lambda job: bool(verdict_of(job)), "is judged")
    assert verdict_of(refused)["reason"]["code"] == "namespace_limits"
    morning.until_told(there, "waits", "QuotaUsedUp")
    more = {"spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}
    there.kubectl("patch", "quota", "team", "-p", json.dumps(more))
    for name in ("waits", "wide"):
        there.until_job(name, lambda job: running(job) or complete(job), "runs")
        assert verdict_of(there.get(name))["kind"] == "promise"


def a_neighbour_scales_over_a_promised_job(morning: Morning) -> None:
    """Its pods preempt the Job's worker on the one node that it may use; then it scales down."""
    there, where = morning.place, {"kubernetes.io/hostname": "gpu-1"}
    there.until(lambda: all(map(complete, morning.team.jobs())), "the node to be empty")
    job = morning.simulated(there, "overrun", FIXED | {"deadline": "3m"}, run_s=15.0, gpus=4)
    job["spec"]["template"]["spec"]["nodeSelector"] = where
    job["spec"]["template"]["metadata"]["annotations"]["test.laxity/stop-for"] = "2s"
    there.apply(job)
    there.until_job("overrun", running, "runs")
    morning.neighbour("inference", node="gpu-1")
    there.kubectl("scale", "deployment", "inference", "--replicas=2")
    morning.until_told(there, "overrun", "WorkerDisplaced")
    morning.until_told(there, "overrun", "GpusTakenByOthers")
    assert "pods that laxity does not manage" in annotations(there.get("overrun"))[names.REASON]
    there.kubectl("scale", "deployment", "inference", "--replicas=0")
    there.until_job("overrun", lambda job: running(job) or complete(job), "runs again")


def the_api_server_restarts(morning: Morning, training: Run) -> None:
    seen = len(trained(training))
    morning.cluster.stop("kube-apiserver", hard=True)
    training.until(lambda run: len(trained(run)) > seen, "an epoch without an API server")
    morning.cluster.start_api_server()
    there = morning.place
    there.apply(morning.simulated(there, "after-the-api-server", FIXED, run_s=3.0))
    there.until_job("after-the-api-server", complete, "finishes")


def upgrades_the_service(morning: Morning, training: Run) -> None:
    """Stopped as by a rollout, and a newer process on the same store."""
    there, seen = morning.place, len(trained(training))
    morning.service.stop()
    there.apply(morning.simulated(there, "meanwhile", FIXED, run_s=3.0))
    training.until(lambda run: len(trained(run)) > seen, "an epoch without the service")
    morning.service.start()
    there.until_job("meanwhile", complete, "finishes")


def restores_the_store(morning: Morning) -> None:
    """As docs/kubernetes/backup.md says; what ended before the copy is known, and the new promise."""
    there, store = morning.place, Sqlite(morning.pod_cluster.folder / "service")
    there.until(lambda: outcome_of(morning, "meanwhile") == "kept", "it counts")
    store.back_up()
    there.apply(morning.simulated(there, "since", FIXED, run_s=20.0))
    since = verdict_of(there.until_job("since", running, "runs"))
    morning.service.kill()
    morning.service.start(store.lose_and_restore())
    assert verdict_of(there.get("since"))["deadline_at"] == since["deadline_at"]
    assert outcome_of(morning, "meanwhile") == "kept"


def outcome_of(morning: Morning, name: str) -> str:
    return outcomes(morning.service, morning.place.namespace).get(name, "")


def a_tenant_cheats(morning: Morning) -> None:
    there = morning.place
    waits = morning.simulated(there, "hopes", FIXED | {"deadline": "5s"}, run_s=3.0)
    code, words = morning.as_tenant("apply", "-f", "-", text=json.dumps(waits))
    assert code == 0, words
    there.until_job("hopes", lambda job: bool(verdict_of(job)), "is judged")
    before = there.get("hopes")
    eager = morning.simulated(there, "eager", {"submitted-at": "2000-01-01T00:00:00Z"}, run_s=3.0)
    start = ("-p", '{"spec": {"suspend": false}}')
    attempts: dict[str, tuple[tuple[str, ...], str | None]] = {
        "annotations pin": (("annotate", "job", "hopes", f"{names.PIN}=mine"), None),
        "submitted-at": (("create", "-f", "-"), json.dumps(eager)),
        "only laxity writes the labels": (
            ("label", "job", "hopes", "--overwrite", f"{names.VERDICT_LABEL}=promised"),
            None,
        ),
        "laxity owns spec.suspend": (("patch", "job", "hopes", *start), None),
    }
    for message, (command, text) in attempts.items():
        code, words = morning.as_tenant(*command, text=text)
        assert code != 0, f"{command}: {words}"
        assert message in words
    after = there.get("hopes")
    assert (after["spec"], annotations(after)) == (before["spec"], annotations(before))


def the_nightly_goes_on(morning: Morning) -> None:
    """Its runs were refused until now; the next one has a deadline that it can meet."""
    there = morning.place
    refused = [job for job in of_the_nightly(morning) if condition(job, "Failed")]
    assert {condition(job, "Failed")["reason"] for job in refused} == {names.REFUSED}
    there.apply(nightly(morning, "10m"))
    morning.pod_cluster.until(
        lambda: any(map(complete, of_the_nightly(morning))), "a run that is kept"
    )
    there.kubectl("patch", "cronjob", "nightly", "-p", '{"spec": {"suspend": true}}')


def of_the_nightly(morning: Morning) -> list[Json]:
    return [job for job in morning.place.jobs() if job["metadata"]["name"].startswith("nightly-")]


def all_end(morning: Morning, training: Run) -> None:
    training.pace(0.0)
    morning.place.until(
        lambda: all(
            end(job) or verdict_of(job).get("kind") == "refusal"
            for there in (morning.place, morning.team)
            for job in there.jobs()
        ),
        "all Jobs to end",
    )
    morning.place.until(lambda: outcome_of(morning, "train") == "kept", "the service to know")
    assert trained(training) == list(range(1, EPOCHS + 1)), "each epoch once"
    view = morning.pod_cluster.client.job(f"{morning.place.namespace}/train")
    assert view.epochs_done == EPOCHS
    assert view.result["weights"] == pytest.approx(weights_after(EPOCHS))
