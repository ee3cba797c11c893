"""Told to stop, a worker saves, says so and waits; killed at any place, the next start goes on."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from laxity.worker.checkpoints.checkpoint import Checkpoints
from tests.support.job_workers import JobWorkers, kill
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
STOPPED = 143
SPACED = {"LAXITY_SAVING_SHARE": "0.001"}  # one save a minute at most
SHIPPED = {"LAXITY_SAVING_SHARE": ""}  # 5 % of the time


def epochs_told(service: Service) -> list[int]:
    return [line["epoch"] for line in service.of("epoch")]


def reached(service: Service, *, epoch: int) -> bool:
    return max(epochs_told(service), default=0) >= epoch


def undisturbed(tmp_path: Path, *, epochs: int = 4) -> Any:
    """What the training returns if nobody interferes."""
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    job_workers = JobWorkers(folder, epochs=epochs)
    job_workers.open_gate()
    assert job_workers.run() == 0
    return job_workers.result()


def test_told_to_stop_it_parks_at_the_epochs_end_and_waits_for_sigterm(
    job_workers: JobWorkers, service: Service
) -> None:
    worker = job_workers.start()
    job_workers.until_noted("began", epoch=1)
    service.tell(stop=True)

    job_workers.open_gate()
    service.until_reported("parked", epoch=1)

    assert worker.poll() is None
    assert [line["epoch"] for line in job_workers.notes("began")] == [1]
    worker.terminate()
    assert worker.wait(30) == STOPPED
    service.order(stop=False)
    assert job_workers.run() == 0
    assert service.of("resumed")[0]["epoch"] == 1
    assert epochs_told(service) == [1, 2, 3, 4]
    assert [line["epoch"] for line in job_workers.notes("trained")] == [1, 2, 3, 4]


def test_told_to_stop_before_the_first_epoch_it_trains_none(tmp_path: Path) -> None:
    service = Service(stop=True)
    job_workers = JobWorkers(tmp_path, url=service.url)
    job_workers.open_gate()
    worker = job_workers.start()

    service.until_reported("parked", epoch=0)

    worker.terminate()
    code = worker.wait(30)
    service.close()
    assert code == STOPPED
    assert job_workers.notes("began") == []


def test_a_withdrawn_order_lets_it_go_on(job_workers: JobWorkers, service: Service) -> None:
    service.order(stop=True)
    job_workers.open_gate()
    worker = job_workers.start()
    service.until(lambda s: s.of("parked"), "parked")

    service.order(stop=False)

    assert worker.wait(30) == 0
    assert epochs_told(service) == [1, 2, 3, 4]
    parked = service.of("parked")[0]
    assert any(line["seq"] > parked["seq"] for line in service.of("formed"))


def test_sigterm_in_an_epoch_loses_that_epoch_only(
    job_workers: JobWorkers, service: Service, tmp_path: Path
) -> None:
    worker = job_workers.start()
    job_workers.open_gate(2)
    job_workers.until_noted("began", epoch=3)

    worker.terminate()
    code = worker.wait(30)

    job_workers.open_gate()
    assert code == STOPPED
    assert not (job_workers.folder / "result.json").exists()
    assert job_workers.run() == 0
    assert [line["epoch"] for line in job_workers.notes("trained")] == [1, 2, 3, 4]
    assert epochs_told(service) == [1, 2, 3, 4]
    assert job_workers.result() == undisturbed(tmp_path)


def test_code_that_swallows_everything_still_does_not_complete_the_job(
    job_workers: JobWorkers, service: Service
) -> None:
    worker = job_workers.start("swallowing")
    job_workers.until_noted("began", epoch=1)

    worker.terminate()
    code = worker.wait(30)

    assert code == STOPPED
    assert len(job_workers.notes("swallowed")) == 1
    assert service.of("finished") == service.of("failed") == []
    assert not (job_workers.folder / "result.json").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_parked_worker_leaves_at_once_whoever_took_its_sigterm(
    job_workers: JobWorkers, service: Service, workers: int
) -> None:
    service.order(workers=workers)
    started = [job_workers.start("ignores_sigterm", index=index) for index in range(workers)]
    job_workers.until_noted("began", epoch=1, times=workers)
    service.tell(stop=True)
    job_workers.open_gate()
    service.until_reported("parked", epoch=1)

    for worker in started:
        worker.terminate()

    assert [worker.wait(30) for worker in started] == [STOPPED] * workers
    assert job_workers.notes("ignored") == []


def test_in_an_epoch_the_training_codes_own_handler_takes_sigterm(
    job_workers: JobWorkers, service: Service
) -> None:
    worker = job_workers.start("ignores_sigterm")
    job_workers.open_gate(1)
    job_workers.until_noted("began", epoch=2)

    worker.terminate()

    job_workers.until_noted("ignored", epoch=2)
    job_workers.open_gate()
    assert worker.wait(60) == 0
    assert service.of("finished")


def test_forked_children_end_as_any_process_does(job_workers: JobWorkers, service: Service) -> None:
    job_workers.open_gate()

    code = job_workers.run("forks")

    assert (code, job_workers.result()) == (0, [1, 0, -15, -15])
    assert "TrainingStopped" not in job_workers.log()
    assert [len(service.of(kind)) for kind in ("failed", "finished")] == [0, 1]


def test_sigterms_in_a_long_save_wait_for_it(job_workers: JobWorkers, service: Service) -> None:
    job_workers.open_gate(1)
    worker = job_workers.start("slow_saver")
    job_workers.until_noted("saving", epoch=1)

    worker.terminate()
    worker.terminate()
    job_workers.open_gate(1000)
    code = worker.wait(30)

    assert code == STOPPED
    newest = Checkpoints(job_workers.folder).newest()
    assert newest is not None
    assert newest.epoch == 1
    assert [line["epoch"] for line in job_workers.reports("epoch")] == [1]


def test_a_kill_in_a_save_leaves_the_checkpoint_before_it(job_workers: JobWorkers) -> None:
    job_workers.open_gate(101)
    worker = job_workers.start("slow_saver")
    job_workers.until_noted("saving", epoch=2)

    worker.terminate()
    kill(worker)

    assert sorted(path.name for path in job_workers.folder.glob("epoch-*")) == ["epoch-00000001"]
    job_workers.open_gate(1000)
    assert job_workers.run("slow_saver") == 0
    assert [line["state"] for line in job_workers.notes("began", epoch=2)] == [1, 1]
    assert job_workers.result() == "state 4"
    assert list(job_workers.folder.glob(".writing-*")) == []


def test_kills_anywhere_lose_and_double_no_epoch(tmp_path: Path, service: Service) -> None:
    dice = random.Random(3)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=60)
    want = 0
    for _ in range(8):
        worker = job_workers.start()
        want += dice.randint(1, 5)
        job_workers.open_gate(want + 2)  # it runs on while it is killed
        service.until(partial(reached, epoch=want), f"epoch {want}")
        kill(worker)
        want += 2

    job_workers.open_gate()
    code = job_workers.run()

    assert code == 0
    assert epochs_told(service) == list(range(1, 61))
    assert [line["seq"] for line in service.lines] == list(range(1, len(service.lines) + 1))
    assert job_workers.result()["weights"] == undisturbed(tmp_path, epochs=60)["weights"]


def test_a_kill_between_checkpoint_and_report_still_reports_the_epoch(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate(2)
    worker = job_workers.start()
    job_workers.until_noted("began", epoch=3)
    kill(worker)
    reports = job_workers.folder / "reports.jsonl"
    kept = [
        line for line in job_workers.reports() if line["seq"] < 5
    ]  # epoch 2 is 5, its save is 6
    assert job_workers.reports()[4]["kind"] == "epoch"
    torn = json.dumps(job_workers.reports()[4])[:20]
    reports.write_text("".join(json.dumps(line) + "\n" for line in kept) + torn)

    job_workers.open_gate()
    code = job_workers.run()

    assert code == 0
    assert [line["epoch"] for line in job_workers.reports("epoch")] == [1, 2, 3, 4]
    assert [line["epoch"] for line in job_workers.notes("trained")] == [1, 2, 3, 4]


def test_a_worker_without_a_folder_says_what_is_missing(tmp_path: Path) -> None:
    job_workers = JobWorkers(tmp_path)

    worker = job_workers.start(environ={"LAXITY_CHECKPOINTS": ""})

    assert worker.wait(30) == 2
    assert "LAXITY_CHECKPOINTS is not set" in job_workers.log()


def test_a_result_is_not_written_twice_after_the_end(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()
    job_workers.run()
    first = job_workers.result()

    code = job_workers.run()

    assert code == 0
    assert job_workers.result() == first
    assert epochs_told(service) == [1, 2, 3, 4]


def test_saves_that_cost_too_much_are_spaced_and_made_up_for_at_sigterm(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate(3)
    worker = job_workers.start("slow_to_save", environ=SPACED)
    job_workers.until_noted("began", epoch=4)
    assert [line["epoch"] for line in job_workers.reports("saved")] == [1]

    worker.terminate()
    code = worker.wait(30)

    assert code == STOPPED
    job_workers.open_gate()
    assert job_workers.run("slow_to_save", environ=SPACED) == 0
    began = job_workers.notes("began", epoch=4)
    assert [(line["state"], line["half"]) for line in began] == [(3, 3), (3, 3)]
    assert service.of("resumed")[0]["epoch"] == 3
    assert epochs_told(service) == [1, 2, 3, 4]
    assert service.of("saved")[-1]["epoch"] == 4


def test_spaced_saves_and_a_kill_report_no_epoch_twice(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate(3)
    worker = job_workers.start("slow_to_save", environ=SPACED)
    job_workers.until_noted("began", epoch=4)
    kill(worker)

    job_workers.open_gate()
    code = job_workers.run("slow_to_save", environ=SPACED)

    assert code == 0
    assert service.of("resumed")[0]["epoch"] == 1
    assert epochs_told(service) == [1, 2, 3, 4]


def test_why_it_failed_is_told_even_if_sigterm_comes_while_telling(
    job_workers: JobWorkers, service: Service
) -> None:
    service.turn_away("failed")
    worker = job_workers.start("no_such_function")
    service.until(lambda s: s.turned_away > 0, "the failure was told and turned away")

    worker.terminate()
    service.turn_away()

    assert worker.wait(60) == 1
    assert "no_such_function" in service.until_reported("failed")["error"]


def test_a_parked_training_loses_nothing_at_the_shipped_saving_share(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate(1)
    worker = job_workers.start("slow_to_save", environ=SHIPPED)
    job_workers.until_noted("began", epoch=2)
    service.tell(stop=True)

    job_workers.open_gate(2)
    service.until_reported("parked", epoch=2)
    worker.kill()  # as the loss of its node would
    worker.wait(30)

    service.order(stop=False)
    job_workers.open_gate()
    assert job_workers.run("slow_to_save", environ=SHIPPED) == 0
    assert service.of("resumed")[0]["epoch"] == 2
    assert [line["epoch"] for line in job_workers.notes("began")] == [1, 2, 3, 4]
