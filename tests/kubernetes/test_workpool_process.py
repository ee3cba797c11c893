"""The first process of a work pool's pod: it hands signals on, and fails a Job whose training failed."""

import os
import signal
import subprocess
import sys

import pytest

from laxity import names
from laxity.flow.last_word import ENV_WORD, FAILED, TRAINING, USAGE
from laxity.worker.sigterm import EXIT_STOPPED

pytestmark = pytest.mark.slow
SAY = f"import os, pathlib; pathlib.Path(os.environ['{ENV_WORD}']).write_text"
SAY_FAILED = f"{SAY}('{FAILED}')"
WAIT = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    "print('ready', flush=True)\n"
    "signal.pause()"
)


def first(*command: str, index: int = 0) -> subprocess.Popen[str]:
    env = {**os.environ, names.ENV_INDEX: str(index)}
    return subprocess.Popen(
        [sys.executable, "-m", "laxity.pool", *command], env=env, stdout=subprocess.PIPE, text=True
    )


def code_of(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param("raise SystemExit(0)", 0, id="a run that ended well completes the Job"),
        pytest.param("raise SystemExit(1)", 1, id="a run given back is entered again by the next"),
        pytest.param(SAY_FAILED, USAGE, id="a training that failed for good fails the Job"),
        pytest.param(f"{SAY_FAILED}; raise SystemExit(1)", 1, id="one told to go has not failed"),
    ],
)
def test_the_exit_code_tells_kubernetes_what_to_do(code: str, want: int) -> None:
    assert code_of(first(sys.executable, "-c", code)) == want


def test_sigterm_reaches_what_executes_the_flow_run() -> None:
    process = first(sys.executable, "-c", WAIT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == 7


def test_a_run_that_was_cancelled_while_it_trained_does_not_complete_its_job() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "laxity.pool", sys.executable, "-c", f"{SAY}('{TRAINING}')"],
        env={**os.environ, names.ENV_INDEX: "0"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        assert "waiting for its Job to be deleted" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)  # as with its Job's deletion
        assert process.wait(60) == EXIT_STOPPED


def test_without_a_command_there_is_nothing_to_execute() -> None:
    assert code_of(first()) == USAGE
