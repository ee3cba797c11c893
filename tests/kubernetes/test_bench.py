"""`python -m benchmarks acting` on the test cluster: its figures, and that it leaves everything as it was."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.acting import build_metrics, ratio_interval
from benchmarks.lanes import Lap
from tests.support.kubernetes.cluster import DIES_WITH_US, Cluster
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.service import Json, training_job

BENCH_NAMESPACES = "/api/v1/namespaces?labelSelector=laxity.dev/bench"
JOBS = 4
ROOT = Path(__file__).parents[2]


def test_rates_are_those_of_the_median_round_and_set_beside_the_bare_loop() -> None:
    bare = [Lap(2.0, 10.0, 0.2, True), Lap(1.0, 8.0, 0.1, True), Lap(8.0, 30.0, 0.9, False)]
    ours = [Lap(4.0, 11.0, 0.4, True), Lap(2.5, 9.0, 0.2, True), Lap(2.0, 9.0, 0.2, True)]
    found = build_metrics(bare, ours, jobs=100)
    assert found["admissions_per_s"] == {
        "value": 40.0, "unit": "Jobs/s", "baseline": 50.0, "ratio": 0.8,
    }  # fmt: skip
    assert found["admissions_ratio_to_bare"]["value"] == 0.8
    assert found["all_running_s"] == {"value": 9.0, "unit": "s", "baseline": 10.0, "ratio": 0.9}
    assert found["laps_begun_alike"]["value"] == 5
    assert all(set(one) == {"value", "unit", "baseline", "ratio"} for one in found.values())


def test_the_ratio_has_an_interval_that_closes_with_more_rounds_and_less_noise() -> None:
    noisy = [4.0, 6.0, 5.0, 4.5]
    assert ratio_interval([4.0] * 4, [5.0] * 4) == pytest.approx((0.8, 0.8))
    few = ratio_interval(noisy, [5.0] * 4)
    many = ratio_interval(noisy * 8, [5.0] * 32)
    assert few[0] < many[0] <= 0.95 <= many[1] < few[1]
    found = build_metrics(
        [Lap(s, 9.0, 0.1, True) for s in noisy], [Lap(5.0, 9.0, 0.1, True)] * 4, jobs=9
    )
    assert (found["admissions_ratio_low"]["value"], found["admissions_ratio_high"]["value"]) == few


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
class TestOnACluster:
    def test_it_measures_both_lanes_touches_nobody_else_and_leaves_the_cluster_clean(
        self, cluster: Cluster, namespace: str
    ) -> None:
        apply(cluster, training_job(namespace, "theirs", {"epochs": "1"}, suspend=False))
        until(cluster, lambda: bool(job(cluster, namespace)["status"].get("ready")), "runs")
        before = job(cluster, namespace)
        said = bench(cluster, "--rounds", "1").communicate(timeout=300)[0]
        found = json.loads(said)
        assert {"admissions_per_s", "admissions_ratio_to_bare", "all_running_s"} <= found.keys()
        assert found["jobs"]["value"] == JOBS
        assert found["laps_begun_alike"]["value"] == 2
        assert found["admissions_per_s"]["value"] > 0
        rate = found["admissions_per_s"]
        assert rate["ratio"] == pytest.approx(rate["value"] / rate["baseline"])
        assert job(cluster, namespace) == before
        assert left(cluster) == []

    @pytest.mark.parametrize(
        "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
    )
    def test_interrupted_it_leaves_the_cluster_clean(self, cluster: Cluster, number: int) -> None:
        running = bench(cluster, "--rounds", "50")
        until(cluster, lambda: bool(waiting(cluster)), "Jobs of the bench")
        running.send_signal(number)
        running.communicate(timeout=300)
        assert running.returncode in {130, 143}
        assert left(cluster) == []

    @pytest.mark.soak
    def test_what_a_killed_bench_left_is_removed_by_the_next(self, cluster: Cluster) -> None:
        running = bench(cluster, "--rounds", "50")
        until(cluster, lambda: bool(waiting(cluster)), "Jobs of the bench")
        running.kill()
        running.communicate()
        assert left(cluster)
        again = bench(cluster, "--rounds", "1")
        said = again.communicate(timeout=300)[1]
        assert again.returncode == 0, said
        assert b"left by a bench that was killed" in said
        assert left(cluster) == []

    def test_a_cluster_without_room_is_told_how_much_is_missing(self, cluster: Cluster) -> None:
        refused = bench(cluster, "--jobs", "5000")
        assert b"need 5000 free GPUs" in refused.communicate(timeout=120)[1]
        assert refused.returncode == 1


def bench(cluster: Cluster, *more: str) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "benchmarks",
        "acting",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--json",
    ]
    jobs = [] if "--jobs" in more else ["--jobs", str(JOBS)]
    env = {key: text for key, text in os.environ.items() if not key.startswith("KUBECONFIG")}
    return subprocess.Popen(
        [*DIES_WITH_US, *words, *jobs, *more],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def left(cluster: Cluster) -> list[str]:
    found = cluster.ask("GET", BENCH_NAMESPACES)["items"]
    return [one["metadata"]["name"] for one in found]


def waiting(cluster: Cluster) -> list[Json]:
    jobs: list[Json] = [
        one
        for name in left(cluster)
        for one in (cluster.ask("GET", f"/apis/batch/v1/namespaces/{name}/jobs") or {"items": []})[
            "items"
        ]
    ]
    return jobs


def job(cluster: Cluster, namespace: str) -> Json:
    said: Json = json.loads(kubectl(cluster, "-n", namespace, "get", "job", "theirs", "-o", "json"))
    return said


def until(cluster: Cluster, done: Callable[[], bool], what: str) -> None:
    cluster.until(done, 120.0, what)
