"""What a start hangs on that only Events name is read a while after it, rarely, and told."""

from dataclasses import replace
from pathlib import Path

import pytest

from laxity import names
from laxity_k8s.act.adoption import TARGET
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.conditions import find_condition
from laxity_k8s.observe.hanging_starts import AGAIN_S, HANGS_S
from tests.support.breaking import put, seen
from tests.support.clocks import Clocks
from tests.support.manifests import EVER_SUSPENDED, job, pod
from tests.support.still_cluster import RUNNING, opened

WORDS = "worker 0 waits on a: MountVolume.SetUp failed"
MINE = "default/mine"


@pytest.mark.parametrize(
    ("why", "asked"),
    [
        pytest.param("ContainerCreating", [MINE], id="its status says nothing"),
        pytest.param("ErrImagePull", [], id="its status says why"),
    ],
)
def test_events_are_read_of_a_start_that_hangs_and_not_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, asked: list[str]
) -> None:
    made = job("mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    made["metadata"]["annotations"][names.STATUS] = RUNNING.to_text()
    held = pod(of="mine", node="a", phase="Pending")
    held["status"]["containerStatuses"] = [{"name": "train", "state": {"waiting": {"reason": why}}}]
    clocks, read = Clocks(monkeypatch), list[str]()

    def find_words(job: Json) -> str:
        read.append(f"{job['metadata']['namespace']}/{job['metadata']['name']}")
        return WORDS

    with opened(tmp_path) as world:
        put(world, held, "pods")
        put(world, made)
        seen(world, MINE)
        while not world._cache.pods:
            assert world.wait(10.0)
        world._find_words = find_words
        world.observe()
        assert read == []

        clocks.pass_time(HANGS_S + 1.0)
        for _ in range(2):
            row = world.observe().by_id[MINE]
        assert read == asked
        assert row.fitting_workers is None, "its time is not over"
        assert row.pending == (WORDS if asked else f"worker 0 waits on a: {why}")

        clocks.pass_time(AGAIN_S)
        world.observe()
        assert read == 2 * asked


def test_a_job_whose_volume_is_not_there_at_its_third_start_is_failed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job("mine", suspend=False, nodes='["a"]', status=EVER_SUSPENDED)
    made["metadata"]["annotations"][names.STATUS] = replace(RUNNING, failed_starts=2).to_text()
    words = f'{WORDS} for volume "data" : configmap "data" not found'
    clocks = Clocks(monkeypatch)
    with opened(tmp_path) as world:
        put(world, pod(of="mine", node="a", phase="Pending"), "pods")
        put(world, made)
        seen(world, MINE)
        while not world._cache.pods:
            assert world.wait(10.0)
        world._find_words = lambda _: words
        world.observe()
        assert not find_condition(world.api.get("jobs", MINE), TARGET)

        clocks.pass_time(HANGS_S + 1.0)
        world.observe()

        failed = find_condition(world.api.get("jobs", MINE), TARGET)
    assert failed["message"] == f"3 starts in a row failed: {words}"
