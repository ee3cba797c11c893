"""The live studies in full, on this machine: hours where it is busy. Their figures are printed.

What holds on any machine is asserted; how near a prediction came depends on what else ran, so the
tables say that beside how far equal runs differ.
"""

import csv
import time
from pathlib import Path

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_profiler.model.calibration import wilson_interval
from tests.predict.live import coverage, overhead, prediction, slow_link
from tests.predict.live.world import KINDS_OF_TRAINING, world

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7_200)]


def test_six_kinds_of_training_are_predicted_from_four_runs(tmp_path: Path) -> None:
    table = tmp_path / "epochs.csv"
    with world(tmp_path / "home") as opened:
        prediction.train_all(opened, table)

    by_cpu = prediction.judge(table, "cpu_s")
    for clock in ("epoch_s", "cpu_s"):
        prediction.print_table(prediction.judge(table, clock), clock)
    assert len(by_cpu) == len(KINDS_OF_TRAINING)
    assert all(len(one.errors) == 4 for one in by_cpu)


def test_stops_and_starts_are_predicted_from_earlier_ones(tmp_path: Path) -> None:
    kind = KINDS_OF_TRAINING[0]
    with world(tmp_path, slots=1) as opened:
        overhead.stop_and_go(opened, kind, times=overhead.TIMES)
        with opened.history() as history:
            stops = history.stops()

    judged = overhead.judge(stops, "other")
    overhead.print_table(judged, "other")
    assert {one.cost for one in judged if one.model == kind.model} == {"suspend", "resume"}
    assert all(len(one.actual_s) >= overhead.TIMES // 2 - 1 for one in judged)


def test_sixty_live_finishes_keep_their_p90(tmp_path: Path) -> None:
    table = tmp_path / "finishes.csv"
    coverage.train_all(tmp_path, table, finishes=60)

    rows = coverage.read(table)
    coverage.print_table(rows)
    for name in coverage.ROUNDS:
        mine = [row for row in rows if row["round"] == name]
        half = coverage.covered(mine, "half")
        assert half.n >= 54
        assert wilson_interval(half.p90, half.n)[1] > 0.8


def test_a_model_never_seen_is_known_from_the_first_tenth_of_its_only_epoch(tmp_path: Path) -> None:
    """Real reads of a real file through a link of 3 MB/s; the file does not fit what is declared."""
    data = tmp_path / "data"
    slow_link.write(data)
    spec = TrainingSpec(
        name="unseen",
        qos=QoS.of(workers=(1,), service_class="best_effort"),
        model="unseen",
        epochs=1,
        dataset_bytes=slow_link.DATA_BYTES,
        entry=f"{slow_link.__file__}:read_slowly",
        parameters={"path": str(data)},
    )
    with world(tmp_path / "home", slots=1) as opened:
        job = opened.submit(spec)
        said = None
        while said is None and not opened.client.job(job).ended:
            view = opened.client.job(job, wait_s=2.0)
            said = view.p50_at
            time.sleep(0.2)  # between looks
        seen_at = time.time()
        opened.ended(job)
        (epoch,) = opened.epochs(job)

    assert said is not None
    began_at = epoch["at"] - epoch["epoch_s"]
    assert seen_at - began_at < 0.2 * epoch["epoch_s"]
    predicted_s = said - began_at
    assert predicted_s == pytest.approx(epoch["epoch_s"], rel=0.15)
    with (tmp_path / "unseen.csv").open("w") as file:
        csv.writer(file).writerow([predicted_s, epoch["epoch_s"]])
