"""Reasons in words, and what of them another namespace is told."""

import pytest

from laxity_scheduler.model.reasons import reason, visible_names


@pytest.mark.parametrize(
    ("holders", "told"),
    [
        pytest.param("a/x, a/y", "a/x, a/y", id="its own"),
        pytest.param("b/x", "a job of another namespace", id="one of others"),
        pytest.param("a/x, b/x, ab/y", "a/x, 2 jobs of others", id="both"),
        pytest.param("", "", id="none"),
    ],
)
def test_holders_of_other_namespaces_are_counted(holders: str, told: str) -> None:
    why = reason("held_for_promises", holders=holders).within("a")
    assert why.text == f"the free GPUs are reserved for promised jobs: {told}"


@pytest.mark.parametrize("beneficiary", ["others", "its user", "a/x"])
def test_who_is_no_foreign_job_is_told(beneficiary: str) -> None:
    why = reason("preempt_for", beneficiary=beneficiary, gpus=2)
    assert why.within("a") == why


def test_figures_stay_and_reasons_without_names_are_the_same_object() -> None:
    why = reason("fits", p90_at=60.0, slack_s=5.0, workers=2)
    assert why.within("a") is why
    foreign = reason("preempt_for", beneficiary="b/x", gpus=2).within("a")
    assert foreign.text.startswith("a job of another namespace needs 2 GPUs")


def test_who_may_see_all_is_named_all() -> None:
    assert visible_names(["a/x", "b/y"], lambda _: True) == ["a/x", "b/y"]


def test_a_promise_without_a_foreseeable_end_says_so() -> None:
    never = float("inf")
    danger = reason("promise_in_danger", p90_at=never, late_s=never, workers=0)
    assert danger.text == "no end can be foreseen: no GPUs are planned for it now"
    taken = reason("gpus_taken_by_others", gpus=2, of=4, p90_at=never, late_s=never)
    assert taken.text.endswith("2 of 4 GPUs on the nodes that it may use: no end can be foreseen")
