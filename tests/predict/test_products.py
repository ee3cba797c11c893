"""GPUs differ: what an epoch takes on a product that a model never ran on, and how sure that is."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from laxity_lab.traces.throughput_tables import load_tables
from laxity_profiler.estimate import Progress, Workload
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.learning.learner import Learner
from laxity_profiler.model.epoch_curve import ONE_WIDTH, Level, WidthCurve
from laxity_profiler.model.model_fit import ModelFit, SettingFit, StepFit, WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.runs import LATER_AT, START_AT, epoch_line, line
from tests.support.simulated import TRACES

Times = Mapping[tuple[int, int], float]  # seconds of 1,000 samples, by batch size and width
PAIRS = ("tables/gavel_phys_k80", "tables/gavel_phys_p100"), ("tables/sia_azure", "tables/sia_rtx")
needs_tables = pytest.mark.skipif(TRACES is None, reason="LAXITY_TRACES has the measured tables")


def setting_on(product: str, epoch_s: float, batch: int = 32) -> SettingFit:
    return SettingFit(
        WorkloadSetting(1_000, batch, gpu_type=product),
        (Level(1, epoch_s, 0.02, 3, 30),),
        WidthCurve(0.05 * epoch_s, 0.95 * epoch_s),
    )


def seen_on(model: str, **epoch_s: float) -> ModelFit:
    """A model with runs on these products."""
    return ModelFit(model, tuple(setting_on(product, s) for product, s in epoch_s.items()))


def on(product: str, model: str = "new") -> Workload:
    return Workload(model, 10, samples=1_000, batch_size=32, gpu_type=product)


def p50_and_p90(predictor: HistoryPredictor, workload: Workload) -> tuple[float, float]:
    estimate = predictor.epoch_time(workload, 1)
    return estimate.p50_s, estimate.p90_s


BOTH = tuple(seen_on(f"both{n}", A100=10.0, T4=40.0 + n) for n in range(5))


def test_a_model_that_ran_on_both_is_predicted_by_its_own_times() -> None:
    predictor = HistoryPredictor((seen_on("new", A100=3.0, T4=30.0), *BOTH))
    assert p50_and_p90(predictor, on("T4"))[0] == pytest.approx(30.0)
    assert p50_and_p90(predictor, on("A100"))[0] == pytest.approx(3.0)
    assert predictor.notes(on("T4")) == ""


def test_a_product_never_seen_is_reached_by_models_seen_on_both_and_wider() -> None:
    predictor = HistoryPredictor((seen_on("new", A100=3.0), *BOTH))
    known, there = p50_and_p90(predictor, on("A100")), p50_and_p90(predictor, on("T4"))
    assert there[0] == pytest.approx(3.0 * 4.2)
    assert there[1] / there[0] > 1.3 * known[1] / known[0]
    note = predictor.notes(on("T4"))
    assert (
        note == "new has not run on T4: 4.2 times as long as on A100, by 5 models that ran on both"
    )


def test_the_more_models_ran_on_both_the_surer_the_factor() -> None:
    widths = [
        p90_s / p50_s
        for n in (0, 1, 2, 5)
        for predictor in (HistoryPredictor((seen_on("new", A100=3.0), *BOTH[:n])),)
        for p50_s, p90_s in (p50_and_p90(predictor, on("T4")),)
    ]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 4


def test_with_no_model_seen_on_both_products_are_one_kind_and_very_unsure() -> None:
    predictor = HistoryPredictor((seen_on("new", A100=3.0), seen_on("other", T4=7.0)))
    p50_s, p90_s = p50_and_p90(predictor, on("T4"))
    assert p50_s == pytest.approx(3.0)
    assert p90_s > 3.5 * p50_s
    assert predictor.notes(on("T4")) == "new has not run on T4: taken as on A100, and very unsure"


def test_an_estimate_of_the_user_is_surer_than_another_product() -> None:
    predictor = HistoryPredictor((seen_on("new", A100=3.0),))
    answer = predictor.epoch_time(Workload("new", 10, gpu_type="T4", user_epoch_s=12.0), 1)
    assert answer.source == "user"
    assert answer.p50_s == pytest.approx(12.0)


def test_another_namespace_does_not_teach_how_products_compare() -> None:
    others = tuple(seen_on(f"team-b::both{n}", A100=10.0, T4=1.0) for n in range(5))
    predictor = HistoryPredictor((seen_on("new", A100=3.0), *others))
    assert p50_and_p90(predictor, on("T4"))[0] == pytest.approx(3.0)


def test_where_one_product_is_known_times_without_a_product_are_of_it() -> None:
    """The history of before, and a cluster where the discovery was installed later."""
    without = HistoryPredictor((seen_on("new", **{"": 3.0}),))
    assert p50_and_p90(without, on("A100")) == p50_and_p90(without, on(""))
    named = HistoryPredictor((seen_on("new", A100=3.0),))
    assert p50_and_p90(named, on("")) == p50_and_p90(named, on("A100"))


def test_a_relative_on_another_product_is_scaled_as_well() -> None:
    predictor = HistoryPredictor((seen_on("resnet18", A100=3.0), *BOTH))
    assert p50_and_p90(predictor, on("T4", "resnet50"))[0] == pytest.approx(3.0 * 4.2)


def test_step_times_of_one_product_say_nothing_of_another() -> None:
    steps = StepFit(0.0, 0.001, 0.0, 0.05, 1, 8, gpu_type="T4")
    fit = ModelFit("new", (setting_on("A100", 3.0), setting_on("T4", 30.0)), steps=(steps,))
    predictor = HistoryPredictor((fit,))
    wider = Workload("new", 10, samples=1_000, batch_size=64, gpu_type="A100")
    assert predictor.epoch_time(wider, 1).source == "history"
    there = Workload("new", 10, samples=1_000, batch_size=64, gpu_type="T4")
    assert predictor.epoch_time(there, 1).source == "profile"


def test_a_run_that_is_slow_on_one_product_is_so_on_the_next() -> None:
    predictor = HistoryPredictor((seen_on("new", A100=3.0, T4=30.0),))
    own = Progress(4, (45.0,) * 4, (1,) * 4, gpu_type="T4")
    rest_s = predictor.remaining(on("A100"), own, 1).p50_s
    assert rest_s == pytest.approx(6 * 4.5, rel=0.05)


def test_a_run_that_moves_where_nothing_is_known_is_very_unsure() -> None:
    own = Progress(4, (45.0,) * 4, (1,) * 4, gpu_type="T4")
    stays, moves = (HistoryPredictor().remaining(on(kind), own, 1) for kind in ("T4", "A100"))
    assert moves.p90_s / moves.p50_s > 2.0 * stays.p90_s / stays.p50_s


def test_parameters_of_products_survive_json() -> None:
    steps = StepFit(0.0, 0.001, 0.0, 0.05, 1, 8, gpu_type="T4")
    predictor = HistoryPredictor(
        (ModelFit("new", (setting_on("A100", 3.0),), steps=(steps,)), *BOTH)
    )
    again = HistoryPredictor.from_json(predictor.to_json())
    assert again == predictor
    assert again.epoch_time(on("T4"), 1) == predictor.epoch_time(on("T4"), 1)


# What is observed


def ran(history: History, uid: str, product: str, epoch_s: float, *, since: float = 0.0) -> None:
    lines = [line(1, "formed", width=1, epoch=0)]
    lines += [epoch_line(n + 1, n, epoch_s=epoch_s, width=1, warmup=n == 1) for n in range(1, 7)]
    workload = Workload("m", 6, gpu_type=product)
    history.ingest(
        uid, f"default/{uid}", workload, lines, received_at=LATER_AT, nodes=("n",), since=since
    )


def test_epochs_are_kept_with_the_product_that_they_ran_on(history: History) -> None:
    ran(history, "one", "A100", 3.0)
    ran(history, "two", "T4", 30.0)
    products = [{epoch.gpu_type for epoch in run.epochs} for run in history.epochs("m")]
    assert products == [{"A100"}, {"T4"}]
    predictor = Learner(history).predictor()
    assert predictor.epoch_time(Workload("m", 6, gpu_type="A100"), 1).p50_s == pytest.approx(3.0)
    assert predictor.epoch_time(Workload("m", 6, gpu_type="T4"), 1).p50_s == pytest.approx(30.0)


def test_an_epoch_from_before_the_last_start_is_of_no_known_product(history: History) -> None:
    ran(history, "one", "A100", 3.0, since=START_AT + 45.0)
    (run,) = history.epochs("m")
    assert [epoch.gpu_type for epoch in run.epochs] == ["", "", "", "A100", "A100", "A100"]


def test_epochs_of_one_run_on_two_products_are_kept_apart(history: History) -> None:
    epochs = [
        Epoch(n, 1, 30.0 if n < 7 else 3.0, at=START_AT + n, gpu_type="T4" if n < 7 else "A100")
        for n in range(1, 13)
    ]
    history.add_epochs("both", "default/both", Workload("m", 12), epochs)
    predictor = Learner(history).predictor()
    for product, epoch_s in (("T4", 30.0), ("A100", 3.0)):
        there = predictor.epoch_time(Workload("m", 12, gpu_type=product), 1)
        assert there.p50_s == pytest.approx(epoch_s)


def test_own_epochs_on_another_product_are_not_those_of_this_one(history: History) -> None:
    """A report after a move says on which product the latest epochs ran."""
    first = [line(1, "formed", width=1, epoch=0), *(epoch_line(n + 1, n) for n in (1, 2, 3))]
    history.ingest("u", "default/u", Workload("m", 9, gpu_type="T4"), first, received_at=LATER_AT)
    assert history.report("u").progress.gpu_type == "T4"
    assert len(history.report("u").progress.epoch_s) == 3
    again = [line(5, "formed", width=1, epoch=3), epoch_line(6, 4, epoch_s=0.5)]
    history.ingest("u", "default/u", Workload("m", 9, gpu_type="A100"), again, received_at=LATER_AT)
    progress = history.report("u").progress
    assert (progress.gpu_type, progress.epoch_s, progress.epochs_done) == ("A100", (0.5,), 4)


def test_a_history_of_an_earlier_laxity_gets_the_column(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('old')}/laxity.db"
    open_engine(url).dispose()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE observed_epochs DROP COLUMN gpu_type"))
        connection.execute(
            text(
                "INSERT INTO observed_epochs (uid, epoch, model, width, epoch_s, bytes, warmup, at)"
                " VALUES ('old', 1, 'm', 1, 3.0, 0, 0, 5.0)"
            )
        )
    engine.dispose()
    again = History(open_engine(url))
    ran(again, "new", "A100", 3.0)
    products = [{epoch.gpu_type for epoch in run.epochs} for run in again.epochs("m")]
    again.engine.dispose()
    assert products == [{""}, {"A100"}]


# Measured tables


def times_of(folder: str) -> Mapping[str, Times]:
    """Seconds of 1,000 samples by model."""
    assert TRACES is not None
    times: dict[str, dict[tuple[int, int], float]] = {}
    for (model, batch), table in load_tables(TRACES / folder).items():
        for gpus, speed in zip(table.gpus, table.iterations_per_s, strict=True):
            times.setdefault(model, {})[batch, gpus] = 1_000.0 / batch / speed
    return times


def fit_of(model: str, products: Mapping[str, Times]) -> ModelFit:
    settings = []
    for product, times in products.items():
        for batch in sorted({batch for batch, _ in times}):
            levels = tuple(
                Level(width, times[at, width], 0.02, 3, 30)
                for at, width in sorted(times)
                if at == batch
            )
            settings.append(
                SettingFit(WorkloadSetting(1_000, batch, gpu_type=product), levels, ONE_WIDTH)
            )
    return ModelFit(model, tuple(settings))


def held_out(old: str, new: str, *, factor: bool) -> Iterator[tuple[float, float, float]]:
    """(log error of P50, P90 over the truth, weight) of each model on `new`, from its times on `old`."""
    olds, news = times_of(old), times_of(new)
    for left_out in sorted(olds.keys() & news.keys()):
        others = [
            fit_of(f"m{n}", {"old": olds[model], "new": news[model]})
            for n, model in enumerate(sorted(olds.keys() & news.keys()))
            if model != left_out
        ]
        predictor = HistoryPredictor((fit_of("asked", {"old": olds[left_out]}), *others))
        shared = sorted(olds[left_out].keys() & news[left_out].keys())
        for batch, width in shared:
            product = "new" if factor else "old"
            asked = Workload("asked", 10, samples=1_000, batch_size=batch, gpu_type=product)
            estimate = predictor.epoch_time(asked, width)
            truth = news[left_out][batch, width]
            yield abs(math.log(estimate.p50_s / truth)), estimate.p90_s / truth, 1.0 / len(shared)


def summary(rows: Iterator[tuple[float, float, float]]) -> tuple[float, float]:
    """(median error as a factor, share of P90 kept), each model alike."""
    found = np.array(sorted(rows))
    share = np.cumsum(found[:, 2]) / found[:, 2].sum()
    kept = np.average(found[:, 1] >= 1.0, weights=found[:, 2])
    return float(np.exp(np.interp(0.5, share, found[:, 0]))), float(kept)


@needs_tables
@pytest.mark.parametrize("pair", PAIRS, ids=("Gavel", "Sia"))
@pytest.mark.parametrize("way", [1, -1], ids=("there", "back"))
def test_on_measured_tables_the_factor_is_better_than_taking_one_product_for_another(
    pair: tuple[str, str], way: int
) -> None:
    old, new = pair[::way]
    error, kept = summary(held_out(old, new, factor=True))
    plain_error, plain_kept = summary(held_out(old, new, factor=False))
    assert error <= 1.05 * plain_error
    assert kept >= max(0.8, plain_kept - 0.05)
