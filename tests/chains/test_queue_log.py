"""Logs of batch clusters: three formats, and lines that cannot be used."""

import gzip
from pathlib import Path

import pytest

from laxity_lab.batch_queue.log_formats import load_queue_log, read_time_limit
from laxity_lab.batch_queue.queue_log import BatchJob
from laxity_lab.traces.traces import TraceError
from laxity_scheduler.chains.choices import LogFormat

HOUR_S = 3_600.0
MIRAGE = """3
  JobID    JobName    UID    Start    Submit    End   Priority TimelimitR ExitCode   NNodes
------- ---------- ------ -------- --------- ------ ---------- ---------- -------- --------
7\tmy job\t1\t1970-01-01T02:00:00\t1970-01-01T01:00:00\t1970-01-01T04:00:00\t9\t2880\t0:0\t2
8\tother\t1\t1970-01-01T00:30:00\t1970-01-01T00:00:00\t1970-01-01T01:00:00\t9\t60\t0:0\t4
"""
SWF = """; UnixStartTime: 100
; MaxNodes: 10
; MaxProcs: 40
1 50 10 600 -1 -1 -1 9 900 -1 1 -1 -1 -1 -1 -1 -1 0
"""
SACCT = """JobID|JobName|Submit|Start|End|Timelimit|NNodes|State
7|a b|1970-01-01T01:00:00|1970-01-01T02:00:00|1970-01-01T04:00:00|2-00:00:00|2|COMPLETED
7.batch|batch|1970-01-01T02:00:00|1970-01-01T02:00:00|1970-01-01T04:00:00||1|COMPLETED
"""
SEVEN = BatchJob("7", HOUR_S, 2 * HOUR_S, 4 * HOUR_S, 48 * HOUR_S, 2)


def write(folder: Path, text: str) -> Path:
    path = folder / "queue.log"
    path.write_text(text)
    return path


def test_mirage_log_is_read_in_order_of_submission(tmp_path: Path) -> None:
    log = load_queue_log(write(tmp_path, MIRAGE), "mirage")
    assert log.jobs == (BatchJob("8", 0.0, 1_800.0, HOUR_S, HOUR_S, 4), SEVEN)
    assert log.bad_lines == ()
    assert log.most_busy_nodes == 4


def test_swf_processors_become_nodes(tmp_path: Path) -> None:
    text = SWF.replace("-1 -1 -1 9", "9 -1 -1 -1")  # allocated, where none are requested
    for lines in (SWF.replace("-1 9 900", "9 9 900"), text.replace("-1 900", "-1 900")):
        log = load_queue_log(write(tmp_path, lines), "swf")
        assert log.jobs == (BatchJob("1", 150.0, 160.0, 760.0, 900.0, 3),)


def test_swf_job_that_requested_no_time_has_its_run_time_as_limit(tmp_path: Path) -> None:
    log = load_queue_log(write(tmp_path, SWF.replace(" 900 ", " -1 ")), "swf")
    assert log.jobs == (BatchJob("1", 150.0, 160.0, 760.0, 600.0, 3),)
    assert (log.assumed_limits, log.bad_lines) == (1, ())


def test_sacct_steps_are_no_jobs(tmp_path: Path) -> None:
    log = load_queue_log(write(tmp_path, SACCT), "sacct")
    assert (log.jobs, log.bad_lines) == ((SEVEN,), ())


def test_sacct_tells_instants_in_seconds_or_without_a_zone_which_is_noted(tmp_path: Path) -> None:
    seconds = SACCT
    for hour in (1, 2, 4):
        seconds = seconds.replace(f"1970-01-01T0{hour}:00:00", str(hour * 3_600))
    zones = SACCT.replace(":00:00|", ":00:00Z|").replace("2-00:00:00Z", "2-00:00:00")
    read = [load_queue_log(write(tmp_path, text), "sacct") for text in (SACCT, seconds, zones)]
    assert [log.jobs for log in read] == [(SEVEN,)] * 3
    assert [log.assumed_zone for log in read] == [True, False, False]


def test_gzipped_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "queue.log.gz"
    path.write_bytes(gzip.compress(SACCT.encode()))
    assert load_queue_log(path, "sacct").jobs == (SEVEN,)


@pytest.mark.parametrize(
    ("log_format", "text", "line", "problem"),
    [
        ("mirage", MIRAGE + "9 short\n", 6, "2 fields, at least 10 expected"),
        ("mirage", MIRAGE + "torn line\n", 6, "2 fields, at least 10 expected"),
        ("mirage", MIRAGE.replace("T00:30", "T25:30"), 5, "Start is '1970-01-01T25:30:00', not an"),
        ("mirage", MIRAGE.replace("T00:30", "T01:30"), 5, "End is 1800 s before Start"),
        ("mirage", MIRAGE.replace("\t60\t", "\t0\t"), 5, "TimelimitR is '0', not positive"),
        ("swf", SWF + "2 60 -1 9 9 -1 -1 9 9 0 0 0 0 0 0 0 0 0\n", 5, "wait is '-1': not known"),
        ("swf", SWF + "2 60\n", 5, "2 fields, 18 expected"),
        ("swf", SWF + "2 1e300 1 9 9 -1 -1 9 9 0 0 0 0 0 0 0 0 0\n", 5, "thousands of years away"),
        ("swf", SWF + "2 60 1 9 9 -1 -1 9 1e300 0 0 0 0 0 0 0 0 0\n", 5, "thousands of years"),
        ("sacct", SACCT + SACCT.splitlines()[1].replace("|2-", "|x-"), 4, "time limit is 'x-00:00"),
        ("sacct", SACCT + "9|c|1970-01-01T01:00:00|Unknown|Unknown|60|1|PENDING\n", 4, "'Unknown'"),
        ("sacct", SACCT + "9|c\n", 4, "Submit is missing"),
    ],
)
def test_broken_line_is_named_and_the_others_load(
    tmp_path: Path, log_format: LogFormat, text: str, line: int, problem: str
) -> None:
    log = load_queue_log(write(tmp_path, text), log_format)
    assert [bad.number for bad in log.bad_lines] == [line]
    assert problem in log.bad_lines[0].problem
    assert log.jobs


@pytest.mark.parametrize("size", ["0", "nan", "-3", "1e308", "many"])
def test_swf_header_without_a_size_counts_processors_as_nodes(tmp_path: Path, size: str) -> None:
    text = SWF.replace("MaxNodes: 10", f"MaxNodes: {size}").replace(" 100\n", f" {size}\n")
    log = load_queue_log(write(tmp_path, text), "swf")
    assert [(job.submitted_at, job.nodes) for job in log.jobs] == [(50.0, 9)]
    assert log.cluster_nodes == 9


@pytest.mark.parametrize(
    ("log_format", "text", "problem"),
    [
        (
            "sacct",
            "",
            "columns JobID, Submit, Start, End, NNodes, Timelimit are missing; found none",
        ),
        ("sacct", "\x1b[31m" + "x" * 999, r"found '\\x1b\[31mx+"),
        ("sacct", "JobID|Submit\n1|2\n", "columns Start, End, NNodes, Timelimit are missing"),
        ("swf", "; MaxNodes: 3\n", "holds no job in format swf"),
        ("mirage", "1 2 3\n", "holds no job in format mirage; line 1: 3 fields"),
    ],
)
def test_unusable_log_is_an_error(
    tmp_path: Path, log_format: LogFormat, text: str, problem: str
) -> None:
    with pytest.raises(TraceError, match=problem):
        load_queue_log(write(tmp_path, text), log_format)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5_400.0),
        ("90:30", 5_430.0),
        ("01:00:00", 3_600.0),
        ("2-00:00:00", 172_800.0),
        ("1-12", 129_600.0),
        ("1-12:30", 131_400.0),
        ("UNLIMITED", 31_536_000.0),
    ],
)
def test_slurm_time_limits_are_read(text: str, seconds: float) -> None:
    assert read_time_limit(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "Partition_Limit", "-5", "1:2:3:4", "9" * 400])
def test_other_time_limits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the time limit is"):
        read_time_limit(text)
