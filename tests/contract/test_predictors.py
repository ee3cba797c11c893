"""The predictors in the house pass the predictor exam."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_profiler.model.epoch_curve import ONE_WIDTH, Level, WidthCurve
from laxity_profiler.model.model_fit import ModelFit, SettingFit, StepFit, WorkloadSetting
from laxity_profiler.overhead.costs import CLUSTER, ModelCosts, StopCosts
from laxity_profiler.overhead.part import PartFit
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.contract.predictor_exam import EXAM, Bench, Question, named
from tests.support.runs import World


def rich() -> HistoryPredictor:
    """Several models: measured widths that get slower, several settings, a fit over batches."""
    falling = SettingFit(
        WorkloadSetting(),
        tuple(
            Level(width, seconds, 0.02, 3, 30)
            for width, seconds in ((1, 60.0), (2, 33.0), (4, 21.0), (8, 25.0))
        ),
        WidthCurve(12.0, 47.0, 0.5),
    )
    settings = tuple(
        SettingFit(
            WorkloadSetting(samples, batch), (Level(1, samples / 1_000, 0.05, 2, 9),), ONE_WIDTH
        )
        for samples, batch in ((10_000, 32), (10_000, 64), (50_000, 64))
    )
    learned = World(3).predictor(12, epochs=20).models
    return HistoryPredictor(
        (
            ModelFit("cnn", (falling,), 0.01, 0.004),
            *learned,
            ModelFit("rnn", settings, steps=(StepFit(0.01, 0.001, 0.002, 0.05, 1, 8),)),
        ),
        StopCosts(
            (
                ModelCosts("cnn", (PartFit("resume", 12.0, 0.2, 9),)),
                ModelCosts(
                    "mlp",
                    (
                        PartFit(
                            "resume", 9.0, 0.2, 9, 1.5, 3.0, 1, 8, 8, mean=2.5, x10=-0.1, x90=1.4
                        ),
                    ),
                ),
            ),
            CLUSTER,
        ),
    )


PREDICTORS = (
    pytest.param(Bench(HistoryPredictor(), ("cnn",), HistoryPredictor.from_json), id="empty"),
    pytest.param(Bench(rich(), ("cnn", "mlp", "rnn"), HistoryPredictor.from_json), id="history"),
)


@pytest.mark.parametrize("bench", PREDICTORS)
@pytest.mark.parametrize("question", EXAM, ids=named)
def test_a_predictor_passes_its_exam(question: Question, bench: Bench) -> None:
    @given(st.data())
    def asked(data: st.DataObject) -> None:
        question(bench, data)

    asked()


def test_the_version_changes_with_every_parameter() -> None:
    model = rich().models[0]
    level = model.settings[0].levels[0]
    changed = [
        dataclasses.replace(model, spread2=model.spread2 * (1 + 1e-15)),
        dataclasses.replace(model, noise2=0.005),
        dataclasses.replace(model, model="cnn2"),
        dataclasses.replace(model, start=dataclasses.replace(model.start, z90=1.3)),
        dataclasses.replace(model, later=dataclasses.replace(model.later, z10=-1.3)),
        dataclasses.replace(
            model,
            settings=(
                dataclasses.replace(
                    model.settings[0], levels=(dataclasses.replace(level, epoch_s=60.1),)
                ),
            ),
        ),
    ]
    predictors = [HistoryPredictor((one,)) for one in (model, *changed)]
    predictors.append(HistoryPredictor((model,), StopCosts((), CLUSTER)))
    steeper = dataclasses.replace(CLUSTER[0], per_worker=0.1)
    predictors.append(HistoryPredictor((model,), StopCosts((), (steeper, *CLUSTER[1:]))))

    assert len({one.version for one in predictors}) == len(predictors)


def test_equal_parameters_have_one_version() -> None:
    assert rich() == rich()
    assert rich().version == rich().version


def test_a_predictor_of_another_kind_is_not_read() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        HistoryPredictor.from_json({"kind": "oracle", "format": 1})
