"""What `python -m benchmarks acting` runs on: a cluster, namespaces of its own, waiting Jobs.

What is made is deleted, however the bench ends: each namespace when its round is over, and all that
are left when it is closed, by Ctrl-C or SIGTERM too. What a bench that was killed with -9
left behind carries the label below, and the next bench removes it.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

from laxity import json_tree, names
from laxity.job.accelerators import GPU
from laxity_k8s.cluster_api import NOT_FOUND, ApiError, Json
from laxity_k8s.http.api_cluster import open_session
from laxity_k8s.http.paths import collection_path
from laxity_k8s.http.session import ApiSession
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.held_gpus import pods_busy
from laxity_k8s.objects.node_rows.nodes import node_rows

LABEL: Final = f"{names.DOMAIN}/bench"
NAMESPACES: Final = "/api/v1/namespaces"
GONE_WITHIN_S: Final = 600.0
LOOK_S: Final = 0.25
REST: Final = 3.0  # between two looks, in times of what a look takes
Answer = TypeVar("Answer")
Listen = Callable[[str], None]


class BenchError(RuntimeError):
    """The bench cannot be run on this cluster: why, and what would help."""


class BenchCluster:
    """One cluster, spoken to from one event loop; `with` it, so that it is left as it was."""

    def __init__(self, kubeconfig: Path | None, context: str | None, in_flight: int) -> None:
        self.kubeconfig, self.context, self.in_flight = kubeconfig, context, in_flight
        self.patience_s = GONE_WITHIN_S  # for a namespace to go
        self._made: list[str] = []
        self._connect()

    @classmethod
    @contextmanager
    def open_cluster(
        cls, kubeconfig: Path | None, *, context: str | None = None, in_flight: int = 32
    ) -> Iterator[Self]:
        def end(number: int, _frame: FrameType | None) -> None:
            raise SystemExit(128 + number)

        before = signal.signal(signal.SIGTERM, end)
        try:
            with cls(kubeconfig, context, in_flight) as bench_cluster:
                yield bench_cluster
        finally:
            signal.signal(signal.SIGTERM, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete what is left. The loop may have been interrupted anywhere: take a new one."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._disconnect()
        self._connect()
        try:
            for name in list(self._made):
                self.remove_namespace(name)
        finally:
            self._disconnect()

    def call_api(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        return self._run_in_loop(
            self._session.call_json(method, path, body=body, query=query, timeout_s=120.0)
        )

    @contextmanager
    def make_namespace(self, purpose: str) -> Iterator[str]:
        """A fresh one, deleted with all that is in it."""
        name = f"laxity-bench-{purpose}-{secrets.token_hex(3)}"
        meta = {"name": name, "labels": {LABEL: "true"}}
        self._made.append(name)
        self.call_api(
            "POST", NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        )
        try:
            yield name
        finally:
            self.remove_namespace(name)

    def remove_namespace(self, namespace: str) -> None:
        """Returns when it is gone, and with it every pod."""
        with suppress(ApiError):  # deleting them all at once spares the API server 1,000 calls
            self.call_api(
                "DELETE", collection_path("jobs", namespace), {"propagationPolicy": "Background"}
            )
        try:
            self.call_api("DELETE", f"{NAMESPACES}/{namespace}", {})
            self.wait_until(
                lambda: self._is_gone(namespace), self.patience_s, f"{namespace} to be gone"
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        self._made.remove(namespace)

    def remove_leftovers(self, say: Listen) -> None:
        """Remove what an earlier bench, killed with -9, left behind."""
        left = self.call_api("GET", NAMESPACES, labelSelector=LABEL).get("items") or []
        for namespace in (namespace_object["metadata"]["name"] for namespace_object in left):
            say(f"removing {namespace}, left by a bench that was killed")
            self._made.append(namespace)
            self.remove_namespace(namespace)

    def free_gpus(self) -> int:
        """Of nodes that take new pods, less what bound pods hold."""
        running = self.call_api("GET", collection_path("pods")).get("items") or []
        busy = pods_busy(running)
        nodes = self.call_api("GET", collection_path("nodes")).get("items") or []
        return sum(max(0, row.free_gpus) for node in nodes for row in node_rows(node, busy))

    def create_jobs(self, namespace: str, jobs: int, *, within_s: float = 120.0) -> list[str]:
        """So many waiting Jobs; their names, once the job controller has seen them all."""
        made = [f"train-{number:05d}" for number in range(jobs)]
        where = collection_path("jobs", namespace)

        async def create(name: str) -> None:
            await self._session.call_json("POST", where, body=waiting_job(namespace, name))

        self._run_in_loop(self.run_together(made, create))
        self.wait_until(
            lambda: self._count_jobs(namespace, _is_waiting) == jobs,
            within_s,
            f"{jobs} Jobs to be Suspended (does kube-controller-manager run?)",
        )
        return made

    def until_running(self, namespace: str, jobs: int, *, within_s: float = 600.0) -> None:
        self.wait_until(
            lambda: self._count_jobs(namespace, _is_running) == jobs,
            within_s,
            f"{jobs} Jobs' pods to run",
        )

    def check_untouched(self, namespace: str) -> None:
        """BenchError if somebody decides on labelled Jobs here already."""
        jobs = self.list_jobs(namespace)
        if any(names.VERDICT in json_tree.annotations_of(job) for job in jobs):
            raise BenchError(
                "a laxity service acts on this cluster: for the bench, stop it "
                "(kubectl -n laxity scale deployment laxity --replicas 0)"
            )

    def list_jobs(self, namespace: str) -> list[Json]:
        """From the API server's cache, which costs etcd nothing."""
        items: list[Json] = self.call_api(
            "GET", collection_path("jobs", namespace), resourceVersion="0"
        )["items"]
        return items

    def wait_until(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        """Look now and then, seldom enough that looking takes no more than a quarter of the time."""
        give_up_at = time.monotonic() + limit_s
        while True:
            looked_at = time.monotonic()
            if done():
                return
            now = time.monotonic()
            if now > give_up_at:
                raise BenchError(f"waited {limit_s:.0f} s for {what}")
            self._run_in_loop(asyncio.sleep(max(LOOK_S, REST * (now - looked_at))))

    def collect_garbage(self) -> bool:
        """Of the API server; False where it does not let us (`--profiling=false`, no right)."""
        try:
            self._run_in_loop(
                self._session.call_bytes("GET", "/debug/pprof/heap", query={"gc": "1"})
            )
        except ApiError:
            return False
        return True

    def run_afresh(self, work: Callable[[ApiSession], Awaitable[Answer]]) -> Answer:
        """Run on a session without open connections, as a service at rest has."""

        async def run_work() -> Answer:
            async with await open_session(self.kubeconfig, self.context) as session:
                return await work(session)

        return self._run_in_loop(run_work())

    async def run_together(
        self, things: Sequence[str], work: Callable[[str], Awaitable[object]]
    ) -> None:
        """Work on all, `in_flight` at a time."""
        waiting = iter(things)

        async def worker() -> None:
            for thing in waiting:
                await work(thing)

        await asyncio.gather(*[worker() for _ in range(self.in_flight)])

    def _count_jobs(self, namespace: str, what: Callable[[Json], bool]) -> int:
        return sum(map(what, self.list_jobs(namespace)))

    def _is_gone(self, namespace: str) -> bool:
        try:
            self.call_api("GET", f"{NAMESPACES}/{namespace}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return True
            raise
        return False

    def _connect(self) -> None:
        self._runner = asyncio.Runner()
        self._session = self._run_in_loop(open_session(self.kubeconfig, self.context))

    def _disconnect(self) -> None:
        with suppress(Exception):  # interrupted anywhere: what can be closed is closed
            self._run_in_loop(self._session.__aexit__())
        self._runner.close()

    def _run_in_loop(self, work: Awaitable[Answer]) -> Answer:
        async def await_work() -> Answer:
            return await work

        return self._runner.run(await_work())


def waiting_job(namespace: str, name: str) -> Json:
    """A suspended one-GPU Job with a deadline, as somebody writes it by hand."""
    annotations = {
        names.DEADLINE: "12h",
        names.MODEL: "bench",
        names.EPOCHS: "10",
        names.EPOCH_ESTIMATE: "1m",
        names.WIDTHS: "1",
    }
    worker: dict[str, Any] = {
        "name": "train",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"limits": {GPU: "1"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED: "true"},
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 1000,
            "podReplacementPolicy": "Failed",
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [worker],
                }
            },
        },
    }


def _is_waiting(job: Json) -> bool:
    return read_condition(job, "Suspended") == "True"


def _is_running(job: Json) -> bool:
    return bool(json_tree.get_in(job, "status", "ready"))
