"""A thousand poisoned Jobs beside ten honest ones, on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import open_world, stop_workers
from laxity_scheduler.live import Report
from tests.support.poison import delay_nobody

pytestmark = pytest.mark.slow
TEMPLATE = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "train",
                "command": ["sleep", "0"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
    }
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveCluster]:
    made = open_world(tmp_path, lambda _: Report(), nodes={"a": 800, "b": 800})
    yield made
    made.close()
    stop_workers(tmp_path)


def test_a_thousand_poisoned_jobs_delay_no_honest_one_by_more_than_two_cycles(
    world: LiveCluster,
) -> None:
    delay_nobody(world, "default", TEMPLATE)
