"""`laxity chain` as a process of its own; started again, it goes on with the chain in its folder."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ChainProcess:
    """What all its processes print stands in `output`, their chain in `folder`."""

    def __init__(self, place: Path) -> None:
        self.output, self.folder = place / "said.txt", place / "train.chain"
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], place: Path | None = None
    ) -> subprocess.Popen[bytes]:
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
    def words(self) -> str:
        return self.output.read_text()

    @property
    def state(self) -> dict[str, Any]:
        """The chain as it is written down; without links before it is."""
        try:
            content: dict[str, Any] = json.loads((self.folder / "chain.json").read_text())
        except FileNotFoundError:
            return {"links": []}
        return content
