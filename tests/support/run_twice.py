"""Run pytest, and what fails once more, alone: `python -m tests.support.run_twice REPORT ARGUMENT...`.

For tests of servers and processes, which a busy machine can make fail. pytest prints both results. A
test that fails twice fails the run. The second report is in the folder `again` beside the first.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.skipped_tests import AGAIN


def main(arguments: Sequence[str]) -> int:
    """The exit status of pytest: of the second run where there was one."""
    report = Path(arguments[0])
    again = report.parent / AGAIN / report.name
    again.unlink(missing_ok=True)
    cache = f"cache_dir={report.with_suffix('.cache').absolute()}"  # knows this run's failures only
    command = [sys.executable, "-m", "pytest", *arguments[1:], "-o", cache]
    status = subprocess.run(
        [*command, "--cache-clear", f"--junitxml={report}"], check=False
    ).returncode
    if status != pytest.ExitCode.TESTS_FAILED:
        return status
    sys.stdout.write("\n== what failed runs once more, alone ==\n")
    sys.stdout.flush()
    alone = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
    return subprocess.run([*command, *alone, f"--junitxml={again}"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
