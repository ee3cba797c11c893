"""The live World on a real API server, job controller and scheduler sits the exam of all Worlds."""

import time

import pytest

from laxity.instants import format_rfc3339
from laxity_k8s.objects.node_rows.nodes import UNREADY_S
from tests.contract.live_world_exam import LIVE_EXAM
from tests.contract.real_stage import RealStage
from tests.contract.world_exam import EXAM, Question, named
from tests.support.kubernetes.cluster import Cluster, simulated_node

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("question", EXAM, ids=named)
def test_the_world_on_kubernetes_behaves_as_all_worlds(
    question: Question, real_stage: RealStage
) -> None:
    question(real_stage)


@pytest.mark.parametrize("question", LIVE_EXAM, ids=named)
def test_the_world_on_kubernetes_lives_with_people(
    question: Question, real_stage: RealStage
) -> None:
    question(real_stage)


def test_a_node_that_is_not_ready_is_lost_after_a_while_without_any_news(
    control_plane: Cluster, real_stage: RealStage
) -> None:
    shaky = simulated_node("shaky", 4)
    shaky["metadata"]["labels"] = {}  # nobody makes it ready again
    lost_at = int(time.time()) + 10.0
    since = format_rfc3339(lost_at - UNREADY_S)
    away = {"type": "Ready", "status": "False", "lastTransitionTime": since}
    shaky["status"]["conditions"] = [away]
    assert control_plane.ask("POST", "/api/v1/nodes", shaky)
    try:
        state = real_stage.until(lambda state: len(state.nodes) == 3, "it is seen")
        assert [node.free_gpus for node in state.nodes if node.id == "shaky"] == [0]
        assert real_stage.live._snapshot.due_at == lost_at
        while len(real_stage.live.observe().nodes) == 3:
            assert real_stage.live.wait(20.0), "it wakes up by itself"
        assert 0.0 <= time.time() - lost_at < 3.0
    finally:
        control_plane.ask("DELETE", "/api/v1/nodes/shaky")
