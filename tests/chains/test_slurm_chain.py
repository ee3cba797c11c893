import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.slurm import WHY_NOT, SlurmCluster, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
COMMAND: Final = Path(__file__).parents[1] / "support" / "programs" / "chaining.py"

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
#SBATCH --time=1
#SBATCH --output={folder}/output-%j.txt
while [ ! -e "$LAXITY_CHAIN_FOLDER/code" ]; do sleep 0.1; done
exit "$(cat "$LAXITY_CHAIN_FOLDER/code")"
"""
FIRST_WAITS: Final = EPOCHS.replace(
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
    for epoch in Training(60).epochs():
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


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path / "slurm", nodes=getattr(request, "param", 1))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


class Chain:
    """`laxity chain` on a script of its own, in a folder of its own."""

    def __init__(self, cluster: SlurmCluster, script: str) -> None:
        self._cluster = cluster
        self.folder = cluster.folder.parent / "train.chain"
        self.output = cluster.folder.parent / "said.txt"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._script = cluster.folder.parent / "train.sbatch"
        self._script.write_text(script.format(folder=cluster.folder.parent))

    def start(
        self, *options: str, shim: Path | None = None, place: Path | None = None
    ) -> subprocess.Popen[bytes]:
        environment = self._cluster.environment
        if shim is not None:
            environment = {**environment, "PATH": f"{shim}:{os.environ['PATH']}"}
        command = [sys.executable, str(COMMAND), str(self._script), "--interval", "0.2s", *options]
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=place
            )
        self._processes.append(process)
        return process

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    @property
    def state(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / "chain.json").read_text())
        except FileNotFoundError:
            return {"links": []}
        return content

    @property
    def epochs(self) -> list[str]:
        return (self.folder / "epochs").read_text().splitlines()

    @property
    def words(self) -> str:
        return self.output.read_text()

    def job_of(self, seq: int) -> str:
        """The job of a link, once there is one."""
        jobs = {link["seq"]: link["job_id"] for link in self.state["links"]}
        return str(jobs.get(seq, ""))

    def runs(self, seq: int) -> bool:
        return any(link["seq"] == seq and link["started_at"] for link in self.state["links"])

    def jobs(self) -> Counter[str]:
        """How many jobs of each link there have been."""
        names = (name for _, name, _ in self._cluster.jobs())
        return Counter(name.rpartition(":")[2] for name in names if name.startswith("laxity-chain"))

    def left(self) -> list[str]:
        """States of this chain's jobs that have not ended."""
        active = ("PENDING", "RUNNING", "CONFIGURING")
        return [state for _, _, state in self._cluster.jobs() if state in active]


def exit_code_of(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=120)


@pytest.fixture
def begin(cluster: SlurmCluster) -> Iterator[Callable[[str], Chain]]:
    """Chains whose processes are killed at the end."""
    chains: list[Chain] = []

    def make(script: str) -> Chain:
        chains.append(Chain(cluster, script))
        return chains[-1]

    yield make
    for chain in chains:
        chain.kill()


ALL_EPOCHS: Final = [f"epoch {n}" for n in range(1, 9)]


@pytest.mark.parametrize("method", ["reactive", "average_now", "slurm_estimate"])
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_four_links_beside_other_jobs_train_each_epoch_once(
    cluster: SlurmCluster, begin: Callable[[str], Chain], method: str
) -> None:
    for _ in range(6):
        cluster.ask("sbatch", "--time=1", "--output=/dev/null", "--wrap=sleep 2")
    chain = begin(EPOCHS)

    assert exit_code_of(chain.start("--method", method)) == 0

    assert chain.epochs == ALL_EPOCHS
    assert set(chain.jobs().values()) == {1}


def test_a_training_of_laxity_ends_each_link_before_its_time_limit_and_completes_its_chain(
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(TRAINING)

    assert exit_code_of(chain.start("--method", "reactive")) == 0

    assert chain.epochs == [f"epoch {n}" for n in range(1, 61)]
    first, second = chain.state["links"]
    assert 20.0 < first["ended_at"] - first["started_at"] < 60.0
    assert (chain.folder / "links" / "1.exit").read_text().split()[0] == "7"
    assert second["ended_at"] > first["ended_at"]


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_successor_that_starts_early_waits_until_its_predecessor_has_ended(
    cluster: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(FIRST_WAITS)
    free = cluster.folder / "free"
    process = chain.start("--method", "slurm_estimate", "--links", "2")
    until(lambda: chain.runs(1), "the first link runs")
    other = f"--wrap=while [ ! -e {free} ]; do sleep 0.1; done"
    cluster.ask("sbatch", "--time=5", "--output=/dev/null", other)
    until(lambda: chain.job_of(2), "a successor, since all nodes are taken")

    free.touch()
    until(lambda: chain.left() == ["RUNNING", "RUNNING"], "both links hold a node")
    (chain.folder / "go").touch()

    assert exit_code_of(process) == 7
    assert chain.epochs == ALL_EPOCHS[:4]


def test_a_controller_that_is_killed_and_comes_back_costs_nothing_but_time(
    cluster: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(FIRST_WAITS)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.job_of(2), "a successor waits")
    cluster.ask("sbatch", "--hold", "--job-name=saved", "--output=/dev/null", "--wrap=true")
    saved = cluster.folder / "state" / "job_state"
    until(lambda: saved.exists() and b"saved" in saved.read_bytes(), "all jobs are on the disk")

    cluster.kill_controller()
    until(lambda: "asked again until it answers" in chain.words, "the chain says so")
    cluster.start_controller()
    (chain.folder / "go").touch()

    assert exit_code_of(process) == 0
    assert chain.epochs == ALL_EPOCHS
    assert set(chain.jobs().values()) == {1}


@pytest.mark.parametrize("shim_text", [KILLED_AFTER, KILLED_BEFORE])
def test_a_provisioner_killed_around_each_submission_never_makes_two_successors(
    cluster: SlurmCluster, begin: Callable[[str], Chain], tmp_path: Path, shim_text: str
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
    assert set(cluster.ask("squeue", "-h", "-t", "all", "-o", "%Z").split()) == {str(tmp_path)}


def test_a_successor_cancelled_by_hand_is_submitted_once_more_and_then_the_chain_ends(
    cluster: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate")
    first = until(lambda: chain.job_of(2), "a successor")

    cluster.ask("scancel", first)
    until(lambda: chain.job_of(2) not in {"", first}, "another")
    second = chain.job_of(2)
    assert f"link 2: job {first} was cancelled before it started" in chain.words
    cluster.ask("scancel", second)

    assert exit_code_of(process) == 1
    assert (
        f"link 2 (job {second}) was cancelled before it started, for the second time" in chain.words
    )
    assert chain.jobs() == {"1": 1, "2": 2}
    assert chain.left() == ["RUNNING"]  # the first link trains on


def test_a_failing_predecessor_takes_its_successor_out_of_the_queue(
    cluster: SlurmCluster, begin: Callable[[str], Chain]
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.job_of(2), "a successor")

    (chain.folder / "code").write_text("3")

    assert exit_code_of(process) == 1
    assert f"link 1 (job {chain.job_of(1)}) failed with exit code 3" in chain.words
    assert chain.left() == []
    assert chain.jobs() == {"1": 1, "2": 1}


def test_a_refused_successor_is_tried_again_and_then_the_chain_ends_in_slurms_words(
    cluster: SlurmCluster,
    begin: Callable[[str], Chain],
) -> None:
    chain = begin(WAITING)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.runs(1), "the first link runs")
    second = until(lambda: chain.job_of(2), "a successor")
    cluster.ask("scontrol", "update", "PartitionName=batch", "State=DRAIN")
    cluster.ask("scancel", second)
    until(lambda: chain.words.count("refused, to be tried again") > 1, "two refusals")

    (chain.folder / "code").write_text("7")

    assert exit_code_of(process) == 1
    assert "link 2 was refused: sbatch: Batch job submission failed: " in chain.words
    assert chain.left() == []


def test_links_end_at_their_cap_and_a_second_follower_is_turned_away(
    cluster: SlurmCluster, begin: Callable[[str], Chain]
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
