"""The live World as the service asks for it, and what workers and the service tell each other."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from laxity.job.signal import Signal
from laxity_profiler.history.report_fold import Report as Report  # noqa: PLC0414 - what a world asks for
from laxity_profiler.history.script_posts import ScriptPod
from laxity_scheduler.engine import World
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.loans.inference_waits import InferenceWaits
from laxity_scheduler.model.cluster import NodeSet
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.pool_arrivals import PoolArrivals
from laxity_scheduler.model.reasons import Reason

Manifest = Mapping[str, Any]  # JSON of a batch/v1 Job


Reports = Callable[[str], Report]  # by the Job's uid


class Released(NamedTuple):
    """The number of released Jobs, the ids of those that stay suspended.

    `refused` says of each Job that could not be released why, `nodes_refused` of each lent node that
    could not be given back.
    """

    jobs: int
    suspended: tuple[str, ...] = ()
    refused: Mapping[str, str] = MappingProxyType({})
    nodes_refused: Mapping[str, str] = MappingProxyType({})


class Preview(NamedTuple):
    """A Job that does not exist yet, as the next snapshot would show it.

    `nodes` is the set that its row names. Where the world itself would refuse it: how.
    """

    row: Job
    nodes: NodeSet
    refusal: Refusal | None = None


class WorldModule(Protocol):
    """The module of an installed world, which an entry point names."""

    def open_world(
        self, home: Path, reports: Reports, *,
        slots: int | None, inference_slots: int, url: str,
        worker_token: Callable[[str], str], fit_within_s: float, pools: str, faults: JobFaults,
    ) -> "LiveWorld": ...  # fmt: skip

    def open_lease(self, world: Any, home: Path, *, store_id: str, lease_s: float) -> Any:
        """Elect one of all services of this world; None: the store's lock decides who acts."""

    def stop_workers(self, home: Path) -> int:
        """Stop the workers on this machine; how many there were."""


class UnknownJobError(KeyError):
    """No job of that name."""


class DuplicateJobError(ValueError):
    """Another job of that name exists (with another idempotency key, or none)."""


class JobError(RuntimeError):
    """The World failed because of one Job that it cannot leave out by itself."""

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(f"{job_id}: {problem}")
        self.job_id, self.problem = job_id, problem


class LiveWorld(World, Protocol):
    """A World with users: jobs are submitted, queried, changed and cancelled.

    Ids are "namespace/name". Manifests and Jobs are batch/v1 JSON, the truth about each job.
    `cycle` is the number of the next cycle; it is written onto the Jobs that the cycle changes.
    `stale_reason` says why Jobs and pods of the last snapshot may be of different times, in which case
    nothing can be decided; "" if they are of one time. `demand_history` is what its inference fleet
    needed: each snapshot adds to it, and the service keeps it across restarts. `sees_inference`: whether
    its snapshots show that need; else nothing is lent until the fleet says how much.
    `inference_waits` are those of its pods. `pool_arrivals` is how long nodes took to come, kept likewise.
    """

    cycle: int
    stale_reason: str
    demand_history: DemandHistory
    pool_arrivals: PoolArrivals
    inference_waits: InferenceWaits
    sees_inference: bool

    @property
    def patch_outcomes(self) -> Mapping[str, int]:
        """How many patches were sent, by what became of them: "done", or the status of a refusal."""

    def adopt(self, knows: Callable[[dict[str, Any]], bool]) -> None:
        """Take over Jobs whose verdicts were written before the world's key; `knows` such a verdict."""

    def reject(self, job_id: str, problem: str) -> None:
        """Leave this Job out of what is observed until its object is changed by somebody else.

        The problem is its reason on the Job.
        """

    def find_left_out(self) -> Mapping[str, Reason]:
        """Why Jobs are left out of what was observed last, by their ids."""

    def find_undone(self) -> Mapping[str, str]:
        """Jobs on which the cluster refused to write the last plan, and why, by their ids.

        "": it may have refused because it has just started, and is asked again at once.
        """

    def submit(self, manifest: Manifest, cancelled: Sequence[Manifest] = ()) -> dict[str, Any]:
        """Create the Job, suspended and labelled; the same idempotency key attaches to it.

        It goes on from `cancelled` Jobs of its key that are no longer there.
        """

    def preview(self, manifest: Manifest, now: float) -> Preview:
        """What `submit` at `now` would add to the snapshot. QoSError if it would not create the Job."""

    def jobs(self) -> Sequence[dict[str, Any]]:
        """All Jobs with laxity's label, finished ones too."""

    def job(self, job_id: str) -> dict[str, Any]:
        """One Job; UnknownJobError."""

    def annotate(self, job_id: str, annotations: Mapping[str, str | None]) -> dict[str, Any]:
        """Merge-patch annotations (None removes one), whatever the resourceVersion."""

    def warn(self, problem: str, job_id: str = "") -> None:
        """Report to the cluster's operators that cycles fail; about this Job, if one is known."""

    def tell(self, job_id: str, notice: Reason) -> None:
        """Report on this Job what its readers should know, though nothing is decided about it."""

    def cancel(self, job_id: str) -> None:
        """Delete the Job and its pods. A finished or unknown Job is no error."""

    def signal(self, job_id: str) -> Signal: ...

    def script_pod(self, job_id: str, name: str = "") -> ScriptPod | None:
        """The pod of a script that speaks for its Job, if it is the one of this name; UnknownJobError."""

    def log_path(self, job_id: str, index: int) -> str | None:
        """Where a worker's output is kept on this machine, if it is."""

    def reports_path(self, job_id: str) -> str | None:
        """Where worker 0 of a Job writes its reports, if that is on this machine; UnknownJobError."""

    def logs(self, job_id: str, index: int) -> str: ...

    def wait(self, timeout_s: float) -> bool:
        """Return as soon as something changed (True) or after the time (False). Wakeable."""

    def wake(self) -> None:
        """Make the running or the next `wait` return: something has changed."""

    def release(self) -> Released:
        """Drop label and annotations of all Jobs, and start none of them."""

    def close(self) -> None:
        """Stop watching. Workers go on."""
