"""Twenty chains of four Jobs beside Jobs of others on simulated nodes: who creates ahead stands less still.

A link's pod runs for its limit, less the time in which it leaves.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import numpy as np
import pytest

from tests.support.chain_figures import mean_difference
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import WHY_NOT
from tests.support.processes import run_command

BINARIES: Final = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not (BINARIES / "kube-apiserver").exists(), reason=WHY_NOT),
    pytest.mark.timeout(7200),
]
COMMAND: Final = Path(__file__).parents[1] / "support" / "programs" / "chaining_jobs.py"
METHODS: Final = ("reactive", "average_now")
CHAINS: Final = 10  # of each method, at once
LINKS: Final = 4
NODES, GPUS = 10, 4
LIMIT_S, RUN_S = 100, 95
WAITING: Final = 90  # jobs of others
SHORTEST_S, LONGEST_S = 15, 66
WARM_UP_S: Final = 120.0
MOST_S: Final = 3600.0
LOOK_S: Final = 1.0
JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"


@dataclass(frozen=True)
class Standstill:
    """Seconds of one chain in which no link ran, and in which two did."""

    interruption_s: float
    overlap_s: float


def standstill_of(folder: Path) -> Standstill:
    links = json.loads((folder / "chain.json").read_text())["links"]
    assert [link["seq"] for link in links] == list(range(1, LINKS + 1))
    assert not any(link["lost_ids"] for link in links), "one Job of each link"
    gaps_s = [
        after["started_at"] - before["ended_at"] for before, after in itertools.pairwise(links)
    ]
    return Standstill(sum(max(0.0, gap) for gap in gaps_s), sum(max(0.0, -gap) for gap in gaps_s))


def one_gpu_job(name: str, run_s: int, *, exit_code: int = 0, **spec: Any) -> dict[str, Any]:
    """Its pod, on a simulated node, ends after so many seconds."""
    worker = {
        "name": "main",
        "image": "none",
        "command": ["train"],
        "env": [{"name": "LAXITY_CHAIN_FOLDER", "value": "/shared/chains"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    notes = {"test.laxity/run-for": f"{run_s}s"}
    notes |= {"test.laxity/fail-with": str(exit_code)} if exit_code else {}
    pod = {"restartPolicy": "Never", "containers": [worker]}
    template = {"metadata": {"annotations": notes}, "spec": pod}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"suspend": True, "template": template, **spec},
    }


class FirstComeQueue:
    """Others' Jobs, and who admits all Jobs in the order of their creation, as Kueue's FIFO does.

    A Job is created suspended, and is resumed once its GPU is free. So many Jobs of others always
    wait. kube-scheduler alone is no such queue: what is new passes what it has just tried in vain.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._rng = cluster, np.random.default_rng(5)
        self._numbers = itertools.count()

    def turn(self) -> None:
        jobs = (self._cluster.ask("GET", JOBS) or {}).get("items") or []
        waiting = [job for job in jobs if job["spec"].get("suspend")]
        running = [job for job in jobs if not job["spec"].get("suspend") and not has_ended(job)]
        waiting.sort(key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["uid"]))
        for job in waiting[: NODES * GPUS - len(running)]:
            job["spec"]["suspend"] = False
            self._cluster.ask("PUT", f"{JOBS}/{job['metadata']['name']}", job)
        others = [job for job in waiting if job["metadata"]["name"].startswith("other")]
        for run_s in self._rng.integers(SHORTEST_S, LONGEST_S, max(0, WAITING - len(others))):
            name = f"other-{next(self._numbers)}"
            job = one_gpu_job(name, int(run_s), ttlSecondsAfterFinished=30)
            self._cluster.ask("POST", JOBS, job)

    @contextmanager
    def run(self) -> Iterator[None]:
        over = Event()

        def turn_often() -> None:
            while not over.wait(LOOK_S):
                self.turn()

        thread = Thread(target=turn_often)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def has_ended(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(row["type"] in {"Complete", "Failed"} for row in conditions)


def run_chain(cluster: Cluster, place: Path, method: str) -> Standstill:
    place.mkdir(parents=True)
    manifest = one_gpu_job(place.name, RUN_S, exit_code=7)
    (place / "train.yaml").write_text(json.dumps(manifest))
    options = ["--interval", "5s", "--wall-limit", f"{LIMIT_S}s", "--links", str(LINKS)]
    ended = run_command(sys.executable, str(COMMAND), "train.yaml", "--method", method, *options, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, cwd=place, timeout=MOST_S)  # fmt: skip
    assert ended.returncode == 7, ended.stdout + ended.stderr  # as many links as --links says
    return standstill_of(place / "train.chain")


def test_chains_that_create_ahead_stand_less_still_than_reactive_ones(tmp_path: Path) -> None:
    """All chains share one queue, both methods at once."""
    cluster = Cluster(BINARIES, tmp_path / "cluster")
    try:
        cluster.up()
        cluster.add_nodes(NODES, gpus=GPUS)
        with FirstComeQueue(cluster).run(), ThreadPoolExecutor(CHAINS * len(METHODS)) as pool:
            Event().wait(WARM_UP_S)  # until the queue is as long as it stays
            places = [
                (method, tmp_path / f"{method.replace('_', '-')}-{number}")
                for number in range(CHAINS)
                for method in METHODS
            ]
            futures = [
                (method, pool.submit(run_chain, cluster, place, method)) for method, place in places
            ]
            ended = [(method, future.result()) for method, future in futures]
    finally:
        cluster.down()

    still = {method: [row for name, row in ended if name == method] for method in METHODS}
    figures: dict[str, Any] = {
        method: {
            "chains": len(rows),
            "interruption_s": float(np.mean([row.interruption_s for row in rows])),
            "overlap_s": float(np.mean([row.overlap_s for row in rows])),
        }
        for method, rows in still.items()
    }
    figures["difference_s"] = mean_difference(
        *([row.interruption_s for row in still[method]] for method in METHODS)
    )
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    assert figures["difference_s"][2] < 0.0, figures
