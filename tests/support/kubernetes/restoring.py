"""Stores that are saved and restored, and what they then hold."""

import shutil
import subprocess
from pathlib import Path

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
    rows: list[Json] = service.ask("GET", f"/v1/jobs?namespace={namespace}").json()["jobs"]
    return {row["id"].partition("/")[2]: row["outcome"] for row in rows}
