"""Stores that are saved and restored, and what they then hold."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

from tests.support.builders import bearer
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.service import Json, Service


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.folder, self.copy = folder, folder / "copy"

    def service(self, cluster: Cluster, folder: Path) -> Service:
        return Service(cluster, folder)

    def back_up(self) -> None:
        self.copy.mkdir()
        command = f".backup {self.copy}/laxity.db"
        subprocess.run(["sqlite3", f"{self.folder}/home/laxity.db", command], check=True)

    def lose_and_restore(self) -> str:
        shutil.rmtree(self.folder / "home")
        self.copy.rename(self.folder / "restored")
        return "restored"


def outcomes(service: Service, namespace: str) -> dict[str, str]:
    """By name, of all jobs of the namespace that the service knows; "" while they run."""
    url = f"http://127.0.0.1:{service.port}/v1/jobs?namespace={namespace}"
    asked = urllib.request.Request(url, headers=bearer())
    with urllib.request.urlopen(asked, timeout=10) as reply:  # noqa: S310
        rows: list[Json] = json.load(reply)["jobs"]
    return {row["id"].partition("/")[2]: row["outcome"] for row in rows}
