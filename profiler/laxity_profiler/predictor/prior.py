"""What is expected of a workload at a width before its own epochs are looked at: the best source.

In this order: history of the same model (measured levels, else the curve through them; a fit over
batch sizes for a setting never seen), else what its first epoch reads, similar models or the user's
estimate, whichever is surest, else nothing at all, which is infinity and not an error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from laxity_profiler.estimate import Source, Workload
from laxity_profiler.model.calibration import NORMAL, Factors
from laxity_profiler.model.curve import ERROR_ONE_WIDTH, ONE_WIDTH, doublings, read
from laxity_profiler.model.family import borrow, relatives
from laxity_profiler.model.model_fit import NOISE, SPREAD, ModelFit, Setting, SettingFit, nearest
from laxity_profiler.model.node_count import fewest_nodes
from laxity_profiler.overhead.costs import Costs

USER_ERROR: Final = 0.3  # relative, of a user's estimate
Levels = dict[tuple[int, int, int | None], tuple[float, float, int]]
Quantiles = tuple[float, float, float]  # P10, P50, P90 in seconds
NO_END: Final[Quantiles] = (0.0, 0.0, 0.0)
UNKNOWN2: Final = 1e6  # relative variance of a level that only the job's own epochs can give


@dataclass(frozen=True, slots=True)
class Cell:
    """What is expected of one workload at one width, before its own epochs are looked at.

    `spread2` belongs to the run (the same at all widths), `error2` to this width.
    """

    epoch_s: float
    spread2: float
    error2: float
    noise2: float
    source: Source
    n: int
    start: Factors = NORMAL
    later: Factors = NORMAL
    end_s: Quantiles = NO_END  # from the last epoch until the Job is complete


UNKNOWN: Final = Cell(math.inf, UNKNOWN2, 0.0, NOISE * NOISE, "prior", 0)


class Expectations:
    """Cells of one predictor's models, each looked up once."""

    def __init__(
        self,
        models: Sequence[ModelFit],
        costs: Costs | None = None,
        gpus_per_node: int | None = None,
    ) -> None:
        self._costs = costs
        self._gpus_per_node = gpus_per_node
        self._models = [fit for fit in models if fit.settings]
        self._by_model: Mapping[str, ModelFit] = {fit.model: fit for fit in models}
        self._outlooks: dict[Workload, Outlook] = {}
        self._levels: Levels = {}
        self._ends: dict[tuple[str, int], Quantiles] = {}

    def of(self, workload: Workload) -> "Outlook":
        found = self._outlooks.get(workload)
        if found is None:
            fit = self._by_model.get(workload.model)
            known = fit is not None and bool(fit.settings)
            family = [] if known else relatives(workload.model, self._models)
            ends = partial(self._end, workload.model)
            densest = fit.node_workers if fit else None
            lies_on = partial(fewest_nodes, workload, self._gpus_per_node, densest)
            found = Outlook(workload, fit, family, self._levels, ends=ends, lies_on=lies_on)
            self._outlooks[workload] = found
        return found

    def _end(self, model: str, width: int) -> Quantiles:
        """From the last epoch of so many workers to the Job's end."""
        if self._costs is None:
            return NO_END
        found = self._ends.get((model, width))
        if found is None:
            said = self._costs.estimate(model, ("finish",), width)
            found = self._ends[model, width] = (said.p10_s, said.p50_s, said.p90_s)
        return found


class Outlook:
    """One workload over all widths."""

    __slots__ = (
        "_cells",
        "_ends",
        "_family",
        "_fit",
        "_levels",
        "_lies_on",
        "_near",
        "_setting",
        "_workload",
    )

    def __init__(
        self,
        workload: Workload,
        fit: ModelFit | None,
        family: Sequence[ModelFit],
        levels: Levels,
        *,
        ends: Callable[[int], Quantiles] = lambda _: NO_END,
        lies_on: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._lies_on = lies_on
        self._ends = ends
        self._workload = workload
        self._setting = Setting.of(workload)
        self._fit = fit
        self._family = family
        self._near = nearest(fit, self._setting) if fit and fit.settings else None
        self._levels = levels
        self._cells: dict[int, Cell] = {}

    def at(self, width: int) -> Cell:
        found = self._cells.get(width)
        if found is None:
            found = self._cells[width] = replace(self._look(width), end_s=self._ends(width))
        return found

    def seen_at(self, width: int) -> int:
        """Epochs of this model's history that so many workers ran; 0: what `at` says is no history."""
        levels = self._near[0].levels if self._near is not None else ()
        return sum(level.n for level in levels if level.width == width)

    def _look(self, width: int) -> Cell:
        if self._fit is not None and self._near is not None:
            return self._from_history(self._fit, *self._near, width)
        told = (self._from_traffic(width), self._from_family(width), self._from_user(width))
        known = [cell for cell in told if cell is not None]
        return min(known, key=lambda cell: cell.spread2 + cell.error2, default=UNKNOWN)

    def _from_history(
        self, fit: ModelFit, known: SettingFit, factor: float, off: float, width: int
    ) -> Cell:
        nodes = self._lies_on(width)
        key = (id(known), width, nodes)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = (*read(known.levels, known.curve, width, nodes), known.n)
        epoch_s, error, n = level
        error2 = error * error + off * off
        source: Source = "history"
        step = fit.step
        if off and step and self._setting.samples and self._setting.batch_size:
            step_error2 = step.error_at(width, nodes) ** 2
            samples, batch_size = self._setting.samples, self._setting.batch_size
            stepped_s = step.epoch_s(samples, batch_size, width, nodes)
            if step_error2 < error2 and stepped_s > 0.0:
                epoch_s, factor, error2, source = stepped_s, 1.0, step_error2, "profile"
        seconds = epoch_s * factor
        return Cell(seconds, fit.spread2, error2, fit.noise2, source, n, fit.start, fit.later)

    def _from_traffic(self, width: int) -> Cell | None:
        """What is read in a first epoch; another setting is reached by the size of its data."""
        if self._fit is None or not self._fit.traffic:
            return None
        reading = replace(self._fit, settings=self._fit.traffic)
        known, factor, off = nearest(reading, self._setting)
        epoch_s, error = read(known.levels, known.curve, width)
        error2 = error * error + off * off
        return Cell(epoch_s * factor, SPREAD * SPREAD, error2, NOISE * NOISE, "traffic", 0)

    def _from_family(self, width: int) -> Cell | None:
        found = borrow(self._setting, width, self._family)
        if found is None:
            return None
        noise2 = max(fit.noise2 for fit in self._family)
        return Cell(found.epoch_s, found.error * found.error, 0.0, noise2, "family", found.n)

    def _from_user(self, width: int) -> Cell | None:
        """The estimate is for one worker; beyond that a parallel share of 0.95 is assumed."""
        said = self._workload.user_epoch_s
        if said is None or not said > 0.0 or math.isinf(said):
            return None
        away = ERROR_ONE_WIDTH * doublings(1, width)
        seconds = said * ONE_WIDTH.at(width)
        return Cell(seconds, USER_ERROR * USER_ERROR, away * away, 4.0 * NOISE * NOISE, "user", 0)


def finite(cell: Cell, width: int, one_worker_s: float) -> Cell:
    """The cell, or if nothing is known of it, the shape over the widths that is assumed.

    `one_worker_s` is the height of that shape: what the job's own last epoch comes to.
    """
    if cell.epoch_s != math.inf:
        return cell
    seconds = one_worker_s * ONE_WIDTH.at(width)
    return Cell(seconds, UNKNOWN2, 0.0, SPREAD * SPREAD, "prior", 0, end_s=cell.end_s)
