"""What is trained, how far it is, and how long it will take: the values that every decision rests on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.model_key import model_key

if TYPE_CHECKING:
    from laxity.job.spec import TrainingSpec

Source = Literal["observed", "history", "profile", "family", "traffic", "user", "prior", "truth"]
Floats = NDArray[np.float64]
MOST_INPUTS: Final = 30
LONGEST_INPUT: Final = 80


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained. Two jobs with equal workloads share one history.

    `model` is the key of the history (laxity_profiler.model_key); `epochs` counts equal units of work; `user_epoch_s` is the
    user's estimate of one epoch on one worker, or None; `gpus_per_worker` decides how many workers
    a node holds. `parameters` are those of the net, `inputs` those of the training function that are
    plain values: names and JSON texts, by name. `whole`: nobody has said how it is counted; its one
    epoch is the whole run, and so is the user's estimate.
    """

    model: str
    epochs: int
    samples: int | None = None
    batch_size: int | None = None
    dataset_bytes: int | None = None
    parameters: int | None = None
    gpu_type: str = ""
    user_epoch_s: float | None = None
    gpus_per_worker: int = 1
    inputs: tuple[tuple[str, str], ...] = ()
    whole: bool = False

    @classmethod
    def of(cls, spec: "TrainingSpec") -> Self:
        """What a job says that it trains."""
        return cls(
            model=model_key(spec.namespace, spec.model),
            epochs=spec.epochs,
            samples=spec.samples,
            batch_size=spec.batch_size,
            dataset_bytes=spec.dataset_bytes,
            parameters=spec.size,
            user_epoch_s=spec.qos.epoch_estimate_s,
            gpus_per_worker=spec.qos.gpus_per_worker,
            inputs=plain_inputs(spec.parameters),
            whole=spec.script,
        )

    def refined(self, sizes: Mapping[str, int]) -> "Workload":
        """With what its code says of it, by the names of these fields."""
        counts_whole = self.whole and "epochs" in sizes
        workload = self.counted(sizes["epochs"]) if counts_whole else self
        return replace(workload, **dict[str, Any](sizes))

    def counted(self, epochs: int) -> "Workload":
        """A whole run, as so many equal epochs."""
        whole_s = self.user_epoch_s
        each_s = None if whole_s is None else whole_s / epochs
        return replace(self, epochs=epochs, user_epoch_s=each_s, whole=False)


def plain_inputs(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Numbers, short texts and truth values of a JSON object, those of objects in it as `a.b`."""
    return tuple(sorted(_iter_inputs("", parameters)))[:MOST_INPUTS]


def _iter_inputs(prefix: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _iter_inputs(f"{prefix}{name}.", value)
        elif isinstance(value, bool | int | float | str):
            text = json.dumps(value)
            if len(text) <= LONGEST_INPUT:
                yield f"{prefix}{name}", text


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: whole epochs done, and what its latest epochs took at which width.

    `epoch_s` and `widths` hold the latest observed epochs, oldest first, at most 20 (same length);
    an epoch right after a start or a re-forming is left out: it holds a warm-up. `warms_up`: such a one
    runs now. `numbers` are those of the epochs; empty: the last ones that are done. `gpu_type` is the
    product that they ran on, "" if nobody knows.
    """

    epochs_done: int = 0
    epoch_s: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()
    warms_up: bool = False
    numbers: tuple[int, ...] = ()
    gpu_type: str = ""

    @property
    def epoch_numbers(self) -> Sequence[int]:
        """Which epochs were observed, counted from 1."""
        n, done = len(self.epoch_s), self.epochs_done
        return self.numbers if len(self.numbers) == n else range(done - n + 1, done + 1)


NO_PROGRESS = Progress()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A duration with its uncertainty, in seconds. Never a bare float: policies choose a quantile."""

    p10_s: float
    p50_s: float
    mean_s: float
    p90_s: float
    source: Source
    n_points: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """One row of a batched question: the rest of this workload on so many workers."""

    workload: Workload
    progress: Progress
    workers: int


@dataclass(frozen=True, slots=True)
class Estimates:
    """Answers to n asks, one row each: arrays of shape (n,) in seconds, sources as a tuple.

    `next_share`, (n, 4): of the time of P10, P50, mean and P90, the next epoch; `next_p90_s`, (n,): its own
    P90. None where a predictor takes all epochs for equal and sure.
    """

    p10_s: Floats
    p50_s: Floats
    mean_s: Floats
    p90_s: Floats
    sources: tuple[Source, ...]
    n_points: NDArray[np.int64]
    next_share: Floats | None = None
    next_p90_s: Floats | None = None

    @classmethod
    def of(cls, rows: Sequence[Estimate]) -> Self:
        """Answers that were given one by one."""
        return cls(
            np.array([row.p10_s for row in rows], dtype=np.float64),
            np.array([row.p50_s for row in rows], dtype=np.float64),
            np.array([row.mean_s for row in rows], dtype=np.float64),
            np.array([row.p90_s for row in rows], dtype=np.float64),
            tuple([row.source for row in rows]),
            np.array([row.n_points for row in rows], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def next_unit(self, row: int) -> tuple[tuple[float, ...], float]:
        """The next epoch's share of those that are left, and its P90; zeros where nobody says."""
        if self.next_share is None or self.next_p90_s is None:
            return (), 0.0
        return tuple(self.next_share[row].tolist()), float(self.next_p90_s[row])

    def __getitem__(self, row: int) -> Estimate:
        return Estimate(
            float(self.p10_s[row]),
            float(self.p50_s[row]),
            float(self.mean_s[row]),
            float(self.p90_s[row]),
            self.sources[row],
            int(self.n_points[row]),
        )


@runtime_checkable
class Predictor(Protocol):
    """A frozen value: the same questions get the same answers. Learning makes a new version.

    An epoch time or a remaining time that cannot be known at all (no history, no estimate, no
    prior) is answered with infinity at P90 and source "prior", never with an exception.
    """

    @property
    def version(self) -> str: ...

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        """One epoch on `workers` workers, warmed up."""
        ...

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        """All epochs that are left, run on `workers` workers, and finishing, as one sum.

        A sum of P90s is no P90. With no epoch left it is finishing alone.
        """
        ...

    def table(self, asks: Sequence[Ask]) -> Estimates:
        """`remaining` for many rows in one call."""
        ...

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        """Checkpoint and stop, after the epoch's end, until the GPUs are free."""
        ...

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        """From the patch that starts the pods to the first useful step: also paid by a first start."""
        ...

    def finishing_time(self, workload: Workload, workers: int) -> Estimate:
        """From the end of the last epoch until the job is complete: part of `remaining`."""
        ...

    def to_json(self) -> dict[str, object]:
        """All parameters, so that the journal can build the same value again (see `from_json`)."""
        ...
