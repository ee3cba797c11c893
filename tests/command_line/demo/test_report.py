import json
from pathlib import Path
from typing import Any

import pytest

from examples.demo.demo_report import Ended, executions, report_of, widths_run, write_report
from examples.demo.main import judge_report
from examples.demo.models import EXECUTIONS
from examples.demo.parts import Part
from laxity.api.client import JobView

FIELDS = [
    "id",
    "class",
    "verdict",
    "reason",
    "deadline_at",
    "promised_p90_at",
    "finished_at",
    "preemptions",
    "widths",
    "epochs_expected",
    "epochs_seen",
]


def ended(*, epochs: tuple[int, ...] = (1, 2, 3), told: bool = False, **job: Any) -> Ended:
    view: dict[str, Any] = {
        "verdict": "promised",
        "state": "finished",
        "deadline_at": 100.0,
        "finished_at": 90.0,
        "promised_p90_at": 95.0,
        "service_class": "hard",
        "reason_code": "fits",
        "raw": {"broken": told},
    }
    part = Part("train", "digits.py:train_digits", {"epochs": 3})
    return Ended(part, JobView(part.id, **(view | job)), epochs)


def report(*rows: Ended, accepted: str = "") -> dict[str, Any]:
    return report_of(rows, wall_s=120.04, refused=1, offer_accepted=accepted)


def test_the_report_has_every_field_that_was_agreed_on() -> None:
    found = report(ended(), accepted=ended().job.id)

    assert {name: found[name] for name in found if name != "jobs"} == {
        "wall_s": 120.0,
        "promises": 1,
        "promises_kept": 1,
        "broken_unreported": 0,
        "refused": 1,
        "counter_offer_kept": True,
    }
    assert list(found["jobs"][0]) == FIELDS


def test_missing_instants_are_null_and_widths_a_list(tmp_path: Path) -> None:
    nothing = ended(
        verdict="refused", state="refused", deadline_at=None, finished_at=None,
        promised_p90_at=None, epochs=(),
    )  # fmt: skip

    write_report(tmp_path / "report.json", report(nothing))
    (job,) = json.loads((tmp_path / "report.json").read_text())["jobs"]

    assert (job["deadline_at"], job["promised_p90_at"], job["finished_at"]) == (None, None, None)
    assert job["widths"] == []
    assert (job["epochs_expected"], job["epochs_seen"]) == (0, 0)


def test_widths_are_those_it_ran_at_in_order() -> None:
    history = ((1.0, 1), (2.0, 0), (3.0, 1), (4.0, 2), (5.0, 0))

    assert widths_run(JobView("default/a", width_history=history)) == [1, 2]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param(ended(), 0, id="kept, every epoch once"),
        pytest.param(ended(finished_at=101.0, told=True), 0, id="broken, but it was said"),
        pytest.param(ended(finished_at=101.0), 6, id="broken and nobody was told"),
        pytest.param(ended(epochs=(1, 2, 2, 3)), 1, id="an epoch trained twice"),
        pytest.param(ended(epochs=(1, 3)), 1, id="an epoch lost"),
        pytest.param(ended(epochs=(2, 1, 3)), 1, id="out of order"),
        pytest.param(ended(verdict="forecast", finished_at=101.0), 0, id="late, never promised"),
    ],
)
def test_the_demo_fails_when_something_is_not_as_it_should_be(row: Ended, code: int) -> None:
    assert judge_report([row], missed=()) == code


def test_the_longest_wait_is_before_a_start_or_between_two_runs() -> None:
    history = ((12.0, 1), (20.0, 2), (30.0, 0), (45.0, 1))

    row = ended(submitted_at=10.0, width_history=history, service_class="best_effort")

    assert row.waited_s == 15.0
    assert not row.starved


def test_a_best_effort_job_that_starves_fails_the_demo() -> None:
    row = ended(submitted_at=0.0, width_history=((700.0, 1),), service_class="best_effort")

    assert judge_report([row], missed=()) == 1


def test_a_step_that_did_not_happen_fails_the_demo() -> None:
    row = ended()

    assert judge_report([row], missed=["it grows: not within 90 s"]) == 1


def test_executions_are_what_the_training_itself_wrote(tmp_path: Path) -> None:
    job = JobView("default/train", uid="u1")
    folder = tmp_path / "checkpoints" / "default" / "train-u1"
    folder.mkdir(parents=True)
    (folder / EXECUTIONS).write_text("1\n2\n2\n")

    assert executions(tmp_path, job) == (1, 2, 2)
    assert executions(tmp_path, JobView("default/other", uid="u2")) == ()
