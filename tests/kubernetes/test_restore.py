"""A copy of the store, taken while the service runs, is restored elsewhere: promises and history hold.

The copy is older than the cluster: after it was taken jobs end, come and are promised.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import make_url

from laxity import names
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.place import HARD, Place, annotations, complete, running
from tests.support.kubernetes.postgres import WHY_NOT, postgresql, programs
from tests.support.kubernetes.restoring import Sqlite, outcomes
from tests.support.kubernetes.service import Service, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


class Stored(Protocol):
    """A store of one kind: the service on it, and the commands of docs/kubernetes/backup.md."""

    def service(self, cluster: Cluster, folder: Path) -> Service: ...
    def back_up(self) -> None: ...
    def lose_and_restore(self) -> str:
        """The home to go on with."""


class Postgres:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder, self.stack = folder, stack
        self.url = stack.enter_context(postgresql())
        self.copy = str(folder / "laxity.dump")

    def service(self, cluster: Cluster, folder: Path) -> Service:
        self.made = Service(cluster, folder, store=self.url)
        return self.made

    def back_up(self) -> None:
        subprocess.run(["pg_dump", "-Fc", "-f", self.copy], check=True, env=_login(self.url))

    def lose_and_restore(self) -> str:
        """Another server: the first one's database is not looked at again."""
        self.made.store = self.stack.enter_context(postgresql())
        login = _login(self.made.store)
        command = ["pg_restore", "--no-owner", "-d", login["PGDATABASE"], self.copy]
        subprocess.run(command, check=True, capture_output=True, env=login)
        return "restored"


def _login(url: str) -> dict[str, str]:
    """The environment with which PostgreSQL's programs find a database."""
    parts = make_url(url)
    said = {
        "PGHOST": parts.query.get("host") or parts.host,
        "PGPORT": parts.port,
        "PGUSER": parts.username,
        "PGPASSWORD": parts.password,
        "PGDATABASE": parts.database,
    }
    return {**os.environ, **{name: str(value) for name, value in said.items() if value}}


@contextmanager
def stored(kind: str, folder: Path) -> Iterator[Stored]:
    if kind == "postgres" and programs() is None:
        pytest.skip(WHY_NOT)
    with ExitStack() as stack:
        yield Sqlite(folder) if kind == "sqlite" else Postgres(stack, folder)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_restored_store_keeps_promises_and_history(
    account: None, cluster: Cluster, namespace: str, tmp_path: Path, kind: str
) -> None:
    with stored(kind, tmp_path) as store:
        service = store.service(cluster, tmp_path)
        there = Place(cluster, service, namespace)
        service.start()
        try:
            there.apply(there.job("ended", HARD, run_s=0.5), there.job("before", HARD))
            there.until_job("ended", complete, "finishes")
            there.until_job("before", running, "runs")
            there.until(lambda: outcomes(service, namespace).get("ended") == "kept", "it counts")
            store.back_up()
            there.apply(there.job("since", HARD))
            since = there.until_job("since", running, "runs")
            there.kubectl("delete", "job", "ended")
        finally:
            service.kill()
        service.start(store.lose_and_restore())
        try:
            there.apply(there.job("after", HARD, run_s=0.5))
            there.until_job("after", complete, "finishes")
            known = outcomes(service, namespace)
            assert known["ended"] == "kept", "only the store knows of it"
            assert {known["before"], known["since"]} == {""}
            now = there.get("since")
            assert verdict_of(now)["deadline_at"] == verdict_of(since)["deadline_at"]
            assert annotations(now)[names.STATUS] == annotations(since)[names.STATUS]
            assert [len(there.pods(name)) for name in ("before", "since")] == [1, 1]
        finally:
            service.stop()
