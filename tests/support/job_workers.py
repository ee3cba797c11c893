"""Starts real worker processes of one job and looks at what they leave behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.training_service import Service

ROOT = str(Path(__file__).parents[2])
TRAININGS = Path(__file__).parent / "programs/trainings.py"
PATIENCE_S = 180.0


class JobWorkers:
    """The workers of one job in one folder. Whatever still runs at the end of a test is killed."""

    def __init__(
        self, tmp: Path, *, url: str = "", epochs: int = 4, file: Path = TRAININGS
    ) -> None:
        self.folder = tmp / "checkpoints"
        self.gates = tmp
        self._file = file
        self._environ = {
            **os.environ,
            "LAXITY_JOB": "team/a",
            "LAXITY_JOB_UID": "uid-1",
            "LAXITY_CHECKPOINTS": str(self.folder),
            "LAXITY_EPOCHS": str(epochs),
            "LAXITY_MODEL": "tiny",
            "LAXITY_SAVING_SHARE": "1",  # after every epoch, however slow this machine is
            "LAXITY_URL": url,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
        }
        self._all: list[subprocess.Popen[bytes]] = []

    def start(
        self, function: str = "mean_model", *, index: int = 0, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the worker of an index, as a Job would."""
        own = {"JOB_COMPLETION_INDEX": str(index), **self._parameters(function), **(environ or {})}
        with (self.gates / f"worker-{index}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "laxity.worker", f"{self._file}:{function}"],
                env={**self._environ, **own},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.gates,
            )
        self._all.append(process)
        return process

    def start_all(self, count: int, function: str = "mean_model") -> list[subprocess.Popen[bytes]]:
        return [self.start(function, index=index) for index in range(count)]

    def run(self, function: str = "mean_model", **more: Any) -> int:
        """Start worker 0 and wait for its end; the exit code."""
        return self.start(function, **more).wait(PATIENCE_S)

    def open_gate(self, epoch: int = 1_000_000) -> None:
        """Epochs up to this one may run."""
        aside = self.gates / "gate.new"
        aside.write_text(str(epoch))
        aside.replace(self.gates / "gate")

    def notes(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        """What training functions noted, in order."""
        lines = whole_lines(self.gates / "notes.jsonl")
        return [line for line in lines if {"what": what, **fields}.items() <= line.items()]

    def until_noted(self, what: str, *, times: int = 1, **fields: Any) -> None:
        self.until(lambda: len(self.notes(what, **fields)) >= times, f"{times} x {what} {fields}")

    def until(self, true: Callable[[], bool], claim: str) -> None:
        """Wait until this holds."""
        end = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"{claim}: not within {PATIENCE_S} s\n{self.log()}")
            time.sleep(0.01)

    def reports(self, kind: str = "") -> list[dict[str, Any]]:
        lines = whole_lines(self.folder / "reports.jsonl")
        return [line for line in lines if kind in ("", line["kind"])]

    def result(self) -> Any:
        return json.loads((self.folder / "result.json").read_text())

    def log(self, index: int = 0) -> str:
        return (self.gates / f"worker-{index}.log").read_text()

    def close(self) -> None:
        for process in self._all:
            if process.poll() is None:
                kill(process)

    def _parameters(self, function: str) -> dict[str, str]:
        takes_gates = f"def {function}(training: Training, gates" in self._file.read_text()
        given = {"gates": str(self.gates)} if takes_gates else {}
        return {"LAXITY_PARAMETERS": json.dumps(given)}


def kill(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait(30)


def narrow_for_an_epoch(job_workers: JobWorkers, service: Service) -> None:
    """Of two workers in their second epoch, leave one for the third, and have both for the fourth."""
    job_workers.until_noted("began", epoch=2, times=2)
    service.tell(workers=1)
    job_workers.open_gate(2)
    service.until_reported("formed", width=1)
    job_workers.until_noted("began", epoch=3)
    service.tell(workers=2)
    job_workers.open_gate()


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a file that others append to meanwhile: the last one may be half written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]
