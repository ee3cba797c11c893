"""Runs with known truth, histories on disk, and report lines as a worker writes them."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor

START_AT = 1_000_000.0
LATER_AT = 2_000_000.0
OpenHistory = Callable[[Path], History]


def history_in(folder: Path) -> History:
    return History(open_engine(f"sqlite:///{folder}/laxity.db"))


def workload(model: str = "mlp", *, epochs: int = 10, **fields: Any) -> Workload:
    return Workload(model, epochs, **fields)


def epoch_line(
    seq: int,
    epoch: int,
    *,
    epoch_s: Any = 2.0,
    width: int = 2,
    at: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    return {
        "seq": seq,
        "kind": "epoch",
        "epoch": epoch,
        "epoch_s": epoch_s,
        "width": width,
        "bytes": 100,
        "warmup": False,
        "metrics": {},
        "at": START_AT + 10.0 * seq if at is None else at,
    } | fields


def line(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "at": START_AT + 10.0 * seq} | fields


def trained(
    history: History,
    uid: str,
    model: str = "mlp",
    *,
    epoch_s: Sequence[float],
    width: int = 1,
    **fields: Any,
) -> None:
    """A whole run of these epochs, the first one a warm-up."""
    lines = [line(1, "formed", width=width, epoch=0)]
    lines += [
        epoch_line(n + 1, n, epoch_s=seconds, width=width, warmup=n == 1)
        for n, seconds in enumerate(epoch_s, 1)
    ]
    what = workload(model, epochs=len(epoch_s), **fields)
    history.ingest(uid, f"default/{uid}", what, lines, received_at=LATER_AT)


class World:
    """Where runs come from: each has its own factor, each epoch its own noise."""

    def __init__(
        self,
        seed: int,
        *,
        epoch_s: float = 10.0,
        spread: float = 0.08,
        noise: float = 0.06,
        memory: float = 0.0,
        slower_at_half: float = 0.0,
    ) -> None:
        self._random = random.Random(seed)
        self._epoch_s = epoch_s
        self._spread = spread
        self._noise = noise
        self._memory = memory
        self._slower = slower_at_half

    def run(self, epochs: int) -> tuple[float, ...]:
        own = math.exp(self._random.gauss(0.0, self._spread))
        return tuple(
            self._epoch_s * own * math.exp(self._noise * z) * self._pace(at, epochs)
            for at, z in enumerate(self._shocks(epochs))
        )

    def predictor(self, runs: int, *, epochs: int, width: int = 2) -> HistoryPredictor:
        found = [Stretch(WorkloadSetting(), width, self.run(epochs)) for _ in range(runs)]
        return HistoryPredictor((fit_model("mlp", found),))

    def _pace(self, at: int, epochs: int) -> float:
        return 1.0 + self._slower if at >= epochs // 2 else 1.0

    def _shocks(self, n: int) -> Iterator[float]:
        z = self._random.gauss(0.0, 1.0)
        for _ in range(n):
            yield z
            z = self._memory * z + math.sqrt(1.0 - self._memory**2) * self._random.gauss(0.0, 1.0)
