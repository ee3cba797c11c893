"""Services with a store each on one cluster: one acts, whichever stores they have."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from laxity.cli.exit_codes import FAILED
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import LAXITY
from tests.support.processes import run_command

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]

PATIENCE_S = 60.0
Open = Callable[..., Replica]


@pytest.fixture
def opens(account: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Path) -> Open:
    """Makes services with an SQLite file each; the first of a test finds no lease."""
    cluster.drop_lease()

    def make(name: str, *, lease_s: float) -> Replica:
        store = f"sqlite:///{tmp_path}/{name}.db"
        return Replica(cluster, service_forker, tmp_path / name, store=store, lease_s=lease_s)

    return make


def test_a_second_service_with_its_own_store_exits_and_says_who_acts(
    opens: Open, cluster: Cluster, tmp_path: Path
) -> None:
    with opens("one", lease_s=5.0) as one:
        until(cluster, one.leads, "the first to lead")
        env = opens("other", lease_s=5.0).env
        ended = run_command(str(LAXITY), "serve", "--world", "kubernetes", "--port", "0", "--tracking-uri", "none", env={**os.environ, **env}, timeout=90)  # fmt: skip
        last_line = ended.stderr.splitlines()[-1]
        assert ended.returncode == FAILED
        assert last_line.startswith(f"error: {one.said()['leader']} acts on this cluster")
        assert last_line.endswith(
            "(lease laxity in namespace laxity): stop that service, or use its LAXITY_STORE"
        )
        assert one.leads()


def test_a_killed_service_leads_again_at_once_with_its_store(opens: Open, cluster: Cluster) -> None:
    one = opens("one", lease_s=3600.0)
    for _ in range(2):
        with one:  # and killed
            until(cluster, one.leads, "it to lead, an hour before its lease is over")


def test_a_service_ends_when_another_store_has_taken_its_lease_while_it_was_paused(
    opens: Open, cluster: Cluster
) -> None:
    one, other = opens("one", lease_s=3.0), opens("other", lease_s=3.0)
    with one:
        until(cluster, one.leads, "the first to lead")
        assert one.life is not None
        one.life.send(signal.SIGSTOP)
        with other:
            until(cluster, other.leads, "the second to take over what nobody renews")
            one.wake()
            until(cluster, one.dead, "the first to end")
            last_line = one.log.read_text().splitlines()[-1]
            assert last_line.startswith(f"error: {other.said()['leader']} acts on this cluster")
            assert other.leads()


def until(cluster: Cluster, is_so: Callable[[], bool], what: str) -> None:
    cluster.until(is_so, PATIENCE_S, what)
