"""docs/start.md, tried literally: its training, and its commands in their order."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.processes import run_command
from tests.support.waiting import until

PAGE = (Path(__file__).parents[2] / "docs/start.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


class Reader:
    """Somebody who copies the page's commands, in a fresh home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {name: text for name, text in os.environ.items() if not name.startswith("LAXITY_")}
        self.environment = own | {"LAXITY_HOME": str(folder / "home"), "PATH": path}

    def types(self, line: str) -> subprocess.CompletedProcess[str]:
        words = line.replace("laxity up", "laxity up --port 0").split()
        return run_command(*words, env=self.environment, cwd=self.folder)

    def job(self, name: str) -> dict[str, object]:
        shown = self.types(f"laxity show {name} --json")
        return dict(json.loads(shown.stdout)) if shown.returncode == 0 else {}

    def is_judged(self, name: str) -> bool:
        return self.job(name).get("verdict") not in {None, "none"}

    def is_kept(self, name: str) -> bool:
        return self.job(name).get("outcome") == "kept"


@pytest.mark.slow
def test_the_start_page_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("python")[0])
    reader = Reader(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]

    try:
        for line in commands[:-1]:
            done = reader.types(line)
            if line.startswith("laxity submit"):  # a busy machine: the verdict may come later
                name = line.split()[4]
                until(partial(reader.is_judged, name), f"a verdict of {name}", every_s=1.0)
            else:
                assert done.returncode == 0, done.stdout + done.stderr
            if line == "laxity submit train.py:digits --name hotfix --deadline 30s":
                assert reader.job("hotfix")["verdict"] == "refused"
                assert reader.job("nightly")["verdict"] == "promised"
        preempted = reader.types("laxity explain explore").stdout
        accepted = reader.job("hotfix")["verdict"]
        until(
            partial(reader.is_kept, "nightly"), "the promise of nightly", limit_s=200.0, every_s=1.0
        )
    finally:
        stopped = reader.types(commands[-1])

    assert "preempt" in preempted
    assert "default/nightly" in preempted
    assert accepted == "promised"
    assert stopped.returncode == 0
