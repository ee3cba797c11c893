"""A follower that is told to end says what goes on without it; the same command follows again."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.slurm import WHY_NOT, SlurmCluster, until
from tests.support.slurm_chain import Chain, exit_code_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCRIPT: Final = """#!/bin/bash
#SBATCH --time=30 --output=/dev/null
while [ ! -e "$LAXITY_CHAIN_FOLDER/go" ]; do sleep 0.1; done
touch "$LAXITY_CHAIN_FOLDER/done"
"""
TOLD_TO_END: Final = """#!/bin/bash
kill -s {signal} $PPID
sleep 2 # long enough to be killed in, if that is done
exec {sbatch} "$@"
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_follower_that_is_told_to_end_names_the_jobs_that_go_on(
    begin: Callable[[str], Chain], number: signal.Signals, code: int
) -> None:
    chain = begin(SCRIPT)
    process = chain.start("--method", "slurm_estimate")
    until(lambda: chain.runs(1) and chain.job_of(2), "one link runs and one waits")

    process.send_signal(number)

    assert exit_code_of(process) == code
    assert (
        f"{chain.state['chain_id']}: link 1: job {chain.job_of(1)} runs, link 2: job "
        f"{chain.job_of(2)} waits; no further link is submitted until you run the same command again"
    ) in chain.words
    assert sorted(chain.left()) == ["PENDING", "RUNNING"]
    (chain.folder / "go").touch()
    assert exit_code_of(chain.start()) == 0
    assert chain.jobs() == {"1": 1, "2": 1}


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130)])
def test_a_follower_that_is_told_to_end_in_a_submission_ends_after_it(
    slurm: SlurmCluster, begin: Callable[[str], Chain], tmp_path: Path, name: str, code: int
) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sbatch").write_text(TOLD_TO_END.format(signal=name, sbatch=shutil.which("sbatch")))
    (shim / "sbatch").chmod(0o755)
    chain = begin(SCRIPT)

    assert exit_code_of(chain.start(shim=shim)) == code

    assert "link 1: job 1 waits; no further link is submitted" in chain.words
    assert len(slurm.jobs()) == 1
    (chain.folder / "go").touch()
    assert exit_code_of(chain.start()) == 0
    assert chain.jobs() == {"1": 1}
