"""Whatever can be reported, the predictor answers: every figure is finite and more than nothing."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.job.widths import MOST_WORKERS
from laxity_profiler.estimate import NO_PROGRESS, Ask, Progress, Workload
from laxity_profiler.history.history import Epoch, TrainingRun
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.history.report_values import LONGEST_S, SHORTEST_S
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import node_workers, split_runs
from laxity_profiler.model.epoch_curve import ONE_WIDTH, Level, WidthCurve, interpolate_curve
from laxity_profiler.overhead.costs import PRIORS, fit_costs
from laxity_profiler.predictor.history_predictor import HistoryPredictor

WIDTHS = st.integers(1, MOST_WORKERS) | st.sampled_from([1, 2, 4, 8])
NODES = st.none() | st.integers(1, 64)
SECONDS = st.floats(SHORTEST_S, LONGEST_S) | st.sampled_from([SHORTEST_S, 1.0, LONGEST_S])
SIZES = st.none() | st.integers(1, 2**62)


@st.composite
def curves(draw: st.DrawFn) -> WidthCurve:
    share = st.floats(1e-6, 1e6)
    return WidthCurve(draw(share), draw(share), draw(share), draw(share))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    return Workload(
        "m",
        draw(st.integers(1, 10**6)),
        samples=draw(SIZES),
        batch_size=draw(SIZES),
        dataset_bytes=draw(SIZES),
        user_epoch_s=draw(st.none() | st.floats(1e-6, 3e8)),
        gpus_per_worker=draw(st.integers(1, 16)),
    )


@st.composite
def runs(draw: st.DrawFn) -> TrainingRun:
    reported = draw(
        st.lists(st.tuples(WIDTHS, NODES, SECONDS, st.booleans()), min_size=1, max_size=8)
    )
    epochs = tuple(
        Epoch(n, width, seconds, warmup=warmup, at=float(n), nodes=nodes)
        for n, (width, nodes, seconds, warmup) in enumerate(reported, 1)
    )
    return TrainingRun(f"uid-{len(epochs)}", draw(workloads()), epochs)


def fitted(history: Sequence[TrainingRun], gpus_per_node: int | None) -> HistoryPredictor:
    found = split_runs(history, gpus_per_node=gpus_per_node)
    fit = fit_model("m", found, node_workers=node_workers(history))
    return HistoryPredictor((fit,), gpus_per_node=gpus_per_node)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_width_that_ran_on_other_nodes_only_is_read(nodes: int) -> None:
    """A model that ran on 4 workers on one node and 8 on three is asked for 8 on two."""
    seconds, error = interpolate_curve([Level(8, 10.0, 0.1, 1, 5, nodes=2)], ONE_WIDTH, 8, nodes)
    assert seconds == pytest.approx(10.0)
    assert error >= 0.1


@given(
    levels=st.lists(st.tuples(WIDTHS, NODES, SECONDS), min_size=1, max_size=8),
    curve=curves(),
    width=WIDTHS,
    nodes=NODES,
)
def test_any_levels_are_read_at_any_width_on_any_nodes(
    levels: list[tuple[int, int | None, float]], curve: WidthCurve, width: int, nodes: int | None
) -> None:
    ordered = sorted(levels, key=lambda row: (row[0], row[1] or 0))
    known = [Level(wide, seconds, 0.1, 1, 1, lay_on) for wide, lay_on, seconds in ordered]
    seconds, error = interpolate_curve(known, curve, width, nodes)
    assert 0.0 < seconds < math.inf
    assert 0.0 < error < math.inf


@given(
    history=st.lists(runs(), min_size=1, max_size=4),
    asked=workloads(),
    own=st.lists(st.tuples(SECONDS, WIDTHS), max_size=20),
    widths=st.lists(WIDTHS, min_size=1, max_size=4),
    gpus_per_node=st.none() | st.integers(1, 16),
)
def test_any_history_is_learned_from_and_answers_with_positive_figures(
    history: list[TrainingRun],
    asked: Workload,
    own: list[tuple[float, int]],
    widths: list[int],
    gpus_per_node: int | None,
) -> None:
    predictor = fitted(history, gpus_per_node)
    progress = Progress(len(own), tuple(s for s, _ in own), tuple(w for _, w in own))
    asks = [Ask(asked, made, width) for made in (NO_PROGRESS, progress) for width in widths]
    told = predictor.table(asks)
    one = [predictor.epoch_time(asked, width) for width in widths]
    left = np.array([asked.epochs > ask.progress.epochs_done for ask in asks])
    for column in (told.p10_s, told.p50_s, told.mean_s, told.p90_s):
        assert np.isfinite(column).all()
        assert (column[left] > 0.0).all()
    for estimate in one:
        assert 0.0 < estimate.p10_s <= estimate.p50_s <= estimate.p90_s < math.inf
        assert 0.0 < estimate.mean_s < math.inf
    assert HistoryPredictor.from_json(predictor.to_json()) == predictor


@given(
    seen=st.lists(
        st.tuples(
            st.sampled_from(["save", "load", "reform", "suspend", "resume", "finishing"]),
            WIDTHS,
            st.floats(0.0, LONGEST_S),
            st.none() | st.integers(0, 2**53),
        ),
        max_size=12,
    ),
    width=WIDTHS,
)
def test_any_stops_are_learned_from_and_cost_finite_time(
    seen: list[tuple[str, int, float, int | None]], width: int
) -> None:
    stops = [ObservedStop("m", kind, wide, took, size) for kind, wide, took, size in seen]
    predictor = HistoryPredictor(costs=fit_costs(stops, warm_up_s={}, prior=PRIORS["local"]))
    for cost in (predictor.suspend_cost, predictor.resume_cost):
        told = cost(Workload("m", 10), width)
        assert 0.0 <= told.p10_s <= told.p50_s <= told.p90_s < math.inf
        assert 0.0 <= told.mean_s < math.inf
