"""Seconds lost by stopping, starting and ending a training: save, stop, start, load, warm up.

    suspend = save + stop                        save = k0 + k1 * checkpoint bytes
    resume  = start (pods, model, data) + warm-up        start = r0 + r1 * checkpoint bytes
    finish  = from the end of the last epoch until the Job is complete

Each part is the median of what was observed of the model. Where a model has few observations, they
are mixed with the fit over all models on checkpoint bytes, and that with a prior. A local process
starts in seconds, a pod in tens of seconds (Pollux assumes 30; algorithms 1.6).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final, Literal, Self

from laxity_profiler.calibrate import NORMAL_90
from laxity_profiler.estimate import Estimate, Source
from laxity_profiler.said import StopSeen

Part = Literal["save", "suspend", "resume", "load", "reform", "warmup", "finish"]
ERROR: Final = 0.35  # relative, of a prior
LEAST_ERROR: Final = 0.08
PRIOR_POINTS: Final = 1.0  # how many observations a prior is worth
LATEST: Final = 100  # observations of one model and part that count


@dataclass(frozen=True, slots=True)
class PartFit:
    """One part: its expected seconds, relative error of one occurrence, number of observations."""

    part: str
    seconds: float
    error: float
    n: int = 0


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What was observed of one model."""

    model: str
    parts: tuple[PartFit, ...]


LOCAL: Final = (
    PartFit("save", 0.1, ERROR),
    PartFit("suspend", 0.7, ERROR),
    PartFit("resume", 2.5, ERROR),
    PartFit("warmup", 0.5, ERROR),
    PartFit("finish", 0.0, ERROR),  # nothing is assumed until it was seen
)
CLUSTER: Final = (
    PartFit("save", 5.0, ERROR),
    PartFit("suspend", 10.0, ERROR),
    PartFit("resume", 30.0, ERROR),
    PartFit("warmup", 5.0, ERROR),
    PartFit("finish", 0.0, ERROR),
)
PRIORS: Final[Mapping[str, tuple[PartFit, ...]]] = {"local": LOCAL, "cluster": CLUSTER}


@dataclass(frozen=True, slots=True)
class Costs:
    """All that is known of stops: by model, over all models, and what was assumed before."""

    models: tuple[ModelCosts, ...] = ()
    pooled: tuple[PartFit, ...] = LOCAL

    def estimate(self, model: str, parts: Sequence[Part]) -> Estimate:
        """The sum of these parts."""
        own = next((row.parts for row in self.models if row.model == model), ())
        known = [_find(own, part) or _find(self.pooled, part) for part in parts]
        found = [fit for fit in known if fit is not None]
        seconds = sum(fit.seconds for fit in found)
        sigma2 = sum((fit.seconds * fit.error) ** 2 for fit in found)
        x = NORMAL_90 * math.sqrt(sigma2) / seconds if seconds > 0.0 else 0.0
        up = x + math.sqrt(1.0 + x * x)
        n = min((fit.n for fit in found), default=0)
        return Estimate(
            seconds / up,
            seconds,
            seconds * (1.0 + x * x / 3.2847),
            seconds * up,
            _source(own, n),
            n,
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            tuple(ModelCosts(row["model"], _parts(row["parts"])) for row in fields["models"]),
            _parts(fields["pooled"]),
        )


def fit_costs(
    stops: Iterable[StopSeen],
    *,
    warm_up_s: Mapping[str, Sequence[float]] | None = None,
    prior: tuple[PartFit, ...] = LOCAL,
) -> Costs:
    """Learn from observed stops; `warm_up_s` says by model how much longer first epochs took."""
    seen: dict[str, dict[str, list[StopSeen]]] = {}
    for stop in (*stops, *warm_ups(warm_up_s or {})):
        seen.setdefault(stop.kind, {}).setdefault(stop.model, []).append(stop)
    models: dict[str, list[PartFit]] = {}
    pooled = []
    for start in prior:
        by_model = seen.get(start.part, {})
        together = _pooled(start, by_model)
        pooled.append(together)
        for model, rows in by_model.items():
            expected = _by_bytes(by_model, rows) or together
            models.setdefault(model, []).append(_mixed(rows, expected))
    rows_by_model = tuple(
        ModelCosts(model, tuple(parts)) for model, parts in sorted(models.items())
    )
    return Costs(rows_by_model, tuple(pooled))


def warm_ups(warm_up_s: Mapping[str, Sequence[float]]) -> list[StopSeen]:
    """How much longer first epochs took, by model, in the form of the other observations."""
    return [
        StopSeen(model, "warmup", 1, max(0.0, seconds), None)
        for model, each in warm_up_s.items()
        for seconds in each
    ]


def _pooled(prior: PartFit, by_model: Mapping[str, Sequence[StopSeen]]) -> PartFit:
    """Over all models: the median of the models' medians, sure as far as they agree."""
    middles = [median(stop.seconds for stop in rows[-LATEST:]) for rows in by_model.values()]
    if not middles:
        return prior
    n = len(middles)
    seconds = (PRIOR_POINTS * prior.seconds + n * median(middles)) / (PRIOR_POINTS + n)
    spread = [abs(middle - seconds) / seconds if seconds > 0 else 0.0 for middle in middles]
    return PartFit(prior.part, seconds, max(0.25, min(1.0, 1.4826 * median(spread))), 0)


def _mixed(rows: Sequence[StopSeen], expected: PartFit) -> PartFit:
    """The model's own median, mixed with what was expected while there are few."""
    latest = [stop.seconds for stop in rows[-LATEST:]]
    n = len(latest)
    weight = n / (n + PRIOR_POINTS) if n < 5 else 1.0
    seconds = weight * median(latest) + (1.0 - weight) * expected.seconds
    if seconds <= 0.0:
        return PartFit(expected.part, 0.0, LEAST_ERROR, n)
    off = 1.4826 * median(abs(value - seconds) for value in latest) / seconds
    off = math.sqrt((expected.error**2 + n * off * off) / (n + 1))
    return PartFit(expected.part, seconds, max(LEAST_ERROR, min(1.0, off)), n)


def _by_bytes(
    by_model: Mapping[str, Sequence[StopSeen]], rows: Sequence[StopSeen]
) -> PartFit | None:
    """k0 + k1 * bytes over all models, read at this model's checkpoint; None without bytes."""
    points = [
        (float(stop.bytes), stop.seconds)
        for each in by_model.values()
        for stop in each[-LATEST:]
        if stop.bytes
    ]
    sizes = [stop.bytes for stop in rows if stop.bytes]
    if not sizes or len(points) < 4 or len({size for size, _ in points}) < 2:
        return None
    from laxity_profiler.scaling import fit_line

    k0, k1 = fit_line(*zip(*points, strict=True))
    return PartFit("", k0 + k1 * median(sizes), 0.25)


def _find(parts: Sequence[PartFit], part: str) -> PartFit | None:
    return next((fit for fit in parts if fit.part == part), None)


def _source(own: Sequence[PartFit], n: int) -> Source:
    if n > 0:
        return "history"
    return "family" if own else "prior"


def _parts(rows: Iterable[Mapping[str, Any]]) -> tuple[PartFit, ...]:
    return tuple(PartFit(**row) for row in rows)
