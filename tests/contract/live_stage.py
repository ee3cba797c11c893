"""What stages of live Worlds have in common, on this machine and on Kubernetes."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

from laxity_k8s.cluster_api import ApiError, ClusterApi, Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.live import LiveWorld
from laxity_scheduler.model.cluster import ClusterState
from tests.contract.live_world_exam import manifest

PATIENCE_S = 60.0


class OpenStage(ABC):
    """Two nodes, a and b, of 4 GPUs; a pod runs until it is deleted."""

    def __init__(self) -> None:
        self.live = self.open()

    @abstractmethod
    def open(self) -> LiveCluster: ...

    @abstractmethod
    def template(self, *, stop_s: float = 0.0) -> Json: ...

    @property
    def world(self) -> LiveWorld:
        return self.live

    @property
    def api(self) -> ClusterApi:
        return self.live.api

    def another(self) -> LiveWorld:
        self.live.close()
        self.live = self.open()
        return self.live

    def submit(
        self, name: str, *, widths: Sequence[int] = (1, 2, 4), stop_s: float = 0.0, on: str = ""
    ) -> str:
        made = manifest(self, name, widths=",".join(map(str, widths)))
        made["spec"]["template"] = self.template(stop_s=stop_s)
        if on:
            made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
        self.live.submit(made)
        return f"default/{name}"

    def until(self, what: Callable[[ClusterState], bool], words: str) -> ClusterState:
        end_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_at:
            state = self.live.observe()
            if what(state) and self._settled(state):
                return state
            self.live.wait(1.0)
        raise AssertionError(f"not within {PATIENCE_S:.0f} s: {words}; {self.live.observe()}")

    def _settled(self, state: ClusterState) -> bool:
        """Every worker that should run is ready: only then does it wait for a stop signal."""
        for job in state.jobs:
            with suppress(ApiError):
                status = self.api.get("jobs", job.id).get("status", {})
                if job.workers and status.get("ready", 0) < job.workers:
                    return False
        return True
