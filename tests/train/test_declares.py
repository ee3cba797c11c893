"""What a run is like: sizes that its code declares, or its declaration reads from parameters."""

from pathlib import Path
from typing import Any

import pytest

from laxity import Training
from laxity.flow.declaration import Declaration
from laxity.job.qos import QoSError
from laxity.worker.reports import read_lines
from laxity_k8s.objects.spec_cache import read_spec
from laxity_profiler.estimate import Workload
from laxity_profiler.history.report_fold import Report, ReportState
from laxity_scheduler.model.job import Job
from tests.support.builders import Curve
from tests.support.manifests import job as manifest
from tests.support.memory_world import MemoryWorld
from tests.support.rows import row
from tests.support.runs import LATER_AT, epoch_line, history_in, line, workload
from tests.support.services import staged


def test_code_declares_sizes_in_a_report(tmp_path: Path) -> None:
    training = Training(2, folder=tmp_path)

    training.declare(samples=800, size=10**10)
    Training(2).declare(samples=800)  # nobody listens

    (told,) = read_lines(tmp_path / "reports.jsonl")
    assert (told["kind"], told["samples"], told["size"]) == ("declared", 800, 10**10)
    assert "batch_size" not in told


@pytest.mark.parametrize("number", [0, -1, 2.5, "many", True])
def test_a_size_that_is_no_whole_number_is_an_error_at_once(tmp_path: Path, number: Any) -> None:
    with pytest.raises(ValueError, match=r"declare\(samples=.*: expected a whole number, 1 or"):
        Training(2, folder=tmp_path).declare(samples=number)


def test_declared_sizes_join_the_workload_and_bad_ones_are_set_aside() -> None:
    state = ReportState()

    folded = state.fold(
        [
            line(1, "declared", samples=800, size=7),
            line(2, "declared", batch_size=32),
            line(3, "declared", samples="lots"),
        ],
        epochs=10,
        received_at=LATER_AT,
    )

    assert "samples" in folded.rejected[0][0]
    report = ReportState.from_json(state.to_json()).report()
    assert report.refine(Workload("m", 10, samples=1)) == Workload(
        "m", 10, samples=800, batch_size=32, parameters=7
    )


def test_training_may_count_its_epochs_otherwise_than_its_job() -> None:
    state = ReportState()

    folded = state.fold(
        [line(1, "declared", epochs=4), line(2, "declared", epochs=10**9), epoch_line(3, 4)],
        epochs=2,
        received_at=LATER_AT,
    )

    assert "epochs 1000000000" in folded.rejected[0][0]
    assert [epoch.epoch for epoch in folded.epochs] == [4]
    assert state.report().refine(Workload("m", 2)) == Workload("m", 4)


def test_a_run_is_kept_with_its_declared_sizes(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    asked = workload(inputs=(("n", "1000"),))

    history.ingest("u", "u", asked, [line(1, "declared", samples=800), epoch_line(2, 1)])

    (run,) = history.epochs("mlp")
    assert (run.workload.samples, run.workload.inputs) == (800, asked.inputs)


def test_a_row_has_the_sizes_that_its_code_declared() -> None:
    made = manifest(entry="train:main", parameters='{"n": 1000, "names": ["a"]}')

    read = row(made, report=Report(declared=(("samples", 800),)), largest=4, due_at=0.0, now=0.0)

    assert (read.workload.samples, read.workload.inputs) == (800, (("n", "1000"),))
    assert read_spec(made).parameters == {"n": 1000}


def spec_of(parameters: dict[str, Any], **options: Any) -> Any:
    declared = Declaration.of("train", options)
    return declared.spec(entry="train:main", parameters=parameters)


def test_sizes_are_read_from_parameters() -> None:
    spec = spec_of(
        {"n": 1000, "net": {"batch": 32}}, samples="{n}", batch_size="{net[batch]}", size=7
    )

    assert (spec.samples, spec.batch_size, spec.size) == (1000, 32, 7)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        pytest.param("many", "'many': expected a whole number, or a parameter", id="no number"),
        pytest.param("{m}", "'{m}' cannot be filled in", id="no such parameter"),
        pytest.param("{n}0.5", "'{n}0.5' becomes '30.5': expected a whole", id="not whole"),
        pytest.param("", "'' is empty or no text", id="empty"),
    ],
)
def test_a_template_that_is_no_size_is_named(template: str, problem: str) -> None:
    with pytest.raises(QoSError) as raised:
        spec_of({"n": 3}, samples=template)

    assert raised.value.problems[0][0] == "samples"
    assert problem in raised.value.problems[0][1]


class Doubtful(Curve):
    def notes(self, workload: Workload) -> str:
        return f"{workload.model} is new here"


def test_readers_are_told_what_a_prediction_rests_on(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Doubtful(epoch_s=1.0)) as stage:
        view = stage.run("a", deadline="1h", widths="1")
        row_of_a: Job = stage.world.row("default/a")

    assert view["prediction_note"] == f"{row_of_a.workload.model} is new here"
