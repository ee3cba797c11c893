"""Seconds lost by stopping, starting and ending a training: save, stop, start, load, warm up.

    suspend = save + stop                        save = k0 + k1 * checkpoint bytes
    resume  = start (pods, model, data) + warm-up        start = r0 + r1 * checkpoint bytes
    finishing = from the end of the last epoch until the Job is complete

Each part is fitted over the widths that were observed of the model (overhead_part). Where a model
has few observations, they are mixed with the fit over all models on checkpoint bytes, else with
what models of the same stem or all models cost, and that with a prior. All models are those of one
namespace, or all shared ones: workers report these seconds, and a namespace believes its own.
Finishing (a test set, an export) is the training's own code: no model lends it to another. A
local process starts in seconds, a pod in tens of seconds (Pollux assumes 30; algorithms.md 1.6).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final, Literal, Self

from laxity_profiler.estimate import Estimate, Source
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.model.family import family_of
from laxity_profiler.model_key import pool_of
from laxity_profiler.overhead.part import PartFit, fit_part, pool_fits

Part = Literal["save", "suspend", "resume", "load", "reform", "warmup", "finishing"]
OWN: Final = ("finishing",)  # parts that say nothing about other models
ERROR: Final = 0.35  # relative, of a prior
LATEST: Final = 100  # observations of one model and part that count


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What was observed of one model, of one family of models, or of all that share a pool."""

    model: str
    parts: tuple[PartFit, ...]


LOCAL: Final = (
    PartFit("save", 0.1, ERROR),
    PartFit("suspend", 0.7, ERROR),
    PartFit("resume", 2.5, ERROR),
    PartFit("warmup", 0.5, ERROR),
    PartFit("finishing", 0.0, ERROR),  # nothing is assumed until it was seen
)
CLUSTER: Final = (
    PartFit("save", 5.0, ERROR),
    PartFit("suspend", 10.0, ERROR),
    PartFit("resume", 30.0, ERROR),
    PartFit("warmup", 5.0, ERROR),
    PartFit("finishing", 0.0, ERROR),
)
PRIORS: Final[Mapping[str, tuple[PartFit, ...]]] = {"local": LOCAL, "cluster": CLUSTER}


@dataclass(frozen=True, slots=True)
class StopCosts:
    """All that is known of stops: by model, by family and pool, and what else is assumed."""

    models: tuple[ModelCosts, ...] = ()
    pooled: tuple[PartFit, ...] = LOCAL  # for who has no pool
    families: tuple[ModelCosts, ...] = ()  # pools too, by the name of the pool

    def estimate(self, model: str, parts: Sequence[Part], workers: int = 1) -> Estimate:
        """The sum of these parts on so many workers. Deviations of parts add as squares."""
        own = _parts_of(self.models, model)
        family = family_of(model)
        kin = _parts_of(self.families, family) if family else ()
        tables = [own, kin, _parts_of(self.families, pool_of(model)), self.pooled]
        fits = [fit for part in parts if (fit := _first_part(tables, part)) is not None]
        quantiles = [fit.seconds_at(max(1, workers)) for fit in fits]
        middle_s = sum(p50 for _, p50, _, _ in quantiles)
        below_s = math.sqrt(sum((p50 - p10) ** 2 for p10, p50, _, _ in quantiles))
        above_s = math.sqrt(sum((p90 - p50) ** 2 for _, p50, _, p90 in quantiles))
        n = min((fit.n for fit in fits), default=0)
        return Estimate(
            middle_s - below_s,
            middle_s,
            sum(mean for _, _, mean, _ in quantiles),
            middle_s + above_s,
            _source_of((*own, *kin), n),
            n,
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Also what was written before costs had widths and families."""
        return cls(
            tuple(
                ModelCosts(row["model"], _parts_from_json(row["parts"])) for row in fields["models"]
            ),
            _parts_from_json(fields["pooled"]),
            tuple(
                ModelCosts(row["model"], _parts_from_json(row["parts"]))
                for row in fields.get("families", ())
            ),
        )


def fit_costs(
    stops: Iterable[ObservedStop],
    *,
    warm_up_s: Mapping[str, Sequence[float]] | None = None,
    prior: tuple[PartFit, ...] = LOCAL,
) -> StopCosts:
    """Learn from observed stops; `warm_up_s` says by model how much longer first epochs took."""
    by_pool: dict[str, list[ObservedStop]] = {}
    for stop in (*stops, *warm_ups(warm_up_s or {})):
        by_pool.setdefault(pool_of(stop.model), []).append(stop)
    models: dict[str, list[PartFit]] = {}
    families: dict[str, list[PartFit]] = {}
    for pool, each in by_pool.items():
        families[pool] = _fit_pool(each, prior, models, families)
    return StopCosts(_model_costs(models), prior, _model_costs(families))


def _fit_pool(
    stops: Iterable[ObservedStop],
    prior: tuple[PartFit, ...],
    models: dict[str, list[PartFit]],
    families: dict[str, list[PartFit]],
) -> list[PartFit]:
    """What all models of one pool cost together; each model and family is added to its table."""
    by_part: dict[str, dict[str, list[ObservedStop]]] = {}
    for stop in stops:
        by_part.setdefault(stop.kind, {}).setdefault(stop.model, []).append(stop)
    pooled = []
    for start in prior:
        by_model = by_part.get(start.part, {})
        if start.part in OWN:
            for model, rows in by_model.items():
                models.setdefault(model, []).append(_fit_own(_latest_observations(rows), start))
            continue
        alone = {
            model: fit_part(_latest_observations(rows), start) for model, rows in by_model.items()
        }
        every = pool_fits(list(alone.values()), start)
        pooled.append(every)
        for family, members in _group_by_family(alone).items():
            families.setdefault(family, []).append(pool_fits(list(members.values()), every))
        for model, rows in by_model.items():
            kin = [
                fit for other, fit in alone.items() if other != model and _are_alike(other, model)
            ]
            expected = _fit_by_bytes(by_model, rows, every) or pool_fits(kin, every)
            models.setdefault(model, []).append(fit_part(_latest_observations(rows), expected))
    return pooled


def _fit_own(rows: Sequence[tuple[int, float]], prior: PartFit) -> PartFit:
    """Of a part of which nothing is assumed: its first observation counts whole."""
    return fit_part(rows, replace(prior, seconds=median(seconds for _, seconds in rows)))


def warm_ups(warm_up_s: Mapping[str, Sequence[float]]) -> list[ObservedStop]:
    """How much longer first epochs took, by model, in the form of the other observations."""
    return [
        ObservedStop(model, "warmup", 1, max(0.0, seconds), None)
        for model, each in warm_up_s.items()
        for seconds in each
    ]


def _latest_observations(stops: Sequence[ObservedStop]) -> list[tuple[int, float]]:
    return [(stop.workers, stop.seconds) for stop in stops[-LATEST:]]


def _group_by_family(fits: Mapping[str, PartFit]) -> dict[str, dict[str, PartFit]]:
    """The fits of models by their family."""
    groups: dict[str, dict[str, PartFit]] = {}
    for model, fit in fits.items():
        if family := family_of(model):
            groups.setdefault(family, {})[model] = fit
    return groups


def _are_alike(one: str, other: str) -> bool:
    return family_of(one) == family_of(other) != ""


def _model_costs(fits: Mapping[str, Sequence[PartFit]]) -> tuple[ModelCosts, ...]:
    return tuple(ModelCosts(name, tuple(parts)) for name, parts in sorted(fits.items()))


def _fit_by_bytes(
    by_model: Mapping[str, Sequence[ObservedStop]], rows: Sequence[ObservedStop], every: PartFit
) -> PartFit | None:
    """k0 + k1 * bytes over all models, read at this model's checkpoint; None without bytes.

    How that grows with the width is what all models together show.
    """
    points = [
        (float(stop.bytes), stop.seconds)
        for each in by_model.values()
        for stop in each[-LATEST:]
        if stop.bytes
    ]
    sizes = [stop.bytes for stop in rows if stop.bytes]
    if not sizes or len(points) < 4 or len({size for size, _ in points}) < 2:
        return None
    from laxity_profiler.model.scaling import fit_line

    k0, k1 = fit_line(*zip(*points, strict=True))
    seconds = k0 + k1 * median(sizes)
    return replace(every, seconds=seconds, error=0.25, per_worker=every.slope * seconds, width=1.0)


def _parts_of(rows: Sequence[ModelCosts], name: str) -> tuple[PartFit, ...]:
    return next((row.parts for row in rows if row.model == name), ())


def _first_part(tables: Sequence[Sequence[PartFit]], part: str) -> PartFit | None:
    """The first fit of this part; None without one."""
    return next((fit for parts in tables for fit in parts if fit.part == part), None)


def _source_of(near: Sequence[PartFit], n: int) -> Source:
    """`near` is what was observed of this model or of those like it."""
    if n > 0:
        return "history"
    return "family" if near else "prior"


def _parts_from_json(rows: Iterable[Mapping[str, Any]]) -> tuple[PartFit, ...]:
    return tuple(PartFit(**row) for row in rows)
