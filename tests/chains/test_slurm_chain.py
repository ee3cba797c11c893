import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from laxity_scheduler.following.chain_loop import MOST_REFUSALS
from tests.support.slurm import WHY_NOT, SlurmCluster, until
from tests.support.slurm_chain import Chain, exit_code_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

EPOCHS: Final = """#!/bin/bash
#SBATCH --time=1
#SBATCH --output={folder}/output-%j.txt
epochs=$LAXITY_CHAIN_FOLDER/epochs
for _ in 1 2; do
  n=$(( $(cat "$epochs" 2>/dev/null | wc -l) + 1 ))
  sleep 0.3
  echo "epoch $n" >>"$epochs"
done
[ "$n" -lt 8 ] || touch "$LAXITY_CHAIN_FOLDER/done"
"""
WAITING: Final = """#!/bin/bash
#SBATCH --time=30
#SBATCH --output={folder}/output-%j.txt
while [ ! -e "$LAXITY_CHAIN_FOLDER/code" ]; do sleep 0.1; done
exit "$(cat "$LAXITY_CHAIN_FOLDER/code")"
"""
FIRST_WAITS: Final = EPOCHS.replace("--time=1", "--time=30").replace(
    "for _",
    '[ -e "$epochs" ] || while [ ! -e "$LAXITY_CHAIN_FOLDER/go" ]; do sleep 0.1; done\nfor _',
)
TRAINING: Final = f"""#!/bin/bash
#SBATCH --time=1
#SBATCH --output={{folder}}/output-%j.txt
exec {sys.executable} -c '
import os, time
from laxity import Training
with open(os.environ["LAXITY_CHAIN_FOLDER"] + "/epochs", "a") as epochs:
    for epoch in Training(60, resumes=True).epochs():
        time.sleep(1.0 if os.environ["LAXITY_CHAIN_LINK"] == "1" else 0.0)
        print("epoch", epoch, file=epochs, flush=True)
'
"""
KILLED_AFTER: Final = """#!/bin/bash
case " $* " in *" --test-only "*) exec {sbatch} "$@" ;; esac
{sbatch} "$@"
kill -9 $PPID
"""
KILLED_BEFORE: Final = """#!/bin/bash
case " $* " in *" --test-only "*) exec {sbatch} "$@" ;; esac
kill -9 $PPID
sleep 1 # the next one is started meanwhile
exec {sbatch} "$@"
"""


ALL_EPOCHS: Final = [f"epoch {n}" for n in range(1, 9)]


def reconfigure(slurm: SlurmCluster, line: str) -> None:
    """Add a line to the cluster's slurm.conf."""
    with (slurm.folder / "slurm.conf").open("a") as conf:
        conf.write(f"{line}\n")
    slurm.ask("scontrol", "reconfigure")


@pytest.mark.parametrize("method", ["reactive", "average_now", "slurm_estimate"])
@pytest.mark.parametrize("slurm", [2], indirect=True)
def test_four_links_beside_other_jobs_train_each_epoch_once(
    slurm: SlurmCluster, begin: Callable[[str], Chain], method: str
) -> None:
    for _ in range(6):
        slurm.ask("sbatch", "--time=1", "--output=/dev/null", "--wrap=sleep 2")
    chain = begin(EPOCHS)

    assert exit_code_of(chain.start("--method", method)) == 0

    assert chain.epochs == ALL_EPOCHS
    assert set(chain.jobs().values()) == {1}


def test_a_training_of_laxity_ends_each_link_before_its_time_limit_and_completes_its_chain(
    begin: Callable[[str], Chain],
) -> None:
    chain, filters = begin(TRAINING), {"SQUEUE_PARTITION": "gpu"}  # a user's, for own listings

    assert exit_code_of(chain.start("--method", "reactive", variables=filters)) == 0

    assert chain.epochs == [f"epoch {n}" for n in range(1, 61)]
    first, second = chain.state["links"]
    assert 20.0 < first["ended_at"] - first["started_at"] < 60.0
    assert (chain.folder / "links" / "1.exit").read_text().split()[0] == "7"
    assert second["ended_at"] >= second["started_at"] >= first["ended_at"]  # in whole seconds


@pytest.mark.parametrize("slurm", [2], indirect=True)
def test_a_successor_that_starts_early_waits_until_its_predecessor_has_ended(
    slurm: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(FIRST_WAITS)
    free = slurm.folder / "free"
    process = chain.start("--method", "slurm_estimate", "--links", "2")
    until(lambda: chain.runs(1), "the first link runs")
    other = f"--wrap=while [ ! -e {free} ]; do sleep 0.1; done"
    slurm.ask("sbatch", "--time=60", "--output=/dev/null", other)
    until(lambda: chain.job_of(2), "a successor, since all nodes are taken")

    free.touch()
    until(lambda: chain.left() == ["RUNNING", "RUNNING"], "both links hold a node")
    (chain.folder / "go").touch()

    assert exit_code_of(process) == 7
    assert chain.epochs == ALL_EPOCHS[:4]


def test_a_controller_that_is_killed_and_comes_back_costs_nothing_but_time(
    slurm: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(FIRST_WAITS)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.job_of(2), "a successor waits")
    slurm.ask("sbatch", "--hold", "--job-name=saved", "--output=/dev/null", "--wrap=true")
    saved = slurm.folder / "state" / "job_state"
    until(lambda: saved.exists() and b"saved" in saved.read_bytes(), "all jobs are on the disk")

    slurm.kill_controller()
    until(lambda: "asked again until it answers" in chain.words, "the chain says so")
    slurm.start_controller()
    (chain.folder / "go").touch()

    assert exit_code_of(process) == 0
    assert chain.epochs == ALL_EPOCHS
    assert set(chain.jobs().values()) == {1}


@pytest.mark.parametrize("shim_text", [KILLED_AFTER, KILLED_BEFORE])
def test_a_provisioner_killed_around_each_submission_never_makes_two_successors(
    slurm: SlurmCluster, begin: Callable[[str], Chain], tmp_path: Path, shim_text: str
) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sbatch").write_text(shim_text.format(sbatch=shutil.which("sbatch")))
    (shim / "sbatch").chmod(0o755)
    chain = begin(EPOCHS)

    first = chain.start("--method", "slurm_estimate", shim=shim, place=tmp_path)
    codes = [exit_code_of(first)]
    while codes[-1] == -9 and len(codes) < 12:
        codes.append(exit_code_of(chain.start("--method", "slurm_estimate", shim=shim)))

    links = len(chain.state["links"])
    assert codes == [-9] * links + [0]
    assert links >= 4
    assert chain.epochs == ALL_EPOCHS
    assert chain.jobs() == {str(seq): 1 for seq in range(1, links + 1)}
    assert set(slurm.ask("squeue", "-h", "-t", "all", "-o", "%Z").split()) == {str(tmp_path)}


def test_a_successor_cancelled_by_hand_is_submitted_once_more_and_then_the_chain_ends(
    slurm: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate")
    first = until(lambda: chain.job_of(2), "a successor")

    slurm.ask("scancel", first)
    until(lambda: chain.job_of(2) not in {"", first}, "another")
    second = chain.job_of(2)
    assert f"link 2: job {first} was cancelled before it started" in chain.words
    slurm.ask("scancel", second)

    assert exit_code_of(process) == 1
    assert (
        f"link 2 (job {second}) was cancelled before it started, for the second time" in chain.words
    )
    assert chain.jobs() == {"1": 1, "2": 2}
    assert chain.left() == ["RUNNING"]  # the first link trains on


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="plain"),
        pytest.param({"SQUEUE_PARTITION": "gpu", "SCANCEL_INTERACTIVE": "1"}, id="user's filters"),
    ],
)
def test_a_failing_predecessor_takes_its_successor_out_of_the_queue(
    slurm: SlurmCluster, begin: Callable[[str], Chain], variables: dict[str, str]
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate", variables=variables)
    until(lambda: chain.job_of(2), "a successor")

    (chain.folder / "code").write_text("3")

    assert exit_code_of(process) == 1
    assert f"link 1 (job {chain.job_of(1)}) failed with exit code 3" in chain.words
    assert chain.left() == []
    assert chain.jobs() == {"1": 1, "2": 1}


def test_a_link_that_is_queued_again_lets_its_successor_train_meanwhile(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(WAITING.replace("while", "trap 'exit 1' TERM\nwhile"))
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.runs(1) and chain.job_of(2), "one link runs and one waits")

    slurm.ask("scontrol", "requeue", chain.job_of(1))
    until(lambda: f"link 1: job {chain.job_of(1)} waits again" in chain.words, "the chain says so")
    until(lambda: chain.runs(2), "the successor trains")
    (chain.folder / "done").touch()
    (chain.folder / "code").write_text("0")

    assert exit_code_of(process) == 0
    assert chain.jobs() == {"1": 1, "2": 1}
    assert chain.left() == []


def test_a_link_whose_exit_code_queues_it_again_lets_its_successor_train(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    reconfigure(slurm, "RequeueExit=40-42")
    trains = '[ "$LAXITY_CHAIN_LINK" = 1 ] || exec touch "$LAXITY_CHAIN_FOLDER/done"\nwhile'
    chain = begin(WAITING.replace("while", trains))
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.runs(1) and chain.job_of(2), "one link runs and one waits")

    (chain.folder / "code").write_text("41")

    assert exit_code_of(process) == 0
    assert f"link 1: job {chain.job_of(1)} waits again" in chain.words
    assert chain.jobs() == {"1": 1, "2": 1}
    assert chain.left() == []


def test_a_chain_goes_on_after_a_link_that_lost_its_node(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(WAITING.replace("#SBATCH --time=30", "#SBATCH --time=30 --no-requeue"))
    process = chain.start("--links", "2")
    until(lambda: chain.runs(1), "the first link runs")

    slurm.ask("scontrol", "update", "NodeName=n0", "State=DOWN", "Reason=test")
    until(lambda: chain.runs(2), "the second link trains")
    (chain.folder / "code").write_text("7")

    assert exit_code_of(process) == 7
    assert f"link 1: job {chain.job_of(1)} lost its node" in chain.words
    assert chain.jobs() == {"1": 1, "2": 1}


def test_a_refused_successor_is_tried_again_and_then_the_chain_ends_in_slurms_words(
    slurm: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    reconfigure(slurm, "EnforcePartLimits=ALL")
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.runs(1), "the first link runs")
    second = until(lambda: chain.job_of(2), "a successor")
    slurm.ask("scontrol", "update", "PartitionName=batch", "MaxTime=2")
    slurm.ask("scancel", second)
    until(lambda: chain.words.count("refused, to be tried again") > 1, "two refusals")

    (chain.folder / "code").write_text("7")

    assert exit_code_of(process) == 1
    assert "link 2 was refused: sbatch: Batch job submission failed: " in chain.words
    assert chain.left() == []


def test_a_partition_that_takes_no_jobs_is_waited_for(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "reactive", "--links", "2")
    until(lambda: chain.runs(1), "the first link runs")
    slurm.ask("scontrol", "update", "PartitionName=batch", "State=DRAIN")

    (chain.folder / "code").write_text("7")
    until(lambda: chain.state["links"][-1]["refusals"] > MOST_REFUSALS, "many refusals")
    slurm.ask("scontrol", "update", "PartitionName=batch", "State=UP")

    assert exit_code_of(process) == 7
    assert chain.words.count("takes no jobs until an administrator opens it again (sbatch: ") == 1
    assert chain.jobs() == {"1": 1, "2": 1}


def test_links_end_at_their_cap_and_a_second_follower_is_turned_away(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(WAITING)
    process = chain.start("--links", "2")
    until(lambda: chain.runs(1), "the first link runs")

    assert exit_code_of(chain.start()) == 2
    assert "another laxity chain follows" in chain.words

    (chain.folder / "code").write_text("7")
    assert exit_code_of(process) == 7
    assert chain.jobs() == {"1": 1, "2": 1}
    assert exit_code_of(chain.start("--status")) == 0
    assert "link 2: job 2 ended with exit code 7" in chain.words


NEVER_STARTS: Final = """#!/bin/bash
#SBATCH --time=30
#SBATCH --partition={partition}
#SBATCH --output=/dev/null
"""


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("MaxTime=2", "waits: its time limit is above the partition's; lower --time"),
        ("State=DOWN", "waits: its partition is down (PartitionDown)"),
    ],
)
def test_reason_of_a_link_that_waits_is_said_and_shown(
    slurm: SlurmCluster, begin: Callable[[str], Chain], partition: str, words: str
) -> None:
    slurm.ask("scontrol", "create", "PartitionName=odd", "Nodes=ALL", partition)
    chain = begin(NEVER_STARTS.replace("{partition}", "odd"))

    chain.start()
    until(lambda: f"link 1: job 1 {words}" in chain.words, "the reason")
    assert chain.words.count(words) == 1
    assert exit_code_of(chain.start("--status")) == 0

    assert chain.words.splitlines()[-1].startswith(f"link 1: job 1 {words}")


def test_held_link_names_what_releases_it(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(EPOCHS.replace("#SBATCH --time=1", "#SBATCH --time=1 --hold"))
    process = chain.start("--links", "1")
    until(lambda: "let it start with: scontrol release 1" in chain.words, "the reason")

    slurm.ask("scontrol", "release", "1")

    assert exit_code_of(process) == 7


def test_missing_folder_of_the_output_is_named(begin: Callable[[str], Chain]) -> None:
    chain = begin(EPOCHS.replace("{folder}/", "{folder}/missing/"))

    assert exit_code_of(chain.start()) == 1

    path = chain.folder.parent / "missing" / "output-1.txt"
    assert f"did not begin: Slurm could not open {path}; make its folder" in chain.words


def test_strangers_job_names_do_not_disturb_a_chain(
    slurm: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    name = "\u2028|\x85\x0b\x0c\x1c\x1d\x1e"
    slurm.ask("sbatch", "--hold", f"--job-name={name}", "--output=/dev/null", "--wrap=true")
    chain = begin(EPOCHS)

    assert exit_code_of(chain.start("--method", "average_now")) == 0

    assert chain.epochs == ALL_EPOCHS
