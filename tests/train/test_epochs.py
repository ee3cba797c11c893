"""What one worker reports and leaves behind when nothing goes wrong, and when the user's code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from laxity import Training
from laxity.job.worker_exits import EXIT_RAISED
from laxity.worker.training import run_of
from tests.support.job_workers import JobWorkers
from tests.support.processes import run_command
from tests.support.services import wait_until
from tests.support.training_service import Service

pytestmark = pytest.mark.slow


def test_each_epoch_is_saved_and_reported_once_in_order(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()

    code = job_workers.run()

    told = service.lines
    assert code == 0
    assert [line["seq"] for line in told] == list(range(1, len(told) + 1))
    assert [line["kind"] for line in told] == [
        "started",
        "formed",
        *["epoch", "saved"] * 4,
        "finished",
    ]
    epochs = service.of("epoch")
    assert [line["epoch"] for line in epochs] == [1, 2, 3, 4]
    assert [line["warmup"] for line in epochs] == [True, False, False, False]
    assert {(line["width"], line["bytes"]) for line in epochs} == {(1, 100)}
    assert all(line["epoch_s"] > 0 and line["metrics"]["loss"] > 0 for line in epochs)
    assert told == job_workers.reports()
    assert service.of("finished")[0]["result"] == job_workers.result()


def test_the_two_newest_checkpoints_are_kept(job_workers: JobWorkers) -> None:
    job_workers.open_gate()

    job_workers.run()

    kept = sorted(path.name for path in job_workers.folder.glob("epoch-*"))
    assert kept == ["epoch-00000003", "epoch-00000004"]


def test_the_result_comes_with_the_seconds_since_the_last_epoch(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()

    job_workers.run("slow_to_save")

    (finished,) = service.of("finished")
    since_s = finished["at"] - service.of("epoch")[-1]["at"]
    assert since_s > 0.06, "the last save is part of it"
    assert finished["finishing_s"] == pytest.approx(since_s, abs=0.04)


def test_a_start_after_the_last_epoch_does_not_say_how_long_that_was_ago(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()

    codes = [job_workers.run(), job_workers.run()]

    assert codes == [0, 0]
    assert ["finishing_s" in line for line in service.of("finished")] == [True, False]


def test_an_epoch_can_be_any_number_of_steps(job_workers: JobWorkers) -> None:
    code = job_workers.run("in_steps")

    assert code == 0
    assert job_workers.result() == 20
    assert [line["steps"] for line in job_workers.notes("trained")] == [5, 10, 15, 20]


def test_a_function_that_raises_fails_with_its_message_cut_short(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("raises")

    (failed,) = service.of("failed")
    assert code == 70, "another start may get further"
    assert failed["error"].startswith("ValueError: the loss is xxx")
    assert len(failed["error"]) == 2000
    assert [line["epoch"] for line in service.of("epoch")] == [1]


def test_a_function_that_exits_with_0_does_not_complete_its_job(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("exits")

    assert code == 1
    error = service.of("failed")[0]["error"]
    assert re.fullmatch(
        r"SystemExit: the function called sys.exit\(0\) \(trainings.py, line \d+\)", error
    )


@pytest.mark.parametrize(
    ("function", "alive"),
    [
        pytest.param("leaves_a_thread", "thread 'my-uploader' runs", id="a thread"),
        pytest.param("leaves_a_child", "process ", id="a child"),
    ],
)
def test_what_outlives_the_result_is_named_and_ends_with_the_worker(
    job_workers: JobWorkers, service: Service, function: str, alive: str
) -> None:
    code = job_workers.run(function)

    assert (code, job_workers.result()) == (0, "done")
    assert f"the training has ended; 5 s later {alive}" in job_workers.log()
    assert service.of("finished")


def test_what_outlives_a_failure_ends_with_the_worker(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("leaves_a_child", environ={"LAXITY_PARAMETERS": '{"fails": true}'})

    assert code == 70
    assert "5 s later process" in job_workers.log()
    assert service.of("failed")


def test_a_function_that_never_enters_its_epochs_fails(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("never_loops", environ={"LAXITY_PARAMETERS": '{"answer": 43}'})

    (failed,) = service.of("failed")
    assert code == 1
    assert "ended without entering training.epochs()" in failed["error"]
    assert "none of its 4 epochs is counted" in failed["error"]
    assert not service.of("finished")
    assert (job_workers.result(), failed["result"]) == (43, 43), "its result is kept"


def test_a_function_without_a_loop_is_the_one_epoch_that_it_declares(
    tmp_path: Path, service: Service
) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=1)

    code = job_workers.run("logs_without_a_loop")

    (epoch,) = service.of("epoch")
    assert (code, job_workers.result()) == (0, "trained"), job_workers.log()
    assert (epoch["epoch"], epoch["metrics"]) == (1, {"loss": 0.5})
    assert epoch["epoch_s"] >= 0.5
    assert service.of("finished")[0]["epochs_done"] == 1


@pytest.mark.parametrize("ahead", [0, 2])
def test_code_whose_own_count_is_ahead_is_told_of_the_epochs_that_it_skips(
    job_workers: JobWorkers, service: Service, ahead: int
) -> None:
    code = job_workers.run(
        "keeps_its_own_count", environ={"LAXITY_PARAMETERS": f'{{"ahead": {ahead}}}'}
    )

    assert (code, len(job_workers.result())) == (0, 4 - ahead)
    told = job_workers.log().count("epoch 1 took less than 1 ms and logged nothing")
    assert told == (1 if ahead else 0)
    untrained = [line["epoch"] for line in service.of("epoch") if line.get("untrained")]
    assert untrained == list(range(1, ahead + 1))
    assert "finishing_s" in service.of("finished")[0]


@pytest.mark.parametrize("stops_at", [2, 3])
def test_code_that_resumes_by_itself_is_told_of_and_is_no_early_end(
    job_workers: JobWorkers, service: Service, stops_at: int
) -> None:
    stopped = job_workers.run(
        "resumes_by_itself", environ={"LAXITY_PARAMETERS": f'{{"stops_at": {stops_at}}}'}
    )
    code = job_workers.run("resumes_by_itself")

    (finished,) = service.of("finished")
    assert (stopped, code, finished["result"]) == (70, 0, 4)
    assert finished["epochs_done"] == 4 - stops_at
    assert finished["judged"], "nothing is learned from its number of epochs"
    assert "Declare resumes=True" in job_workers.log().splitlines()[-1]


def test_epochs_that_a_list_has_taken_are_not_trained(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("lists_its_epochs")

    assert code == 0
    assert [line.get("untrained") for line in service.of("epoch")] == [True] * 4
    assert "finishing_s" not in service.of("finished")[0]


def test_code_that_leaves_closed_streams_behind_has_trained(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("closes_its_streams")

    assert (code, job_workers.result()) == (0, 4)
    assert len(service.of("finished")) == 1


def test_code_that_ends_its_process_once_all_is_trained_has_finished(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("exits_when_trained")

    (finished,) = service.of("finished")
    assert (code, finished["result"], finished["epochs_done"]) == (0, None, 4)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param("fails_on_closed_streams", "OSError: no export today", id="closed streams"),
        pytest.param(
            "logs_arrays", "log(accuracy=...): expected a number, not a ndarray of shape (2,)",
            id="an array as a figure",
        ),
    ],
)  # fmt: skip
def test_what_a_training_fails_of_is_told_in_full(
    job_workers: JobWorkers, service: Service, function: str, words: str
) -> None:
    code = job_workers.run(function)

    assert code == EXIT_RAISED
    assert words in service.of("failed")[0]["error"]
    assert words in job_workers.log()


def test_code_that_logs_without_a_loop_is_told_so_at_once(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("logs_without_a_loop")

    assert code == 1
    assert job_workers.log().count("training.log() came before training.epochs()") == 1


def test_code_without_a_loop_is_told_so_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("laxity.worker.notices.LOOP_S", 0.01)
    monkeypatch.setattr("laxity.worker.notices.say", told.append)
    run = run_of(Training(epochs=3))

    with run.notices.expect_loop(lambda: run.started):
        wait_until(lambda: bool(told), "a notice")

    assert "no epoch is counted yet" in told[0]
    assert "declare epochs=1" in told[0]


def test_a_result_that_is_not_json_finishes_with_a_notice(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("returns_a_complex_number")

    (finished,) = service.of("finished")
    assert code == 0
    assert finished["result"] == job_workers.result() == {"loss": 0.5, "model": "1j"}
    assert "kept only as a text: 1j of type complex at ['model']" in job_workers.log()
    assert "write it to a file in training.folder or log it to MLflow" in job_workers.log()


def test_a_wrong_parameter_fails_with_the_functions_signature(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("never_loops", environ={"LAXITY_PARAMETERS": '{"anwser": 43}'})

    assert code == 1
    assert "anwser" in service.of("failed")[0]["error"]


def test_nan_is_kept_out_of_the_reports_with_one_notice(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()

    code = job_workers.run("odd_figures")

    metrics = [line["metrics"] for line in service.of("epoch")]
    assert code == 0
    assert [sorted(figures) for figures in metrics] == [
        ["accuracy", "loss"],
        ["accuracy"],
        ["accuracy", "loss"],
        ["accuracy", "loss"],
    ]
    assert job_workers.log().count("loss is nan") == 1


def test_a_full_disk_is_said_once_and_the_training_goes_on(
    job_workers: JobWorkers, service: Service
) -> None:
    code = job_workers.run("fills_the_disk")

    lines = service.of("epoch")
    assert (code, len(service.of("finished"))) == (0, 1)
    assert [line.get("saved_epoch") for line in lines] == [None, None, 2, 2]
    assert lines[-1]["save_error"].startswith("checkpoint of epoch 4 could not be written")
    assert job_workers.log().count("could not be written") == 1
    assert sorted(path.name for path in job_workers.folder.glob("epoch-*")) == [
        "epoch-00000001",
        "epoch-00000002",
    ]


def test_without_a_service_it_trains_to_the_end_and_keeps_its_reports(
    lone_workers: JobWorkers,
) -> None:
    lone_workers.open_gate()

    code = lone_workers.run()

    assert code == 0
    assert [line["epoch"] for line in lone_workers.reports("epoch")] == [1, 2, 3, 4]


def test_a_service_that_was_away_gets_every_report_when_it_is_back(tmp_path: Path) -> None:
    away = Service()
    port = away.port
    away.close()
    job_workers = JobWorkers(tmp_path, url=f"http://127.0.0.1:{port}")
    job_workers.open_gate(2)
    worker = job_workers.start()
    job_workers.until_noted("began", epoch=3)

    back = Service(port=port)
    job_workers.open_gate()
    code = worker.wait(60)

    back.close()
    assert code == 0
    assert [line["seq"] for line in back.lines] == list(range(1, 12))
    assert back.lines == job_workers.reports()


def test_the_same_code_trains_alone_without_a_scheduler(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(
        "import numpy as np\n"
        "from laxity import Training\n"
        "training = Training(epochs=3)\n"
        "model = {'w': np.zeros(2)}\n"
        "training.restore(model)\n"
        "for epoch in training.epochs():\n"
        "    model['w'] += training.shard(np.ones((4, 2))).mean(axis=0)\n"
        "    training.average(model)\n"
        "    training.log(loss=1 / epoch)\n"
        "print(model['w'].tolist(), training.last('loss'), training.workers)\n"
    )

    done = run_command(sys.executable, str(script), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[3.0, 3.0] 0.3333333333333333 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["alone.py"]


def test_importing_the_training_costs_little_and_no_heavy_library() -> None:
    asked = "import sys, laxity.worker.training as t; print({'numpy', 'mlflow', 'torch', 'prefect'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
