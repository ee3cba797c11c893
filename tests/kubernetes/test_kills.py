"""The service is killed with -9 at every step of acting: nothing is lost, nothing happens twice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.killable_services import STEPS, End, ServiceForker
from tests.support.kubernetes.namespace_jobs import (
    ELASTIC,
    URGENT,
    WHENEVER,
    NamespaceJobs,
    open_namespace_jobs,
)
from tests.support.kubernetes.replicas import Replica

pytestmark = pytest.mark.cluster

# Of the urgent jobs. They are more than a node has GPUs: else those who give way could all be of one
# node, and would never find their GPUs on another one.
RUN_S = (0.4, 0.8, 1.2, 1.6, 2.0, 2.4)
FEWEST = 5


@pytest.fixture
def replica(
    account: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Path
) -> Iterator[Replica]:
    made = Replica(cluster, service_forker, tmp_path / "service")
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_kills_while_acting_lose_nothing_and_do_nothing_twice(
    replica: Replica, cluster: Cluster, namespace: str
) -> None:
    killed_at_every_step(replica, cluster, namespace, kills=20, seed=20, elastic=3)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_kills_at_random_steps_lose_nothing_and_do_nothing_twice(
    replica: Replica, cluster: Cluster, namespace: str, seed: int
) -> None:
    killed_at_every_step(replica, cluster, namespace, kills=40, seed=seed, elastic=3)


def killed_at_every_step(
    replica: Replica, cluster: Cluster, namespace: str, *, kills: int, seed: int, elastic: int
) -> None:
    """Jobs without end fill the cluster; `elastic` of them may be resized, all may be stopped."""
    rng = np.random.default_rng(seed)
    with open_namespace_jobs(cluster, namespace, replica) as there:
        anchors = there.apply(16 - elastic, WHENEVER, run_s=None)
        anchors += there.apply(elastic, ELASTIC, run_s=None) if elastic else []
        waves = Waves(there, anchors, rng)
        for step in order(kills, rng):
            nth = 1 if step.endswith("reset") else int(rng.integers(1, 5))
            replica.begin(End(step, nth))
            there.until(lambda: waves.struck(replica), f"the service to die {step} {nth}")
        replica.start()
        there.all_end(besides=anchors)
        there.until(lambda: there.running(anchors) == len(anchors), "those that gave way to go on")
        assert there.problems() == []


def order(kills: int, rng: np.random.Generator) -> list[str]:
    """Every step once, then any of them."""
    first = [str(step) for step in rng.permutation(STEPS)]
    return [*first, *(str(step) for step in rng.choice(STEPS, size=kills))][:kills]


@dataclass(frozen=True)
class Waves:
    """Somebody urgent comes again and again, and others have to give way.

    Each wave waits until those who gave way run again, else they never would: it is then that they
    move. They find GPUs in another order than they left them, as the urgent take differently long.
    """

    there: NamespaceJobs
    anchors: Sequence[str]
    rng: np.random.Generator

    def struck(self, replica: Replica) -> bool:
        """Whether it is dead; until then the next wave is sent when the last one is over."""
        if replica.dead():
            return True
        if self._calm():
            for run_s in self.rng.permutation(RUN_S)[: self.rng.integers(FEWEST, len(RUN_S) + 1)]:
                self.there.apply(1, URGENT, run_s=float(run_s))
        return False

    def _calm(self) -> bool:
        there = self.there
        seen = len(there.jobs()) == there.applied
        over = there.ended() == there.applied - len(self.anchors)
        return seen and over and there.running(self.anchors) == len(self.anchors)
