"""How far `laxity simulate` is: on a terminal, in a log, for scripts; over several processes."""

from io import StringIO
from multiprocessing import active_children

import pytest

from laxity_lab.simulate.many_runs import sweep
from laxity_lab.simulate.progress_bar import CLEAR, ProgressBar
from laxity_lab.simulate.run import Setting
from laxity_lab.traces.cases import Source
from tests.support.simulated import SAMPLES


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def screen(out: StringIO, ticks: list[float], *, many: int = 2) -> ProgressBar:
    return ProgressBar(many, out=out, clock=lambda: ticks.pop(0))


def test_progress_rewrites_one_line_on_a_terminal_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    told = screen(out, [0.0, 0.1, 65.0, 65.1], many=1)
    for ended in (1, 2, 3):
        told.count_ended(ended, 1_000)
    told.clear()
    assert (
        out.getvalue()
        == f"{CLEAR}░░░░░░░░░░░░ 2 of 1,000 jobs ended after 1m5s, about 9h35s left{CLEAR}"
    )


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal() -> None:
    out = StringIO()
    told = screen(out, [0.0, 9.0, 11.0, 12.0, 22.0])
    told.finish_run({"policy": "fifo", "gpus": 64})
    for ended in (1, 2, 3, 4):
        told.count_ended(ended, 10)
    assert out.getvalue().splitlines() == [
        "[1/2] fifo 64 GPUs",
        "1 of 2 runs done, 2 of 20 jobs ended after 11s, about 1m39s left",
        "1 of 2 runs done, 4 of 20 jobs ended after 22s, about 1m28s left",
    ]


def test_a_script_that_reads_json_hears_no_progress() -> None:
    out = StringIO()
    ticks = [0.0, 11.0]
    told = ProgressBar(2, quiet=True, out=out, clock=lambda: ticks.pop(0))
    told.count_ended(1, 10)
    told.finish_run({"policy": "fifo", "gpus": 64})
    assert not out.getvalue()


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_process_behind() -> None:
    def interrupted(_figures: object) -> None:
        raise KeyboardInterrupt

    before = set(active_children())
    source = Source(SAMPLES / "philly" / "philly.csv", "philly")
    many = [(source, Setting("fifo", 8, 8, pooled=True, seed=seed)) for seed in range(50)]
    with pytest.raises(KeyboardInterrupt):
        sweep(many, processes=2, done=interrupted)
    assert set(active_children()) == before


@pytest.mark.parametrize(
    "processes", [pytest.param(1, id="this"), pytest.param(2, id="others", marks=pytest.mark.slow)]
)
def test_a_sweep_counts_the_jobs_of_all_runs_in_this_and_in_other_processes(processes: int) -> None:
    told: list[tuple[int, int]] = []
    source = Source(SAMPLES / "philly" / "philly.csv", "philly")
    many = [(source, Setting(policy, 8, 8, pooled=True)) for policy in ("fifo", "sjf")]
    reports = sweep(many, processes=processes, ended=lambda *counts: told.append(counts))
    assert told[-1] == (sum(one["finished"] == 271 for one in reports) * 271, 271)
