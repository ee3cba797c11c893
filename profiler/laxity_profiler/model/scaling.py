"""Epoch time as a function of workers and batch size, fitted from a few profiled runs.

    t_step(B, g)  = a + b * B/g + c * log2 min(g, G) + d * [nodes > 1] + e * (nodes - 1)
    T_epoch(w)    = alpha + beta / w + gamma * w + delta * [nodes > 1]      without a batch size

in seconds, no coefficient negative, G GPUs per node. Both by non-negative least squares on the
relative error (each row divided by its time), so that long and short steps count alike (PickyMan;
form and design are our reading). Four runs do not determine five terms: a slight pull towards zero
chooses among the fits that are as good. The last term lets a curve fall beyond a node, as many do.

scipy is imported here only, and this module only when something is fitted.
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize, nnls

from laxity_profiler.estimate import Floats
from laxity_profiler.model.calibration import NORMAL_90, factor_at
from laxity_profiler.model.epoch_curve import ONE_WIDTH, WidthCurve

GPUS_PER_NODE: Final = 8
PULL: Final = 1e-3
# Relative errors, one for each column of `StepTime.error_terms`. The second and third are
# learned on measured tables (`benchmarks.spread`), the others are assumed.
SPREAD: Final = (
    0.05,  # at a profiled point
    0.085,  # per doubling to the nearest profiled point
    0.11,  # where more than one node is used
    0.15,  # per doubling beyond the profiled range
    0.80,  # where more than one node is used, and no run on several was ever profiled
)


class StepTime:
    """Seconds per step. X has shape (n, 2): global batch size, GPUs; y has shape (n,) in seconds.

    A third column says on how many nodes; without it they are the fewest that hold the GPUs.
    `coef_` is (a, b, c, d, e). What was profiled is believed: the curve is bent so that it goes
    through the points, by the nearer ones more (unless `bend` is False).
    """

    def __init__(
        self, *, gpus_per_node: int = GPUS_PER_NODE, pull: float = PULL, bend: bool = True
    ) -> None:
        self.gpus_per_node = gpus_per_node
        self.pull = pull
        self.bend = bend

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803 - rows and targets
        points, seconds = self._with_nodes(X), _check_times(y)
        self.coef_ = _relative_nnls(self._model_terms(points), seconds, pull=self.pull)
        self.points_ = points
        self.misses_ = np.log(seconds / self._predict_unbent(points))
        return self

    def predict(self, X: ArrayLike) -> Floats:  # noqa: N803
        points = self._with_nodes(X)
        straight = self._predict_unbent(points)
        if not self.bend:
            return straight
        weights = 1.0 / np.maximum(self._distances_squared(points), 1e-18)
        return np.asarray(straight * np.exp(weights @ self.misses_ / weights.sum(axis=1)))

    def relative_error(self, X: ArrayLike) -> Floats:  # noqa: N803
        """The expected relative error: it grows with the doublings to the next profiled point.

        Across nodes, and outside the profiled widths or batch sizes, it grows faster. What leaving
        a node does to a curve that was only profiled inside one cannot be known: half or twice.
        """
        return np.asarray(np.sqrt(self.error_terms(X) @ np.square(SPREAD)))

    def error_terms(self, X: ArrayLike) -> Floats:  # noqa: N803
        """What each error of `SPREAD` is multiplied by, squared; shape (n, 5)."""
        points = self._with_nodes(X)
        sizes, profiled = points[:, :2], self.points_[:, :2]
        least, most = profiled.min(axis=0), profiled.max(axis=0)
        outside = np.log2(np.maximum(sizes / most, 1.0)) + np.log2(np.maximum(least / sizes, 1.0))
        nearest2 = self._distances_squared(points).min(axis=1)
        crossed = points[:, 2] > 1
        crossed_before = bool((self.points_[:, 2] > 1).any())
        return np.column_stack([
            np.ones(len(points)), nearest2, crossed & crossed_before,
            outside.sum(axis=1) ** 2, crossed & (not crossed_before),
        ])  # fmt: skip

    def predict_p90(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Seconds per step that 90 % of such configurations should not exceed."""
        x = NORMAL_90 * self.relative_error(X)
        return np.asarray(self.predict(X) * factor_at(x))

    def _predict_unbent(self, points: Floats) -> Floats:
        """What the coefficients alone say."""
        return np.asarray(np.maximum(self._model_terms(points) @ self.coef_, 1e-12))

    def _distances_squared(self, points: Floats) -> Floats:
        """Squared distances to the profiled points, in doublings; shape (n, profiled)."""
        away = np.log2(points[:, None, :2]) - np.log2(self.points_[None, :, :2])
        return np.asarray((away**2).sum(axis=2))

    def _with_nodes(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Batch size, GPUs and nodes."""
        if np.ndim(X) == 2 and np.shape(X)[1] == 3:
            return _check_points(X, columns=3)
        points = _check_points(X, columns=2)
        return np.column_stack([points, np.ceil(points[:, 1] / self.gpus_per_node)])

    def _model_terms(self, points: Floats) -> Floats:
        batch, gpus, nodes = points.T
        inside = np.log2(np.minimum(gpus, np.minimum(self.gpus_per_node, np.ceil(gpus / nodes))))
        return np.column_stack([np.ones(len(points)), batch / gpus, inside, nodes > 1, nodes - 1])


def fit_curve(
    widths: Sequence[int], epoch_s: Sequence[float], is_beyond: Sequence[bool] = ()
) -> WidthCurve:
    """The curve through (width, seconds) points of at least one width.

    `is_beyond` says which lay beyond a node; the term for that needs points of both kinds.
    """
    width = np.asarray(widths, dtype=np.float64)
    seconds = np.asarray(epoch_s, dtype=np.float64)
    beyond = np.asarray(is_beyond or [False] * len(widths), dtype=np.float64)
    crosses = bool(beyond.any()) and not bool(beyond.all())
    distinct = len(set(widths))
    if distinct == 1:
        return _curve_of_one_width(widths[0], seconds, beyond, crosses=crosses)
    terms = [np.ones(len(width)), 1.0 / width]
    terms += [beyond] if crosses else []
    terms += [width] if len(set(zip(widths, beyond, strict=True))) > len(terms) else []
    coefficients = [float(value) for value in _relative_nnls(np.column_stack(terms), seconds)]
    delta = coefficients.pop(2) if crosses else 0.0
    return WidthCurve(
        coefficients[0], coefficients[1], coefficients[2] if len(coefficients) > 2 else 0.0, delta
    )


def _curve_of_one_width(
    width: int, seconds: Floats, beyond: Floats, *, crosses: bool
) -> WidthCurve:
    """A parallel share is assumed; what leaving the node costs is the difference, if it was seen."""
    inside = float(seconds[beyond == 0.0].mean() if crosses else seconds.mean())
    scale = inside / ONE_WIDTH.epoch_s(width)
    delta = max(0.0, float(seconds[beyond > 0.0].mean()) - inside) if crosses else 0.0
    return WidthCurve(ONE_WIDTH.alpha * scale, ONE_WIDTH.beta * scale, delta=delta)


def fit_steps(rows: Sequence[tuple[int, int, float, int]]) -> tuple[float, ...]:
    """Coefficients a to e of the step time from (batch size, workers, seconds per step, nodes)."""
    points = np.asarray([(batch, workers, nodes) for batch, workers, _, nodes in rows], np.float64)
    seconds = np.asarray([row[2] for row in rows], dtype=np.float64)
    fitted = StepTime(gpus_per_node=2**31, pull=0.0).fit(points, seconds)
    return tuple(float(value) for value in fitted.coef_)


def four_points(
    batches: Sequence[int],
    widths: Sequence[int],
    *,
    gpus_per_node: int = GPUS_PER_NODE,
    has: Collection[tuple[int, int]] | None = None,
) -> tuple[tuple[int, int], ...]:
    """Which (batch, width) to profile: at most four, such that every term can be told apart.

    Inside one node these are the corners. Across nodes the corners would leave log2 g and the node
    term inseparable; a point at the node's edge parts them. With one batch size or one width the
    other is spread evenly over the doublings. If only some configurations can be had (`has`), the
    nearest of those stands in for one that cannot, of the same width where there is one: else batch
    sizes that fit on few GPUs only would make samples per GPU and GPUs inseparable.
    """
    batches, widths = sorted(set(batches)), sorted(set(widths))
    if not batches or not widths:
        raise ValueError("no batch size or no width to choose from")
    small, large, least, most = batches[0], batches[-1], widths[0], widths[-1]
    if small == large:
        wanted = [(small, width) for width in _spread_evenly(widths, 4)]
    elif least == most:
        wanted = [(batch, least) for batch in _spread_evenly(batches, 4)]
    else:
        inside = [width for width in widths if width <= gpus_per_node]
        edge = inside[-1] if inside else widths[len(widths) // 2]
        across = [(small, least), (large, least), (large, edge), (large, most), (small, most)]
        corners = [(small, least), (large, least), (small, most), (large, most)]
        wanted = corners if most <= gpus_per_node else across
    chosen: list[tuple[int, int]] = []
    for point in dict.fromkeys(wanted):
        if len(chosen) < 4:
            left = [point] if has is None else [other for other in has if other not in chosen]
            chosen += [min(left, key=partial(_distance, point))] if left else []
    return tuple(chosen)


def _distance(
    point: tuple[int, int], other: tuple[int, int]
) -> tuple[float, float, tuple[int, int]]:
    """How far two configurations are apart in doublings of width, then of batch size."""
    batch, width = (abs(math.log2(a / b)) for a, b in zip(point, other, strict=True))
    return width, batch, other


def _spread_evenly(values: Sequence[int], n: int) -> list[int]:
    """Choose n of the values (ascending), ends included, evenly over the doublings."""
    if len(values) <= n:
        return list(values)
    logs = [math.log2(value) for value in values]
    wanted = np.linspace(logs[0], logs[-1], n)
    chosen = {min(range(len(values)), key=lambda index: abs(logs[index] - log)) for log in wanted}
    return [values[index] for index in sorted(chosen)]


def _relative_nnls(terms: Floats, seconds: Floats, *, pull: float = 0.0) -> Floats:
    """Coefficients >= 0 that make terms @ x / seconds nearest to one; `pull` holds them small."""
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-300)
    rows, wanted = terms / scale / seconds[:, None], np.ones(len(seconds))
    if pull > 0.0:
        small = math.sqrt(pull) / seconds.mean() * np.eye(terms.shape[1])
        rows, wanted = np.vstack([rows, small]), np.append(wanted, np.zeros(terms.shape[1]))
    coefficients, _ = nnls(rows, wanted)
    return np.asarray(coefficients / scale)


def _check_points(X: ArrayLike, *, columns: int) -> Floats:  # noqa: N803
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != columns:
        raise ValueError(f"X has shape {points.shape}, (n, {columns}) is wanted")
    if not np.all(np.isfinite(points)) or not np.all(points > 0):
        raise ValueError("batch sizes and widths must be positive numbers")
    return points


def _check_times(y: ArrayLike) -> Floats:
    seconds = np.asarray(y, dtype=np.float64)
    if seconds.ndim != 1 or not np.all(np.isfinite(seconds)) or not np.all(seconds > 0):
        raise ValueError("y must be one positive number of seconds per row")
    return seconds


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """k0, k1 >= 0 of y = k0 + k1 x, on the relative error."""
    values = np.asarray(x, dtype=np.float64)
    seconds = np.maximum(np.asarray(y, dtype=np.float64), 1e-6)
    coefficients = _relative_nnls(np.column_stack([np.ones(len(values)), values]), seconds)
    return float(coefficients[0]), float(coefficients[1])


def minimize_loss(loss: Callable[[Floats], float], start: Floats) -> Floats:
    """Where a loss that has kinks is least, near a start of shape (n,); by Nelder and Mead."""
    best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8})
    return np.asarray(best.x)
