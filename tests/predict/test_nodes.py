"""On how many nodes workers lie: known of runs, kept in the history, and learned from."""

from collections.abc import Mapping

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Workload
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.learning.learner import Learner
from laxity_profiler.model.epoch_curve import Level, WidthCurve, interpolate_curve
from laxity_profiler.model.scaling import StepTime, fit_curve
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.runs import (
    LATER_AT,
    START_AT,
    World,
    epoch_line,
    workload,
)

PENALTY_S = 8.0
NODES = ("n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")


def epoch_s(width: int, nodes: int) -> float:
    """Beyond a node an epoch takes eight seconds more."""
    return 2.0 + 40.0 / width + PENALTY_S * (nodes > 1)


def ran(
    history: History, width: int, nodes: int | None, *, runs: int = 4, model: str = "m"
) -> None:
    """Runs of this width, each a little off."""
    for run in range(runs):
        uid = f"{model}-{width}-{nodes}-{run}"
        pace = World(run, epoch_s=epoch_s(width, nodes or 1), spread=0.02, noise=0.02).run(8)
        epochs = [
            Epoch(n, width, seconds, warmup=n == 1, at=START_AT + 60 * n, nodes=nodes)
            for n, seconds in enumerate(pace, 1)
        ]
        history.add_epochs(uid, f"default/{uid}", Workload(model, 8), epochs)


def taught(history: History, *, gpus_per_node: int = 4) -> Learner:
    """Widths 1, 2 and 4 on one node, 4 and 8 on two."""
    for width, nodes in ((1, 1), (2, 1), (4, 1), (4, 2), (8, 2)):
        ran(history, width, nodes)
    learner = Learner(history)
    learner.observe_nodes(gpus_per_node)
    return learner


def said_s(predictor: HistoryPredictor, width: int, *, gpus_per_worker: int = 1) -> float:
    what = Workload("m", 8, gpus_per_worker=gpus_per_worker)
    return predictor.epoch_time(what, width).p50_s


def test_beyond_a_node_is_slower_and_that_is_learned(history: History) -> None:
    predictor = taught(history).predictor()

    for width in (1, 2, 3, 4, 5, 6, 8, 12):
        truth_s = epoch_s(width, 1 if width <= 4 else 2)
        assert said_s(predictor, width) == pytest.approx(truth_s, rel=0.08), width
    assert said_s(predictor, 5) > said_s(predictor, 4)


def test_the_same_history_says_another_thing_on_larger_nodes(history: History) -> None:
    predictor = taught(history, gpus_per_node=16).predictor()

    assert said_s(predictor, 6) == pytest.approx(epoch_s(6, 1), rel=0.12)
    assert said_s(predictor, 6, gpus_per_worker=4) == pytest.approx(epoch_s(6, 2), rel=0.12)


def test_where_nobody_says_what_a_node_holds_the_closest_runs_do(history: History) -> None:
    taught(history)
    offline = Learner(history).predictor()

    assert offline.gpus_per_node is None
    assert said_s(offline, 4) == pytest.approx(epoch_s(4, 1), rel=0.08)
    assert said_s(offline, 6) == pytest.approx(epoch_s(6, 2), rel=0.08)


def test_beyond_a_node_never_seen_is_unsure(history: History) -> None:
    for width in (1, 2, 4):
        ran(history, width, 1)
    learner = Learner(history)
    learner.observe_nodes(4)

    inside, beyond = (learner.predictor().epoch_time(Workload("m", 8), width) for width in (3, 8))

    assert inside.p90_s < 1.3 * inside.p50_s
    assert beyond.p90_s > 2.0 * beyond.p50_s


def test_runs_that_nobody_placed_count_as_on_the_fewest_nodes(history: History) -> None:
    for width in (1, 2, 4):
        ran(history, width, None)
    ran(history, 8, 2)
    ran(history, 16, None)
    learner = Learner(history)
    learner.observe_nodes(8)
    setting = learner.predictor().models[0].settings[0]

    placed = {level.width: level.nodes for level in setting.levels}

    assert placed == {1: 1, 2: 1, 4: 1, 8: 2, 16: 2}


def test_a_cluster_of_another_size_is_a_new_version_and_the_same_one_is_not(
    history: History,
) -> None:
    learner = taught(history)
    before = learner.predictor()

    learner.observe_nodes(4)
    same = learner.predictor()
    learner.observe_nodes(8)

    assert same is before
    assert learner.predictor().version != before.version


def test_it_is_the_same_predictor_after_json_and_one_without_nodes_is_read(
    history: History,
) -> None:
    predictor = taught(history).predictor()
    old = predictor.to_json()
    del old["gpus_per_node"]

    assert HistoryPredictor.from_json(predictor.to_json()) == predictor
    assert HistoryPredictor.from_json(old).gpus_per_node is None


@pytest.mark.parametrize(
    ("nodes", "since", "kept"),
    [
        pytest.param(NODES, 0.0, {2: 1, 8: 2}, id="all placed"),
        pytest.param(NODES[:4], 0.0, {2: 1, 8: None}, id="some not placed"),
        pytest.param((), 0.0, {2: None, 8: None}, id="unknown"),
        pytest.param(NODES, START_AT + 15.0, {2: None, 8: 2}, id="moved in between"),
    ],
)
def test_reported_epochs_are_kept_with_the_nodes_of_their_workers(
    nodes: tuple[str, ...], since: float, kept: Mapping[int, int | None], history: History
) -> None:
    lines = [epoch_line(1, 1, width=2), epoch_line(2, 2, width=8)]

    history.ingest("u", "d/u", workload(), lines, received_at=LATER_AT, nodes=nodes, since=since)

    (run,) = history.epochs("mlp")
    assert {epoch.width: epoch.nodes for epoch in run.epochs} == kept


def test_the_curve_learns_what_leaving_a_node_costs() -> None:
    points = [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)]
    seconds = [epoch_s(width, nodes) for width, nodes in points]

    curve = fit_curve([width for width, _ in points], seconds, [nodes > 1 for _, nodes in points])

    assert curve.delta == pytest.approx(PENALTY_S, rel=0.05)


def test_one_width_on_one_node_and_on_two_shows_the_difference() -> None:
    assert fit_curve([4, 4], [12.0, 20.0], [False, True]).delta == pytest.approx(8.0)


def test_a_level_between_two_others_beyond_the_node_is_bent_through_them() -> None:
    levels = [Level(4, 12.0, 0.01, 3, 9, 1), Level(8, 15.0, 0.01, 3, 9, 2), Level(32, 11.5, 0.01, 3, 9, 8)]  # fmt: skip
    curve = WidthCurve(2.0, 40.0, 0.0, 8.0)

    between, error = interpolate_curve(levels, curve, 16, 4)

    assert 11.5 < between < 15.0
    assert error < 0.1


def test_step_times_may_say_their_nodes_themselves() -> None:
    points = [(64, 1, 1), (128, 1, 1), (128, 4, 1), (128, 4, 2), (64, 4, 2), (128, 8, 2)]
    steps = [0.01 + 0.001 * batch / gpus + 0.05 * (nodes > 1) for batch, gpus, nodes in points]

    model = StepTime(gpus_per_node=8).fit(points, steps)

    near, far = model.predict([(64, 4, 1), (64, 4, 2)])
    assert far - near == pytest.approx(0.05, rel=0.2)


def test_settings_never_seen_pay_for_the_nodes_too(history: History) -> None:
    for batch in (32, 128):
        for width, nodes in ((1, 1), (4, 1), (8, 2)):
            seconds = 9_600 / batch * (0.01 + 0.002 * batch / width + 0.02 * (nodes > 1))
            epochs = [Epoch(n, width, seconds, at=60.0 * n, nodes=nodes) for n in range(1, 9)]
            what = Workload("m", 8, samples=9_600, batch_size=batch)
            history.add_epochs(f"{batch}-{width}", "d/u", what, epochs)
    learner = Learner(history)
    learner.observe_nodes(4)

    said = learner.predictor().remaining(
        Workload("m", 1, samples=9_600, batch_size=64), NO_PROGRESS, 8
    )

    assert said.source == "profile"
    assert said.p50_s == pytest.approx(150 * (0.01 + 0.002 * 8 + 0.02), rel=0.1)
