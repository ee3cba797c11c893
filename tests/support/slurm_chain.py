"""`laxity chain` on a batch script, as a process of its own beside a real Slurm."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.support.slurm import SlurmCluster

COMMAND: Final = Path(__file__).parent / "programs" / "chaining.py"


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
