"""A watch is cut: nothing is decided until all are back and everything was seen at one moment."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest

from laxity import names
from laxity_k8s.cluster_api import (
    ApiError,
    Change,
    ClusterApi,
    Json,
    Kind,
    Listing,
    Patch,
    PatchResult,
)
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.live import Report
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod

KINDS: tuple[Kind, ...] = ("jobs", "pods", "nodes")


class Scripted:
    """What there is by kind, and the callbacks of who watches it; nothing is told by itself."""

    is_local = False

    def __init__(self) -> None:
        self.revision = 10
        self.there: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.tell: dict[str, Callable[[Change], None]] = {}
        self.cut: dict[str, Callable[[bool], None]] = {}
        self.listed: list[str] = []
        self.patched: list[Patch] = []
        self.while_listing: Callable[[], None] = lambda: None
        self.away = False

    def put(self, thing: Json) -> Json:
        self.revision += 1
        meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
        kind = f"{thing['kind'].lower()}s"
        self.there[kind][meta["name"]] = made = {**thing, "metadata": meta}
        return made

    def lose_pods(self) -> None:
        for thing in self.there["pods"].values():
            self.revision += 1
            meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
            self.tell["pods"](Change("DELETED", {**thing, "metadata": meta}))
        self.there["pods"].clear()

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        del selector
        if self.away:
            raise ApiError("the API server does not answer")
        self.listed.append(kind)
        self.while_listing()
        return Listing(tuple(self.there[kind].values()), str(self.revision))

    def patch_many(self, patches: Iterable[Patch]) -> tuple[PatchResult, ...]:
        """They are noted, and nobody does them."""
        self.patched += patches
        return ()

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None],
    ) -> "Scripted":
        del since
        self.tell[kind], self.cut[kind] = on_change, on_cut
        return self

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def api() -> Scripted:
    """Two nodes of 4 GPUs, and a job with a worker on one of them."""
    made = Scripted()
    state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=1).to_text()
    running = job(suspend=False, nodes='["a"]', status={"active": 1} | EVER_SUSPENDED)
    running["metadata"]["annotations"][names.STATUS] = state
    for thing in (node("a"), node("b"), running, pod(0, node="a")):
        made.put(thing)
    return made


@pytest.fixture
def world(api: Scripted) -> Iterator[LiveCluster]:
    made = LiveCluster(cast("ClusterApi", api), lambda _: Report())
    made.observe()
    api.listed.clear()
    yield made
    made.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time stands still but for the seconds that it is set on."""
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def go_on(seconds: float) -> None:
        now[0] += seconds

    return go_on


def fits(world: LiveCluster) -> int | None:
    (row,) = world.observe().jobs
    return row.fitting_workers


def busy(world: LiveCluster) -> int:
    return sum(node.gpus - node.free_gpus for node in world.observe().nodes)


def test_all_is_of_one_moment_as_long_as_no_watch_is_cut(world: LiveCluster, api: Scripted) -> None:
    assert world.observe().by_id.keys() == {"default/job"}
    assert (world.stale_reason, api.listed) == ("", [])


@pytest.mark.parametrize("kind", KINDS)
def test_while_any_watch_is_cut_the_world_is_blind(
    world: LiveCluster, api: Scripted, kind: str
) -> None:
    api.cut[kind](True)
    assert world.wait(0.0), "it is told at once"
    world.observe()
    assert world.stale_reason == f"the API server cannot be watched for {kind}"
    assert api.listed == [], "who cannot watch need not ask"


def test_when_all_watches_are_back_everything_is_listed_once_and_seen_as_it_is(
    world: LiveCluster, api: Scripted
) -> None:
    for kind in KINDS:
        api.cut[kind](True)
    api.there["pods"].clear()
    api.there["jobs"].clear()
    api.put(job("later"))
    api.cut["jobs"](False)
    api.tell["jobs"](Change("ADDED", api.there["jobs"]["later"]))
    assert busy(world) == 1, "pods of a while ago"
    assert world.stale_reason == "the API server cannot be watched for nodes and pods"
    api.cut["nodes"](False)
    api.cut["pods"](False)
    assert world.observe().by_id.keys() == {"default/later"}
    assert (world.stale_reason, busy(world)) == ("", 0)
    assert sorted(api.listed) == sorted(KINDS)


def test_a_cluster_that_cannot_be_listed_stays_in_doubt_and_is_asked_again(
    world: LiveCluster, api: Scripted
) -> None:
    api.cut["pods"](True)
    api.cut["pods"](False)
    api.away = True
    world.observe()
    assert "cannot be listed: the API server does not answer" in world.stale_reason
    api.away = False
    world.observe()
    assert world.stale_reason == ""


def test_a_watch_that_is_cut_while_everything_is_listed_leaves_it_in_doubt(
    world: LiveCluster, api: Scripted
) -> None:
    def flicker() -> None:
        api.cut["pods"](True)
        api.cut["pods"](False)

    flicker()
    api.while_listing = flicker
    world.observe()
    assert world.stale_reason == "a watch was cut"
    api.while_listing = lambda: None
    world.observe()
    assert world.stale_reason == ""


def test_what_came_after_the_list_was_made_is_not_taken_back(
    world: LiveCluster, api: Scripted
) -> None:
    def one_comes() -> None:
        api.while_listing = lambda: None
        api.tell["jobs"](Change("ADDED", {**api.put(job("newer"))}))
        del api.there["jobs"]["newer"]  # this list does not have it yet
        api.revision -= 1

    api.cut["pods"](True)
    api.cut["pods"](False)
    api.while_listing = one_comes
    assert world.observe().by_id.keys() == {"default/job", "default/newer"}


def test_a_deletion_told_late_does_not_take_the_job_that_has_the_name_now(
    world: LiveCluster, api: Scripted
) -> None:
    api.revision += 1
    old: Any = api.there["jobs"]["job"]
    gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(api.revision)}}
    new = job()
    new["metadata"]["uid"] = "another"
    world._cache.put_object("jobs", api.put(new))
    api.tell["jobs"](Change("DELETED", gone))
    assert [one["metadata"]["uid"] for one in world.jobs()] == ["another"]


@pytest.mark.parametrize(
    ("cut_s", "in_time"),
    [pytest.param(58.0, True, id="long"), pytest.param(2.0, False, id="short")],
)
def test_pods_that_could_not_come_up_unseen_have_their_time_again(
    world: LiveCluster,
    api: Scripted,
    clock: Callable[[float], None],
    *,
    cut_s: float,
    in_time: bool,
) -> None:
    """Who made them may have been cut off as well."""
    api.lose_pods()
    lost_at = world.observe().now
    api.cut["pods"](True)
    clock(cut_s)
    api.cut["pods"](False)
    back_at = world.observe().now
    clock(61.0 - cut_s)
    assert back_at < world.observe().now == pytest.approx(lost_at + 61.0)
    assert fits(world) == (None if in_time else 0)
    clock(cut_s)
    assert fits(world) == 0, "not for ever"


def test_it_is_for_how_long_nothing_was_seen_together_that_counts(
    world: LiveCluster, api: Scripted, clock: Callable[[float], None]
) -> None:
    """Cut for a moment each, but one after the other."""
    api.lose_pods()
    world.observe()
    clock(50.0)
    for kind, after in zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True):
        api.cut[kind](True)
        clock(2.0)
        api.cut[after](True)
        api.cut[kind](False)
    api.cut[KINDS[0]](False)
    world.observe()
    clock(20.0)
    assert (world.stale_reason, fits(world)) == ("", None)
    clock(40.0)
    assert fits(world) == 0
