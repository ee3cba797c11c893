import json
import math
from pathlib import Path

import pytest

from laxity_scheduler.following.chain_state import ChainState, LinkRecord, load_chain, save_chain
from laxity_scheduler.following.link_outcome import outcome_of_row
from laxity_scheduler.following.link_queue import QueueRow
from laxity_scheduler.following.queue_watch import QueueFacts
from laxity_scheduler.following.successor_timing import should_submit_successor
from laxity_scheduler.slurm.link_script import read_directives
from laxity_scheduler.slurm.slurm_queue import SlurmQueue
from laxity_scheduler.slurm.slurm_tables import (
    is_away,
    is_full,
    is_unconfigured,
    parse_controller_time,
    parse_exit_code,
    parse_job_exit_code,
    parse_job_id,
    parse_limit_s,
    parse_output_path,
    parse_own_jobs,
    parse_planned_start,
    parse_requeue_exits,
    parse_sacct,
    parse_squeue,
    parse_time,
    slurm_words,
)

SQUEUE_22_05 = """\
3|CANCELLED|1795659398|1795659398|1795659398|1:00|1|
1|TIMEOUT|1795659392|1795659394|1795659457|1:00|1|n1
4|PENDING|1795659398|1795669398|1795669458|2-00:00:00|4-8|
5|RUNNING|1795659398|1795659400|N/A|UNLIMITED|2|n[1-2]
"""
SACCT = """\
7|CANCELLED by 1000|1795659392|None|1795659457|2880|1|None assigned|0:0
8|FAILED|1795659392|1795659394|1795659457|UNLIMITED|2|n[1-2]|7:0
9|OUT_OF_MEMORY|1795659392|1795659394|1795659457|Partition_Limit|1|n1|0:9
"""
UNICODE_BREAKS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


def test_squeue_is_read_and_a_planned_start_is_no_start() -> None:
    cancelled, ended, waits, runs = parse_squeue(SQUEUE_22_05)

    assert (cancelled.has_ended, cancelled.has_started) == (True, False)
    assert (ended.started_at, ended.ended_at, ended.time_limit_s) == (1795659394, 1795659457, 60)
    assert (waits.has_started, waits.nodes) == (False, 4)
    assert waits.time_limit_s == 2 * 86_400
    assert (runs.started_at, runs.ended_at, runs.time_limit_s) == (1795659400, None, math.inf)


def test_sacct_is_read_with_states_that_it_adorns() -> None:
    cancelled, failed, killed = parse_sacct(SACCT)

    assert (cancelled.state, cancelled.has_started) == ("CANCELLED", False)
    assert cancelled.time_limit_s == 2880 * 60
    assert (failed.exit_code, failed.has_started) == (7, True)
    assert (killed.exit_code, killed.has_ended) == (137, True)


@pytest.mark.parametrize("line", ["1|RUNNING|x", "slurm_load_jobs error"])
def test_output_of_another_form_is_an_error_that_quotes_it(line: str) -> None:
    for parse in (parse_squeue, parse_own_jobs):
        with pytest.raises(ValueError, match=r"squeue printed .*not the columns"):
            parse(line)
    with pytest.raises(ValueError, match=r"sacct printed .*not the columns"):
        parse_sacct(line)


@pytest.mark.parametrize("line", ["9|RUNNING|x", "of a name", "9|PENDING|1:00|N/A|N/A|1|1||"])
def test_line_that_does_not_fit_leaves_the_other_jobs(line: str) -> None:
    rows = parse_squeue(f"{line}\n{SQUEUE_22_05}")

    assert [row.job_id for row in rows] == ["3", "1", "4", "5"]


def test_slurm_ends_lines_with_newlines_only() -> None:
    name = f"a{UNICODE_BREAKS}b"
    line = f"4|PENDING|1795659398|N/A|N/A|1:00|1||{name}|Priority\n"

    (row,) = parse_own_jobs(line)

    assert (row.name, row.waits_for) == (name, "Priority")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("PartitionTimeLimit", "lower --time"),
        ("PartitionConfig", "does not allow what it asks for"),
        ("PartitionDown", "its partition is down"),
        ("JobHeldUser", "scontrol release 4 (--hold in a script holds each link)"),
        ("BeginTime", "queued again waits some minutes first (BeginTime)"),
        ("NonZeroExitCode", "queues it again after this exit code (NonZeroExitCode)"),
        ("JobHeldAdmin", "an administrator holds it"),
        ("launch_failed_requeued_held", "Slurm holds it since"),
        ("Reservation", "its reservation has not begun"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "(ReqNodeNotAvail, UnavailableNodes:n1)"),
        ("QOSMaxJobsPerUserLimit", "a limit of your account or QOS is reached; jobs that end"),
        ("AssocGrpCpuLimit", "jobs that end make room, unless"),
        ("QOSGrpGRESRunMinutes", "jobs that end make room, unless"),
        ("QOSMaxWallDurationPerJobLimit", "lower --time: it cannot start"),
        ("AssocMaxWallDurationPerJobLimit", "lower --time: it cannot start"),
        ("QOSMaxCpuPerJobLimit", "more than your account or QOS allows one job: it cannot start"),
        ("QOSMaxGRESPerNode", "more than your account or QOS allows one job"),
        ("AssocMaxCpuMinutesPerJobLimit", "more than your account or QOS allows one job"),
        ("QOSMinGRES", "less than its QOS demands"),
        ("QOSGrpCPUMinutesLimit", "has used up its budget of time"),
        ("AssocGrpWallLimit", "has used up its budget of time"),
        ("Job's account not permitted to use this partition (a allows b not c)", "cannot start"),
        ("Job's QOS not permitted to use this partition (a allows b not c)", "cannot start"),
        ("job requeued in held state", "it starts after: scontrol release 4"),
        ("A reason of tomorrow | with a bar", "A reason of tomorrow | with a bar"),
    ],
)
def test_reason_to_wait_says_what_helps(reason: str, words: str) -> None:
    line = f"4|PENDING|1795659398|N/A|N/A|1:00|1||a|{reason}"

    (row,) = parse_own_jobs(line)

    assert words in row.waits_for


def test_job_that_is_held_after_it_was_queued_again_says_what_releases_it() -> None:
    (row,) = parse_own_jobs(
        "23|SPECIAL_EXIT|1795659398|N/A|N/A|1:00|1||a|job requeued in held state"
    )

    assert (row.has_started, row.has_ended) == (False, False)
    assert "scontrol release 23" in row.waits_for


def test_job_without_a_reason_or_one_that_runs_waits_for_nothing() -> None:
    pending = parse_own_jobs("4|PENDING|1795659398|N/A|N/A|1:00|1||a|None")
    running = parse_own_jobs("4|RUNNING|1795659398|1795659398|N/A|1:00|1|n1|a|Priority")

    assert [row.waits_for for row in pending + running] == ["", ""]


def test_output_of_a_job_is_read_with_spaces() -> None:
    text = "JobId=15 JobName=abc d\n   StdErr=/e\n   StdIn=/dev/null\n   StdOut=/a b/c-15.out\n"

    assert parse_output_path(text) == "/a b/c-15.out"
    assert parse_output_path("JobId=15") == ""


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        ("1:00", 60),
        ("1:02:03", 3723),
        ("1-00", 86_400),
        ("2-03:00:00", 183_600),
        ("UNLIMITED", math.inf),
        ("INVALID", math.inf),
    ],
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, limit_s: float) -> None:
    assert parse_limit_s(text) == limit_s


@pytest.mark.parametrize("text", ["2026-11-26T02:00:00", "02:00", "26 Nov 02:00"])
def test_a_time_of_day_is_no_instant_since_its_zone_is_not_said(text: str) -> None:
    with pytest.raises(ValueError, match="no time in seconds: something here sets SLURM_TIME_FOR"):
        parse_time(text)
    assert [parse_time(word) for word in ("N/A", "Unknown", "None", "NONE")] == [None] * 4


def test_what_other_commands_say_is_read() -> None:
    planned = "sbatch: Job 2 to start at 1795659392 using 1 processors on nodes n1 in partition b"

    assert parse_planned_start(planned) == 1795659392
    assert parse_planned_start("allocation failure: nothing") is None
    assert parse_controller_time("Configuration data as of 1795659398\nA = b") == 1795659398
    assert parse_job_exit_code("JobId=1 JobName=a ExitCode=7:0 RunTime=0") == 7
    assert parse_job_exit_code("JobId=1 DerivedExitCode=3:0") is None
    assert parse_exit_code("0:15") == 143
    assert [parse_job_id(text) for text in ("12\n", "12;west\n")] == ["12", "12"]
    with pytest.raises(ValueError, match="does not say what time it is"):
        parse_controller_time("Configuration data")
    with pytest.raises(ValueError, match="no job id"):
        parse_job_id("Submitted batch job 12")


def test_a_controller_that_is_away_is_told_from_one_that_refuses() -> None:
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    refused = (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n"
    )

    assert is_away(away)
    assert is_away("sbatch: error: Batch job submission failed: Socket timed out on send/recv")
    assert not is_away(refused)
    assert is_full(refused)
    assert not is_full("sbatch: error: QOSMaxWallDurationPerJobLimit")
    assert slurm_words(refused) == (
        "QOSMaxSubmitJobPerUserLimit; "
        "Batch job submission failed: Job violates accounting/QOS policy"
    )


@pytest.mark.parametrize(
    ("text", "unconfigured"),
    [
        pytest.param(
            "squeue: error: fetch_config: DNS SRV lookup failed\n"
            "squeue: fatal: Could not establish a configuration source",
            True,
            id="nothing is configured",
        ),
        pytest.param(
            "squeue: fatal: s_p_parse_file: unable to status file /etc/slurm.conf: No such file or directory",
            True,
            id="no file where SLURM_CONF says",
        ),
        pytest.param("Unable to contact slurm controller", False, id="away"),
        pytest.param("Invalid job id specified", False, id="refused"),
    ],
)
def test_a_machine_without_a_cluster_is_told_from_a_controller_that_is_away(
    text: str, *, unconfigured: bool
) -> None:
    assert is_unconfigured(text) == unconfigured


def row(state: str, *, started: bool = True) -> QueueRow:
    return QueueRow("1", state, "a", 0.0, 10.0 if started else None, 70.0, 60.0, 1)


@pytest.mark.parametrize(
    ("state", "exit_code", "meaning"),
    [
        ("COMPLETED", 0, "goes on"),
        ("TIMEOUT", 143, "goes on"),
        ("FAILED", 7, "goes on"),
        ("FAILED", 1, "failed"),
        ("FAILED", None, "failed"),
        ("CANCELLED", None, "failed"),
        ("NODE_FAIL", None, "goes on"),
        ("BOOT_FAIL", None, "goes on"),
        ("PREEMPTED", 143, "goes on"),
        ("OUT_OF_MEMORY", 137, "failed"),
    ],
)
def test_an_end_of_a_link_means(state: str, exit_code: int | None, meaning: str) -> None:
    assert outcome_of_row(row(state), exit_code).meaning == meaning


def test_a_job_that_never_ran_was_cancelled_and_one_forgotten_is_judged_by_its_own_note(
    tmp_path: Path,
) -> None:
    queue, link = SlurmQueue(ChainState("ab12"), tmp_path), LinkRecord(1, "7")
    (tmp_path / "links").mkdir()
    assert outcome_of_row(row("CANCELLED", started=False), None).meaning == "cancelled"
    assert queue.outcome(link, None).meaning == "cancelled"
    (tmp_path / "links" / "1.started").write_text("7\n")
    assert queue.outcome(link, None).words == (
        "is no longer known to Slurm, and wrote down no exit code"
    )
    meanings = []
    for code in (0, 7, 3, 143):
        (tmp_path / "links" / "1.exit").write_text(f"{code} 7\n")
        meanings.append(queue.outcome(link, None).meaning)
    assert meanings == ["goes on", "goes on", "failed", "failed"]


def test_only_directives_before_the_first_command_count() -> None:
    script = "#!/bin/bash\n#SBATCH --time=2\n\n# words\n#SBATCH -N 4\necho\n#SBATCH --array=1-3\n"

    assert read_directives(script) == ["#SBATCH --time=2", "#SBATCH -N 4"]


@pytest.mark.parametrize(
    "line", ["--array=1-3", "--arr 1-3", "-N 2 -a 1-3", "-a1-3", "-Ha 1", "  --array=1"]
)
def test_array_is_no_link(line: str) -> None:
    with pytest.raises(ValueError, match="one job, no array"):
        read_directives(f"#!/bin/bash\n#SBATCH {line}\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--wait", "laxity chain waits itself: take it out"),
        ("-HW", "laxity chain waits itself"),
        ("--time=1 --test-only", "submit nothing"),
    ],
)
def test_option_by_which_sbatch_submits_no_job_or_waits_for_it_is_named(
    line: str, words: str
) -> None:
    with pytest.raises(ValueError, match=f"'#SBATCH {line}'.*{words}"):
        read_directives(f"#!/bin/bash\n#SBATCH {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "-A team",
        "--account=array",
        "-N 2 # no --array",
        "-J a-a",
        "--wait-all-nodes=1",
        "--tasks-per-node=2",
        "-JW",
    ],
)
def test_options_that_look_like_refused_ones_are_kept(line: str) -> None:
    assert read_directives(f"#!/bin/bash\n#SBATCH {line}\n") == [f"#SBATCH {line}"]


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_heterogeneous_job_is_no_link(word: str) -> None:
    with pytest.raises(ValueError, match="one job, not a heterogeneous one"):
        read_directives(f"#!/bin/bash\n#SBATCH {word}\n")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo\n", "interpreter"),
        ("#!/bin/bash\r\necho\r\n", "CRLF"),
        ("#!/bin/bash\necho\r\n", "CRLF"),
        ("#!/bin/bash\r", "CRLF"),
        ("\ufeff#!/bin/bash\n", "byte order mark"),
    ],
)
def test_script_that_no_node_can_run_is_refused(script: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_directives(script)


def facts(mean_wait_s: float | None, planned_at: float | None = None) -> QueueFacts:
    return QueueFacts(1000.0, 3, 3, 2, 2, mean_wait_s, "squeue", planned_at)


@pytest.mark.parametrize(
    ("values", "codes"),
    [(("(null)", "(null)"), []), (("1-3,42", "50"), [1, 2, 3, 42, 50])],
)
def test_exit_codes_after_which_a_job_is_queued_again_are_read(
    values: tuple[str, str], codes: list[int]
) -> None:
    first, held = values
    text = f"JobRequeue              = 1\nRequeueExit = {first}\nRequeueExitHold   = {held}\nA = 9"

    assert parse_requeue_exits(text) == codes


def test_the_successor_is_submitted_once_the_mean_wait_reaches_the_end() -> None:
    assert should_submit_successor("average_now", 1600.0, facts(600.0))[0]
    assert not should_submit_successor("average_now", 1601.0, facts(600.0))[0]
    assert not should_submit_successor("average_now", 1000.0, facts(None))[0]
    assert not should_submit_successor("average_now", None, facts(600.0))[0]
    assert not should_submit_successor("reactive", 1000.0, facts(600.0))[0]


def test_the_successor_is_submitted_once_slurm_plans_it_no_earlier_than_the_end() -> None:
    assert should_submit_successor("slurm_estimate", 1600.0, facts(None, 1600.0))[0]
    assert not should_submit_successor("slurm_estimate", 1601.0, facts(None, 1600.0))[0]
    submits, reason = should_submit_successor("slurm_estimate", 1600.0, facts(None))
    assert not submits
    assert "Slurm plans no start" in reason


def test_a_chain_is_kept_whole_and_a_spoiled_file_is_named(tmp_path: Path) -> None:
    state = ChainState("ab12", "/home/me", [LinkRecord(1, "7", lost_ids=["6"])])
    save_chain(state, tmp_path)

    assert load_chain(tmp_path) == state
    assert load_chain(tmp_path / "elsewhere") is None
    (tmp_path / "chain.json").write_text("{")
    with pytest.raises(ValueError, match=r"chain.json cannot be read .*another --folder"):
        load_chain(tmp_path)


def test_a_chain_that_an_earlier_laxity_began_is_read(tmp_path: Path) -> None:
    state = ChainState("ab12", "/home/me", [LinkRecord(1, "7", lost_ids=["6"])])
    save_chain(state, tmp_path)
    content = json.loads((tmp_path / "chain.json").read_text())
    content["links"][0]["tries"] = 2
    (tmp_path / "chain.json").write_text(json.dumps(content))

    assert load_chain(tmp_path) == state
