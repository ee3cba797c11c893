"""A history belongs to its namespace, unless both sides write a name that begins with `shared/`."""

from itertools import product
from pathlib import Path

import pytest

from laxity.job.spec import TrainingSpec
from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.learning.learner import Learner
from laxity_profiler.model_key import model_key, model_of, pool_of
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_scheduler.model.job import Promise, Refusal
from laxity_scheduler.promising.promise import judge
from tests.support.builders import cluster
from tests.support.rows import new_row
from tests.support.runs import LATER_AT, OpenHistory, epoch_line, line
from tests.support.services import manifest

NAMESPACES = ("default", "a", "b", "shared")
MODELS = (
    "resnet50",
    "a::resnet50",
    "::",
    ":",
    "shared/resnet50",
    "shared::x",
    "/a",
    "b/x",
    "::a::",
)


def said(namespace: str, model: str, **fields: str) -> dict[str, object]:
    return manifest("asked", namespace=namespace, epochs=30, model=model, **fields)


def of(namespace: str, model: str) -> Workload:
    return Workload.of(TrainingSpec.from_manifest(said(namespace, model)))


def train(history: History, namespace: str, model: str, *, epoch_s: float, runs: int = 3) -> None:
    for run in range(runs):
        uid = f"{namespace}-{model}-{run}"
        lines = [line(1, "formed", width=1, epoch=0)]
        lines += [epoch_line(n + 1, n, epoch_s=epoch_s, width=1) for n in range(1, 11)]
        work = of(namespace, model)
        history.ingest(uid, f"{namespace}/{uid}", work, lines, received_at=LATER_AT)
        for at in range(4):
            history.observe_stop(
                uid, work, kind="resume", workers=1, seconds=100.0 * epoch_s, at=LATER_AT + at
            )


def learned(history: History, *trained: tuple[str, str, float]) -> HistoryPredictor:
    for namespace, model, epoch_s in trained:
        train(history, namespace, model, epoch_s=epoch_s)
    return Learner(history).predictor()


def test_no_two_models_of_two_namespaces_have_one_key_unless_shared() -> None:
    asked = list(product(NAMESPACES, MODELS))
    keys = {one: model_key(*one) for one in asked}
    for (namespace, model), (other, another) in product(asked, asked):
        is_shared = model == another and model.startswith("shared/")
        is_one = (namespace, model) == (other, another) or is_shared
        assert (keys[namespace, model] == keys[other, another]) is is_one
    assert all(model_of(keys[one]) == one[1] for one in asked)
    assert pool_of(keys["shared", "resnet50"]) != pool_of(keys["a", "shared/resnet50"])


def test_a_store_of_before_speaks_for_namespace_default(history: History) -> None:
    epochs = [Epoch(n, 1, 2.0, 0, warmup=False, at=LATER_AT + n) for n in range(1, 11)]
    history.add_epochs("old", "default/old", Workload("resnet50", 10), epochs)
    predictor = Learner(history).predictor()

    assert predictor.epoch_time(of("default", "resnet50"), 1).source == "history"
    assert predictor.epoch_time(of("a", "resnet50"), 1).source == "prior"


def test_what_another_namespace_reports_changes_no_verdict(history: History) -> None:
    quick = learned(history, ("b", "resnet50", 0.5), ("b", "resnet18", 0.5))
    state = cluster(gpus=4)
    hard = {"deadline": "10m", "epoch_estimate": "2m"}

    asked = new_row(said("a", "resnet50", **hard), state)

    assert isinstance(judge(state, asked, quick), Refusal)
    assert isinstance(judge(state, new_row(said("b", "resnet50", **hard), state), quick), Promise)
    assert quick.epoch_time(asked.workload, 1).source == "user"


def test_a_shared_model_is_one_history_for_all_who_write_its_name(history: History) -> None:
    predictor = learned(history, ("b", "shared/resnet50", 0.5))

    found = predictor.epoch_time(of("a", "shared/resnet50"), 1)

    assert found.source == "history"
    assert found.p50_s == pytest.approx(0.5, rel=0.1)
    assert predictor.epoch_time(of("a", "resnet50"), 1).source == "prior"


def test_relatives_are_those_of_the_namespace_or_the_shared_ones(history: History) -> None:
    predictor = learned(history, ("b", "resnet50", 0.5), ("b", "shared/resnet50", 8.0))

    assert predictor.epoch_time(of("a", "resnet18"), 1).source == "prior"
    assert predictor.epoch_time(of("b", "resnet18"), 1).p50_s == pytest.approx(0.5, rel=0.1)
    assert predictor.epoch_time(of("a", "shared/resnet18"), 1).p50_s == pytest.approx(8.0, rel=0.1)


def test_what_stops_cost_another_namespace_is_not_believed(
    tmp_path: Path, open_history: OpenHistory
) -> None:
    alone = learned(open_history(tmp_path / "alone"))
    beside = learned(open_history(tmp_path / "beside"), ("b", "resnet50", 50.0))
    mine, theirs = of("a", "vit"), of("b", "vit")

    assert beside.resume_cost(mine, 1) == alone.resume_cost(mine, 1)
    assert beside.resume_cost(theirs, 1).p50_s > 10 * alone.resume_cost(theirs, 1).p50_s


def test_the_predictor_of_two_namespaces_is_the_same_after_the_journal(history: History) -> None:
    predictor = learned(history, ("b", "resnet50", 0.5), ("default", "resnet50", 8.0))

    again = HistoryPredictor.from_json(predictor.to_json())

    assert again == predictor
    assert again.resume_cost(of("b", "vit"), 1) == predictor.resume_cost(of("b", "vit"), 1)
