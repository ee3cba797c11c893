"""MLflow is imported by several threads of a process; none of them gets it half-made."""

import sys

import pytest

from tests.support.processes import run_command

pytestmark = pytest.mark.slow

# One thread begins to import mlflow, and goes on when the other waits in an import of its own.
RACE = """
import sys, threading, time
import _frozen_importlib as importing
from functools import partial
from importlib.machinery import PathFinder

{given}

def blocked(name):
    tids = [one.ident for one in threading.enumerate() if one.name == name]
    return any(importing._blocking_on.get(tid) for tid in tids)

class Whole:
    met = False

    def find_spec(self, name, path=None, target=None):
        if name != "mlflow":
            return None
        spec = PathFinder.find_spec(name, path, target)
        spec.loader.exec_module = partial(self.execute, spec.loader.exec_module)
        return spec

    def execute(self, really, module):
        if threading.current_thread().name == "whole":
            self.met = True
            begin()
            while not blocked("{part}"):
                time.sleep(0.001)
        really(module)

def whole():
    import mlflow
    from mlflow.entities import Metric

finder = Whole()
sys.meta_path.insert(0, finder)
first = threading.Thread(target=whole, name="whole")
first.start()
first.join()
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag
print("met", finder.met)
"""
TELLING = """
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.mlflow_sink import MlflowSink

message = Message({"verdict": "promised"})
sink = MlflowSink("sqlite://", print)
begin = threading.Thread(target=sink.deliver, args=[message], name="part", daemon=True).start
"""
TRACKING = """
import os
from laxity.worker.mlflow_tracking import EpochMetrics, Tracker

os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
tracker = Tracker("sqlite://", tags={})

def begin():
    tracker.add([EpochMetrics(1, 1.0, {"loss": 1.0})])
    threading.Thread(target=tracker.flush, kwargs={"at_most_s": 60.0}, daemon=True).start()
"""
ANSWERING = """
from laxity_profiler.registry.mlflow_errors import translate_mlflow_errors

def ask():
    with translate_mlflow_errors("http://127.0.0.1:9"):
        pass

begin = threading.Thread(target=ask, name="part", daemon=True).start
"""


@pytest.mark.parametrize(
    ("given", "part"),
    [
        pytest.param(TELLING, "part", id="the service tells MLflow"),
        pytest.param(ANSWERING, "part", id="predictors go to the registry"),
        pytest.param(TRACKING, "laxity-mlflow", id="a training's epochs are logged"),
    ],
)
def test_mlflow_is_whole_though_another_thread_imports_it(given: str, part: str) -> None:
    script = RACE.format(given=given, part=part)
    ended = run_command(sys.executable, "-c", script, timeout=200)
    assert "partially initialized" not in ended.stderr
    assert (ended.returncode, ended.stdout) == (0, "met True\n"), ended.stderr
