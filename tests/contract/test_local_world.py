"""The live World on this machine sits the exam of all Worlds."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.cluster import LocalCluster, open_world, stop_workers
from laxity_scheduler.live import LiveWorld, Report
from laxity_scheduler.model.cluster import ClusterState
from tests.contract.live_world_exam import LIVE_EXAM, manifest
from tests.contract.local_bench import template
from tests.contract.world_exam import EXAM, Question, named

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


class LocalStage:
    """Two nodes of 4 GPUs on this machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.open()

    def open(self) -> None:
        self.live: LiveCluster = open_world(self.home, lambda _: Report(), nodes={"a": 4, "b": 4})

    @property
    def world(self) -> LiveWorld:
        return self.live

    @property
    def api(self) -> LocalCluster:
        assert isinstance(self.live.api, LocalCluster)
        return self.live.api

    def template(self) -> Json:
        return template()

    def another(self) -> LiveWorld:
        self.live.close()
        self.open()
        return self.live

    def submit(
        self, name: str, *, widths: Sequence[int] = (1, 2, 4), stop_s: float = 0.0, on: str = ""
    ) -> str:
        made = manifest(self, name, widths=",".join(map(str, widths)))
        made["spec"]["template"] = template(stop_s=stop_s)
        if on:
            made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
        self.live.submit(made)
        return f"default/{name}"

    def until(self, what: Callable[[ClusterState], bool], words: str) -> ClusterState:
        end_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_at:
            state = self.live.observe()
            if what(state) and self._settled(state):
                return state
            self.live.wait(1.0)
        raise AssertionError(f"not within {PATIENCE_S:.0f} s: {words}; {self.live.observe()}")

    def _settled(self, state: ClusterState) -> bool:
        """Every worker that should run is ready: only then does it wait for a stop signal."""
        for job in state.jobs:
            with suppress(ApiError):
                status = self.api.get("jobs", job.id)["status"]
                if job.workers and status.get("ready", 0) < job.workers:
                    return False
        return True


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    made = LocalStage(tmp_path)
    yield made
    made.live.close()
    stop_workers(tmp_path)


@pytest.mark.parametrize("question", EXAM, ids=named)
def test_the_local_world_behaves_as_all_worlds(question: Question, stage: LocalStage) -> None:
    question(stage)


@pytest.mark.parametrize("question", LIVE_EXAM, ids=named)
def test_the_local_world_lives_with_people(question: Question, stage: LocalStage) -> None:
    question(stage)
