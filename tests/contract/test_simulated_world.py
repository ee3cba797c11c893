"""The simulated World sits the exam of all Worlds, on its virtual clock."""

from collections.abc import Callable, Sequence

import pytest

from laxity_lab.world.world import SimWorld
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.ground_truth import GroundTruth
from tests.contract.world_exam import EXAM, Question, named

PODS_GO = Costs("live", start_log_s=24.0, stop_log_s=6.0, gone_s=1.0)
MOST_EVENTS = 100
SETS = {name: NodeSet(frozenset({name})) for name in "ab"}


class SimStage:
    """Two nodes of 4 GPUs that exist only here; epochs take ten minutes."""

    def __init__(self) -> None:
        self.jobs: list[GroundTruth] = []
        self.world = SimWorld(
            self.jobs, [("a", 4), ("b", 4)], PODS_GO, refused_stay=True, sets=SETS
        )

    def submit(
        self, name: str, *, widths: Sequence[int] = (1, 2, 4), stop_s: float = 0.0, on: str = ""
    ) -> str:
        made = GroundTruth(
            id=f"default/{name}",
            number=len(self.jobs),
            submitted_at=self.world.now,
            epochs=1_000,
            widths=tuple(widths),
            epoch_s=dict.fromkeys(widths, 600.0),
            eligible=on,
        )
        self.jobs.append(made)
        self.world.advance()
        return made.id

    def until(self, what: Callable[[ClusterState], bool], words: str) -> ClusterState:
        for _ in range(MOST_EVENTS):
            state = self.world.observe()
            if what(state):
                return state
            assert self.world.advance(), f"nothing more happens: {words}"
        raise AssertionError(f"not within {MOST_EVENTS} events: {words}; {self.world.observe()}")


@pytest.mark.parametrize("question", EXAM, ids=named)
def test_the_simulated_world_behaves_as_all_worlds(question: Question) -> None:
    question(SimStage())
