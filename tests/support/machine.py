"""A machine with four slots, on which programs run as workers of Jobs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laxity import names
from laxity.backoff import Backoff
from laxity_k8s.cluster_api import Json
from laxity_k8s.local.local_cluster import LocalCluster
from laxity_k8s.objects.conditions import read_condition
from tests.support.waiting import Eyes


class Machine:
    """A local cluster of one node with 4 slots, and programs to run on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.open()

    def open(self, nodes: dict[str, int] | None = None, gpus: Sequence[str] = ()) -> None:
        self.api = LocalCluster(
            self.home,
            nodes or {"local": 4},
            gpus=gpus,
            given={names.ENV_URL: "http://service"},
            backoff=Backoff(first_s=0.01, longest_s=0.02),
        )

    def run(self, name: str, program: str, *arguments: str, width: int = 1, **more: Any) -> str:
        container = {
            "name": "train",
            "command": [sys.executable, "-S", "-c", program, *arguments],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            **more.pop("container", {}),
        }
        made = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": more.pop("annotations", {})},
            "spec": {
                "completionMode": "Indexed",
                "parallelism": width,
                "completions": width,
                "podReplacementPolicy": "Failed",
                "template": {
                    "metadata": {"annotations": {"note": "hello", names.WORKER_TOKEN: "secret"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": more.pop("grace_s", 10),
                        "containers": [container],
                        **more.pop("pod", {}),
                    },
                },
                **more,
            },
        }
        self.api.create("jobs", made)
        return f"default/{name}"

    def log(self, job_id: str, index: int = 0) -> str:
        path = Path(self.api.log_path(job_id, index))
        return path.read_text() if path.exists() else ""

    def complete(self, job_id: str) -> Json:
        """The Job once it is."""

        def found() -> Json | None:
            job = eyes.job(job_id)
            return job if read_condition(job, "Complete") == "True" else None

        with Eyes(self.api) as eyes:
            return eyes.until(found, f"{job_id} completes")
