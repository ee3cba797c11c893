"""A patch lands and its answer is lost, while the watches are cut: its GPUs are not given again."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_k8s.cluster_api import (
    ApiError,
    Change,
    Json,
    Kind,
    Listing,
    Patch,
    PatchResult,
    ignore_cut,
)
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import LocalCluster, RowWatch, stop_workers
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan

pytestmark = pytest.mark.slow
JOBS = ("first", "second")
WHY = reason("order", policy="test")


class BrokenWire(LocalCluster):
    """Watches tell nothing; what is patched is done, and the answer is `lost` if that is a status."""

    lost: int | None = None
    away = False

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        self._reach()
        return super().list(kind, selector=selector)

    def get(self, kind: Kind, object_id: str) -> Json:
        self._reach()
        return super().get(kind, object_id)

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None] = ignore_cut,
    ) -> RowWatch:
        del since, on_change, on_cut
        return super().watch(kind, since=str(10**9), on_change=lambda _: None)

    def patch_many(self, patches: Iterable[Patch]) -> Iterable[PatchResult]:
        done = list(super().patch_many(patches))
        lost = self.lost
        return [
            PatchResult(one.patch, lost) if one.ok and lost is not None else one for one in done
        ]

    def suspended(self, name: str) -> bool:
        return bool(read_condition(self.rows.get("jobs", f"default/{name}"), "Suspended"))

    def _reach(self) -> None:
        if self.away:
            raise ApiError("the API server does not answer")


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[BrokenWire]:
    made = BrokenWire(tmp_path, {"local": 1})
    yield made
    stop_workers(tmp_path)


@pytest.fixture
def world(wire: BrokenWire) -> Iterator[LiveCluster]:
    """Two Jobs that wait, as the controller has left them."""
    for name in JOBS:
        job = TrainingSpec(name=name, qos=QoS.of(deadline="1h"), entry="a:b").to_manifest()
        container = job["spec"]["template"]["spec"]["containers"][0]
        container |= {"command": ["sleep", "600"], "args": []}
        wire.create("jobs", job)
    with wire.rows.changed:
        assert wire.rows.changed.wait_for(lambda: all(map(wire.suspended, JOBS)), timeout=60.0)
    made = LiveCluster(wire, lambda _: Report())
    yield made
    made.close()


def start(world: LiveCluster, job: str) -> None:
    world.carry_out(Plan((Admit(job, 1, ("local",), WHY),)))


def busy(state: ClusterState) -> tuple[int, int]:
    """Workers of the first job by its row, and free GPUs."""
    return state.by_id["default/first"].workers, state.nodes[0].free_gpus


@pytest.mark.parametrize("status", [409, 0, 503], ids=["sent again", "no answer", "overloaded"])
def test_what_landed_is_seen_though_nobody_said_so(
    wire: BrokenWire, world: LiveCluster, status: int
) -> None:
    assert busy(world.observe()) == (0, 1)
    wire.lost = status
    start(world, "default/first")
    assert busy(world.observe()) == (1, 0)


@pytest.mark.parametrize("status", [409, 0])
def test_nothing_is_done_until_it_can_be_seen(
    wire: BrokenWire, world: LiveCluster, status: int
) -> None:
    world.observe()
    wire.lost, wire.away = status, True
    start(world, "default/first")
    assert busy(world.observe()) == (0, 1), "it cannot know"
    wire.lost = None
    with pytest.raises(ApiError, match="nothing is done unseen"):
        start(world, "default/second")
    wire.away = False
    assert wire.get("jobs", "default/second")["spec"]["suspend"] is True
    assert busy(world.observe()) == (1, 0)


def test_a_patch_that_was_refused_for_good_holds_up_nobody(
    wire: BrokenWire, world: LiveCluster
) -> None:
    world.observe()
    wire.delete("jobs", "default/first")
    start(world, "default/first")
    assert world.patch_outcomes["404"] == 1
    wire.away = True
    world.observe()
    start(world, "default/second")
    assert world.patch_outcomes["done"] == 1
