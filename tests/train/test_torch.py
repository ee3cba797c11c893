"""PyTorch models, optimisers and DDP through kills and changes of width; skipped without torch."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.job_workers import PATIENCE_S, JobWorkers, narrow_for_an_epoch
from tests.support.training_service import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
FILE = Path(__file__).parents[1] / "support/programs/torch_trainings.py"


def losses(service: Service) -> list[float]:
    return [round(line["metrics"]["loss"], 10) for line in service.of("epoch")]


def test_model_and_optimizer_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    told = []
    for name, kill in (("whole", False), ("killed", True)):
        (tmp_path / name).mkdir()
        service = Service()
        job_workers = JobWorkers(tmp_path / name, url=service.url, file=FILE)
        job_workers.open_gate(2 if kill else 9)
        worker = job_workers.start("plain")
        if kill:
            job_workers.until_noted("began", epoch=3)
            worker.kill()
            worker.wait(30)
            job_workers.open_gate()
            worker = job_workers.start("plain")
        assert worker.wait(PATIENCE_S) == 0, job_workers.log()
        told.append((losses(service), job_workers.result()))
        service.close()

    assert told[0] == told[1]


def test_a_killed_training_draws_the_same_random_numbers_to_the_bit(tmp_path: Path) -> None:
    ends = []
    for name, kill in (("whole", False), ("killed", True)):
        (tmp_path / name).mkdir()
        service = Service()
        job_workers = JobWorkers(tmp_path / name, url=service.url, file=FILE)
        job_workers.open_gate(2 if kill else 9)
        worker = job_workers.start("randomly")
        if kill:
            job_workers.until_noted("began", epoch=3)
            worker.kill()
            worker.wait(30)
            job_workers.open_gate()
            worker = job_workers.start("randomly")
        assert worker.wait(PATIENCE_S) == 0, job_workers.log()
        drawn = [line["metrics"] for line in service.of("epoch")]
        ends.append((drawn, job_workers.result()))
        service.close()

    assert ends[0] == ends[1]


def test_ddp_forms_anew_when_the_width_changes(tmp_path: Path) -> None:
    service = Service(workers=2)
    job_workers = JobWorkers(tmp_path, url=service.url, file=FILE)
    job_workers.open_gate(1)
    workers = [job_workers.start("distributed", index=index) for index in range(2)]
    narrow_for_an_epoch(job_workers, service)

    codes = [worker.wait(PATIENCE_S) for worker in workers]

    service.close()
    assert codes == [0, 0], job_workers.log()
    widths = [line["width"] for line in service.of("epoch")]
    assert widths == [2, 2, 1, 2]
    ends = [json.loads((job_workers.gates / f"end-{rank}").read_text()) for rank in range(2)]
    assert ends[0] == ends[1]
    assert len(list(job_workers.folder.glob(".ddp-*"))) <= 1
