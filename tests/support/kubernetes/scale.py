"""A cluster of simulated nodes full of Jobs, the service's parts on it, and what they took."""

import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.bench_cluster import BenchCluster
from benchmarks.lanes import Narrowed, open_service
from laxity import json_tree
from laxity_k8s.cluster_api import Patch
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.service.loop import Service

CHANGED = "example.org/changed"


@dataclass
class Timed:
    """A policy whose decisions are timed."""

    policy: Policy
    took_s: list[float] = field(default_factory=list)

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        began = time.perf_counter()
        plan = self.policy(state, predictor)
        self.took_s.append(time.perf_counter() - began)
        return plan


@contextmanager
def first_look(
    bench_cluster: BenchCluster, namespace: str
) -> Iterator[tuple[Service, Narrowed, float]]:
    """A service that has looked once, and the seconds from connecting to that snapshot."""
    began = time.perf_counter()
    with open_service(bench_cluster, namespace) as (service, api):
        service.world.observe()
        yield service, api, time.perf_counter() - began


def changes(service: Service, api: KubernetesApi, jobs: list[str], *, per_s: int) -> list[float]:
    """Change every Job once, so many a second; the seconds until the service's world showed each.

    Counted from the answer to the change; 0 where the watch was quicker than the answer.
    """
    answered: dict[str, float] = {}

    def change() -> None:
        began = time.perf_counter()
        for first in range(0, len(jobs), 16):
            time.sleep(max(0.0, began + first / per_s - time.perf_counter()))
            patches = [_changed(name) for name in jobs[first : first + 16]]
            for outcome in api.patch_many(patches):
                assert outcome.ok, outcome.message
                answered[outcome.patch.id] = time.perf_counter()

    changing = threading.Thread(target=change)
    changing.start()
    shown: dict[str, float] = {}
    last_at = time.perf_counter()
    while len(shown) < len(jobs) and time.perf_counter() < last_at + 120.0:
        waiting = [name for name in jobs if name not in shown]
        for name in waiting:
            if CHANGED in json_tree.annotations_of(service.world.job(name)):
                shown[name] = last_at = time.perf_counter()
        time.sleep(0.01)
    changing.join()
    return [max(0.0, shown[name] - answered[name]) for name in jobs if name in shown]


def _changed(name: str) -> Patch:
    return Patch("jobs", name, {"metadata": {"annotations": {CHANGED: "yes"}}})


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def told(figures: Mapping[str, float]) -> str:
    return "\n".join(f"  {name:<32} {value:12,.3f}" for name, value in figures.items())
