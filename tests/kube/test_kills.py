"""The service is killed with -9 at every step of acting: nothing is lost, nothing happens twice."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.kube.cluster import Cluster
from tests.kube.ground import ELASTIC, URGENT, WHENEVER, Ground, ground
from tests.kube.mortal import STEPS, End, Nursery
from tests.kube.replicas import Replica

pytestmark = pytest.mark.cluster


@pytest.fixture
def replica(account: None, cluster: Cluster, nursery: Nursery, tmp_path: Path) -> Iterator[Replica]:
    made = Replica(cluster, nursery, tmp_path / "service")
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_kills_while_acting_lose_nothing_and_do_nothing_twice(
    replica: Replica, cluster: Cluster, namespace: str
) -> None:
    """Around the journal, patches and events. Moves (resets) are rare, and for the soak."""
    steps = [step for step in STEPS if not step.endswith("reset")]
    killed_at_every_step(replica, cluster, namespace, kills=20, seed=20, elastic=3, steps=steps)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_kills_at_random_steps_lose_nothing_and_do_nothing_twice(
    replica: Replica, cluster: Cluster, namespace: str, seed: int
) -> None:
    killed_at_every_step(replica, cluster, namespace, kills=40, seed=seed, elastic=3)


def killed_at_every_step(
    replica: Replica, cluster: Cluster, namespace: str, *,
    kills: int, seed: int, elastic: int, steps: Sequence[str] = STEPS,
) -> None:  # fmt: skip
    """Jobs without end fill the cluster; `elastic` of them may be resized, all may be stopped."""
    rng = np.random.default_rng(seed)
    with ground(cluster, namespace, replica) as there:
        anchors = there.apply(16 - elastic, WHENEVER, run_s=None)
        anchors += there.apply(elastic, ELASTIC, run_s=None) if elastic else []
        for step in order(steps, kills, rng):
            nth = 1 if step.endswith("reset") else int(rng.integers(1, 5))
            replica.begin(End(step, nth))
            what = f"the service to die {step} {nth}"
            there.until(lambda: struck(there, replica, len(anchors)), what)
        replica.start()
        there.all_end(besides=anchors)
        there.until(lambda: there.running(anchors) == len(anchors), "those that gave way to go on")
        assert there.problems() == []


def order(steps: Sequence[str], kills: int, rng: np.random.Generator) -> list[str]:
    """Every step once, then any of them."""
    first = [str(step) for step in rng.permutation(steps)]
    return [*first, *(str(step) for step in rng.choice(steps, size=kills))][:kills]


def struck(there: Ground, replica: Replica, anchors: int) -> bool:
    """Whether it is dead; until then others have to give way to somebody new, again and again."""
    if len(there.jobs()) == there.applied and there.applied - anchors - there.ended() < 3:
        there.apply(4, URGENT, run_s=1.0)
    return replica.dead()
