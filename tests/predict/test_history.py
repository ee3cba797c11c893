"""What workers report is taken once, whatever the network, the clocks and the workers do."""

import math
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_profiler.estimate import NO_PROGRESS, Progress
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.history.history_database import HistoryError, open_engine
from laxity_profiler.history.report_fold import NO_REPORT, ReportState
from tests.support.runs import (
    LATER_AT,
    START_AT,
    OpenHistory,
    epoch_line,
    line,
    trained,
    workload,
)

UID = "u-1"
JOB = "default/a"


def take(history: History, *lines: Any, epochs: int = 10) -> int:
    return history.ingest(UID, JOB, workload(epochs=epochs), lines, received_at=LATER_AT)


def epochs_of(history: History, model: str = "mlp") -> list[int]:
    return [epoch.epoch for run in history.epochs(model) for epoch in run.epochs]


def reasons(history: History) -> list[str]:
    return [row[1] for row in history.rejections(UID)]


def test_a_job_that_said_nothing_has_a_report_of_zeros(history: History) -> None:
    assert history.report("nobody") == NO_REPORT


def test_a_training_is_followed_from_its_start_to_its_end(history: History) -> None:
    take(history, line(1, "started", worker_pid=7, width=2), line(2, "formed", width=2, epoch=0))
    formed = history.report(UID)
    take(history, epoch_line(3, 1, warmup=True), epoch_line(4, 2, epoch_s=1.5))
    trained_two = history.report(UID)
    take(history, line(5, "parked", epoch=2))
    parked = history.report(UID)
    take(history, line(6, "started", worker_pid=8, width=1), line(7, "formed", width=1, epoch=2))
    again = history.report(UID)
    take(history, line(8, "stopped", points=[]))
    stopped = history.report(UID)
    acked = take(history, line(9, "finished", result={"loss": 0.5}))
    assert (parked.started_at, parked.silent_since) == (START_AT + 10, None)
    assert (again.started_at, again.silent_since) == (START_AT + 60, START_AT + 50)

    assert (formed.formed, formed.epoch_started_at) == (2, START_AT + 20)
    assert trained_two.progress == Progress(2, (1.5,), (2,), numbers=(2,))
    assert (parked.parked_epoch, parked.epoch_started_at) == (2, None)
    assert (again.formed, again.parked_epoch, again.progress.epochs_done) == (1, None, 2)
    assert (stopped.progress.epochs_done, stopped.epoch_started_at) == (2, None)
    assert reasons(history) == []
    assert (acked, history.report(UID).result) == (9, {"loss": 0.5})
    assert (again.finished, history.report(UID).finished) == (False, True)


def test_only_the_last_twenty_epochs_without_warm_ups_are_the_progress(history: History) -> None:
    lines = [epoch_line(n, n, epoch_s=float(n), warmup=n == 30) for n in range(1, 41)]

    take(history, *lines, epochs=40)

    kept = history.report(UID).progress
    assert kept.epochs_done == 40
    assert kept.epoch_s == tuple(float(n) for n in range(20, 41) if n != 30)


@given(st.randoms(use_true_random=False))
def test_lines_in_any_order_and_number_come_to_the_same(shuffle: random.Random) -> None:
    lines = [epoch_line(n, n, epoch_s=1.0 + n) for n in range(1, 9)]
    mixed = lines + shuffle.sample(lines, 5)
    shuffle.shuffle(mixed)
    said = ReportState()
    epochs: set[int] = set()

    while mixed:
        some = [mixed.pop() for _ in range(min(len(mixed), shuffle.randint(1, 4)))]
        folded = said.fold(some, epochs=10, received_at=LATER_AT)
        assert not epochs & {epoch.epoch for epoch in folded.epochs}
        epochs |= {epoch.epoch for epoch in folded.epochs}

    assert (said.acked, said.epochs_done, epochs) == (8, 8, set(range(1, 9)))


def test_a_gap_is_not_acknowledged_until_it_is_filled(history: History) -> None:
    before = take(history, epoch_line(1, 1), epoch_line(3, 3))
    after = take(history, epoch_line(2, 2))

    assert (before, after) == (1, 3)
    assert history.report(UID).progress.epochs_done == 3
    assert epochs_of(history) == [1, 2, 3]


def test_a_gap_that_never_fills_is_given_up(history: History) -> None:
    acked = take(history, *(epoch_line(n, n) for n in range(3, 1_005)), epochs=2_000)

    assert acked == 1_004
    assert reasons(history) == ["lines 1 to 2 never came"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(epoch_line(1, 1, epoch_s=math.nan), "believable", id="no number"),
        pytest.param(epoch_line(1, 1, epoch_s=math.inf), "believable", id="infinite"),
        pytest.param(epoch_line(1, 1, epoch_s=-1.0), "believable", id="negative"),
        pytest.param(epoch_line(1, 1, epoch_s="2"), "believable", id="text"),
        pytest.param(epoch_line(1, 1, epoch_s=10**400), "believable", id="without end"),
        pytest.param(epoch_line(1, 11), "beyond the total", id="epoch beyond the total"),
        pytest.param(epoch_line(1, 0), "whole number", id="epoch zero"),
        pytest.param(epoch_line(1, 1, width=True), "whole number", id="a truth as width"),
        pytest.param(line(1, "danced"), "none that laxity knows", id="unknown kind"),
        pytest.param(line(1, "formed"), "whole number", id="formed without width"),
        pytest.param(line(1, "finished", result={1j}), "no JSON", id="a result that is no JSON"),
        pytest.param({"kind": "epoch"}, "no seq", id="without seq"),
        pytest.param({"seq": 0, "kind": "epoch"}, "no seq", id="seq zero"),
        pytest.param("nonsense", "no seq", id="no object"),
        pytest.param({"seq": 2**30, "kind": "epoch"}, "seq jumps", id="seq out of nowhere"),
    ],
)
def test_a_bad_line_is_set_aside_and_the_good_ones_count(
    history: History, bad: Any, why: str
) -> None:
    take(history, bad, epoch_line(2, 2), epoch_line(3, 3))

    assert why in reasons(history)[0]
    assert epochs_of(history) == [2, 3]
    assert history.report(UID).progress.epochs_done == 3


def test_a_clock_that_goes_back_does_not_take_time_back(history: History) -> None:
    take(history, epoch_line(1, 1), epoch_line(2, 2, at=START_AT - 3_600.0))

    assert history.report(UID).since == START_AT + 10.0
    assert "went back by 3610 s" in reasons(history)[0]
    assert epochs_of(history) == [1, 2]


def test_a_clock_that_is_ahead_counts_as_ours(history: History) -> None:
    take(history, epoch_line(1, 1, at=LATER_AT + 86_400.0))

    assert history.report(UID).since == LATER_AT
    assert "86400 s ahead" in reasons(history)[0]


def test_an_epoch_trained_again_counts_once(history: History) -> None:
    take(history, epoch_line(1, 1), epoch_line(2, 2, epoch_s=2.0))

    take(history, line(3, "formed", width=2, epoch=1))
    back = history.report(UID).progress.epochs_done
    take(history, epoch_line(4, 2, epoch_s=9.0))

    assert back == 1
    assert [epoch.epoch_s for epoch in history.epochs("mlp")[0].epochs] == [2.0, 2.0]
    assert history.report(UID).progress.epochs_done == 2


def test_a_worker_whose_folder_was_lost_is_heard_again(history: History) -> None:
    take(history, *(epoch_line(n, n) for n in range(1, 6)))

    acked = take(history, line(1, "started", width=2, at=START_AT + 500.0), epoch_line(2, 1))

    assert acked == 2
    assert history.report(UID).progress.epochs_done == 1


def test_another_process_goes_on_where_this_one_was(
    tmp_path: Path, history: History, open_history: OpenHistory
) -> None:
    take(history, epoch_line(1, 1), epoch_line(2, 2))

    second = open_history(tmp_path)
    repeated = take(second, epoch_line(1, 1), epoch_line(2, 2), epoch_line(3, 3))

    assert (repeated, second.report(UID).progress.epochs_done) == (3, 3)
    assert epochs_of(second) == [1, 2, 3]


def test_two_replicas_take_turns_and_count_each_line_once(
    tmp_path: Path, open_history: OpenHistory
) -> None:
    here, there = open_history(tmp_path), open_history(tmp_path)

    acked = [take((here, there)[n % 2], epoch_line(n, n)) for n in range(1, 9)]
    here.refresh()
    there.refresh()

    assert acked == list(range(1, 9))
    assert here.report(UID) == there.report(UID)
    assert here.report(UID).progress.epochs_done == 8
    assert epochs_of(here) == list(range(1, 9))


def test_epochs_from_elsewhere_do_not_count_twice(history: History) -> None:
    take(history, epoch_line(1, 1), epoch_line(2, 2))

    history.add_epochs(UID, JOB, workload(), [Epoch(n, 2, 2.0) for n in (1, 2, 3)])

    assert epochs_of(history) == [1, 2, 3]
    assert history.report(UID).progress.epochs_done == 2


def test_saves_loads_and_re_formings_become_stops(history: History) -> None:
    take(
        history,
        line(1, "formed", width=2, epoch=0),
        line(2, "resumed", epoch=0, load_s=0.5),
        epoch_line(3, 1),
        line(4, "saved", epoch=1, save_s=0.25, bytes=1_000),
        line(5, "formed", width=1, epoch=1),
    )
    history.observe_stop(UID, workload(), kind="resume", workers=2, seconds=3.0, at=START_AT)
    history.observe_stop(UID, workload(), kind="resume", workers=2, seconds=3.0, at=START_AT)

    seen = [(stop.kind, stop.seconds, stop.bytes) for stop in history.stops()]
    assert seen == [
        ("load", 0.5, None),
        ("save", 0.25, 1_000),
        ("reform", 10.0, None),
        ("resume", 3.0, None),
    ]


def test_nothing_is_taken_if_the_database_is_away(tmp_path: Path, history: History) -> None:
    take(history, epoch_line(1, 1))
    history.engine.dispose()
    (tmp_path / "laxity.db").unlink()
    (tmp_path / "laxity.db").mkdir()

    with pytest.raises(HistoryError, match="did not do it"):
        take(history, epoch_line(2, 2))

    assert history.report(UID).progress.epochs_done == 1


def test_a_store_whose_tables_cannot_be_made_is_closed_again(tmp_path: Path) -> None:
    file = tmp_path / "laxity.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE taken (id)")
        database.execute("CREATE INDEX observed_epochs ON taken (id)")

    with pytest.raises(HistoryError, match="already an index named observed_epochs") as error:
        open_engine(f"sqlite:///{file}")

    assert str(file) not in {handle.path for handle in psutil.Process().open_files()}
    del error  # it holds the call's frames, and with them what they left open


def test_news_say_which_models_have_more_epochs(history: History) -> None:
    trained(history, "a", "mlp", epoch_s=[2.0] * 3)
    first = history.news(epochs_after=0, stops_after=0)
    trained(history, "b", "cnn", epoch_s=[2.0] * 2)

    second = history.news(epochs_after=first.last_epoch_id, stops_after=first.last_stop_id)

    assert (first.epochs, second.epochs) == ({"mlp": 3}, {"cnn": 2})
    assert history.report("a").progress != NO_PROGRESS


def test_a_hundred_thousand_epochs_are_taken_in_one_call(history: History) -> None:
    n = 100_000

    acked = take(history, *(epoch_line(k, k) for k in range(1, n + 1)), epochs=n)

    assert acked == n
    assert len(history.epochs("mlp", most=2 * n)[0].epochs) == n


def test_an_epoch_that_was_not_trained_is_counted_and_not_learned_from(history: History) -> None:
    take(history, line(1, "formed", width=1, epoch=0))
    take(
        history,
        *(epoch_line(seq, seq - 1, epoch_s=0.01, warmup=True, untrained=True) for seq in (2, 3)),
    )
    skipped = history.report(UID).progress
    take(history, epoch_line(4, 3, epoch_s=5.0))

    assert skipped == Progress(2, warms_up=True)
    assert history.report(UID).progress == Progress(3, (5.0,), (2,), numbers=(3,))
    assert epochs_of(history) == [3]


def test_a_failed_training_may_have_a_result(history: History) -> None:
    take(history, line(1, "failed", error="TrainingError: no loop", result={"loss": 0.5}))

    report = history.report(UID)
    assert (report.failed, report.result) == ("TrainingError: no loop", {"loss": 0.5})


def test_a_job_that_holds_no_state_counts_from_0_at_each_start(history: History) -> None:
    lost = {"holds_state": False}
    take(history, line(1, "started", width=1), line(2, "formed", width=1, epoch=0))
    unknown = history.report(UID)
    take(history, epoch_line(3, 1, **lost), epoch_line(4, 2, **lost))
    first = history.report(UID)
    take(history, line(5, "started", width=1))
    again = history.report(UID)
    take(history, line(6, "formed", width=1, epoch=0), epoch_line(7, 1, again=True, **lost))
    second = history.report(UID)

    assert (unknown.holds_state, first.holds_state, again.holds_state) == (None, False, False)
    done = [report.progress.epochs_done for report in (first, again, second)]
    assert done == [2, 0, 1]
    assert (second.furthest_epoch, second.advanced_at) == (2, START_AT + 40)
    assert second.epoch_ended_at == START_AT + 70
    assert epochs_of(history) == [1, 2], "each epoch of a run is learned once"


def test_a_job_that_holds_state_goes_on_counting(history: History) -> None:
    take(history, epoch_line(1, 1), epoch_line(2, 2), line(3, "started", width=1))

    assert history.report(UID).holds_state is True
    assert history.report(UID).progress.epochs_done == 2


def test_that_a_job_holds_no_state_is_known_after_a_restart(
    tmp_path: Path, open_history: OpenHistory
) -> None:
    take(open_history(tmp_path), epoch_line(1, 3, holds_state=False))

    again = open_history(tmp_path).report(UID)

    assert (again.holds_state, again.furthest_epoch, again.advanced_at) == (False, 3, START_AT + 10)
