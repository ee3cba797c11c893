"""What all tests share: a quiet environment, hypothesis profiles and one Prefect API."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.contract")  # exams are plain modules
pytest_plugins = [
    "tests.support.command_line",
    "tests.support.kubernetes.fixtures",
    "tests.support.kubernetes.postgres",
    "tests.support.mlflow_store",
    "tests.support.server_units",
]

STATE = Path(tempfile.mkdtemp(prefix="laxity-tests-"))

# Set before anything imports Prefect or MLflow: both read the environment once. Child processes
# inherit it, so a worker that a test starts is as quiet as the test.
os.environ |= {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MPLBACKEND": "Agg",
    "NO_PROXY": "127.0.0.1,localhost",
    "OMP_NUM_THREADS": "1",  # tests run side by side: threads of PyTorch would wait for each other
    "OPENBLAS_NUM_THREADS": "1",
    "PREFECT_HOME": str(STATE / "prefect"),
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "no_proxy": "127.0.0.1,localhost",
}
# A developer's own servers are none of a test's business.
SERVERS = (
    "GITHUB_ACTIONS",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
    "MLFLOW_TRACKING_URI",
    "PREFECT_API_KEY",
    "PREFECT_API_URL",
    "PREFECT_PROFILE",
)
for name in SERVERS:
    os.environ.pop(name, None)

# Images forbid Python to keep what it has compiled; each process of a test would compile all anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts what goes to the background deaf to Control-C, and children inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("default"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs the Prefect API is slow: one server for all of them, not one a worker."""
    for item in items:
        if "prefect_api" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(STATE, ignore_errors=True)


@pytest.fixture(autouse=True)
def _names_no_server_to_later_tests() -> Iterator[None]:
    """As `mlflow.set_tracking_uri` does: each worker of later tests would log there, for seconds."""
    yield
    left = [name for name in SERVERS if name in os.environ]
    for name in left:
        del os.environ[name]
    assert left == [], "use monkeypatch.setenv"


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """The URL of one Prefect API for the whole session; flows called in a test use it by itself.

    A flow in another process needs the URL as PREFECT_API_URL. The heartbeat is off: it holds up
    the end of every flow by a second.
    """
    import prefect.main  # noqa: F401 - sets up loggers; else the first flow does, amid a test
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        temporary_settings({"flows.heartbeat_frequency": None}),
        prefect_test_harness(server_startup_timeout=120),
    ):
        yield str(PREFECT_API_URL.value())
