from pathlib import Path
from typing import Any

import pytest

from examples.demo.acts import epochs_trained, judge, widths_run
from examples.demo.digits import EXECUTIONS
from laxity.api.client import JobView


def code_of(*, epochs: tuple[int, ...] = (1, 2, 3), told: bool = False, **job: Any) -> int:
    """How the demo judges one promised job of three epochs, due at 100 s."""
    view: dict[str, Any] = {
        "verdict": "promised",
        "state": "finished",
        "epochs": 3,
        "deadline_at": 100.0,
        "finished_at": 90.0,
        "raw": {"broken": told},
    }
    return judge({"train": JobView("default/train", **(view | job))}, {"train": epochs}, missed=())


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param({}, 0, id="kept, every epoch once"),
        pytest.param({"finished_at": 101.0, "told": True}, 0, id="broken, but it was said"),
        pytest.param({"finished_at": 101.0}, 6, id="broken and nobody was told"),
        pytest.param({"epochs": (1, 2, 2, 3)}, 1, id="an epoch trained twice"),
        pytest.param({"epochs": (1, 3)}, 1, id="an epoch lost"),
        pytest.param({"epochs": (2, 1, 3)}, 1, id="out of order"),
        pytest.param({"verdict": "forecast", "finished_at": 101.0}, 0, id="late, never promised"),
        pytest.param({"state": "refused", "verdict": "refused", "epochs": ()}, 0, id="refused"),
    ],
)
def test_the_demo_fails_when_something_is_not_as_it_should_be(
    row: dict[str, Any], code: int
) -> None:
    assert code_of(**row) == code


def test_a_step_that_did_not_happen_fails_the_demo() -> None:
    assert judge({}, {}, missed=["it grows: not within 90 s"]) == 1


def test_widths_are_those_it_ran_at_in_order() -> None:
    history = ((1.0, 1), (2.0, 0), (3.0, 1), (4.0, 2), (5.0, 0))

    assert widths_run(JobView("default/a", width_history=history)) == [1, 2]


def test_epochs_are_those_that_the_training_itself_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "default" / "train-u1"
    folder.mkdir(parents=True)
    (folder / EXECUTIONS).write_text("1\n2\n2\n")

    assert epochs_trained(tmp_path, JobView("default/train", uid="u1")) == (1, 2, 2)
    assert epochs_trained(tmp_path, JobView("default/other", uid="u2")) == ()
