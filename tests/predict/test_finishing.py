"""What comes after the last epoch is timed by one clock, and belongs to the model that does it."""

import pytest

from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import StopRecord, insert_new, open_transaction
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.learning.learner import Learner
from laxity_profiler.overhead.costs import fit_costs
from laxity_scheduler.model.job import Promise, Refusal, Verdict
from laxity_scheduler.promising.promise import judge
from tests.support.builders import cluster, job
from tests.support.runs import START_AT, epoch_line, line, trained, workload

EXPORT_S = 45.0
EPOCHS = 5


def exports(
    history: History,
    model: str,
    *,
    seconds: float = EXPORT_S,
    behind_s: float = 0.0,
    closes_s: float = 1.0,
    told: bool = True,
) -> str:
    """A run of five epochs of one second, with an export after them; its uid.

    The worker's clock is behind the service's, and each line arrives as it is written.
    """
    uid, name = f"{model}-{seconds:g}-{behind_s:g}-{closes_s:g}", f"default/{model}"
    ended_at = START_AT + EPOCHS
    finished = {"finishing_s": seconds} if told else {}
    lines = [line(1, "formed", width=1, epoch=0, at=START_AT)]
    lines += [epoch_line(n + 1, n, epoch_s=1.0, width=1, at=START_AT + n) for n in range(1, 6)]
    lines += [line(7, "finished", at=ended_at + seconds, **finished)]
    for each in lines:
        at = each["at"]
        history.ingest(
            uid,
            name,
            workload(model, epochs=EPOCHS),
            [each | {"at": at - behind_s}],
            received_at=at,
            behind_s=behind_s,
        )
    history.observe_finish(uid, at=ended_at + seconds + closes_s)
    return uid


def verdict_on(history: History, model: str, due_s: float) -> Verdict:
    asks = job("asks", model=model, epochs=EPOCHS, due_at=due_s)
    return judge(cluster(gpus=1), asks, Learner(history).predictor())


def finishing(history: History) -> list[float]:
    return [round(stop.seconds, 6) for stop in history.stops() if stop.kind == "finishing"]


def test_an_export_of_one_model_refuses_no_other(history: History) -> None:
    exports(history, "bigmodel")
    for model in ("other", "bigmodel-small"):
        trained(history, model, model, epoch_s=[1.0] * EPOCHS)

    promised = [verdict_on(history, model, 40.0) for model in ("other", "bigmodel-small")]

    assert [type(verdict) for verdict in promised] == [Promise, Promise]


def test_a_refusal_names_what_comes_after_the_last_epoch(history: History) -> None:
    for seconds in (44.0, 45.0, 46.0, 47.0, 48.0):
        exports(history, "bigmodel", seconds=seconds)

    refused = verdict_on(history, "bigmodel", 40.0)

    assert isinstance(refused, Refusal)
    assert refused.reason.code == "deadline_before_fastest_finish"
    assert "from its last epoch to its finish it takes" in refused.reason.text
    finishing_s = refused.reason.fact("finishing_s")
    assert isinstance(finishing_s, float)
    assert 46.0 < finishing_s < 65.0


@pytest.mark.parametrize(
    "behind_s",
    [
        pytest.param(36_000.0, id="the worker's clock is 10 h behind"),
        pytest.param(-36_000.0, id="the worker's clock is 10 h ahead"),
        pytest.param(3_600.0, id="the service's clock is 1 h ahead"),
        pytest.param(0.0, id="one clock"),
    ],
)
def test_clocks_that_differ_change_no_cost_and_no_instant(
    history: History, behind_s: float
) -> None:
    uid = exports(history, "mlp", behind_s=behind_s)

    report = history.report(uid)
    (run,) = history.epochs("mlp")

    assert finishing(history) == [EXPORT_S + 1.0]
    assert report.since == START_AT + EPOCHS + EXPORT_S
    assert [epoch.at for epoch in run.epochs] == [START_AT + n for n in range(1, 6)]
    noted = [reason for _, reason, *_ in history.rejections(uid)]
    assert len(noted) == bool(behind_s), noted


def test_lines_read_from_a_file_have_the_clock_that_was_heard_last(history: History) -> None:
    what = workload(epochs=2)
    first = epoch_line(1, 1, at=START_AT - 36_000.0)
    history.ingest("u", "default/u", what, [first], received_at=START_AT, behind_s=36_000.0)

    left = epoch_line(2, 2, at=START_AT - 35_990.0)
    history.ingest("u", "default/u", what, [left], received_at=START_AT + 500.0)

    assert history.report("u").since == START_AT + 10.0


def test_a_report_without_the_time_of_finishing_teaches_none(history: History) -> None:
    exports(history, "mlp", told=False)

    assert finishing(history) == []


def test_a_machine_that_slept_before_the_jobs_end_teaches_none(history: History) -> None:
    uid = exports(history, "mlp", closes_s=28_800.0)

    assert finishing(history) == []
    assert "complete 28800 s after its result" in history.rejections(uid)[0][1]


def test_absurd_rows_of_an_earlier_laxity_are_not_read(history: History) -> None:
    columns = {"uid": "old", "model": "mlp", "workers": 1, "at": START_AT, "bytes": None}
    rows = [
        columns | {"kind": "finish", "seconds": 35_996.0},
        columns | {"kind": "suspend", "seconds": 35_996.0},
        columns | {"kind": "suspend", "seconds": 4.0, "at": START_AT + 1.0},
    ]
    with open_transaction(history.engine) as connection:
        insert_new(connection, StopRecord, rows)

    assert [(stop.kind, stop.seconds) for stop in history.stops()] == [("suspend", 4.0)]
    assert isinstance(verdict_on(history, "mlp", 40.0), Refusal), "nothing else is known of it"
    exports(history, "mlp", seconds=0.0)
    assert isinstance(verdict_on(history, "mlp", 40.0), Promise)


def test_finishing_is_lent_neither_to_a_family_nor_to_a_namespace() -> None:
    stops = [ObservedStop("mlp-a", "finishing", 1, EXPORT_S, None)] * 6

    costs = fit_costs(stops)

    asked = ("mlp-a", "mlp-b", "cnn")
    seconds = [costs.estimate(model, ("finishing",), 1).p90_s for model in asked]
    assert seconds[0] > EXPORT_S
    assert seconds[1:] == [0.0, 0.0]
