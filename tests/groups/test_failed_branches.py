"""What becomes of the steps of a workflow one of whose branches has failed."""

from pathlib import Path

from tests.groups.test_promising import declare, group_of, step, submit
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged


def test_failed_branch_ends_a_step_beside_it_that_waits_for_gpus(tmp_path: Path) -> None:
    world = MemoryWorld(2)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        stage.submit("other", deadline="1h", widths="1")
        stage.until("default/other", lambda v: v["workers"] == 1, "running")
        steps = step("base"), step("left", "base"), step("right", "base", widths="2")
        declare(stage, *steps, step("both", "left", "right"), deadline="2h")
        submit(stage, "base", "base")
        stage.until("default/base", lambda v: v["workers"] == 1, "running")
        submit(stage, "left", "left", after="base")
        submit(stage, "right", "right", after="base", widths="2")
        submit(stage, "both", "both", after="left, right")
        world.finished("default/base")
        stage.until("default/left", lambda v: v["workers"] == 1, "running")
        world.finished("default/left", failed=True)
        for job in ("right", "both"):
            stage.until(f"default/{job}", lambda v: v["state"] == "cancelled", "cancelled")


def test_step_stopped_in_its_first_epoch_starts_again_after_another_branch_failed(
    tmp_path: Path,
) -> None:
    world = MemoryWorld(2)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        steps = step("base"), step("left", "base"), step("right", "base")
        declare(stage, *steps, step("both", "left", "right"), deadline="2h")
        submit(stage, "base", "base")
        stage.until("default/base", lambda v: v["workers"] == 1, "running")
        world.finished("default/base")
        for job, after in (("left", "base"), ("right", "base"), ("both", "left, right")):
            submit(stage, job, job, after=after)
        for job in ("left", "right"):
            stage.until(f"default/{job}", lambda v: v["workers"] == 1, "running")
        world.finished("default/left", failed=True)
        stage.until("default/both", lambda v: v["state"] == "cancelled", "cancelled")
        world.stopped("default/right")
        again = stage.until(
            "default/right", lambda v: v["preemptions"] == 1 and v["workers"] == 1, "running again"
        )
        assert group_of(stage)["state"] == "failed"
    assert again["epochs_done"] == 0
