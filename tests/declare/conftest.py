"""The stand-in service, in reach of everything that a test starts."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.job_service import StandIn


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    started = StandIn()
    monkeypatch.setenv("LAXITY_URL", started.url)
    monkeypatch.setenv("LAXITY_HOME", str(tmp_path))
    for name in ("LAXITY_TOKEN", "LAXITY_JOB", "LAXITY_ALONE", "LAXITY_IDEMPOTENCY_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield started
    started.stop()


@pytest.fixture
def trainings(prefect_api: str, service: StandIn) -> ModuleType:
    from tests.support.programs import flows

    flows.HEARD.clear()
    return flows


@pytest.fixture
def processes(prefect_api: str) -> str:
    """The name of a process pool."""
    from prefect import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as api:
        pool = WorkPoolCreate(name="processes", type="process")
        return api.create_work_pool(pool, overwrite=True).name
