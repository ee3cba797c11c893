"""The live World on this machine sits the exam of all Worlds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import open_world, stop_workers
from laxity_k8s.local.worker_processes import pids_of
from laxity_k8s.objects import pods
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState
from tests.contract.live_stage import OpenStage
from tests.contract.live_world_exam import LIVE_EXAM
from tests.contract.local_bench import template
from tests.contract.world_exam import EXAM, Question, named

pytestmark = pytest.mark.slow


class LocalStage(OpenStage):
    """On this machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        super().__init__()

    def open(self) -> LiveCluster:
        return open_world(self.home, lambda _: Report(), nodes={"a": 4, "b": 4})

    def template(self, *, stop_s: float = 0.0) -> Json:
        return template(stop_s=stop_s)

    def _settled(self, state: ClusterState) -> bool:
        """Before a worker's log says that it can be stopped, SIGTERM ends it at once."""
        return super()._settled(state) and all(
            pods.is_finished(pod) or pods.is_terminating(pod) or self._can_be_stopped(pod)
            for pod in self.api.list("pods").items
            if pods.node_of(pod)
        )

    def _can_be_stopped(self, pod: Json) -> bool:
        said = self.api.log(json_tree.object_id(pod)).split()
        return any(str(pid) in said for pid in pids_of(json_tree.uid_of(pod)))


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
