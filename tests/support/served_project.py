"""A service that trains the functions of a project."""

import json
import subprocess
import sys
from pathlib import Path

from laxity import names
from laxity.api.client import Client, JobView
from tests.support.processes import ServerProcesses, free_ports, service_environment
from tests.support.waiting import until


class Served:
    """A service in a folder of its own, and `laxity` called in the folder of a project."""

    slots = 2

    def __init__(
        self,
        home: Path,
        *,
        prefect_api: str = "http://127.0.0.1:9/api",
        tracking_uri: str = "none",
        **env: str,
    ) -> None:
        (self.port,) = free_ports(1)
        url = f"http://127.0.0.1:{self.port}"
        environment = service_environment(home, service_url=url, prefect_url=prefect_api)
        self.home, self.client = home, Client(url, environment[names.ENV_TOKEN], patience_s=60)
        environment |= {"MLFLOW_TRACKING_URI": tracking_uri, "LAXITY_SAVING_SHARE": "1"} | env
        self.environment = environment
        self.processes = ServerProcesses(home, {**environment, "STORE_PASSWORD": "hidden"})
        self.start()

    def start(self) -> None:
        place = ["--slots", str(self.slots), "--port", str(self.port)]
        serve = ["-m", "laxity.cli.main", "serve", *place]
        process = self.processes.start("service", [sys.executable, *serve])
        until(lambda: self.client.alive() or process.poll() is not None, limit_s=180, what="it")

    def kill(self) -> None:
        self.processes.running["service"].kill()
        self.processes.running["service"].wait()

    def laxity(self, *arguments: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [Path(sys.executable).with_name("laxity"), *arguments],
            env={**self.environment, **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def ended(self, job: str) -> JobView:
        until(lambda: self.client.job(job).ended, limit_s=120, what=f"the end of {job}")
        return self.client.job(job)

    def reported_epochs(self, name: str) -> dict[str, list[int]]:
        """By file, the epochs that were reported in the folder of a training."""
        (place,) = (self.home / "checkpoints" / "default").glob(f"{name}-????????")
        return {
            path.name: [
                line["epoch"]
                for line in map(json.loads, path.read_text().splitlines())
                if line["kind"] == "epoch"
            ]
            for path in place.glob("reports*.jsonl")
        }
