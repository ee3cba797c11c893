"""A real API server, job controller and scheduler sit the exam of all Cluster APIs."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue

import pytest
from aiohttp import ClientResponse

from laxity import json_tree
from laxity_k8s.cluster_api import Change, Json, Patch
from laxity_k8s.http import watch as watching
from laxity_k8s.http.cluster import KubernetesApi
from laxity_k8s.http.session import Wire
from tests.contract.api_answer_exam import ANSWERS
from tests.contract.cluster_bench import NAMESPACE, Question, job, named
from tests.contract.job_life_exam import LIVES
from tests.support.kubernetes.cluster import Cluster
from tests.support.manifests import train_template

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class RealBench:
    """Simulated nodes; an annotation tells a pod how long to run and how long to linger."""

    api: KubernetesApi

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        told = {"test.laxity/stop-for": f"{stop_s}s"} if stop_s else {}
        if run_s is not None:
            told["test.laxity/run-for"] = f"{run_s}s"
        made = {"metadata": {"annotations": told}, **train_template(image="none")}
        made["spec"]["terminationGracePeriodSeconds"] = 30
        return made


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[RealBench]:
    api = KubernetesApi(cluster.kubeconfig)
    yield RealBench(api)
    api.close()


@pytest.fixture(autouse=True)
def swept(cluster: Cluster) -> Iterator[None]:
    """Every question starts and ends without Jobs."""
    yield
    where = f"namespaces/{NAMESPACE}"
    cluster.ask("DELETE", f"/apis/batch/v1/{where}/jobs?propagationPolicy=Background")
    cluster.ask("DELETE", f"/api/v1/{where}/pods?gracePeriodSeconds=0")


@pytest.mark.parametrize("question", [*LIVES, *ANSWERS], ids=named)
def test_a_real_cluster_behaves_as_we_say_kubernetes_does(
    question: Question, bench: RealBench
) -> None:
    question(bench)


NOTE = "exam/note"


def noted(job_id: str, text: str) -> Patch:
    return Patch("jobs", job_id, {"metadata": {"annotations": {NOTE: text}}})


def test_patches_go_out_while_later_ones_are_being_made(bench: RealBench, cluster: Cluster) -> None:
    made = [job(bench, f"exam-made-{number}")[0] for number in range(2)]
    seen: list[str] = []

    def patches() -> Iterator[Patch]:
        yield noted(made[0], "first")
        name = made[0].partition("/")[2]
        first = cluster.ask("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}")
        seen.append(json_tree.annotations_of(first)[NOTE])
        yield noted(made[1], "second")

    api = KubernetesApi(cluster.kubeconfig, in_flight=1)
    try:
        assert [outcome.status for outcome in api.patch_many(patches())] == [200, 200]
    finally:
        api.close()
    assert seen == ["first"]


def test_a_patch_that_cannot_be_made_raises_when_those_before_it_are_through(
    bench: RealBench,
) -> None:
    job_id, _ = job(bench, "exam-unmade")

    def patches() -> Iterator[Patch]:
        yield noted(job_id, "sent")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench.api.patch_many(patches())
    assert json_tree.annotations_of(bench.api.get("jobs", job_id))[NOTE] == "sent"


def test_connections_for_patches_go_on_from_the_tls_session_of_a_watch(cluster: Cluster) -> None:
    async def opened(wire: Wire) -> list[bool]:
        wire._lines._free.clear()
        wire.expect(3, in_flight=32)
        lines = [await coming for coming in wire._lines._coming]
        wire._lines._coming.clear()
        return [line._transport.get_extra_info("ssl_object").session_reused for line in lines]

    async def watched(wire: Wire) -> None:
        reply = await wire.open_stream("/api/v1/nodes", {"watch": "1"}, silence_s=10.0)
        reply.close()

    api = KubernetesApi(cluster.kubeconfig)
    try:
        before = api.run_call(opened)
        api.run_call(watched)
        assert (before, api.run_call(opened)) == ([False] * 3, [True] * 3)
    finally:
        api.close()


def test_a_watch_whose_peer_is_gone_without_a_word_ends_within_a_minute(cluster: Cluster) -> None:
    async def silence_s(wire: Wire) -> int:
        reply = await wire.open_stream("/api/v1/nodes", {"watch": "1"}, silence_s=10.0)
        assert reply.connection is not None
        assert reply.connection.transport is not None
        one = reply.connection.transport.get_extra_info("socket")
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, pause, count = (
            one.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        reply.close()
        return int(idle + pause * count)

    api = KubernetesApi(cluster.kubeconfig)
    try:
        assert api.run_call(silence_s) <= 60
    finally:
        api.close()


def test_what_many_patches_changed_is_told_afterwards_by_the_watch_that_was_closed_meanwhile(
    bench: RealBench, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MANY_PATCHES", 10)
    made = [job(bench, f"exam-many-{number}")[0] for number in range(30)]
    told: SimpleQueue[tuple[str, str]] = SimpleQueue()
    cuts: list[bool] = []

    def note(change: Change) -> None:
        told.put(
            (
                json_tree.object_id(change.object),
                json_tree.annotations_of(change.object).get(NOTE, ""),
            )
        )

    api = KubernetesApi(cluster.kubeconfig, in_flight=2)
    try:
        opened = counted_streams(monkeypatch)
        since = api.list("jobs").resource_version
        watch = api.watch("jobs", since=since, on_change=note, on_cut=cuts.append)
        api.patch(noted(made[0], "seen"))
        while told.get(timeout=30.0) != (made[0], "seen"):
            pass
        api.expect(90)
        done = api.patch_many(noted(job_id, text) for text in "abc" for job_id in made)
        api.settle()
        assert [outcome.status for outcome in done] == [200] * 90
        left = {(job_id, "c") for job_id in made}
        while left:
            left.discard(told.get(timeout=30.0))
        watch.stop()
    finally:
        api.close()
    assert len(opened) == 2, "closed once, opened again where it was"
    assert cuts == []


def counted_streams(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the watches that are opened from now on."""
    opened: list[str] = []
    stream = Wire.open_stream

    async def counted(
        wire: Wire, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> ClientResponse:
        opened.append(path)
        return await stream(wire, path, query, silence_s=silence_s)

    monkeypatch.setattr(Wire, "open_stream", counted)
    return opened


def test_patches_of_one_object_are_sent_one_after_the_other(bench: RealBench) -> None:
    job_id, _ = job(bench, "exam-in-turn")
    outcomes = list(bench.api.patch_many(noted(job_id, str(number)) for number in range(20)))
    assert [json_tree.annotations_of(one.object or {})[NOTE] for one in outcomes] == [
        str(number) for number in range(20)
    ]
    versions = [int((one.object or {})["metadata"]["resourceVersion"]) for one in outcomes]
    assert versions == sorted(set(versions)), "each was written after the one before it"
