"""What `laxity up` does while the service of its home stops."""

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laxity_scheduler.http import connections
from laxity_scheduler.process import daemon, serve
from laxity_scheduler.process.instance_dir import InstanceDir, RunningService
from laxity_scheduler.service.notifier import Notifier
from laxity_scheduler.service.settings import Settings


def test_up_waits_until_a_service_that_stops_has_left_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = InstanceDir(tmp_path).lock_for_process()
    monkeypatch.setattr(time, "sleep", lambda _: stopping.release_lock())

    assert daemon.await_settled(InstanceDir(tmp_path)) is None


def test_up_gives_up_on_a_service_that_neither_listens_nor_ends(tmp_path: Path) -> None:
    home = InstanceDir(tmp_path).lock_for_process()

    with pytest.raises(daemon.DaemonError, match=r"service\.log, and end it with: laxity down"):
        daemon.await_settled(home, wait_s=0.0)

    home.release_lock()


def test_a_service_that_stops_withdraws_its_address_before_it_waits_for_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RunningService | None] = []

    class Server:
        def __init__(self, app: object, on_stop: Any) -> None:
            self.on_stop = on_stop

        def run(self, **_: object) -> None:
            seen.append(InstanceDir(tmp_path).running_service())
            self.on_stop()
            seen.append(InstanceDir(tmp_path).running_service())

        def end(self, error: Exception) -> None:
            raise error

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")  # it sets another one
    parts = SimpleNamespace(service=SimpleNamespace(notifier=Notifier()), job_service=None)
    monkeypatch.setattr(connections, "LimitedServer", Server)
    monkeypatch.setattr(serve, "open_service", lambda *_, **__: nullcontext(parts))
    for name in ("create_app", "log_to_stderr", "_exit_on_signals"):
        monkeypatch.setattr(serve, name, lambda *_: None)

    serve.serve_forever(Settings(home=tmp_path, port=0, tracking_uri="none"))

    assert [bool(service and service.url) for service in seen] == [True, False]
    assert seen[1], "its process is still there"
    assert parts.service.notifier.closed
