"""A job never seen before is known from the first tenth of its run, by what it reads."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laxity.worker.data.counted_io import open_counted
from laxity.worker.data.io_meter import (
    FIRST_TOLD_S,
    MOST_LOOKS,
    Meter,
    cgroup_read_bytes,
    process_read_bytes,
    storage_bytes,
)
from laxity_profiler.estimate import NO_PROGRESS, Workload
from laxity_profiler.history import first_epoch
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.learning.learner import Learner
from laxity_profiler.model.traffic import NotBelieved, Reading, TrafficFit, epoch_from_reading
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.first_epoch import DATA_BYTES, Link, read_line, told, unseen, within
from tests.support.runs import LATER_AT, epoch_line, line


def reading(fields: dict[str, Any], width: int = 1) -> Reading:
    lists = {name: tuple(fields[name]) for name in ("read_s", "read_bytes")}
    return Reading(width, **fields | lists)


@pytest.mark.parametrize("epoch_s", [80.0, 240.0, 3_600.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_epoch_time_is_known_within_a_tenth_from_the_first_tenth(
    epoch_s: float, seed: int
) -> None:
    lines, actual_s = told(Link(epoch_s=epoch_s, seed=seed))

    found = epoch_from_reading(reading(within(lines, 0.1 * actual_s)), DATA_BYTES)

    assert isinstance(found, TrafficFit)
    assert found.epoch_s == pytest.approx(actual_s, rel=0.10)


def test_worker_0_of_several_reads_its_part() -> None:
    lines, actual_s = told(Link(), width=3)

    found = epoch_from_reading(replace(reading(lines[5], 3), storage_bytes=None), DATA_BYTES)

    assert isinstance(found, TrafficFit)
    assert found.epoch_s == pytest.approx(actual_s, rel=0.10)


@pytest.mark.parametrize("cached", [1.0, 0.3], ids=["all", "the first third"])
def test_data_out_of_a_cache_are_recognised_and_not_believed(cached: float) -> None:
    lines, actual_s = told(Link(epoch_s=600.0), cached_until=cached)
    if cached == 1.0:
        assert not lines or reading(lines[0]).storage_bytes == 0
        lines = [{"read_s": [0.0, 9.0], "read_bytes": [0, 10**9], "by": "training",
                  "file_bytes": 10**9, "storage_bytes": 0}]  # fmt: skip
    early = reading(within(lines, max(10.0, 0.1 * actual_s)))

    assert epoch_from_reading(early, DATA_BYTES) == NotBelieved("cached")


def test_a_data_set_that_is_loaded_before_it_is_used_is_not_believed() -> None:
    at = np.arange(0.0, 40.0, 0.5)
    loaded = np.minimum(DATA_BYTES, at / 30.0 * DATA_BYTES).astype(int)

    found = epoch_from_reading(Reading(1, tuple(at), tuple(loaded.tolist())), DATA_BYTES)

    assert found in (NotBelieved("read ahead"), NotBelieved("cached"))


def test_lines_come_early_and_ever_more_seldom_and_stay_short() -> None:
    lines, _ = told(Link(epoch_s=20_000.0))

    at = [fields["read_s"][-1] for fields in lines]
    assert FIRST_TOLD_S <= at[0] < FIRST_TOLD_S + 2.0
    assert len(lines) < 45
    assert max(len(fields["read_s"]) for fields in lines) <= MOST_LOOKS
    assert len(json.dumps(lines[-1])) < 10_000


def test_a_training_that_counts_nothing_is_measured_by_the_kernel() -> None:
    now = [0.0]
    meter = Meter(clock=lambda: now[0], storage=lambda: int(1e6 * now[0]))
    meter.begin()
    lines = []
    for _ in range(40):
        now[0] += 0.5
        lines += [fields for fields in [meter.look()] if fields]

    assert lines[-1]["by"] == "kernel"
    assert lines[-1]["read_bytes"][-1] > 1e7
    assert isinstance(epoch_from_reading(reading(lines[-1]), 10**8), TrafficFit)


def test_a_training_that_reads_nothing_tells_nothing() -> None:
    now = [0.0]
    meter = Meter(clock=lambda: now[0], storage=lambda: None)
    meter.begin()
    for _ in range(60):
        now[0] += 0.5
        assert meter.look() is None


# --- real reads ---


def read_through(path: Path, meter: Meter) -> dict[str, Any]:
    """Read a file as a training does; what the meter then says (its clock stands still in between)."""
    meter.begin()
    with open_counted(path, "rb", lambda count: meter.count(count, of_file=True)) as file:
        while file.read(1 << 20):
            pass
    fields = meter.look()
    assert fields is not None
    return fields


def test_real_reads_from_disk_are_told_from_those_out_of_the_cache(tmp_path: Path) -> None:
    size = 48 << 20
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.write(np.random.default_rng(0).bytes(size))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    seconds = iter(range(0, 1_000, 10))
    meter = Meter(clock=lambda: float(next(seconds)))

    cold = reading(read_through(path, meter))
    warm = reading(read_through(path, meter))

    if not cold.storage_bytes:
        pytest.skip("this file system does not tell what came from storage, or cannot forget")
    assert cold.file_bytes == warm.file_bytes == size
    assert cold.storage_bytes == pytest.approx(size, rel=0.2)
    found = epoch_from_reading(cold, 4 * size)
    assert isinstance(found, TrafficFit)
    assert found.epoch_s == pytest.approx(40.0, rel=0.01)
    assert epoch_from_reading(warm, 4 * size) == NotBelieved("cached")


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not tell")
def test_the_kernel_tells_what_a_process_has_read() -> None:
    assert (process_read_bytes(os.getpid()) or 0) >= 0
    assert (storage_bytes() or 0) >= (process_read_bytes("self") or 0)
    assert process_read_bytes(2**30) is None


def test_a_control_group_tells_what_all_its_devices_read(tmp_path: Path) -> None:
    stat = tmp_path / "io.stat"
    stat.write_text("8:0 rbytes=100 wbytes=5 rios=1\n8:16 rbytes=23 wbytes=0 rios=2\n")

    assert cgroup_read_bytes(stat) == 123
    assert cgroup_read_bytes(tmp_path / "none") is None


# --- from a worker's line to a prediction ---


def after(history: History, *lines: object, workload: Workload | None = None) -> None:
    history.ingest("u", "default/u", workload or unseen(), lines, received_at=LATER_AT)


def test_an_unseen_model_is_predicted_while_its_first_epoch_lasts(history: History) -> None:
    lines, actual_s = told(Link())
    learner = Learner(history)
    assert math.isinf(learner.predictor().epoch_time(unseen(), 1).p50_s)

    after(history, line(1, "formed", width=1, epoch=0), read_line(2, within(lines, 13.0)))

    predictor = learner.predictor()
    rest = predictor.remaining(unseen(), NO_PROGRESS, 1)
    assert rest.source == "traffic"
    assert rest.p50_s == pytest.approx(10 * actual_s, rel=0.10)
    assert 1.1 < rest.p90_s / rest.p50_s < 1.5
    assert predictor.epoch_time(unseen(), 2).p50_s < 0.7 * predictor.epoch_time(unseen(), 1).p50_s
    assert HistoryPredictor.from_json(json.loads(json.dumps(predictor.to_json()))) == predictor


def test_what_it_reads_is_surer_than_the_users_guess(history: History) -> None:
    lines, actual_s = told(Link())
    guessed = unseen(user_epoch_s=3.0 * actual_s)
    after(history, read_line(1, within(lines, 13.0)), workload=guessed)

    found = Learner(history).predictor().epoch_time(guessed, 1)

    assert found.source == "traffic"
    assert found.p50_s == pytest.approx(actual_s, rel=0.10)


def test_data_half_as_large_take_half_as_long_and_that_is_less_sure(history: History) -> None:
    lines, actual_s = told(Link())
    after(history, read_line(1, within(lines, 13.0)))
    predictor = Learner(history).predictor()

    half = predictor.epoch_time(unseen(dataset_bytes=DATA_BYTES // 2), 1)
    whole = predictor.epoch_time(unseen(), 1)

    assert half.p50_s == pytest.approx(actual_s / 2, rel=0.10)
    assert half.p90_s / half.p50_s > whole.p90_s / whole.p50_s


def test_the_first_epochs_end_makes_it_history(history: History) -> None:
    lines, _ = told(Link())
    learner = Learner(history)
    after(history, read_line(1, lines[3]))
    assert learner.predictor().epoch_time(unseen(), 1).source == "traffic"

    after(history, epoch_line(2, 1, epoch_s=50.0, width=1, warmup=True))

    found = learner.predictor().epoch_time(unseen(), 1)
    assert (found.source, round(found.p50_s)) == ("history", 50)


def test_a_cached_data_set_is_set_aside_once_with_the_reason(history: History) -> None:
    lines, _ = told(Link())
    learner = Learner(history)
    for seq, fields in enumerate(lines[:3], 1):
        after(history, read_line(seq, fields, storage_bytes=0))
        assert math.isinf(learner.predictor().epoch_time(unseen(), 1).p50_s)

    assert [row[1] for row in history.rejections()] == ["its traffic is not believed: cached"]


def test_a_reading_that_raises_is_recorded_about_its_run_and_another_s_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, _ = told(Link())
    recorded: list[tuple[str, str, str]] = []
    engine = open_engine(f"sqlite:///{tmp_path}/laxity.db")
    history = History(engine, lambda stage, uid, error: recorded.append((stage, uid, str(error))))
    odd, sound = (replace(unseen(), model=model) for model in ("odd", "sound"))
    for known in (odd, sound):
        history.ingest(known.model, f"team/{known.model}", known, [read_line(1, lines[3])])
    readings = iter([ZeroDivisionError("nobody thought of this")])

    def fail_once(*arguments: Any) -> Any:
        for error in readings:
            raise error
        return epoch_from_reading(*arguments)

    monkeypatch.setattr(first_epoch, "epoch_from_reading", fail_once)
    predictor = Learner(history).predictor()
    assert recorded == [("first epoch", "odd", "nobody thought of this")]
    assert predictor.epoch_time(sound, 1).source == "traffic"
    assert math.isinf(predictor.epoch_time(odd, 1).p50_s)
    engine.dispose()


def test_news_make_a_version_and_repetition_does_not(history: History) -> None:
    lines, _ = told(Link(epoch_s=2_000.0))
    learner = Learner(history)
    versions = []
    for seq, fields in enumerate(lines, 1):
        after(history, read_line(seq, fields))
        versions.append(learner.predictor().version)

    assert 2 <= len(set(versions)) <= len(lines) // 2


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"read_s": [0.0, math.nan]}, id="no number"),
        pytest.param({"read_s": [1.0, 0.0]}, id="time goes back"),
        pytest.param({"read_bytes": [5, 3]}, id="bytes go back"),
        pytest.param({"read_bytes": [-1, 3]}, id="negative"),
        pytest.param({"read_bytes": [1, 2, 3]}, id="of other lengths"),
        pytest.param({"read_s": "soon"}, id="no list"),
        pytest.param({"width": 0}, id="no workers"),
    ],
)
def test_readings_that_cannot_be_are_set_aside(history: History, wrong: dict[str, Any]) -> None:
    good = {"read_s": [0.0, 8.0], "read_bytes": [0, 10**9], "file_bytes": 0, "storage_bytes": None}

    after(history, line(1, "read", **{"epoch": 1, "width": 1, **good, **wrong}))

    assert len(history.rejections()) == 1
    assert history.first_epochs() == []
