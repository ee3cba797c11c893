"""A trained provisioner on a real queue."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from laxity.cli.exit_codes import USAGE, CommandError
from laxity_scheduler.chains import model_file
from laxity_scheduler.chains.features import WINDOW, Windows
from laxity_scheduler.chains.model_file import Provisioner
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.snapshot_loop import COLUMNS
from laxity_scheduler.following.chain_folder import open_chain
from laxity_scheduler.following.chain_loop import ChainLoop, ChainOptions
from laxity_scheduler.following.link_queue import QueueRow
from laxity_scheduler.following.queue_snapshot import SuccessorShape, snapshot_queue
from laxity_scheduler.following.successor_timing import LearnedTiming
from laxity_scheduler.slurm.commands import register
from laxity_scheduler.slurm.script_shape import read_shape
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from tests.support.command_line import invoke
from tests.support.slurm import WHY_NOT, SlurmCluster, until

NOW_AT = 6_000.0
WAITS = QueueRow("1", "PENDING", "a", 4_800.0, None, None, 3_600.0, 2)
RUNS = QueueRow("2", "RUNNING", "b", 3_000.0, 3_600.0, None, 7_200.0, 3)


class OneNumber:
    """A model that always predicts the same hours, and keeps what it was asked."""

    weights = np.ones(1)

    def __init__(self, difference_h: float) -> None:
        self._difference_h = difference_h
        self.windows: list[Windows] = []

    def predict_h(self, windows: Windows) -> Any:
        self.windows.append(windows)
        return np.full((len(windows.queue), 1), self._difference_h)


def learned(model: OneNumber) -> LearnedTiming:
    provisioner = Provisioner("forest", cast("Any", model), 1, 60.0, {"cluster_nodes": 1}, {})
    return LearnedTiming(provisioner, Prices())


def test_a_real_queue_becomes_the_columns_that_a_simulated_one_has() -> None:
    shape = SuccessorShape(4, nodes=2, limit_s=3_600.0)

    columns = snapshot_queue([RUNS, WAITS], [(3_600.0, 600.0), (1_200.0, 1_200.0)], NOW_AT, shape)

    assert columns[:2].tolist() == [1, 2]
    assert columns[2:12].tolist() == [60] * 5 + [20] * 5  # limit and age of who waits
    assert columns[12:14].tolist() == [1, 3]
    assert columns[14:29].tolist() == [120] * 5 + [10] * 5 + [40] * 5  # limit, wait, elapsed
    assert columns[29:].tolist() == [80, 15, 2 * 60, 3 * 80]  # behind both; mean wait; node-minutes


def test_an_empty_queue_and_jobs_without_a_limit_have_columns_too() -> None:
    shape = SuccessorShape(4, nodes=1, limit_s=3_600.0)
    endless = QueueRow("3", "RUNNING", "c", 3_000.0, 3_600.0, None, float("inf"), 1)

    assert snapshot_queue([], [], NOW_AT, shape).tolist() == [0.0] * COLUMNS
    assert snapshot_queue([endless], [], NOW_AT, shape)[14] == 14 * 24 * 60


def test_a_model_decides_every_ten_minutes_only() -> None:
    answer = invoke(["chain", "a.sbatch", "--model", "m.npz", "--interval", "5m"], register)

    assert "--model decides every 10m" in str(answer.exception)


@pytest.mark.parametrize(
    ("directives", "options", "words"),
    [
        pytest.param("--time=2:00:00 --nodes=1", [], "not 1 nodes and 2 h", id="another limit"),
        pytest.param("-t 60\n#SBATCH -N2", [], "not 2 nodes and 1 h", id="another size"),
        pytest.param("--time=60", ["--wall-limit", "3h"], "not 1 nodes and 3 h", id="an option"),
    ],
)
def test_a_model_for_other_jobs_is_refused_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directives: str, options: list[str], words: str
) -> None:
    calls, programs = tmp_path / "calls", tmp_path / "programs"
    programs.mkdir()
    (programs / "sbatch").write_text(f'#!/bin/sh\necho "$@" >>{calls}\nexit 1\n')
    (programs / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    script = tmp_path / "a.sbatch"
    script.write_text(f"#!/bin/sh\n#SBATCH {directives}\ntrue\n")
    model = Provisioner("forest", cast("Any", OneNumber(0.0)), 1, 3_600.0, {}, {})
    monkeypatch.setattr(model_file, "load_provisioner", lambda _: model)

    answer = invoke(["chain", str(script), "--model", "m.npz", *options], register)

    assert words in str(answer.exception)
    assert not calls.exists()
    assert not script.with_suffix(".chain").exists()


def test_without_a_cluster_it_is_said_first_what_to_do_and_then_what_slurm_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("sbatch", "squeue", "sacct"):
        (tmp_path / program).write_text(
            "#!/bin/sh\necho 'squeue: fatal: Could not establish a configuration source' >&2\nexit 1\n"
        )
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = tmp_path / "a.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH --time=1\ntrue\n")

    error = invoke(["chain", str(script)], register).exception

    assert isinstance(error, CommandError)
    assert error.code == USAGE
    assert str(error) == (
        "no Slurm cluster is configured here: run this on a login node of the cluster, or name its "
        "slurm.conf in SLURM_CONF (squeue: Could not establish a configuration source)"
    )


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        pytest.param(b"\x1f\x8b\x00\xff", [], "a.sbatch: not a text file", id="no text"),
        pytest.param(b"#!/bin/sh\n", ["--prices", "4:1"], "give one with --model", id="no model"),
        pytest.param(b"#!/bin/sh\n", ["--prices", "4"], "--prices '4'", id="no prices"),
        pytest.param(
            b"#!/bin/sh\n", ["--model", __file__], "it holds no arrays", id="no model file"
        ),
    ],
)
def test_what_cannot_be_a_chain_is_one_sentence(
    tmp_path: Path, content: bytes, options: list[str], words: str
) -> None:
    script = tmp_path / "a.sbatch"
    script.write_bytes(content)

    error = invoke(["chain", str(script), *options], register).exception

    assert isinstance(error, CommandError)
    assert words in str(error)
    assert (error.code, len(str(error).splitlines())) == (USAGE, 1)


@pytest.mark.parametrize(
    ("lines", "environ", "shape"),
    [
        pytest.param(["#SBATCH --time=1-12 -N 2"], {}, (2, 36 * 3600.0), id="days and hours"),
        pytest.param(["#SBATCH -t90 # not -N 3"], {}, (None, 5400.0), id="minutes, a comment"),
        pytest.param(["#SBATCH -t 0:90"], {}, (None, 120.0), id="rounded up as Slurm does"),
        pytest.param(["#SBATCH -t 1", "#SBATCH -t 2"], {}, (None, 120.0), id="the last counts"),
        pytest.param(["#SBATCH -t 1"], {"SBATCH_TIMELIMIT": "3"}, (None, 180.0), id="environment"),
        pytest.param(["#SBATCH -N 2-4 -t UNLIMITED"], {}, (None, None), id="a range, no limit"),
        pytest.param(["#SBATCH --time", '#SBATCH "x'], {}, (None, None), id="nonsense"),
    ],
)
def test_size_and_limit_are_read_where_the_script_says_them(
    lines: list[str], environ: dict[str, str], shape: tuple[int | None, float | None]
) -> None:
    read = read_shape(lines, environ)
    assert (read.nodes, read.limit_s) == shape


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("difference_h", [-0.1, -2.0])
def test_a_model_decides_once_there_is_a_day_of_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference_h: float
) -> None:
    cluster = SlurmCluster(tmp_path / "slurm", nodes=1)
    try:
        cluster.up()
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        model, folder = OneNumber(difference_h), tmp_path / "chain"
        script = tmp_path / "train.sbatch"
        script.write_text("#!/bin/bash\n#SBATCH --time=1 --output=/dev/null\nsleep 50\n")
        state = open_chain(script.read_text(), folder)
        queue = SlurmQueue(state, folder)
        before = ChainLoop(state, folder, queue, ChainOptions("reactive", 600.0), print)

        def link_runs() -> bool:
            before.step()
            return state.links[0].started_at is not None

        until(link_runs, "the first link runs")
        write_a_day(folder, queue.clock_at())
        options = ChainOptions("reactive", 0.05, learned=learned(model))
        loop = ChainLoop(state, folder, queue, options, print)

        def has_decided() -> bool:
            loop.step()
            return len(model.windows) > 2 or len(state.links) > 1

        until(has_decided, "decisions of the model")

        assert (len(state.links) == 2) == (difference_h >= -0.5)
        windows = model.windows[-1]
        assert windows.queue.shape == (1, WINDOW, COLUMNS)
        assert windows.queue[0, -1, 12] == 1  # the link itself runs
        assert windows.left_h[0] + windows.elapsed_h[0] == pytest.approx(1 / 60)
    finally:
        cluster.down()


def write_a_day(folder: Path, now_at: float) -> None:
    """Snapshots of an empty queue, every ten minutes of the day before."""
    lines = (
        json.dumps({"at": now_at - 600.0 * age, "columns": [0.0] * COLUMNS, "starts": {}})
        for age in range(WINDOW, 0, -1)
    )
    (folder / "queue.jsonl").write_text("\n".join(lines) + "\n")
