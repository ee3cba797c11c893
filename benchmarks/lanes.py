"""The two lanes of `python -m benchmarks acting`: a bare patch loop, and the service's own path.

Bare: `{"spec": {"suspend": false}}` to each Job over one aiohttp session, so many in flight, answers
read and thrown away. Laxity: one cycle of a service on an empty home: snapshot, decision, check,
journal, patches with resourceVersions that carry verdict, reason, nodes and state; then its loop.
Both know their Jobs when the clock starts: the bare loop by name, laxity by having read them once.
Before that the API server collects its garbage, so that no lane pays for what was left before it: a
collection costs a tenth of a lane and more, and in whose lane it falls is otherwise decided by what
the bench itself does between the lanes.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory

import orjson

from benchmarks.bench_cluster import BenchCluster, BenchError
from laxity import json_tree, names
from laxity_k8s.cluster_api import Change, Json, Kind, Listing, Patch, PatchResult, ignore_cut
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.http.paths import object_path
from laxity_k8s.http.session import STRATEGIC_PATCH, ApiSession
from laxity_k8s.http.watch_thread import WatchThread
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.seal import Seal
from laxity_scheduler.service.loop import Service

UNSUSPEND = orjson.dumps({"spec": {"suspend": False}})


@dataclass(frozen=True, slots=True)
class Lap:
    """One round of one lane, from its first instant on; `cpu_s` is of this process.

    `alike` tells whether the API server's garbage had been collected right before.
    """

    admitted_s: float
    all_running_s: float
    cpu_s: float
    alike: bool


def bare_lap(bench_cluster: BenchCluster, jobs: int) -> Lap:
    with bench_cluster.make_namespace("bare") as namespace:
        waiting = bench_cluster.create_jobs(namespace, jobs)
        bench_cluster.check_untouched(namespace)
        alike = bench_cluster.collect_garbage()
        began, cpu = time.perf_counter(), time.process_time()
        bench_cluster.run_afresh(
            lambda api: _unsuspend_jobs(bench_cluster, api, namespace, waiting)
        )
        admitted, cpu_s = time.perf_counter(), time.process_time() - cpu
        bench_cluster.until_running(namespace, jobs)
        return Lap(admitted - began, time.perf_counter() - began, cpu_s, alike)


async def _unsuspend_jobs(
    bench_cluster: BenchCluster, api: ApiSession, namespace: str, waiting: Sequence[str]
) -> None:
    headers = {
        **await api.auth_headers(),
        "Content-Type": STRATEGIC_PATCH,
        "Accept": "application/json",
    }
    session, host = api.session, api.host

    async def patch(name: str) -> None:
        url = host + object_path("jobs", f"{namespace}/{name}")
        async with session.patch(url, data=UNSUSPEND, headers=headers) as reply:
            text = await reply.read()
            if reply.status != 200:
                raise BenchError(f"{url}: {reply.status} {text.decode(errors='replace')[:300]}")

    await bench_cluster.run_together(waiting, patch)


def laxity_lap(bench_cluster: BenchCluster, jobs: int) -> Lap:
    with (
        bench_cluster.make_namespace("laxity") as namespace,
        open_service(bench_cluster, namespace) as (service, api),
    ):
        service.run_cycle()  # a service that has been up for a while has looked before
        bench_cluster.create_jobs(namespace, jobs)
        bench_cluster.check_untouched(namespace)
        bench_cluster.wait_until(
            lambda: api.waiting_count(service) == jobs, 60.0, "the watch to show all Jobs"
        )
        service.world.observe()
        alike = bench_cluster.collect_garbage()
        began, cpu = time.perf_counter(), time.process_time()
        while api.admitted < jobs:
            before = api.admitted
            service.run_cycle()
            if api.admitted == before:
                raise BenchError(
                    f"admitted {before} of {jobs} Jobs and then no more: {_first_reason(service)}"
                )
        admitted_s, cpu_s = api.acked_at - began, api.cpu_at - cpu
        with run_service(service):
            bench_cluster.until_running(namespace, jobs)
        return Lap(admitted_s, time.perf_counter() - began, cpu_s, alike)


@contextmanager
def run_service(service: Service) -> Iterator[None]:
    """The service's own loop goes on meanwhile."""
    loop = threading.Thread(target=service.run, name="laxity-bench")
    loop.start()
    try:
        yield
    finally:
        service.stop()
        loop.join()


@contextmanager
def open_service(
    bench_cluster: BenchCluster, namespace: str
) -> Iterator[tuple[Service, "Narrowed"]]:
    """A service with a home of its own that sees the Jobs of one namespace, and all nodes."""
    from laxity_profiler.history.history import History
    from laxity_profiler.history.history_database import open_engine
    from laxity_profiler.learning.learner import Learner
    from laxity_scheduler.process.open_policies import find_policy
    from laxity_scheduler.service.feedback import Feedback
    from laxity_scheduler.service.settings import NO_TRACKING, Settings
    from laxity_scheduler.store.store import Store

    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="laxity-bench-")))
        settings = Settings(home=home, world="kubernetes", tracking_uri=NO_TRACKING)
        store = Store.open(settings.store_url)
        stack.callback(store.close)
        engine = open_engine(settings.store_url)
        stack.callback(engine.dispose)
        history = History(engine)
        learner = Learner(history, priors="cluster")
        api = Narrowed(bench_cluster, namespace)
        world = LiveCluster(api, history.report, fit_within_s=600.0, seal=Seal(token_bytes()))
        stack.callback(world.close)
        yield (
            Service(
                settings=settings,
                world=world,
                store=store,
                learning=learner,
                report_of=history.report,
                policy=find_policy(settings.policy),
                feedback=Feedback(history, learner),
            ),
            api,
        )


class Narrowed(KubernetesApi):
    """A cluster of which the Jobs of one namespace only are shown; counts what is admitted.

    Whoever owns the cluster may have labelled Jobs on it: a bench must not decide on them.
    """

    def __init__(self, bench_cluster: BenchCluster, namespace: str) -> None:
        super().__init__(
            bench_cluster.kubeconfig,
            context=bench_cluster.context,
            in_flight=bench_cluster.in_flight,
        )
        self._namespace = namespace
        self.admitted = 0
        self.acked_at = self.cpu_at = 0.0

    def waiting_count(self, service: Service) -> int:
        """Waiting Jobs that the service's world knows of."""
        from laxity_k8s.objects.conditions import read_condition

        return sum(read_condition(dict(job), "Suspended") == "True" for job in service.world.jobs())

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        listing = super().list(kind, selector=selector)
        return Listing(
            tuple(filter(self._is_visible(kind), listing.items)), listing.resource_version
        )

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None] = ignore_cut,
    ) -> WatchThread:
        sees = self._is_visible(kind)

        def pass_on(change: Change) -> None:
            if sees(change.object):
                on_change(change)

        return super().watch(kind, since=since, on_change=pass_on, on_cut=on_cut)

    def patch_many(self, patches: Iterable[Patch]) -> Sequence[PatchResult]:
        outcomes = super().patch_many(patches)
        self.acked_at, self.cpu_at = time.perf_counter(), time.process_time()
        self.admitted += sum(
            outcome.ok and json_tree.get_in(outcome.patch.body, "spec", "suspend") is False
            for outcome in outcomes
        )
        return outcomes

    def _is_visible(self, kind: Kind) -> Callable[[Json], bool]:
        if kind != "jobs":
            return lambda _: True
        return lambda job: json_tree.get_in(job, "metadata", "namespace") in (self._namespace, None)


def _first_reason(service: Service) -> str:
    """What the first job that waits was told."""
    reasons = (json_tree.annotations_of(job).get(names.REASON, "") for job in service.world.jobs())
    return next((text for text in reasons if text), "no reason was given")
