"""What the methods cost a chain in somebody else's queue, over many starts of a pair.

Per method: mean interruption and overlap in hours, overlap in node-hours, the share of starts
without interruption, and the interruption relative to the reactive user's. The load of a start is
the reactive interruption: low up to 2 h, medium up to 12 h, else heavy.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_lab.batch_queue.baselines import Method
from laxity_lab.batch_queue.batch_cluster import arriving_jobs, open_cluster
from laxity_lab.batch_queue.intervals import (
    IntervalMetric,
    bootstrap_interval,
    draw_blocks,
    interval_figure,
)
from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_lab.batch_queue.successor import Pair, PairSettings
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.model.job import DAY_S, HOUR_S, MINUTE_S

AFTER_WARM_UP_S: Final = DAY_S  # of the log beyond a predecessor that starts at once
LOW_H, MEDIUM_H = 2.0, 12.0
MOST_STARTS: Final = 100_000


@dataclass(slots=True)
class ChainsResult:
    """Hours of difference per method and start; how many evenly spaced probes took how long.

    `probing_s` has the warm-up of each start and the predecessor in it.
    """

    difference_h: dict[str, Floats] = field(default_factory=dict)
    probes: int = 0
    probing_s: float = 0.0


def start_instants(
    log: QueueLog, settings: PairSettings, every_s: float, from_at: float, until_at: float
) -> list[float]:
    """When simulations begin: as long as the pair's jobs lie within the log.

    ValueError if there would be none, or too many.
    """
    submitted_at = log.columns.submitted_at
    first_at = max(from_at, float(submitted_at[0]))
    last_at = min(until_at, float(submitted_at[-1])) - span_s(settings)
    count = math.floor((last_at - first_at) / every_s) + 1
    if count > MOST_STARTS:
        message = f"{count:,} starts: at most {MOST_STARTS:,}; choose a larger --starts"
        raise ValueError(message)
    if count < 1:
        raise ValueError(_no_start_words(log, settings, first_at, last_at + span_s(settings)))
    return [first_at + every_s * number for number in range(count)]


def _no_start_words(log: QueueLog, settings: PairSettings, first_at: float, end_at: float) -> str:
    submitted_at, span_days = log.columns.submitted_at, span_s(settings) / DAY_S
    words = f"no start fits: each needs {span_days:.1f} days of the log"
    log_days = float(submitted_at[-1] - submitted_at[0]) / DAY_S
    if log_days < span_days:
        return f"{words}, which spans {log_days:.1f} in all; shorten --limit or --warm-up"
    left_days = max(0.0, end_at - first_at) / DAY_S
    return f"{words}, and {left_days:.1f} are left; choose an earlier --from"


def last_quarter_at(log: QueueLog, until_at: float) -> float:
    """Where the last quarter of the log begins, up to an instant."""
    submitted_at = log.columns.submitted_at
    first_at, last_at = float(submitted_at[0]), min(until_at, float(submitted_at[-1]))
    return first_at + 0.75 * (last_at - first_at)


def span_s(settings: PairSettings) -> float:
    """How much of the log a start needs."""
    return settings.warm_up_s + settings.limit_s + AFTER_WARM_UP_S


def block_length(settings: PairSettings, every_s: float) -> int:
    """How many consecutive starts share jobs of the log."""
    return math.ceil(span_s(settings) / every_s)


def run_methods(
    log: QueueLog,
    settings: PairSettings,
    starts: Iterable[float],
    methods: Mapping[str, Method],
    probes: int,
) -> ChainsResult:
    """Each method at each start, and so many evenly spaced probes besides."""
    result = ChainsResult()
    rows: list[list[float]] = []
    for began_at in starts:
        began_s = time.perf_counter()
        pair = Pair(log, began_at, settings)
        result.probes += len(pair.probe(pair.even_instants(probes)))
        result.probing_s += time.perf_counter() - began_s
        instants = [submit_at(pair) for submit_at in methods.values()]
        rows.append([probe.difference_h for probe in pair.probe(instants)])
    columns = np.array(rows, dtype=np.float64).T
    result.difference_h = dict(zip(methods, columns, strict=True))
    return result


def method_figures(
    difference_h: Mapping[str, Floats], nodes: int, block: int
) -> dict[str, dict[str, IntervalMetric]]:
    """The figures per method; the baseline is the reactive user."""
    reactive = difference_h["reactive"]
    draws = draw_blocks(len(reactive), block)
    return {
        method: {
            "interruption_h": mean_figure(
                positive_part(hours), positive_part(reactive), "h", draws
            ),
            "interruption_vs_reactive": ratio_figure(
                positive_part(hours), positive_part(reactive), draws
            ),
            "zero_share": mean_figure(
                is_uninterrupted(hours), is_uninterrupted(reactive), "share", draws
            ),
            "overlap_h": mean_figure(positive_part(-hours), positive_part(-reactive), "h", draws),
            "overlap_node_h": mean_figure(
                nodes * positive_part(-hours), nodes * positive_part(-reactive), "node-h", draws
            ),
            **load_figures(hours, reactive),
        }
        for method, hours in difference_h.items()
    }


def load_figures(hours: Floats, reactive: Floats) -> dict[str, IntervalMetric]:
    """Interruption and overlap of the starts of each load; nothing of a load without starts."""
    figures: dict[str, IntervalMetric] = {}
    for load, rows in starts_by_load(reactive).items():
        if rows.any():
            ours, base = positive_part(hours[rows]).mean(), positive_part(reactive[rows]).mean()
            overlap_h = positive_part(-hours[rows]).mean()
            figures[f"{load}_load_interruption_h"] = interval_figure(float(ours), "h", float(base))
            figures[f"{load}_load_overlap_h"] = interval_figure(float(overlap_h), "h", 0.0)
    return figures


def starts_by_load(reactive: Floats) -> dict[str, Bools]:
    """Which starts have which load."""
    return {
        "low": reactive <= LOW_H,
        "medium": (reactive > LOW_H) & (reactive <= MEDIUM_H),
        "heavy": reactive > MEDIUM_H,
    }


def positive_part(hours: Floats) -> Floats:
    """What lies above zero."""
    return np.maximum(hours, 0.0)


def is_uninterrupted(hours: Floats) -> Floats:
    """1 where nothing is interrupted, else 0."""
    return (hours <= 0).astype(np.float64)


def mean_figure(values: Floats, baseline: Floats, unit: str, draws: Ints) -> IntervalMetric:
    between = bootstrap_interval(lambda rows: values[rows].mean(axis=1), draws)
    return interval_figure(float(values.mean()), unit, float(baseline.mean()), between=between)


def ratio_figure(values: Floats, baseline: Floats, draws: Ints) -> IntervalMetric:
    """Relative change of the mean: -0.5 is half of the baseline; 0 where the baseline is 0."""

    def change(rows: Ints) -> Floats:
        over = baseline[rows].mean(axis=1)
        relative: Floats = values[rows].mean(axis=1) / np.where(over > 0, over, np.inf)
        relative -= over > 0
        return relative

    everything = np.arange(len(values))[None, :]
    value, between = float(change(everything)[0]), bootstrap_interval(change, draws)
    return interval_figure(value, "share", 0.0, between=between)


def run_figures(log: QueueLog, result: ChainsResult) -> dict[str, IntervalMetric]:
    """What was simulated: jobs, broken lines, starts by load, probes."""
    reactive = result.difference_h["reactive"]
    figures = {
        "jobs": interval_figure(len(log.jobs), "jobs"),
        "bad_lines": interval_figure(len(log.bad_lines), "lines"),
        "starts": interval_figure(len(reactive), "starts"),
    }
    for load, rows in starts_by_load(reactive).items():
        figures[f"starts_{load}_load"] = interval_figure(int(rows.sum()), "starts")
    if result.probes:
        figures["probes"] = interval_figure(result.probes, "probes")
        figures["probes_per_s"] = interval_figure(result.probes / result.probing_s, "probes/s")
    return figures


@dataclass(frozen=True, slots=True)
class WaitComparison:
    """Waits in seconds of the same jobs, in order of submission.

    They differ by what the simulation does not know: fair share, QOS, partitions, reservations,
    dependencies, nodes that were down.
    """

    simulated_s: Floats
    real_s: Floats
    nodes: Floats
    limit_s: Floats

    def like(self, nodes: int, limit_s: float) -> "WaitComparison":
        """The jobs of this size and time limit alone."""
        rows = (self.nodes == nodes) & (self.limit_s == limit_s)
        columns = (self.simulated_s, self.real_s, self.nodes, self.limit_s)
        return WaitComparison(*(column[rows] for column in columns))


def compare_waits(
    log: QueueLog, began_at: float, nodes: int, *, until_at: float = math.inf
) -> WaitComparison:
    """Play the log from its real running set on; waits of the jobs submitted in the window."""
    cluster = open_cluster(log, began_at, nodes, start="running")
    rows = arriving_jobs(log, began_at, nodes)
    simulated_s = cluster.play_out()[-len(rows) :] if len(rows) else np.zeros(0)
    columns = log.columns
    inside = columns.submitted_at[rows] <= until_at
    rows = rows[inside]
    return WaitComparison(
        simulated_s=simulated_s[inside],
        real_s=columns.started_at[rows] - columns.submitted_at[rows],
        nodes=columns.nodes[rows].astype(np.float64),
        limit_s=columns.time_limit_s[rows],
    )


def wait_figures(
    log: QueueLog, settings: PairSettings, from_at: float, until_at: float
) -> dict[str, IntervalMetric]:
    """Waits in the simulation, begun with the real running set; the baseline is the log's."""
    every = compare_waits(log, from_at, settings.cluster_nodes, until_at=until_at)
    like = every.like(settings.nodes, settings.limit_s)
    return describe_waits("wait", every) | describe_waits("pair_wait", like)


def describe_waits(name: str, waits: WaitComparison) -> dict[str, IntervalMetric]:
    if not len(waits.real_s):
        return {}
    ours, real = waits.simulated_s, waits.real_s
    hours = {
        f"{name}_{part}_h": interval_figure(statistic(ours) / HOUR_S, "h", statistic(real) / HOUR_S)
        for part, statistic in STATISTICS.items()
    }
    short = interval_figure(
        float((ours <= MINUTE_S).mean()), "share", float((real <= MINUTE_S).mean())
    )
    return {
        f"{name}_jobs": interval_figure(len(real), "jobs"),
        **hours,
        f"{name}_minute_share": short,
    }


STATISTICS: Final[Mapping[str, Callable[[Floats], float]]] = {
    "mean": lambda values: float(np.mean(values)),
    "median": lambda values: float(np.median(values)),
    "p90": lambda values: float(np.percentile(values, 90)),
}
