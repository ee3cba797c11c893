"""Loaders: every format, units, and a clear error for each bad line."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from laxity_lab.simulate.report import report, soft_value_ratio
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.generate import Mix, draw_closed_batch, generate
from laxity_lab.traces.throughput_tables import TableError, ThroughputTable, load_tables
from laxity_lab.traces.traces import FORMATS, Format, Trace, TraceError, load
from studies.qos_study import compute_load
from tests.support.simulated import random_trace

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


def test_a_cell_too_long_for_any_reader_is_named_with_file_and_line(tmp_path: Path) -> None:
    written(tmp_path, "bert.csv", f"global_batch_size,1\n128,{'9' * 131_073}\n")
    with pytest.raises(TableError, match=r"bert\.csv, line 2: field larger than field limit"):
        load_tables(tmp_path)


def test_chronus_counts_in_minutes(tmp_path: Path) -> None:
    head = "job_id,num_gpu,submit_time,duration,expect_time_list,best_effort,model_name,user\n"
    path = written(tmp_path, "chronus.csv", head + "a,2,1,10,20-40,0,bert,u\nb,1,2,5,9,1,bert,u\n")
    strict, free = load(path, "chronus").jobs
    assert (strict.submitted_at, strict.duration_s, strict.deadline_at) == (60.0, 600.0, 1260.0)
    assert free.deadline_at == float("inf")


def test_chronus_soft_jobs_are_worth_less_step_by_step(tmp_path: Path) -> None:
    head = (
        "job_id,num_gpu,submit_time,duration,expect_time_list,expect_value_list,best_effort,"
        "model_name,user\n"
    )
    jobs = "a,2,1,10,20-40,10-4,0,bert,u\nb,2,1,10,20,10,0,bert,u\nc,2,1,10,20-40,10-4-1,0,bert,u\n"
    trace = load(written(tmp_path, "chronus.csv", head + jobs), "chronus")
    soft, strict = trace.jobs
    assert (soft.service_class, strict.service_class) == ("soft", "hard")
    assert soft.value_steps == ((1260.0, 10.0), (2460.0, 4.0))
    assert (soft.deadline_at, strict.value_steps) == (1260.0, ())
    late = simulate(Trace("late", (soft, replace(soft, duration_s=1_800.0))), Setting("fifo", 2, 2))
    assert soft_value_ratio(late, (soft, soft)) == (10.0 + 4.0) / 20.0
    assert [line.problem for line in trace.bad_lines] == [
        "expect_value_list has 3 values for 2 expect_time_list"
    ]


def test_slurm_job_names_may_hold_spaces(tmp_path: Path) -> None:
    lines = (
        "1\nJobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes\n--- ---\n"
        "7 my job 12 2023-01-01T01:00:00 2023-01-01T00:00:00 2023-01-01T02:00:00 9 60 0:0 2\n"
    )
    trace = load(written(tmp_path, "ls6.log", lines), "mirage")
    assert [(job.duration_s, job.gpus) for job in trace.jobs] == [(3600.0, 2)]


GOOD: dict[Format, tuple[str, str]] = {
    "itp": (ITP, "a,10,100,bert,90,64,2,50\n"),
    "elasticflow": (
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n",
        "a,10,100,bert,90,64,2,50\n",
    ),
    "philly": (PHILLY, "2017-10-01 00:00:10,60,1,60,vc\n"),
    "chronus": (
        "job_id,num_gpu,submit_time,duration,expect_time_list,best_effort,model_name,user\n",
        "a,2,1,10,20-40,0,bert,u\n",
    ),
    "mirage": (
        "1\nJobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes\n--- ---\n",
        "7 job 12 2023-01-01T01:00:00 2023-01-01T00:00:00 2023-01-01T02:00:00 9 60 0:0 2\n",
    ),
}


@pytest.mark.parametrize(
    ("format_", "old", "new", "says"),
    [
        pytest.param("itp", "a,10,", "a,soon,", "submission_time is 'soon', not", id="itp instant"),
        pytest.param("itp", ",100,", ",-1,", "num_iteration is '-1', not positive", id="itp work"),
        pytest.param("itp", ",90,", ",nan,", "deadline is 'nan', not a finite", id="itp deadline"),
        pytest.param("itp", ",64,", ",6.5,", "batch_size is '6.5', not a whole", id="itp batch"),
        pytest.param("itp", ",2,50", ",2", "duration is missing: the line has 7", id="itp short"),
        pytest.param("itp", "bert", "gpt", "no throughput table for model 'gpt'", id="itp model"),
        pytest.param("elasticflow", ",90,", ",,", "ddl is '', not a finite", id="ef deadline"),
        pytest.param("elasticflow", ",2,50", ",0,50", "num_gpu is '0', not positive", id="ef GPUs"),
        pytest.param(
            "elasticflow", ",50", ",1e999", "duration is '1e999', not a", id="ef duration"
        ),
        pytest.param("philly", "2017-10", "2017-13", "timestamp is '2017-13-01", id="philly date"),
        pytest.param("philly", ",60,1,", ",,1,", "duration is '', not a finite", id="philly blank"),
        pytest.param("philly", ",1,60", ",9e9,60", "num_gpus is '9e9', not a", id="philly GPUs"),
        pytest.param(
            "philly", ",60,vc", "", "cluster is missing: the line has 3", id="philly short"
        ),
        pytest.param("chronus", "20-40", "x-40", "expect_time_list is 'x', not", id="chronus due"),
        pytest.param(
            "chronus", ",0,bert", ",no,bert", "best_effort is 'no', not", id="chronus free"
        ),
        pytest.param("chronus", ",10,", ",0,", "duration is '0', not positive", id="chronus run"),
        pytest.param(
            "mirage", "T01:00:00", "T25:00:00", "Start is '2023-01-01T25", id="mirage start"
        ),
        pytest.param("mirage", "T02:00", "T00:30", "1800 s before its Start", id="mirage order"),
        pytest.param("mirage", "0:0 2", "0:0 two", "NNodes is 'two', not", id="mirage nodes"),
        pytest.param(
            "mirage", " 9 60 0:0", "", "7 fields, at least 10 expected", id="mirage short"
        ),
    ],
)
def test_a_bad_line_is_named_by_number_field_and_value(
    tmp_path: Path, format_: Format, old: str, new: str, says: str
) -> None:
    written(tmp_path, "bert.csv", TABLE)
    head, line = GOOD[format_]
    assert line.count(old) == 1
    path = written(tmp_path, "trace", head + line + line.replace(old, new) + line)
    trace = load(path, format_, tables=load_tables(tmp_path))
    assert len(trace.jobs) == 2
    (bad,) = trace.bad_lines
    assert str(bad).startswith(f"line {head.count(chr(10)) + 2}: ")
    assert says in bad.problem


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="byte order mark"),
        pytest.param(lambda text: (text + "\n \n\n").encode(), id="blank last lines"),
        pytest.param(lambda text: text.rstrip("\n").encode(), id="no newline at the end"),
        pytest.param(lambda text: gzip.compress(text.encode()), id="gzipped"),
    ],
)
def test_odd_but_valid_files_load_the_same(
    tmp_path: Path, format_: Format, odd: Callable[[str], bytes]
) -> None:
    written(tmp_path, "bert.csv", TABLE)
    tables = load_tables(tmp_path)
    plain = written(tmp_path, "plain.csv", "".join(GOOD[format_]))
    made = odd("".join(GOOD[format_]))
    path = tmp_path / ("odd.csv.gz" if made[:2] == b"\x1f\x8b" else "odd.csv")
    path.write_bytes(made)
    trace = load(path, format_, tables=tables)
    assert trace.jobs == load(plain, format_, tables=tables).jobs
    assert len(trace.jobs) == 1
    assert (trace.name, trace.bad_lines) == ("odd", ())


@pytest.mark.parametrize("format_", [name for name in FORMATS if name != "mirage"])
def test_more_columns_spaces_and_any_order_of_rows_are_no_matter(
    tmp_path: Path, format_: Format
) -> None:
    written(tmp_path, "bert.csv", TABLE)
    tables = load_tables(tmp_path)
    head, line = GOOD[format_]
    names, cells = head.strip().split(","), line.strip().split(",")
    mixed = ["note", *reversed(names)], ['"a, b"', *[f" {cell} " for cell in reversed(cells)]]
    path = written(tmp_path, "mixed", "\n".join([", ".join(mixed[0]), ",".join(mixed[1])]))
    plain = written(tmp_path, "plain", head + line)
    assert load(path, format_, tables=tables).jobs == load(plain, format_, tables=tables).jobs != ()


def test_jobs_come_in_order_of_submission_whatever_the_file_s(tmp_path: Path) -> None:
    rows = "".join(f"2017-10-01 00:00:0{second},6{second},1,60,vc\n" for second in (3, 1, 2, 1))
    trace = load(written(tmp_path, "philly.csv", PHILLY + rows), "philly")
    assert [job.duration_s for job in trace.jobs] == [61.0, 61.0, 62.0, 63.0]
    assert [job.id for job in trace.jobs] == ["philly-2", "philly-4", "philly-3", "philly-1"]


def test_bytes_that_are_no_text_spoil_their_own_line_only(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    good = b"2017-10-01 00:00:10,60,1,60,vc\n"
    path.write_bytes(PHILLY.encode() + good + b"2017-10-01 00:00:10,\xff\xfe,1,60,vc\n" + good)
    trace = load(path, "philly")
    assert (len(trace.jobs), [bad.number for bad in trace.bad_lines]) == (2, [3])


def test_a_trace_without_a_job_runs_to_its_end_at_once(tmp_path: Path) -> None:
    trace = load(written(tmp_path, "philly.csv", PHILLY), "philly")
    for policy in ("fifo", "las", "qos"):
        figures = report(simulate(trace, Setting(policy, 1, 8)))
        assert (figures["jobs"], figures["makespan_s"]) == (0, None)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        pytest.param("batch,1,2\n64,1,2\n", "the first column is 'batch'", id="heading"),
        pytest.param("", "the first column is ''", id="empty file"),
        pytest.param("global_batch_size,1,two\n", "heading: 'two' is no GPU count", id="count"),
        pytest.param("global_batch_size,1,1\n", "a GPU count stands there twice", id="count twice"),
        pytest.param("global_batch_size,1\n\n6.5,1\n", "line 3: batch size '6.5'", id="batch"),
        pytest.param("global_batch_size,1\n64,-1\n", "line 2: '-1' for 1 GPUs", id="negative"),
        pytest.param("global_batch_size,1\n64,inf\n", "line 2: 'inf' for 1 GPUs", id="infinite"),
        pytest.param("global_batch_size,1\n64,1\n64,2\n", "line 3: batch size 64", id="twice"),
    ],
)
def test_a_table_that_makes_no_sense_is_named_with_its_line(
    tmp_path: Path, table: str, says: str
) -> None:
    written(tmp_path, "bert.csv", table)
    with pytest.raises(TableError, match=rf"bert\.csv.*{re.escape(says)}"):
        load_tables(tmp_path)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param("global_batch_size,1,2,\n64,1.0,1.5,\n", id="a comma at each end"),
        pytest.param("global_batch_size,2,1\r\n64,1.5,1.0", id="columns in another order, CRLF"),
        pytest.param(
            "\ufeffglobal_batch_size,1,2\n\n64, 1.0 ,1.5\n", id="mark, blank line, spaces"
        ),
        pytest.param("global_batch_size,1,2,4\n64,1,1.5\n128,,0,nan\n", id="not measured, short"),
    ],
)
def test_odd_but_valid_tables_load_the_same(tmp_path: Path, table: str) -> None:
    (tmp_path / "bert.csv").write_text(table, encoding="utf-8", newline="")
    assert load_tables(tmp_path) == {("bert", 64): ThroughputTable((1, 2), (1.0, 1.5))}


@pytest.mark.parametrize(
    ("name", "format_", "says"),
    [
        pytest.param("none.csv", "philly", "no trace at", id="no such file"),
        pytest.param("x.csv", "slurm", "unknown trace format", id="no such format"),
        pytest.param("x.csv", "philly", "columns .* are missing; found a, b", id="columns missing"),
        pytest.param("empty", "itp", "are missing; found none", id="empty file"),
        pytest.param("half.gz", "itp", "half.gz cannot be read", id="cut-off gzip"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(
    tmp_path: Path, name: str, format_: Format, says: str
) -> None:
    written(tmp_path, "x.csv", "a,b\n1,2\n")
    written(tmp_path, "empty", "")
    (tmp_path / "half.gz").write_bytes(gzip.compress(b"job_id," * 1_000)[:-20])
    with pytest.raises(TraceError, match=says):
        load(tmp_path / name, format_)


def test_a_closed_batch_is_drawn_by_its_seed_within_an_hour() -> None:
    whole = random_trace(0, jobs=50)
    batch, again = (
        draw_closed_batch(whole, jobs=20, seed=1),
        draw_closed_batch(whole, jobs=20, seed=1),
    )
    assert batch == again
    assert batch != draw_closed_batch(whole, jobs=20, seed=2)
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
    assert compute_load(made, gpus=64) > 0
