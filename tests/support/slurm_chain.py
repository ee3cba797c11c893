"""`laxity chain` on a batch script, as a process of its own beside a real Slurm."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.chain_process import ChainProcess
from tests.support.slurm import SlurmCluster

COMMAND: Final = Path(__file__).parent / "programs" / "chaining.py"


class Chain(ChainProcess):
    """`laxity chain` on a script of its own, in a folder of its own."""

    def __init__(self, cluster: SlurmCluster, script: str) -> None:
        self._cluster = cluster
        super().__init__(cluster.folder.parent)
        self._script = cluster.folder.parent / "train.sbatch"
        self._script.write_text(script.format(folder=cluster.folder.parent))

    def start(
        self,
        *options: str,
        shim: Path | None = None,
        place: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        environment = {**self._cluster.environment, **(variables or {})}
        if shim is not None:
            environment = {**environment, "PATH": f"{shim}:{os.environ['PATH']}"}
        command = [sys.executable, str(COMMAND), str(self._script), "--interval", "0.2s", *options]
        return self.run(command, environment, place)

    @property
    def epochs(self) -> list[str]:
        return (self.folder / "epochs").read_text().splitlines()

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
