"""A service with real workers on this machine, and the jobs of the examples."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laxity.api.client import Client
from laxity.api.job_view import JobView
from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_profiler.history.history import History
from tests.support.builders import TOKEN
from tests.support.processes import free_ports
from tests.support.runs import history_in

HERE = Path(__file__).parent
KINDS = HERE.parents[2] / "flows" / "examples" / "kinds"
LAXITY = Path(sys.executable).with_name("laxity")
WAIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One example: its file and function, samples per epoch and the batch sizes to try."""

    model: str
    entry: str
    samples: int
    batches: tuple[int, ...] = (32, 64, 128, 256)

    @property
    def file(self) -> str:
        return f"{KINDS}/{self.entry}"


KINDS_OF_TRAINING = (
    Kind("softmax-numpy", "softmax_numpy.py:train_softmax", 60_000, (64, 128, 256, 512)),
    Kind("sgd-sklearn", "sgd_sklearn.py:train_sgd", 9_000),
    Kind("mlp-torch", "mlp_torch.py:train_mlp", 7_188, (64, 128, 256, 512)),
    Kind("cnn-torch", "cnn_torch.py:train_cnn", 1_797),
    Kind("gru-torch", "gru_torch.py:train_gru", 4_096, (64, 128, 256, 512)),
    Kind("transformer-torch", "transformer_torch.py:train_transformer", 1_024, (16, 32, 64, 128)),
)


class World:
    """`laxity serve` over the local world in a home folder of its own."""

    def __init__(self, home: Path, *, slots: int = 2, store: str = "") -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        port = free_ports(1)[0]
        self.env = {
            **os.environ,
            "LAXITY_HOME": str(home),
            "LAXITY_TRACKED_BY": "service",
            "LAXITY_URL": f"http://127.0.0.1:{port}",
            "LAXITY_TOKEN": TOKEN,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(HERE.parents[2]), os.environ.get("PYTHONPATH")))
            ),
        }
        with (home / "serve.log").open("ab") as log:
            self.service = subprocess.Popen(
                [
                    str(LAXITY), "serve", "--slots", str(slots), "--port", str(port),
                    "--tracking-uri", "none",
                ],
                env=self.env, stdout=log, stderr=log,
            )  # fmt: skip
        self.client = Client(f"http://127.0.0.1:{port}", TOKEN, patience_s=120.0)

    @contextmanager
    def history(self) -> Iterator[History]:
        """The history as the service has written it."""
        history = history_in(self.home)
        try:
            yield history
        finally:
            history.engine.dispose()

    def submit(self, spec: TrainingSpec) -> str:
        return str(self.client.submit(spec.to_manifest()).id)

    def ended(self, job: str, *, limit_s: float = WAIT_S) -> JobView:
        """Wait for its end."""
        until_at = time.monotonic() + limit_s
        view = self.client.job(job)
        while not view.ended:
            if time.monotonic() > until_at:
                raise AssertionError(f"{job} is {view.state} after {limit_s:.0f} s: {view.reason}")
            view = self.client.job(job, wait_s=10.0, seen=view.revision)
        return view

    def epochs(self, job: str) -> list[dict[str, Any]]:
        """The epoch lines of a job, as its worker wrote them."""
        return [line for line in self.lines(job) if line["kind"] == "epoch"]

    def lines(self, job: str) -> list[dict[str, Any]]:
        namespace, name = job.split("/")
        found = (self.home / "checkpoints" / namespace).glob(f"{name}-????????/reports.jsonl")
        return [json.loads(text) for path in found for text in path.read_text().splitlines()]

    def close(self) -> None:
        self.service.terminate()
        self.service.wait(60)
        subprocess.run([str(LAXITY), "down"], env=self.env, check=False, capture_output=True)


@contextmanager
def world(home: Path, *, slots: int = 2) -> Iterator[World]:
    opened = World(home, slots=slots)
    try:
        yield opened
    finally:
        opened.close()


def best_effort(
    name: str, kind: Kind, *, batch: int, widths: Sequence[int], epochs: int
) -> TrainingSpec:
    """A job of an example without a deadline."""
    return TrainingSpec(
        name=name,
        qos=QoS.of(workers=tuple(widths), epoch_estimate="2s", service_class="best_effort"),
        model=kind.model,
        epochs=epochs,
        samples=kind.samples,
        batch_size=batch,
        entry=f"{HERE}/timed.py:timed",
        parameters={"entry": kind.file, "given": json.dumps({"batch_size": batch})},
        idempotency_key=name,
    )
