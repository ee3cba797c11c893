"""Jobs, nodes and clusters with sane defaults, and a predictor that is exactly right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laxity_profiler.estimate import (
    NO_PROGRESS,
    Ask,
    Estimate,
    Estimates,
    Progress,
    Source,
    Workload,
)
from laxity_scheduler.model.cluster import ClusterState, Hold, Node
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import reason

MINUTE_S = 60.0
TOKEN = "operator-of-the-tests"  # LAXITY_TOKEN of services that tests start
SECRET = "workers-of-the-tests"  # LAXITY_WORKER_SECRET of replicas


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Curve:
    """A Predictor that knows: `epoch_s` seconds an epoch on one worker, sped up by `speedup`.

    `speedup` maps widths to factors (missing ones are linear); `models` overrides epoch_s by model.
    Quantiles are `spread` apart: p10 = mean / (1 + spread), p90 = mean * (1 + spread). A model in
    `unknown` has no history: P90 is infinite.
    """

    epoch_s: float = MINUTE_S
    speedup: Mapping[int, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0
    start_s: float = 0.0
    stop_s: float = 0.0
    finishing_s: float = 0.0
    unknown: frozenset[str] = frozenset()
    version: str = "truth"

    def one_epoch_s(self, workload: Workload, workers: int) -> float:
        factor = self.speedup.get(workers, float(workers))
        return self.models.get(workload.model, self.epoch_s) / factor

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        return self._estimate(self.one_epoch_s(workload, workers), workload)

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        left = max(0, workload.epochs - progress.epochs_done)
        seconds = left * self.one_epoch_s(workload, workers) + self.finishing_s
        return self._estimate(seconds, workload)

    def table(self, asks: Sequence[Ask]) -> Estimates:
        return Estimates.of(
            [self.remaining(ask.workload, ask.progress, ask.workers) for ask in asks]
        )

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        return _exactly(self.stop_s)

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        return _exactly(self.start_s)

    def finishing_time(self, workload: Workload, workers: int) -> Estimate:
        return _exactly(self.finishing_s)

    def to_json(self) -> dict[str, object]:
        return {"kind": "curve", "epoch_s": self.epoch_s}

    def _estimate(self, seconds: float, workload: Workload) -> Estimate:
        if workload.model in self.unknown:
            return Estimate(seconds, seconds, seconds, FOREVER, "prior")
        wide = 1.0 + self.spread
        return Estimate(seconds / wide, seconds, seconds, seconds * wide, "truth", 100)


def _exactly(seconds: float, source: Source = "truth") -> Estimate:
    return Estimate(seconds, seconds, seconds, seconds, source, 100)


MINUTE_EPOCHS = Curve()


def workload(model: str = "mlp", epochs: int = 10) -> Workload:
    return Workload(model=model, epochs=epochs)


def job(
    name: str = "a",
    *,
    epochs: int = 10,
    due_at: float = FOREVER,
    workers: tuple[int, ...] = (1,),
    model: str = "mlp",
    running: int = 0,
    nodes: tuple[str, ...] | None = None,
    done: int = 0,
    **fields: Any,
) -> Job:
    """A job `name` in namespace "team"; `due_at` makes it hard, `running` says on how many workers."""
    job_id = name if "/" in name else f"team/{name}"
    given: dict[str, Any] = {
        "id": job_id,
        "workload": workload(model, epochs),
        "submitted_at": 0.0,
        "deadline_at": due_at,
        "service_class": "hard" if due_at < FOREVER else "best_effort",
        "widths": workers,
        "progress": Progress(done) if done else NO_PROGRESS,
    }
    if running:
        given |= {
            "workers": running,
            "nodes": nodes if nodes is not None else ("n0",) * running,
            "formed": running,
            "resumed_at": -1.0,
            "width_changed_at": -1.0,
            "epoch_started_at": 0.0,
            "asked": False,
        }
    return Job(**(given | fields))


def promise(due_at: float, *, p90_at: float | None = None, workers: int = 1) -> Promise:
    """A promise that was just given."""
    finish_at = due_at if p90_at is None else p90_at
    return Promise(due_at, finish_at, finish_at, ((finish_at, workers),), reason("fits"))


def promised(name: str, due_at: float, **fields: Any) -> Job:
    """A job that holds a promise."""
    verdict = promise(due_at, workers=fields.get("running") or 1)
    given: dict[str, Any] = {"verdict": verdict, "asked": False} | fields
    return job(name, due_at=due_at, **given)


def node(name: str = "n0", gpus: int = 8, **fields: Any) -> Node:
    given: dict[str, Any] = {"id": name, "gpus": gpus, "free_gpus": gpus} | fields
    return Node(**given)


def cluster(
    *,
    gpus: int | Sequence[int] = 8,
    jobs: Sequence[Job] = (),
    now: float = 0.0,
    holds: Sequence[Hold] = (),
    **fields: Any,
) -> ClusterState:
    """Nodes n0, n1, ... of so many GPUs; GPUs of the given jobs' workers are busy."""
    sizes = [gpus] if isinstance(gpus, int) else list(gpus)
    busy: dict[str, int] = {}
    for one in jobs:
        for name in one.nodes:
            busy[name] = busy.get(name, 0) + one.gpus_per_worker
    nodes = tuple(
        node(f"n{number}", size, free_gpus=size - busy.get(f"n{number}", 0))
        for number, size in enumerate(sizes)
    )
    ordered = tuple(sorted(jobs, key=lambda one: (one.submitted_at, one.id)))
    return ClusterState(now=now, nodes=nodes, jobs=ordered, holds=tuple(holds), **fields)
