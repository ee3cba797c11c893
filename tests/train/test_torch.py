"""PyTorch models, optimisers and DDP through kills and changes of width; skipped without torch."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.job_workers import PATIENCE_S, JobWorkers, kill, narrow_for_an_epoch
from tests.support.training_service import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
FILE = Path(__file__).parents[1] / "support/programs/torch_trainings.py"


@pytest.mark.parametrize(
    "function", ["plain", "randomly"], ids=["model and optimizer", "random numbers"]
)
def test_a_killed_training_goes_on_to_the_bit_as_if_nothing_had_happened(
    tmp_path: Path, function: str
) -> None:
    ends = []
    for name, is_killed in (("whole", False), ("killed", True)):
        (tmp_path / name).mkdir()
        service = Service()
        job_workers = JobWorkers(tmp_path / name, url=service.url, file=FILE)
        job_workers.open_gate(2 if is_killed else 9)
        worker = job_workers.start(function)
        if is_killed:
            job_workers.until_noted("began", epoch=3)
            kill(worker)
            job_workers.open_gate()
            worker = job_workers.start(function)
        assert worker.wait(PATIENCE_S) == 0, job_workers.log()
        told = [line["metrics"] for line in service.of("epoch")]
        ends.append((told, job_workers.result()))
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
