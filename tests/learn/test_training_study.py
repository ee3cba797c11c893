"""The studies of training: what each variant leaves out, and a row of each kind."""

from dataclasses import fields
from typing import Any

import pytest

from studies import learned_front, learned_training
from studies.datasets import open_datasets
from studies.dl2_gradients import DL2
from studies.learned_training import FULL, VARIANTS, name_checkpoints

SAMPLES = open_datasets(samples=True)


def list_differences(name: str) -> dict[str, Any]:
    """The parts in which a variant is not the full one."""
    parts = VARIANTS[name].parts
    assert parts is not None
    names = [field.name for field in fields(parts)]
    return {
        each: getattr(parts, each) for each in names if getattr(parts, each) != getattr(FULL, each)
    }


def test_each_variant_leaves_out_what_its_name_says_and_nothing_else() -> None:
    assert list_differences("full") == list_differences("no warm-up") == {}
    assert list_differences("no exploration") == {"exploration": 0.0, "entropy": 0.0}
    assert list_differences("no replay") == {"replay": 0}
    assert list_differences("no critic") == {"baseline": "none"}
    assert list_differences("reward per job") == {"per_job": True}
    assert [name for name, variant in VARIANTS.items() if not variant.warm_up] == [
        "no warm-up",
        "best steps, no warm-up",
        "evolution, no warm-up",
    ]


def test_the_full_variant_has_the_parts_of_the_paper() -> None:
    assert (DL2.baseline, DL2.exploration, DL2.replay) == ("critic", 0.4, 8_192)
    assert not DL2.per_job


def test_checkpoints_are_named_by_the_share_of_the_training() -> None:
    row = name_checkpoints([2.0, 1.0, 1.5])
    assert row == {
        "cost_at_0": 2.0,
        "cost_at_50": 1.0,
        "cost_at_100": 1.5,
        "best_cost": 1.0,
        "last_to_best": 1.5,
    }
    assert name_checkpoints([2.0])["last_to_best"] == 1.0


@pytest.mark.slow
def test_a_row_of_training_is_that_of_its_seed() -> None:
    pytest.importorskip("laxity_lab.policy_training.torch_net")
    trials = [
        trial
        for trial in learned_training.trials(SAMPLES, range(2))
        if trial.labels["variant"] == "no warm-up"
    ]
    first, other = (trial.row() for trial in trials)
    assert first == trials[0].row()
    assert first["cost_at_0"] != other["cost_at_0"]
    assert int(str(first["actions"])) > 100


@pytest.mark.slow
def test_the_front_tells_policies_rewards_and_promises_apart() -> None:
    rows = [trial.row() for trial in learned_front.trials(SAMPLES, range(1))]
    learned = [row for row in rows if row["policy"] == "learned"]
    assert {row["policy"] for row in rows} == {*learned_front.POLICIES, "learned"}
    assert {(row["variant"], row["admission"]) for row in learned} == {
        (reward, admission)
        for reward in ("jct", "deadlines")
        for admission in learned_front.ADMISSIONS
    }
    assert all((row["promises"] != 0) == (row["admission"] == "greedy") for row in learned)
