"""The learned methods: what they know, what they learn, when they submit, and what is saved."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from laxity_lab.batch_queue import commands
from laxity_lab.batch_queue.learned_method import LearnedMethod
from laxity_lab.batch_queue.queue_log import BatchJob, QueueLog
from laxity_lab.batch_queue.successor import Pair, PairSettings, watch_queue
from laxity_lab.provisioner_training import train_command
from laxity_lab.provisioner_training.fitted_trees import TreeNodes, join_trees
from laxity_lab.provisioner_training.samples import (
    Samples,
    collect_samples,
    hourly_probes,
    load_samples,
    save_samples,
    week_folds,
)
from laxity_lab.provisioner_training.train_model import train_model
from laxity_lab.provisioner_training.wait_calibration import calibrate_levels, rank_waits
from laxity_scheduler.chains import choices
from laxity_scheduler.chains.features import WINDOW
from laxity_scheduler.chains.model_file import Provisioner, load_provisioner, save_provisioner
from laxity_scheduler.chains.model_kinds import Model
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.provisioning import should_submit
from laxity_scheduler.chains.trees import Trees
from laxity_scheduler.chains.value_models import CalibratedModel, PointModel
from laxity_scheduler.chains.wait_distribution import LEVELS, level_weights, read_levels
from tests.chains.busy_log import DAY_S, HOUR_S, as_swf
from tests.support.command_line import invoke

KINDS = ("forest", "boosting", "calibrated")
SETTINGS = PairSettings(8, limit_s=DAY_S, warm_up_s=1.5 * DAY_S, start="running")


@cache
def waves(days: int = 70) -> QueueLog:
    """Jobs come faster on some days than the cluster's eight nodes can run them."""
    rng = np.random.default_rng(1)
    submits, now = [], 0.0
    while now < days * DAY_S:
        busy = int(now // DAY_S) % 5 in (1, 2)
        now += rng.exponential(0.8 if busy else 2.5) * HOUR_S
        submits.append(now)
    run_s = rng.uniform(4, 14, len(submits)) * HOUR_S
    jobs = [
        BatchJob(str(number), at, at, at + run, DAY_S, 1)
        for number, (at, run) in enumerate(zip(submits, run_s.tolist(), strict=True))
    ]
    return QueueLog("waves", tuple(jobs))


@cache
def samples() -> Samples:
    starts = np.arange(0, 60 * DAY_S, 16 * HOUR_S)
    return collect_samples(waves(), SETTINGS, [float(start) for start in starts])


@cache
def provisioner(kind: str) -> Provisioner:
    few = samples().rows(np.arange(0, len(samples()), 8 if kind == "forest" else 1))
    model, errors = train_model(kind, few, 42, int)
    return Provisioner(kind, model, 1, DAY_S, {}, errors)


def test_snapshot_counts_the_jobs_and_their_percentiles() -> None:
    pair = Pair(waves(), 5 * DAY_S, SETTINGS)
    history = watch_queue(pair)
    row = history.row_at(pair.started_at + 6 * HOUR_S)
    cluster = pair.without_successor()
    state, jobs = cluster.state, cluster.jobs
    now = round((history.taken_at[row] - pair.began_at) / 60)
    rows = np.flatnonzero(jobs.submit < now)[:-1]  # without the spare row
    start = state.start[rows]
    running = rows[(start < now) & (start + jobs.run[rows] > now - 1)]
    pending = rows[start >= now]
    snapshot = history.snapshots[row]
    assert snapshot[0] == len(pending)
    assert snapshot[12] == pytest.approx(len(running), abs=1)  # who ends at this minute
    if len(pending):
        ages = np.percentile(now - jobs.submit[pending], (0, 25, 50, 75, 100))
        assert snapshot[7:12] == pytest.approx(ages, rel=1e-5)


def test_window_is_the_day_up_to_the_decision_and_the_predecessor_beside_it() -> None:
    pair = Pair(waves(), 5 * DAY_S, SETTINGS)
    history = watch_queue(pair)
    row = history.row_at(pair.started_at + 6 * HOUR_S)
    windows = history.windows(np.array([row]))
    assert windows.queue.shape == (1, WINDOW, 33)
    assert (windows.queue[0] == history.snapshots[row - WINDOW + 1 : row + 1]).all()
    assert windows.left_h[0] == pytest.approx(18, abs=0.2)
    assert windows.elapsed_h[0] + windows.left_h[0] == pytest.approx(24)
    assert windows.flat().shape == (1, WINDOW * 29 + 2)
    assert history.taken_at[0] == pair.submitted_at - DAY_S
    with pytest.raises(ValueError, match="142 has no 144 rows"):
        history.windows(np.array([142]))


def test_looking_at_the_queue_changes_nothing_in_it() -> None:
    looked, other = (Pair(waves(), 5 * DAY_S, SETTINGS) for _ in range(2))
    watch_queue(looked)
    instants = looked.even_instants(5)
    assert looked.probe(instants) == other.probe(instants)


def test_samples_are_the_same_again_and_only_of_what_was_asked_from_a_file(tmp_path: Path) -> None:
    again = collect_samples(waves(), SETTINGS, [5 * DAY_S])
    more = collect_samples(waves(), SETTINGS, [5 * DAY_S])
    assert len(again) == 7
    assert (again.windows.queue == more.windows.queue).all()
    assert (again.difference_h == more.difference_h).all()
    path = tmp_path / "samples.npz"
    save_samples(again, {"nodes": 1}, path)
    assert (load_samples(path, {"nodes": 1}).difference_h == again.difference_h).all()
    with pytest.raises(ValueError, match="holds other samples"):
        load_samples(path, {"nodes": 8})
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="holds no samples"):
        load_samples(path, {"nodes": 1})


@pytest.mark.parametrize("day", [6, 7, 8, 9])
def test_a_probe_submits_at_the_snapshot_that_is_known_of_it(day: int) -> None:
    probes = collect_samples(waves(), SETTINGS, [day * DAY_S])
    pair, runs = Pair(waves(), day * DAY_S, SETTINGS), probes.windows.elapsed_h > 0
    assert runs.sum() > 3
    submitted_at = pair.ended_at - HOUR_S * probes.windows.left_h[runs]
    again = pair.probe(submitted_at.tolist())
    waits_h = [
        (probe.started_at - at) / HOUR_S for probe, at in zip(again, submitted_at, strict=True)
    ]
    assert probes.wait_h[runs] == pytest.approx(waits_h)


def test_an_hourly_probe_is_there_from_the_predecessors_start_to_its_end() -> None:
    pair = Pair(waves(), 6 * DAY_S, SETTINGS)
    probes = collect_samples(waves(), SETTINGS, [6 * DAY_S], hourly_probes)
    assert probes.windows.elapsed_h == pytest.approx(np.arange(25), abs=1 / 6)
    assert probes.difference_h[-1] == pytest.approx(
        pair.probe([pair.ended_at])[0].difference_h, abs=1 / 6
    )


def test_a_week_is_in_one_fold() -> None:
    began_at = np.arange(0, 70 * DAY_S, 4 * HOUR_S)
    folds = week_folds(began_at, 42)
    assert set(folds) == set(range(5))
    for week in range(10):
        assert len(set(folds[began_at // (7 * DAY_S) == week])) == 1
    assert (folds == week_folds(began_at, 42)).all()
    assert (folds != week_folds(began_at, 43)).any()


def test_plain_arrays_predict_what_scikit_learn_predicts() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    from laxity_lab.provisioner_training.tree_fitting import (
        BINS,
        fit_boosting,
        fit_forest,
        read_boosted_trees,
    )

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 6)).astype(np.float32)
    values = rows[:, 0] * 3 + np.abs(rows[:, 1]) + rng.normal(size=400)
    with threadpool_limits(1, user_api="openmp"):
        boosted = HistGradientBoostingRegressor(max_bins=BINS, random_state=3).fit(rows, values)
        expected = boosted.predict(rows)
    assert read_boosted_trees(boosted).predict(rows) == pytest.approx(expected)
    assert fit_boosting(rows, values, 3).predict(rows) == pytest.approx(expected)
    near = np.abs(fit_forest(rows, values, 3).predict(rows) - values).mean()
    assert near < 0.5 * np.abs(values - values.mean()).mean()


def test_calibration_makes_quantiles_cover_what_they_claim() -> None:
    rng = np.random.default_rng(0)
    scale = rng.uniform(1, 5, 4_000)
    wait_h = scale * rng.exponential(size=4_000)
    narrow_h = scale[:, None] * -np.log(1 - LEVELS**2)  # believes too little of short waits
    levels = calibrate_levels(rank_waits(narrow_h[:2_000], wait_h[:2_000]))
    covered = (wait_h[2_000:, None] <= read_levels(narrow_h[2_000:], levels)).mean(axis=0)
    before = (wait_h[2_000:, None] <= narrow_h[2_000:]).mean(axis=0)
    assert np.abs(before - LEVELS).max() > 0.15
    assert np.abs(covered - LEVELS)[1:].max() < 0.03


def test_a_distribution_submits_at_the_quantile_of_the_prices() -> None:
    waits_h = np.broadcast_to(10 * LEVELS, (1, len(LEVELS)))  # evenly between 0 and 10 hours

    def submits_h(prices: str) -> float:
        left_h = np.arange(12, 0, -1 / 6)[:, None]
        chosen = should_submit(waits_h - left_h, level_weights(), Prices.parse(prices))
        return float(left_h[np.flatnonzero(chosen)[0], 0])

    assert level_weights().sum() == pytest.approx(1)
    assert submits_h("1:4") == pytest.approx(2, abs=0.2)
    assert submits_h("1:1") == pytest.approx(5, abs=0.2)
    assert submits_h("4:1") == pytest.approx(8, abs=0.2)
    assert submits_h("400:100") == submits_h("4:1")


def test_a_point_submits_from_half_an_hour_of_overlap_on() -> None:
    hours = np.array([[-0.6], [-0.5], [3.0]])
    assert should_submit(hours, np.ones(1), Prices()).tolist() == [False, True, True]


@pytest.mark.parametrize("text", ["4", "4:1:1", "a:1", "0:1", "-1:1", "nan:1", "1:inf"])
def test_prices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--prices"):
        Prices.parse(text)


@pytest.mark.parametrize("kind", ["boosting", pytest.param("calibrated", marks=pytest.mark.slow)])
def test_a_learned_method_loses_less_than_reactive_in_time(kind: str) -> None:
    method = LearnedMethod(provisioner(kind), Prices())
    pairs = [Pair(waves(), (60 + day) * DAY_S, SETTINGS) for day in range(5)]
    hours = [pair.probe([method(pair), pair.ended_at]) for pair in pairs]
    ours, reactive = (np.array([two[n].difference_h for two in hours]) for n in range(2))
    assert np.maximum(reactive, 0).mean() > 1
    assert np.maximum(ours, 0).mean() < np.maximum(reactive, 0).mean()
    assert np.median(method.decision_s) < 0.05


def test_a_higher_price_of_interruption_submits_no_later() -> None:
    pair = Pair(waves(), 61 * DAY_S, SETTINGS)
    instants = [
        LearnedMethod(provisioner("calibrated"), Prices.parse(prices))(pair)
        for prices in ("16:1", "4:1", "1:1", "1:4")
    ]
    assert instants == sorted(instants)
    assert pair.started_at <= instants[0] <= instants[-1] <= pair.ended_at


def always(value: float) -> Trees:
    """Trees that know nothing."""
    place, nothing = np.zeros(1, dtype=np.int64), np.full(1, -1, dtype=np.int64)
    return join_trees(
        [TreeNodes(place, np.zeros(1), nothing, nothing, np.full(1, value))], base=0.0
    )


def test_calibrated_may_submit_while_the_predecessor_waits_and_others_may_not() -> None:
    long = CalibratedModel((always(float(np.log1p(30))),) * len(LEVELS), LEVELS)  # limit: 24 h
    models: dict[str, Model] = {"calibrated": long, "boosting": PointModel(always(6.0))}
    pairs = [Pair(waves(), (60 + day / 2) * DAY_S, SETTINGS) for day in range(10)]
    pair = max(pairs, key=lambda pair: pair.started_at - pair.submitted_at)
    assert pair.started_at - pair.submitted_at > HOUR_S
    calibrated_at, boosting_at = (
        LearnedMethod(Provisioner(kind, model, 1, DAY_S, {}, {}), Prices())(pair)
        for kind, model in models.items()
    )
    assert calibrated_at == pair.submitted_at
    assert 0 <= boosting_at - pair.started_at <= 600


def test_without_a_day_of_history_the_average_baseline_decides() -> None:
    from laxity_lab.batch_queue.baselines import average

    settings = replace(SETTINGS, warm_up_s=0.0, limit_s=12 * HOUR_S)
    pair = Pair(waves(), 6 * DAY_S, settings)
    submitted_at = LearnedMethod(provisioner("calibrated"), Prices())(pair)
    assert 0 <= submitted_at - average(pair) <= 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_provisioner_decides_as_before(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    saved, windows = provisioner(kind), samples().windows
    save_provisioner(saved, path)
    again = load_provisioner(path)
    assert isinstance(again.model, PointModel | CalibratedModel)
    assert isinstance(saved.model, PointModel | CalibratedModel)
    assert (again.model.predict_h(windows) == saved.model.predict_h(windows)).all()
    assert (again.kind, again.errors, again.limit_s) == (kind, saved.errors, DAY_S)
    with pytest.raises(ValueError, match="for jobs of 1 nodes and 24 h, not 8 nodes"):
        again.check_pair(8, DAY_S, "model.npz")


def test_a_file_that_is_no_provisioner_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, header=json.dumps({"format": "laxity-provisioner", "version": 99}))
    with pytest.raises(ValueError, match=r"no provisioner of version 1: it is laxity-prov.* 99"):
        load_provisioner(path)
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="no provisioner of version 1"):
        load_provisioner(path)  # a pickle is not opened
    path.write_text("text")
    with pytest.raises(ValueError, match="no provisioner of version 1"):
        load_provisioner(path)
    path.unlink()
    with pytest.raises(ValueError, match=r"^there is no file \S+model.npz$"):
        load_provisioner(path)


def run_laxity(*words: str) -> tuple[int, str, str]:
    result = invoke(words, train_command.register, commands.register)
    text = str(result.exception) if result.exception else ""
    return getattr(result.exception, "code", result.exit_code), result.stdout, text or result.stderr


@pytest.mark.slow
def test_training_and_bench_on_the_command_line(tmp_path: Path) -> None:
    log, model, kept = (tmp_path / name for name in ("waves.swf", "model.npz", "samples.npz"))
    log.write_text(as_swf(waves(), nodes=8))
    pair = ("--trace", str(log), "--limit", "24h")
    train = (
        *("train", "provisioner", *pair, "--model", "calibrated", "--out", str(model)),
        *("--starts", "48", "--until", str(60 * DAY_S), "--samples", str(kept), "--json"),
    )
    code, out, progress = run_laxity(*train)
    assert (code, set(json.loads(out)) >= {"mean_absolute_error_h", "coverage_p90"}) == (0, True)
    assert "starts" in progress
    code, _, text = run_laxity(*train, "--pair-nodes", "2")
    assert (code, "holds other samples" in text) == (2, True)
    words = ("bench", "chains", *pair, "--from", str(60 * DAY_S), "--starts", "24")
    learned = ("--model", str(model), "--prices", "4:1", "--json")
    code, out, _ = run_laxity(*words, *learned)
    figures = json.loads(out)
    assert code == 0
    assert set(figures) == {*choices.METHODS_WITHOUT_MODEL, "calibrated", "run"}
    assert figures["calibrated"]["interruption_vs_reactive"]["value"] < 0
    assert 0 < figures["run"]["calibrated_decision_ms"]["value"] < 50
    code, _, text = run_laxity(*words, "--method", "calibrated")
    assert (code, "--method calibrated needs --model" in text) == (2, True)
    code, _, text = run_laxity(*words, *learned, "--pair-nodes", "2")
    assert (code, "was trained for jobs of 1 nodes" in text) == (2, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--model best", "unknown model 'best': one of forest, xgboost, boosting, transf"),
        ("--model mixture_pg", "--model mixture_pg needs --base, a trained mixture"),
        ("--model dqn --prices 4", "--prices '4': interruption and overlap"),
        ("--until 2592000", "the starts span 4 weeks: 5 at least"),
        ("--until 86400", "no start fits"),
    ],
)
def test_training_says_what_is_wrong(tmp_path: Path, words: str, problem: str) -> None:
    log = tmp_path / "waves.swf"
    log.write_text(as_swf(waves(), nodes=8))
    fixed = ("--trace", str(log), "--limit", "24h", "--starts", "96", "--out", str(tmp_path / "m"))
    code, _, text = run_laxity("train", "provisioner", *fixed, *words.split())
    assert (code, problem in text) == (2, True), text
