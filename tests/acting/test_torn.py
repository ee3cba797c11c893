"""A watch is cut: nothing is decided until all are back and everything was seen at one moment."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from laxity import names
from laxity_k8s.api import ApiError, Change, ClusterApi, Json, Kind, Listing
from laxity_k8s.kept import Kept
from laxity_k8s.world import LiveCluster
from laxity_scheduler.engine import Report
from tests.acting.making import CREATED_AT, job, node, pod

KINDS: tuple[Kind, ...] = ("jobs", "pods", "nodes")


class Scripted:
    """What there is by kind, and the callbacks of who watches it; nothing is told by itself."""

    def __init__(self) -> None:
        self.revision = 10
        self.there: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.tell: dict[str, Callable[[Change], None]] = {}
        self.cut: dict[str, Callable[[bool], None]] = {}
        self.listed: list[str] = []
        self.while_listing: Callable[[], None] = lambda: None
        self.away = False

    def put(self, thing: Json) -> Json:
        self.revision += 1
        meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
        kind = f"{thing['kind'].lower()}s"
        self.there[kind][meta["name"]] = made = {**thing, "metadata": meta}
        return made

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        del selector
        if self.away:
            raise ApiError("the API server does not answer")
        self.listed.append(kind)
        self.while_listing()
        return Listing(tuple(self.there[kind].values()), str(self.revision))

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
    state = Kept(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=1).to_text()
    running = job(suspend=False, nodes='["a"]', status={"active": 1})
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


def busy(world: LiveCluster) -> int:
    return sum(node.gpus - node.free_gpus for node in world.observe().nodes)


def test_all_is_of_one_moment_as_long_as_no_watch_is_cut(world: LiveCluster, api: Scripted) -> None:
    assert world.observe().by_id.keys() == {"default/job"}
    assert (world.blind, api.listed) == ("", [])


@pytest.mark.parametrize("kind", KINDS)
def test_while_any_watch_is_cut_the_world_is_blind(
    world: LiveCluster, api: Scripted, kind: str
) -> None:
    api.cut[kind](True)
    assert world.wait(0.0), "it is told at once"
    world.observe()
    assert world.blind == f"the API server cannot be watched for {kind}"
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
    assert world.blind == "the API server cannot be watched for nodes and pods"
    api.cut["nodes"](False)
    api.cut["pods"](False)
    assert world.observe().by_id.keys() == {"default/later"}
    assert (world.blind, busy(world)) == ("", 0)
    assert sorted(api.listed) == sorted(KINDS)


def test_a_cluster_that_cannot_be_listed_stays_in_doubt_and_is_asked_again(
    world: LiveCluster, api: Scripted
) -> None:
    api.cut["pods"](True)
    api.cut["pods"](False)
    api.away = True
    world.observe()
    assert "cannot be listed: the API server does not answer" in world.blind
    api.away = False
    world.observe()
    assert world.blind == ""


def test_a_watch_that_is_cut_while_everything_is_listed_leaves_it_in_doubt(
    world: LiveCluster, api: Scripted
) -> None:
    def flicker() -> None:
        api.cut["pods"](True)
        api.cut["pods"](False)

    flicker()
    api.while_listing = flicker
    world.observe()
    assert world.blind == "a watch was cut"
    api.while_listing = lambda: None
    world.observe()
    assert world.blind == ""


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
    world._mirror.put("jobs", api.put(new))
    api.tell["jobs"](Change("DELETED", gone))
    assert [one["metadata"]["uid"] for one in world.jobs()] == ["another"]
