"""The live World on this machine sits the exam of all Worlds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.cluster import open_world, stop_workers
from laxity_scheduler.live import Report
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
