"""How the cost of a decision grows with the number of jobs, beside n log n.

Cold decisions (everybody is new) over 1,000, 10,000 and 100,000 jobs on half as many nodes: of a
rigid order (EDF), ElasticFlow and the QoS policy. A figure's baseline is what n log n says from the
smallest size on, `ratio` the cost over that: up to 1 where it grows no faster than n log n.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.bench_decisions import decisions
from benchmarks.results import Metric, figure

SIZES: Final = (1_000, 10_000, 100_000)
GROWING: Final = {"rigid": "edf", "elasticflow": "elasticflow", "qos": "qos"}
TIMES: Final = 3  # of which the best counts; once from MANY jobs on
MANY: Final = 50_000


def growth_figures(sizes: Sequence[int] = SIZES) -> dict[str, Metric]:
    """`growth_NAME_N_jobs_ms` for each policy and size, smallest size first."""
    figures: dict[str, Metric] = {}
    for name, policy in GROWING.items():
        costs_ms = [cold_ms(policy, jobs) for jobs in sizes]
        for jobs, cost_ms in zip(sizes, costs_ms, strict=True):
            expected_ms = costs_ms[0] * n_log_n(jobs) / n_log_n(sizes[0])
            figures[f"growth_{name}_{jobs}_jobs_ms"] = figure(cost_ms, "ms", expected_ms)
    return figures


def cold_ms(policy: str, jobs: int) -> float:
    """The best of a few cold decisions."""
    times = 1 if jobs >= MANY else TIMES
    nodes = max(1, jobs // 2)
    return min(decisions(policy, jobs=jobs, nodes=nodes, warm=0)[0] for _ in range(times))


def n_log_n(jobs: int) -> float:
    return jobs * math.log(jobs)


def table(figures: Mapping[str, Metric]) -> list[tuple[str, int, float, float]]:
    """(name, jobs, milliseconds, ratio to n log n) of the growth figures."""
    rows = []
    for key, metric in figures.items():
        match = re.fullmatch(r"growth_(\w+?)_(\d+)_jobs_ms", key)
        if match:
            rows.append((match[1], int(match[2]), metric["value"], metric["ratio"] or 0.0))
    return rows


def draw(figures: Mapping[str, Metric], path: Path) -> None:
    """Cost against jobs, both on logarithmic axes, with n log n dashed, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Page

    page = Page(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(page)
    axes = page.subplots()
    rows = table(figures)
    for name in dict.fromkeys(row[0] for row in rows):
        sizes = [jobs for row, jobs, _, _ in rows if row == name]
        (line,) = axes.plot(
            sizes, [cost_ms for row, _, cost_ms, _ in rows if row == name], "o-", label=name
        )
        expected = [cost_ms / ratio for row, _, cost_ms, ratio in rows if row == name and ratio]
        axes.plot(sizes, expected, "--", color=line.get_color(), alpha=0.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("jobs")
    axes.set_ylabel("one cold decision [ms of CPU time]")
    axes.set_title("Cost of a decision; dashed: n log n from the smallest size")
    axes.legend()
    page.savefig(path, dpi=90)
