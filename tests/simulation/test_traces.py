"""Loaders: every format, units, and a clear error for each bad line."""

from pathlib import Path

import pytest

from laxity_scheduler.simulate.generate import Mix, closed_batch, generate, offered_load
from laxity_scheduler.simulate.tables import TableError, load_tables
from laxity_scheduler.simulate.traces import Format, TraceError, load
from tests.simulation.jobs import random_trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
TABLE = "global_batch_size,1,2,4,8\n64,1.0,1.9,3.5,3.0\n128,2.0,,nan,0\n"
ITP = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_bad_lines_are_set_aside_with_their_number_and_what_is_wrong(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "philly.csv",
        PHILLY
        + "2017-10-01 00:00:10,60,1,60,vc\n"
        + "not a date,60,1,60,vc\n"
        + "2017-10-01 00:00:00,-5,1,60,vc\n"
        + "2017-10-01 00:00:00,5,1.5,60,vc\n",
    )
    trace = load(path, "philly")
    assert [job.gpus for job in trace.jobs] == [1]
    assert [bad.number for bad in trace.bad_lines] == [3, 4, 5]
    assert "duration is '-5', not positive" in trace.bad_lines[1].problem


def test_only_jobs_between_two_instants_are_kept_both_included(tmp_path: Path) -> None:
    rows = "".join(f"2017-10-01 00:00:0{second},60,1,60,vc\n" for second in range(5))
    path = written(tmp_path, "philly.csv", PHILLY + rows)
    trace = load(path, "philly", from_at=1506816001.0, until_at=1506816003.0)
    assert len(trace.jobs) == 3


def test_a_deadline_trace_takes_its_speeds_from_the_tables(tmp_path: Path) -> None:
    written(tmp_path, "bert.csv", TABLE)
    path = written(tmp_path, "trace", ITP + "a,10,100,bert,90,64,2,50\nb,10,100,gpt,90,64,2,50\n")
    trace = load(path, "itp", tables=load_tables(tmp_path))
    assert trace.jobs[0].table is not None
    assert trace.jobs[0].table.levels == (1, 2, 4)  # 8 GPUs are slower than 4
    assert "no throughput table for model 'gpt'" in trace.bad_lines[0].problem


def test_what_was_not_measured_is_no_level(tmp_path: Path) -> None:
    written(tmp_path, "bert.csv", TABLE)
    assert load_tables(tmp_path)["bert", 128].levels == (1,)


def test_a_cell_that_is_no_number_is_named_with_file_and_line(tmp_path: Path) -> None:
    written(tmp_path, "bert.csv", "global_batch_size,1,2\n64,1.0,fast\n")
    with pytest.raises(TableError, match=r"bert\.csv, line 2: 'fast' for 2 GPUs"):
        load_tables(tmp_path)


def test_chronus_counts_in_minutes(tmp_path: Path) -> None:
    head = "job_id,num_gpu,submit_time,duration,expect_time_list,best_effort,model_name,user\n"
    path = written(tmp_path, "chronus.csv", head + "a,2,1,10,20-40,0,bert,u\nb,1,2,5,9,1,bert,u\n")
    strict, free = load(path, "chronus").jobs
    assert (strict.submitted_at, strict.duration_s, strict.deadline_at) == (60.0, 600.0, 1260.0)
    assert free.deadline_at == float("inf")


def test_slurm_job_names_may_hold_spaces(tmp_path: Path) -> None:
    lines = (
        "1\nJobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes\n--- ---\n"
        "7 my job 12 2023-01-01T01:00:00 2023-01-01T00:00:00 2023-01-01T02:00:00 9 60 0:0 2\n"
    )
    trace = load(written(tmp_path, "ls6.log", lines), "mirage")
    assert [(job.duration_s, job.gpus) for job in trace.jobs] == [(3600.0, 2)]


@pytest.mark.parametrize(
    ("name", "format_", "says"),
    [
        pytest.param("none.csv", "philly", "no trace at", id="no such file"),
        pytest.param("x.csv", "slurm", "unknown trace format", id="no such format"),
        pytest.param("x.csv", "philly", "columns .* are missing", id="columns missing"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(
    tmp_path: Path, name: str, format_: Format, says: str
) -> None:
    written(tmp_path, "x.csv", "a,b\n1,2\n")
    with pytest.raises(TraceError, match=says):
        load(tmp_path / name, format_)


def test_a_closed_batch_is_drawn_by_its_seed_within_an_hour() -> None:
    whole = random_trace(0, jobs=50)
    batch, again = closed_batch(whole, jobs=20, seed=1), closed_batch(whole, jobs=20, seed=1)
    assert batch == again
    assert batch != closed_batch(whole, jobs=20, seed=2)
    assert max(job.submitted_at for job in batch.jobs) < 3600.0


def test_generated_jobs_have_the_load_and_deadlines_that_the_mix_states() -> None:
    mix = Mix(jobs=2_000, jobs_per_hour=30.0, tightest=1.2, loosest=3.0, best_effort=0.25)
    made = generate(mix, seed=3)
    free = sum(job.deadline_at == float("inf") for job in made.jobs) / len(made.jobs)
    factors = [
        (job.deadline_at - job.submitted_at) / job.duration_s
        for job in made.jobs
        if job.deadline_at < float("inf")
    ]
    assert free == pytest.approx(0.25, abs=0.03)
    assert min(factors) >= 1.2
    assert max(factors) <= 3.0 + 1e-9
    assert offered_load(made, gpus=64) > 0
