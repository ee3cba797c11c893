"""The first flow that somebody runs, on a machine where Prefect has never been."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laxity import names
from tests.support.attacked import attacked
from tests.support.processes import run_command

ANALYTICS = "PREFECT_SERVER_ANALYTICS_ENABLED"
FLOW = """
from laxity import Training, deadline_flow

@deadline_flow(deadline="20m", epochs=2, epoch_estimate="1s")
def train(training: Training) -> float:
    for epoch in training.epochs():
        training.log(loss=1.0 / epoch)
    return training.last("loss")

if __name__ == "__main__":
    print("loss", train())
"""


@pytest.mark.slow
def test_the_first_run_under_prefects_temporary_server_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FLOW)
    own = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
    with attacked(tmp_path / "home") as service:
        homes = {names.ENV_HOME: str(service.home), "PREFECT_HOME": str(tmp_path / "prefect")}
        done = run_command(sys.executable, "train.py", env=own | homes, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loss 0.5" in done.stdout
    assert "Starting temporary server" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


TOLD = """
from prefect.flows import Flow
from prefect.settings import PREFECT_SERVER_ANALYTICS_ENABLED
from train import train

Flow.__call__ = lambda *_: PREFECT_SERVER_ANALYTICS_ENABLED.value()
print(train())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("said", "sent"), [({}, "False"), ({ANALYTICS: "true"}, "True")])
def test_prefects_telemetry_is_off_unless_the_user_has_asked_for_it(
    said: dict[str, str], sent: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FLOW)
    own = {name: text for name, text in os.environ.items() if name != ANALYTICS}
    words = [sys.executable, "-c", TOLD]
    assert subprocess.check_output(words, cwd=tmp_path, env=own | said, text=True).strip() == sent
