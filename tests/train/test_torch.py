"""PyTorch models, optimisers and DDP through kills and changes of width; skipped without torch."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.crew import PATIENCE_S, Crew, narrow_for_an_epoch
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
        crew = Crew(tmp_path / name, url=service.url, file=FILE)
        crew.open_gate(2 if kill else 9)
        worker = crew.start("plain")
        if kill:
            crew.until_noted("began", epoch=3)
            worker.kill()
            worker.wait(30)
            crew.open_gate()
            worker = crew.start("plain")
        assert worker.wait(PATIENCE_S) == 0, crew.log()
        told.append((losses(service), crew.result()))
        service.close()

    assert told[0] == told[1]


def test_a_killed_training_draws_the_same_random_numbers_to_the_bit(tmp_path: Path) -> None:
    ends = []
    for name, kill in (("whole", False), ("killed", True)):
        (tmp_path / name).mkdir()
        service = Service()
        crew = Crew(tmp_path / name, url=service.url, file=FILE)
        crew.open_gate(2 if kill else 9)
        worker = crew.start("randomly")
        if kill:
            crew.until_noted("began", epoch=3)
            worker.kill()
            worker.wait(30)
            crew.open_gate()
            worker = crew.start("randomly")
        assert worker.wait(PATIENCE_S) == 0, crew.log()
        drawn = [line["metrics"] for line in service.of("epoch")]
        ends.append((drawn, crew.result()))
        service.close()

    assert ends[0] == ends[1]


def test_ddp_forms_anew_when_the_width_changes(tmp_path: Path) -> None:
    service = Service(workers=2)
    crew = Crew(tmp_path, url=service.url, file=FILE)
    crew.open_gate(1)
    workers = [crew.start("distributed", index=index) for index in range(2)]
    narrow_for_an_epoch(crew, service)

    codes = [worker.wait(PATIENCE_S) for worker in workers]

    service.close()
    assert codes == [0, 0], crew.log()
    widths = [line["width"] for line in service.of("epoch")]
    assert widths == [2, 2, 1, 2]
    ends = [json.loads((crew.gates / f"end-{rank}").read_text()) for rank in range(2)]
    assert ends[0] == ends[1]
    assert len(list(crew.folder.glob(".ddp-*"))) <= 1
