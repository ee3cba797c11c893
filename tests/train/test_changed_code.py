"""A training that goes on with other code than it began with says which files have changed."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import laxity
from laxity.api.job_view import job_view
from laxity.cli.render.job_panel import job_panel
from laxity.worker.code.code_digest import digest_project
from laxity_profiler.history.report_fold import ReportState
from tests.support.job_workers import JobWorkers
from tests.support.training_service import Service

CODE = """
import time
from pathlib import Path

from laxity import Training
from parts import helper

RATE = 0.1


def train(training: Training, gates: str) -> float:
    count = {"sum": 0.0}
    training.restore(count)
    for epoch in training.epochs():
        count["sum"] += RATE
        while epoch > 2 and not (Path(gates) / "gate").exists():
            time.sleep(0.01)
    return count["sum"]
"""


def make_project(folder: Path) -> Path:
    (folder / "parts").mkdir()
    (folder / "parts/__init__.py").touch()
    (folder / "parts/helper.py").write_text("ANSWER = 1\n")
    file = folder / "project.py"
    file.write_text(CODE)
    return file


def stop_in_epoch_3(job_workers: JobWorkers, service: Service) -> None:
    worker = job_workers.start("train")
    service.until(lambda told: len(told.of("epoch")) == 2, "two epochs")
    worker.terminate()
    worker.wait(60)
    (job_workers.gates / "gate").touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edited", "told"),
    [
        pytest.param("project.py", "project.py", id="the file itself"),
        pytest.param("parts/helper.py", "parts/helper.py", id="a module of it"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_files_that_changed_while_it_was_stopped_are_named(
    tmp_path: Path, service: Service, edited: str, told: str
) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url, file=make_project(tmp_path))
    stop_in_epoch_3(job_workers, service)
    if edited:
        with (tmp_path / edited).open("a") as file:
            file.write("# edited\n")

    code = job_workers.run("train")

    (resumed,) = service.of("resumed")
    assert (code, resumed["code_changed"]) == (0, told), job_workers.log()
    assert ("changed since the first start" in job_workers.log()) == bool(told)


def test_show_names_the_files_also_after_later_starts() -> None:
    state, shown = ReportState(), io.StringIO()
    changed = {"kind": "resumed", "epoch": 2, "load_s": 0.1, "code_changed": "project.py"}
    lines = [
        {"seq": 1, "at": 1.0, **changed},
        {"seq": 2, "at": 2.0, **changed, "code_changed": ""},
    ]

    state.fold(lines, epochs=4, received_at=3.0)

    kept = ReportState.from_json(state.to_json()).report().code_changed
    view = {"id": "default/a", "state": "running", "epochs": 4, "code_changed": kept}
    Console(file=shown, width=120).print(job_panel(job_view(view), now=0.0))
    assert "changed since the first start: project.py" in shown.getvalue()


def test_laxitys_own_modules_are_no_code_of_the_project() -> None:
    """Or each new version of it would tell that the training's code has changed."""
    own = Path(laxity.__file__).resolve().parent
    assert [name for name in digest_project() if Path(name).resolve().is_relative_to(own)] == []
