"""`laxity chain` on a manifest, as a process of its own beside a test cluster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.support.chain_process import ChainProcess
from tests.support.kubernetes.cluster import Cluster

COMMAND: Final = Path(__file__).parents[1] / "programs" / "chaining_jobs.py"
PATIENCE_S: Final = 120.0
Json = dict[str, Any]


class JobChain(ChainProcess):
    """The chain of a manifest in a folder of its own; others have waited an hour before it."""

    def __init__(self, cluster: Cluster, manifest: Json, place: Path) -> None:
        self.cluster, self.namespace = cluster, str(manifest["metadata"]["namespace"])
        super().__init__(place)
        self._place = place
        self.kubeconfig = cluster.kubeconfig
        self.folder.mkdir()
        starts = {f"seen-{n}": [1_000_000.0 + n, 3_600.0] for n in range(10)}
        line = {"at": 1_000_000.0, "starts": starts}  # of earlier looks
        (self.folder / "queue.jsonl").write_text(json.dumps(line) + "\n")
        (place / "train.yaml").write_text(json.dumps(manifest))

    def start(
        self, *options: str, submission: str = "", limit: str = "30m"
    ) -> subprocess.Popen[bytes]:
        told = {"KUBECONFIG": str(self.kubeconfig), "SUBMISSION": submission}
        command = [sys.executable, str(COMMAND), str(self._place / "train.yaml")]
        command += ["--interval", "0.3s", "--wall-limit", limit, *options]
        return self.run(command, {**os.environ, **told})

    def jobs(self) -> dict[str, Json]:
        """By the number of their link and their try."""
        selector = "labelSelector=laxity.dev/chain"
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs?{selector}"
        jobs = (self.cluster.ask("GET", where) or {}).get("items") or []
        return {job["metadata"]["name"].split("-", 2)[2]: job for job in jobs}

    def pod_of(self, link: str) -> Json | None:
        """Its running pod."""
        pods = self.cluster.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return next(
            (
                pod
                for pod in pods
                if pod["metadata"]["labels"].get("laxity.dev/chain-link") == link
                and pod["status"].get("phase") == "Running"
            ),
            None,
        )

    def end_pod(self, link: str, code: int, reason: str = "", disrupted: str = "") -> None:
        """On a simulated node: the link's command has ended with this code.

        With a reason, the kubelet has ended it. `disrupted` is why its node was not to keep it.
        """
        ended = partial(self._end_pod, link, code, reason, disrupted)
        self.until(ended, f"link {link} runs, and its end is written down")

    def _end_pod(self, link: str, code: int, reason: str, disrupted: str) -> bool:
        """False where it does not run yet, or was changed by somebody else meanwhile."""
        pod = self.pod_of(link)
        if pod is None:
            return False
        status = pod["status"]
        ended = {"exitCode": code, "startedAt": status["startTime"]}
        ended |= {"finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        status["phase"] = "Failed" if code else "Succeeded"
        status["reason"] = reason
        if disrupted:
            target = {"type": "DisruptionTarget", "status": "True", "reason": disrupted}
            status.setdefault("conditions", []).append(target)
        for row in status["containerStatuses"]:
            row |= {"ready": False, "state": {"terminated": ended}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        return self.cluster.ask("PUT", f"{path}/status", pod) is not None

    def delete(self, name: str) -> None:
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}"
        assert self.cluster.ask("DELETE", where, {"propagationPolicy": "Background"})

    def until(self, condition: Callable[[], Any], words: str) -> Any:
        end_at = time.monotonic() + PATIENCE_S
        while not (answer := condition()):
            assert time.monotonic() < end_at, f"not within {PATIENCE_S:.0f} s: {words}"
            time.sleep(0.1)
        return answer
