"""What was observed of trainings: epochs, and stops with what each took."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as it was trained.

    `nodes`: on so many its workers lay, None if nobody knows. `gpu_type` is the product of their GPUs,
    "" if nobody knows.
    """

    epoch: int
    width: int
    epoch_s: float
    bytes: int = 0
    warmup: bool = False
    at: float = 0.0
    nodes: int | None = None
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """One save, load, re-forming, suspend or resume; `bytes` of the checkpoint, if known."""

    kind: str
    workers: int
    seconds: float
    at: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedStop:
    """One observed stop with the model it belongs to."""

    model: str
    kind: str
    workers: int
    seconds: float
    bytes: int | None
    at: float = 0.0
