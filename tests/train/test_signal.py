"""A worker that cannot ask the service reads what to do from a file, and says in its log that it waits."""

import json
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.job.signal import format_parked_line, read_parked_epoch, read_signal_file
from laxity.worker.reports import ReportChannel
from tests.support.job_workers import JobWorkers

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


def written(path: Path, **said: Any) -> None:
    """As the kubelet does it: the file is replaced as a whole."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps({"stop": False, "workers": 1, "run_id": "", **said}))
    aside.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "signal"
    made.write_text("")  # what the kubelet shows where there is no annotation
    return made


def test_a_signal_in_the_file_is_taken_when_it_is_newer(tmp_path: Path, file: Path) -> None:
    reports = ReportChannel(tmp_path, orders=file)
    written(file, stop=True, generation=7)
    assert reports.wait_until(lambda signal: signal.stop, at_most_s=PATIENCE_S)
    written(file, stop=False, generation=6)
    written(file, stop=False, workers=3, generation=8)
    assert reports.wait_until(lambda signal: signal.workers == 3, at_most_s=PATIENCE_S)
    assert reports.signal.generation == 8
    reports.close()


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", '"x"', "null", '{"generation": "many"}'],
    ids=["empty", "garbled", "a list", "a text", "null", "no number"],
)
def test_a_file_without_a_signal_says_nothing(tmp_path: Path, file: Path, text: str) -> None:
    reports = ReportChannel(tmp_path, orders=file)
    file.write_text(text)
    written(file.with_name("other"), stop=True, generation=9)
    assert not reports.wait_until(lambda signal: signal.generation > 0, at_most_s=1.5)
    written(file, stop=True, generation=9)
    assert reports.wait_until(lambda signal: signal.stop, at_most_s=PATIENCE_S)
    reports.close()


def test_no_file_no_thread(tmp_path: Path) -> None:
    reports = ReportChannel(tmp_path, orders=tmp_path / "none")
    assert read_signal_file(tmp_path / "none") is None
    reports.close()


def test_a_worker_that_waits_unheard_says_so_in_its_log(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = ReportChannel(tmp_path, orders=file)
    written(file, stop=True, generation=41)
    assert reports.wait_until(lambda signal: signal.stop, at_most_s=PATIENCE_S)
    assert reports.say_parked(6) == 41
    log = "some line\n" + capsys.readouterr().err + "another\n"
    assert read_parked_epoch(log, generation=41) == 6
    assert read_parked_epoch(log, generation=42) is None, "that is another signal"
    reports.close()


def test_the_latest_word_of_a_log_counts() -> None:
    lines = [f"laxity: {format_parked_line(epoch=epoch, generation=epoch)}" for epoch in (3, 5)]
    assert read_parked_epoch("\n".join(lines), generation=3) == 5
    assert read_parked_epoch("nothing", generation=0) is None


def test_a_stop_that_is_told_anew_is_answered_anew(tmp_path: Path, file: Path) -> None:
    """As by a service that was started again, or that knows the MLflow run by now."""
    job_workers = JobWorkers(tmp_path, epochs=100_000)
    job_workers.open_gate()
    written(file, stop=True, generation=5)
    job_workers.start(environ={names.ENV_SIGNAL: str(file)})
    job_workers.until(
        lambda: read_parked_epoch(job_workers.log(), generation=5) is not None, "it waits"
    )
    epoch = read_parked_epoch(job_workers.log(), generation=5)
    written(file, stop=True, generation=9, run_id="r")
    job_workers.until(
        lambda: read_parked_epoch(job_workers.log(), generation=9) == epoch, "it says so again"
    )
    assert epoch is not None
    assert job_workers.notes("began", epoch=epoch + 1) == []
    written(file, stop=False, generation=10)
    job_workers.until_noted("began", epoch=epoch + 1)
    job_workers.close()
