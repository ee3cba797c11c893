"""How wide P90 must be, learned on measured tables, and judged on families that had no part in it.

    loss = mean of max(0.9 u, -0.1 u)      u = asinh(score) - asinh(z90 sigma)
    score = (r - 1/r) / 2                  r = measured over predicted time
    sigma^2 = sum over k of error_k^2 term_k

The pinball loss has its minimum where 90 % of the points lie below P90, and asinh turns scores into
logarithms of times, so that points that are far off pull no harder than others. Learned are the two
errors of which profiled corners tell: per doubling, and across nodes.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks.held_out import HeldOut, TableResult
from laxity_profiler.estimate import Floats
from laxity_profiler.model.calibration import NORMAL_90, miss_score
from laxity_profiler.model.scaling import SPREAD, minimize_loss

LEARNED: Final = slice(1, 3)  # of the errors of SPREAD: per doubling, and across nodes
P90: Final = 0.9


def learn_spread(tables: Sequence[TableResult]) -> tuple[float, ...]:
    """The errors of `SPREAD` that give P90 on these tables, every held-out point alike."""
    scores, terms = _scores_and_terms(tables)

    def loss(logs: Floats) -> float:
        gap = np.arcsinh(scores) - np.arcsinh(_p90_scores(terms, _with_learned(np.exp(logs))))
        return float(np.maximum(P90 * gap, (P90 - 1.0) * gap).mean())

    return _with_learned(np.exp(minimize_loss(loss, np.log(np.asarray(SPREAD[LEARNED])))))


def coverage_left_out(tables: Sequence[TableResult], group: Callable[[str], str]) -> float | None:
    """Share of points below the P90 learned on all other groups; None with one group."""
    groups = {group(table.table) for table in tables}
    if len(groups) < 2:
        return None
    covered: list[bool] = []
    for name in sorted(groups):
        spread = learn_spread([table for table in tables if group(table.table) != name])
        scores, terms = _scores_and_terms([table for table in tables if group(table.table) == name])
        covered += (scores <= _p90_scores(terms, spread)).tolist()
    return sum(covered) / len(covered)


def _with_learned(errors: Floats) -> tuple[float, ...]:
    return (SPREAD[0], *errors.tolist(), *SPREAD[LEARNED.stop :])


def _scores_and_terms(tables: Sequence[TableResult]) -> tuple[Floats, Floats]:
    points: list[HeldOut] = [point for table in tables for point in table.held]
    scores = [miss_score(point.measured_s, point.predicted_s, 1.0) for point in points]
    return np.asarray(scores), np.asarray([point.error_terms for point in points])


def _p90_scores(terms: Floats, spread: Sequence[float]) -> Floats:
    return np.asarray(NORMAL_90 * np.sqrt(terms @ np.square(spread)))
