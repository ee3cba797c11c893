"""A service with real workers on this machine, and the jobs of the examples."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_profiler.history.history import History
from tests.support.local_service import LocalService
from tests.support.runs import history_in

HERE = Path(__file__).parent
KINDS = HERE.parents[2] / "flows" / "examples" / "kinds"


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


class World(LocalService):
    """`laxity serve` over the local world in a home folder of its own."""

    patience_s = 900.0

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

    def epochs(self, job: str) -> list[dict[str, Any]]:
        """The epoch lines of a job, as its worker wrote them."""
        return [line for lines in self.lines(job).values() for line in lines]


@contextmanager
def world(home: Path, *, slots: int = 2) -> Iterator[World]:
    opened = World(home, slots=slots, PYTHONPATH=str(HERE.parents[2]))
    try:
        opened.start()
        yield opened
    finally:
        opened.processes.stop()


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
