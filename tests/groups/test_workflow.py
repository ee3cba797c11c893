"""What a workflow declares, and which keys its calls have."""

import pytest

from laxity.flow.active_group import ActiveGroup
from laxity.flow.declaration import Declaration
from laxity.flow.workflow import parallel, plan_steps
from laxity.job.qos import QoSError
from tests.support.programs.release import evaluate, finetune, pretrain


def group() -> ActiveGroup:
    return ActiveGroup("release", "team", "key", "2030-01-01T00:00:00Z", "hard")


def test_steps_run_in_series_and_side_by_side() -> None:
    steps = list(plan_steps([pretrain, parallel(finetune, (2, 3), evaluate)], "team"))
    assert [(row["name"], row["count"], row["after"]) for row in steps] == [
        ("pretrain", 1, []),
        ("finetune", 3, ["pretrain"]),
        ("evaluate", 1, ["pretrain"]),
    ]
    assert steps[0]["manifest"]["metadata"]["namespace"] == "team"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(lambda: [parallel(3)], id="a number without a flow"),
        pytest.param(lambda: [parallel(finetune, 0)], id="none of it"),
        pytest.param(lambda: [print], id="no deadline flow"),
    ],
)
def test_wrong_steps_are_named(steps: object) -> None:
    with pytest.raises(QoSError, match="steps"):
        list(plan_steps(steps(), "default"))  # type: ignore[operator]


def test_step_has_the_deadline_of_its_group_unless_it_has_one() -> None:
    joined = group().join(Declaration.of("finetune", {}))
    own = group().join(Declaration.of("finetune", {"deadline": "5m"}))
    spec = joined.spec(entry="m:f", parameters={})
    assert (spec.group, spec.step, spec.namespace) == ("release", "finetune", "team")
    assert (joined.qos.service_class, joined.qos.deadline_text) == ("hard", "2030-01-01T00:00:00Z")
    assert own.qos.deadline_text == "5m"


def test_calls_of_a_rerun_have_the_keys_of_the_first_run() -> None:
    first, rerun = group(), group()
    keys = [first.key_of("f", {"x": x}, run) for x, run in ((1, "r1"), (1, "r2"), (2, "r3"))]
    again = [rerun.key_of("f", {"x": x}, run) for x, run in ((2, "s1"), (1, "s2"), (1, "s3"))]
    assert len(set(keys)) == 3
    assert sorted(keys) == sorted(again)


def test_retry_of_a_call_has_its_key() -> None:
    there = group()
    assert there.key_of("f", {}, "r1") == there.key_of("f", {}, "r1")
