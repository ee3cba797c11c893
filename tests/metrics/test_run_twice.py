"""A test of servers or processes that fails runs once more, alone; two failures fail the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skipped_tests import main as count_tests

ROOT = Path(__file__).parents[2]
TESTS = """
import os
from pathlib import Path

def test_passes():
    pass

def test_fails():
    runs = Path(__file__).with_suffix(".runs")
    runs.open("a").write("worker " if "PYTEST_XDIST_WORKER" in os.environ else "alone ")
    assert len(runs.read_text().split()) > {failures}
"""


def run_twice(folder: Path, tests: str) -> tuple[int, str]:
    """The tests on two workers, as `make` runs its own: exit status, and what was printed."""
    file = folder / "test_it.py"
    file.write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "tests.support.run_twice",
        str(folder / "results" / "live.xml"),
    ]
    done = subprocess.run(
        [*command, "-c", str(folder / "pytest.ini"), "-n", "2", "--dist", "loadfile", str(file)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failures", "status", "told"),
    [
        (1, 0, ["2 passed, 0 failed", "failed, then passed alone"]),
        (2, 1, ["1 passed, 1 failed", "failed, then failed again"]),
    ],
)
def test_what_fails_runs_once_more_alone_and_two_failures_fail_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failures: int,
    status: int,
    told: list[str],
) -> None:
    exit_status, output = run_twice(tmp_path, TESTS.format(failures=failures))

    assert exit_status == status
    first, _, rest = output.partition("== what failed runs once more, alone ==")
    assert "1 failed, 1 passed" in first
    assert ("1 failed" if status else "1 passed") in rest
    assert (tmp_path / "test_it.runs").read_text().split() == ["worker", "alone"]
    assert count_tests([str(tmp_path / "results")]) == 0
    numbers, test = capsys.readouterr().out.splitlines()
    assert numbers.startswith(told[0])
    assert test == f"{told[1]}: test_it::test_fails"
