"""What one worker process is told by whoever started it: which job, which index, where things are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity import names
from laxity.job import signal as orders

CHECKPOINTS: Final = Path("/checkpoints")  # where pods have them if nothing else is said
REPORTS: Final = "reports.jsonl"
SAVING_SHARE: Final = 0.05  # of the time; checkpoints that would take more are spaced
_ORDERS: Final = f"{orders.FOLDER}/{orders.FILE}"


class WorkerEnvironmentError(ValueError):
    """The environment of a worker is incomplete or contradicts itself."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """Read once from the environment. `job` is "" when nobody schedules this training."""

    job: str = ""
    uid: str = ""
    training: str = ""  # uid of the Job that it began with: in its folder this one goes on
    index: int = 0
    url: str = ""
    token: str = ""
    folder: Path | None = None
    epochs: int | None = None
    model: str = ""
    saving_share: float = SAVING_SHARE
    host: str = ""  # where worker 0 can be reached; "" is this machine only
    tracking_uri: str = ""
    launcher: str = (
        ""  # "torch": the worker gets RANK, WORLD_SIZE, ... before its function is called
    )
    orders: Path | None = None  # the signal as a file, where the service is out of reach
    resumes: bool = False  # the training code keeps its own state

    @property
    def reports_file(self) -> str:
        return reports_file_of(self.uid, training=self.training)

    def run_tags(self) -> dict[str, str]:
        """Tags of its MLflow run. A training that nobody schedules is known by its folder."""
        uid = self.uid or (str(self.folder.resolve()) if self.folder else "")
        return {names.TAG_JOB: self.job, names.TAG_UID: uid, names.TAG_MODEL: self.model}

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "WorkerEnvironment":
        job = environ.get(names.ENV_JOB, "")
        folder = environ.get(names.ENV_CHECKPOINTS, "") or (
            find_mounted_folder(environ) if job else ""
        )
        if job and not folder:
            raise WorkerEnvironmentError(
                f"{names.ENV_JOB}={job} but {names.ENV_CHECKPOINTS} is not set, and there is no "
                f"volume at {CHECKPOINTS}: "
                "a job needs a folder for its checkpoints, the same for all its workers"
            )
        return cls(
            job=job,
            uid=environ.get(names.ENV_JOB_UID, ""),
            training=environ.get(names.ENV_TRAINING) or environ.get(names.ENV_JOB_UID, ""),
            index=(_whole_number(environ, names.ENV_INDEX, least=0) or 0) if job else 0,
            url=environ.get(names.ENV_URL, "").rstrip("/") if job else "",
            token=environ.get(names.ENV_TOKEN, ""),
            folder=Path(folder) if folder else None,
            epochs=_whole_number(environ, names.ENV_EPOCHS, least=1),
            model=environ.get(names.ENV_MODEL, ""),
            saving_share=saving_share(environ),
            host=environ.get(names.ENV_POD_IP, ""),
            tracking_uri=_tracking_uri(environ),
            launcher=environ.get(names.ENV_LAUNCHER, "") if job else "",
            orders=Path(environ.get(names.ENV_SIGNAL) or _ORDERS) if job else None,
            resumes=says_resumes(environ),
        )


def reports_file_of(uid: str, *, training: str) -> str:
    """The file of a Job's reports: each attempt at a training has its own, all in one folder."""
    return REPORTS if uid == training else f"reports-{uid}.jsonl"


def find_mounted_folder(environ: Mapping[str, str]) -> str:
    """The training's folder on the volume that is mounted for checkpoints; "" if there is none."""
    uid = environ.get(names.ENV_TRAINING) or environ.get(names.ENV_JOB_UID, "")
    return str(CHECKPOINTS / uid) if uid and CHECKPOINTS.is_dir() else ""


def _tracking_uri(environ: Mapping[str, str]) -> str:
    """Where this worker logs; "" if nowhere, or if the service logs what the workers report.

    A short training on a small machine is faster so: importing MLflow costs each start 3 s of CPU.
    """
    if environ.get(names.ENV_JOB) and environ.get(names.ENV_TRACKED_BY) == "service":
        return ""
    return environ.get("MLFLOW_TRACKING_URI", "")


def _whole_number(environ: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise WorkerEnvironmentError(f"{name}={text!r}: expected a whole number, {least} or more")
    return int(text)


def says_resumes(environ: Mapping[str, str]) -> bool:
    """Whether the training code keeps its own state; WorkerEnvironmentError if that is no answer."""
    text = environ.get(names.ENV_RESUMES, "").strip() or "false"
    if text not in {"true", "false"}:
        raise WorkerEnvironmentError(f"{names.ENV_RESUMES}={text!r}: expected true or false")
    return text == "true"


def saving_share(environ: Mapping[str, str]) -> float:
    """The share of the time that checkpoints may take; WorkerEnvironmentError if it is none."""
    text = environ.get(names.ENV_SAVING_SHARE, "").strip() or str(SAVING_SHARE)
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise WorkerEnvironmentError(
            f"{names.ENV_SAVING_SHARE}={text!r}: expected a share of the time, above 0 and at most 1"
        )
    return share
