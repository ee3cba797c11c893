"""Under torchrun a deadline flow is one job, whose result every rank returns."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from laxity.flow.torch_launch import launch_of_process
from tests.support.job_service import StandIn, story_of
from tests.support.processes import free_ports

pytestmark = pytest.mark.slow
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.support.programs.flows import train_digits

if __name__ == "__main__":
    lines = [train_digits(hidden=3)]
    try:
        train_digits(hidden=4)
    except Exception as error:
        lines.append(type(error).__name__)
    Path(sys.argv[1], "rank-" + os.environ["RANK"]).write_text(json.dumps(lines))
"""
REFUSED = {"state": "refused", "verdict": "refused", "reason_code": "r", "reason": "too late"}


def environ(prefect_api: str, **more: str) -> dict[str, str]:
    return {**os.environ, "PREFECT_API_URL": prefect_api, "PYTHONPATH": str(ROOT), **more}


def answers(folder: Path) -> list[object]:
    return [json.loads((folder / f"rank-{rank}").read_text()) for rank in range(2)]


@needs_torch
def test_ranks_of_torchrun_share_one_job(
    prefect_api: str, service: StandIn, tmp_path: Path
) -> None:
    script = tmp_path / "nightly.py"
    script.write_text(SCRIPT)
    service.will(*story_of(3, result={"loss": 0.5}))
    service.will(REFUSED)

    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(script)]
    ended = subprocess.run(
        [*command, str(tmp_path)], env=environ(prefect_api), capture_output=True, check=False
    )

    assert ended.returncode == 0, ended.stderr.decode()
    assert answers(tmp_path) == [[{"loss": 0.5}, "DeadlineRefused"]] * 2
    assert len(service.manifests) == 2, "one of each call, not of each rank"


@needs_torch
def test_ranks_without_a_store_of_their_launcher_share_one_job(
    prefect_api: str, service: StandIn, tmp_path: Path
) -> None:
    script = tmp_path / "nightly.py"
    script.write_text(SCRIPT)
    service.will(*story_of(3, result={"loss": 0.5}))
    service.will(REFUSED)
    (port,) = free_ports(1)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env=environ(prefect_api, RANK=rank, **place),
        )
        for rank in ("1", "0")
    ]

    assert [process.wait(120) for process in ranks] == [0, 0]
    assert answers(tmp_path) == [[{"loss": 0.5}, "DeadlineRefused"]] * 2
    assert len(service.manifests) == 2


@pytest.mark.parametrize(
    ("variables", "is_launched"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, True),
        ({"RANK": "0", "WORLD_SIZE": "1"}, False),
        ({}, False),
        ({"RANK": "1", "WORLD_SIZE": "2", "LAXITY_JOB": "default/a"}, False),
        ({"RANK": "1", "WORLD_SIZE": "2", "LAXITY_ALONE": "1"}, False),
    ],
)
def test_a_process_knows_whether_it_is_one_of_several(
    variables: dict[str, str], is_launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LAXITY_JOB", "LAXITY_ALONE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert (launch_of_process() is not None) is is_launched
