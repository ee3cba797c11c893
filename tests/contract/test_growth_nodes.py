"""An elastic Job grows between two half-full nodes while another starts: both have their GPUs."""

import pytest

from laxity_scheduler.model.decision import Admit, Resize
from tests.contract.real_stage import RealStage
from tests.contract.world_exam import WHY, do, free, row

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_one_that_grows_to_three_and_shrinks_to_two_leaves_others_what_is_theirs(
    real_stage: RealStage,
) -> None:
    busy = [real_stage.submit(f"busy-{node}", widths=(2,)) for node in "ab"]
    job, other = (
        real_stage.submit("elastic", widths=(1, 2, 3, 8)),
        real_stage.submit("other", widths=(1,)),
    )
    real_stage.until(lambda state: len(state.jobs) == 4, "all are seen")
    do(
        real_stage,
        *(Admit(name, 2, (node, node), WHY) for name, node in zip(busy, "ab", strict=True)),
    )
    do(real_stage, Admit(job, 1, ("a",), WHY))
    real_stage.until(lambda state: free(state) == {"a": 1, "b": 2}, "both nodes to be half full")

    grows = Resize(job, 3, ("a", "b", "b"), "now", WHY)
    do(real_stage, grows, Admit(other, 1, ("a",), WHY))
    state = real_stage.until(
        lambda state: free(state) == {"a": 0, "b": 0} and row(state, job).workers == 3,
        "both to have what they need, wherever the scheduler puts it",
    )
    assert row(state, other).workers == 1
    placed = row(state, job).nodes
    assert sorted((*placed, *row(state, other).nodes)) == ["a", "a", "b", "b"]
    do(real_stage, Resize(job, 2, placed[:2], "now", WHY))
    state = real_stage.until(lambda state: sum(free(state).values()) == 1, "it has shrunk")
    assert row(state, job).nodes == placed[:2]
    assert row(state, other).workers == 1
