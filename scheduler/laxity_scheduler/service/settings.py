"""The options of a service: where it listens, what it keeps, how it decides."""

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from laxity.api.client import home_folder as default_home
from laxity.safe_text import without_secrets
from laxity.worker.mlflow_tracking import TRAINING_VIEW
from laxity_scheduler.model.job import HOUR_S

PORT: Final = 8642
MAX_SLOTS: Final = 4096  # each is a worker process of this machine
ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.*\-\[\]:]+")
NO_TRACKING: Final = "none"
POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(ValueError):
    """An option of the service does not make sense: which one, and what would."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All options with their defaults. `budgets` are promised GPU-seconds by namespace."""

    home: Path = field(default_factory=default_home)
    world: str = "local"
    slots: int | None = None
    inference_slots: int = 0  # of this machine, lent as an inference process says
    host: str = "127.0.0.1"
    port: int = PORT
    store: str = ""
    policy: str = "qos"
    tracking_uri: str = ""
    webhook: str = ""
    prefect_api: str = ""  # told of flow runs that are Jobs
    budgets: Mapping[str, float] | None = None
    kept_cycles: int = 20_000
    kept_mb: int = 500  # of cycles and decisions
    kept_days: float = 30.0  # ended jobs, from their end
    least_interval_s: float = 0.2  # between the starts of two cycles
    longest_sleep_s: float = 30.0  # between cycles without news
    shared_sleep_s: float = 3.0  # ... where workers may have told another replica
    lease_s: float = 15.0  # a leader among replicas that is silent for so long is replaced
    pods_within_s: float = 60.0  # pods that do not all run by then are not waited for
    pools: str = ""  # of nodes that an autoscaler adds, as YAML
    public_url: str = ""
    embed_origins: str = ""  # that may show the page in a frame, by spaces
    log_format: str = "text"  # or json: an object a line
    log_level: str = "info"  # of laxity's own loggers

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise SettingsError(f"port {self.port} is not between 0 and 65535")
        if self.slots is not None and not 1 <= self.slots <= MAX_SLOTS:
            raise SettingsError(f"slots must be 1 to {MAX_SLOTS}, got {self.slots}")
        if not 0 <= self.inference_slots <= MAX_SLOTS:
            raise SettingsError(
                f"inference slots must be 0 to {MAX_SLOTS}, got {self.inference_slots}"
            )
        if self.inference_slots and self.world != "local":
            raise SettingsError(
                f"world {self.world} has no inference slots: label its nodes laxity.dev/pool=inference"
            )
        if self.pools.strip() and self.world != "kubernetes":
            raise SettingsError(f"world {self.world} has no pools that scale: leave --pools out")
        self._check_addresses()
        if self.lease_s < 1.0:
            raise SettingsError(f"a lease must be at least 1 s long, got {self.lease_s:g}")
        if not 1.0 <= self.pods_within_s < math.inf:
            raise SettingsError(f"pods need at least 1 s to start, got {self.pods_within_s:g}")

    def _check_addresses(self) -> None:
        for name, url in (("public-url", self.public_url), ("webhook", self.webhook)):
            if url and not url.startswith(("http://", "https://")):
                raise SettingsError(f"--{name} {without_secrets(url)!r}: write http://HOST:PORT")
        for origin in self.embed_origins.split():
            if not ORIGIN.fullmatch(origin):
                raise SettingsError(f"--embed-origins {origin!r}: write http://HOST:PORT, no path")

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{self.home}/laxity.db"

    @property
    def tracking_url(self) -> str:
        """The MLflow store; "" for none."""
        if self.tracking_uri == NO_TRACKING:
            return ""
        return self.tracking_uri or f"sqlite:///{self.home}/mlflow.db"

    def run_url(self, experiment: str, run_id: str) -> str:
        """The page of a run on the MLflow server; "" without a server, or for no run."""
        server = without_secrets(self.tracking_url).rstrip("/")
        if not server.startswith(("http://", "https://")) or not experiment or not run_id:
            return ""
        page = f"{server}/#/experiments/{quote(experiment, safe='')}"
        return f"{page}/runs/{quote(run_id, safe='')}?{TRAINING_VIEW}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def service_url(self, port: int) -> str:
        """The address that workers and clients are given."""
        if not self.public_url and self.world == "kubernetes" and POD_NAMESPACE.exists():
            return f"http://laxity.{POD_NAMESPACE.read_text().strip()}.svc:{port}"
        host = "127.0.0.1" if self.host in ("0.0.0.0", "", "::") else self.host  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return self.public_url or f"http://{shown}:{port}"


def parse_budgets(texts: list[str]) -> dict[str, float] | None:
    """`NAMESPACE=GPU_HOURS` texts as GPU-seconds by namespace; None if there are none."""
    budgets: dict[str, float] = {}
    for text in texts:
        namespace, _, hours = text.partition("=")
        try:
            budgets[namespace] = float(hours) * HOUR_S
        except ValueError:
            raise SettingsError(f"budget {text!r}: write NAMESPACE=GPU_HOURS") from None
        if not namespace or not budgets[namespace] >= 0:
            raise SettingsError(f"budget {text!r}: write NAMESPACE=GPU_HOURS, 0 or more")
    return budgets or None
