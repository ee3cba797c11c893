"""Scripts of real libraries by `laxity run`: stopped for an urgent job, they end as undisturbed ones."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.job_view import JobView
from laxity.cli.job_source import script_manifest
from laxity.flow.script import Script
from laxity.instants import format_instant
from tests.support.local_service import LocalService, local_service
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[2] / "flows/examples/frameworks"
CURL = str(EXAMPLES / "train.sh")
TRAINER = [str(EXAMPLES / "transformers_script.py"), "--max_steps", "1200"]
ALONE = ["--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no"]
ACCELERATE = [*["-m", "accelerate.commands.launch", "--dynamo_backend", "no"], *ALONE]
SLACK_S = 10.0
RESUME = "--resume-args=--resume_from_checkpoint out"
SCRIPTS: dict[str, tuple[str, list[str], str]] = {  # what they need, their words, how they go on
    "transformers": ("transformers", TRAINER, RESUME),
    "accelerate launch": ("accelerate", [*ACCELERATE, *TRAINER], RESUME),
    "lightning": (
        "lightning", [str(EXAMPLES / "lightning_script.py"), "--max_epochs", "30"], "--resumes"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with local_service(tmp_path_factory.mktemp("live"), slots=1, OMP_NUM_THREADS="1") as started:
        yield started


@pytest.mark.parametrize("kind", SCRIPTS)
def test_script_stopped_for_an_urgent_job_ends_with_the_weights_of_an_undisturbed_one(
    live: LocalService, tmp_path: Path, kind: str
) -> None:
    package, words, resume = SCRIPTS[kind]
    if find_spec("torch") is None or find_spec(package) is None:
        pytest.skip(f"PyTorch or {package} is not installed")
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    alone.mkdir()
    stopped.mkdir()
    command = [sys.executable, *words, "--output_dir", "out"]
    name = package
    undisturbed = start(command, alone)

    inside = ("sh", "-c", f'cd {stopped} && exec "$@"', "sh", *command)
    asked = ("--class", "best_effort", "--name", name, "--no-follow", resume)
    assert live.laxity("run", *asked, "--", *inside).returncode == 0
    live.until(name, lambda job: job.epochs_done >= 20)
    assert in_a_hurry(live, f"urgent-{name}").kept

    job = live.ended(name)
    assert (job.state, job.preemptions, job.epochs_done) == ("finished", 1, 100)
    assert not job.finished_early
    assert [workers for _, workers in job.width_history] == [1, 0, 1, 0]
    until(lambda: undisturbed.poll() is not None, "the end of the undisturbed one", limit_s=300)
    assert undisturbed.returncode == 0
    assert weights(stopped / "out") == weights(alone / "out")


def in_a_hurry(live: LocalService, name: str) -> JobView:
    """A job that is in time only if others make room at once; it has ended."""
    estimate = {names.EPOCH_ESTIMATE: "4s", names.DEADLINE: "30m"}
    manifest = script_manifest(Script(("bash", CURL, "8")), estimate, name=name)
    told = live.client.whatif(manifest)
    assert told["verdict"] == "promised", told
    at = datetime.fromtimestamp(told["p90_at"] + SLACK_S, UTC)
    manifest["metadata"]["annotations"][names.DEADLINE] = format_instant(at)
    live.client.submit(manifest)
    return live.ended(name)


def start(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """The script as its user starts it without laxity."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)


def weights(folder: Path) -> Mapping[str, Any]:
    """Those that the script has saved at its end, and after how many steps where it says so."""
    import torch

    if (whole := folder / "last.ckpt").exists():
        saved = torch.load(whole, weights_only=False)
        return {"steps": saved["global_step"], **plain(saved["state_dict"])}
    from safetensors.torch import load_file

    return plain(load_file(folder / "model.safetensors"))


def plain(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values.tolist() for name, values in tensors.items()}
