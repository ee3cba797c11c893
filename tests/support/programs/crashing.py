"""A service that dies: works on a local cluster and kills itself at the n-th call of our own code.

Run as `python -m tests.support.programs.crashing HOME SEED DIE_AT`; DIE_AT 0 means never.
"""

import os
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from laxity_k8s.cluster_api import ApiError, Json, Patch
from laxity_k8s.local.local_cluster import LocalCluster
from tests.support.manifests import indexed_job, train_template
from tests.support.waiting import Eyes

JOBS = ("one", "two", "three")
STEPS = 12
# Notes that it was born, then waits for its stop.
WORKER = """
import os, signal, sys, threading
births = os.path.join(os.environ["BIRTHS"], os.environ["LAXITY_POD"])
with open(births, "a") as file:
    file.write(f"{os.getpid()}\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.pause()
"""


def dying(at: int) -> None:
    """From now on count calls into laxity_k8s, in all threads; at the n-th, SIGKILL."""
    left = [at]

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "laxity_k8s" in frame.f_code.co_filename:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count)
    sys.setprofile(count)


def opened(home: Path) -> LocalCluster:
    births = home / "births"
    births.mkdir(parents=True, exist_ok=True)
    return LocalCluster(home, {"here": 6}, given={"BIRTHS": str(births)})


def manifest(name: str) -> Json:
    template = train_template(command=[sys.executable, "-S", "-c", WORKER])
    template["spec"]["terminationGracePeriodSeconds"] = 10
    return indexed_job(name, template, labels={})


def wanted(job: Json) -> int:
    spec = job.get("spec", {"suspend": True})
    return 0 if spec["suspend"] else int(spec["parallelism"])


def settled(eyes: Eyes) -> bool:
    """Each Job has exactly the pods that it wants, all ready."""
    return all(
        len(eyes.pods(f"default/{name}"))
        == eyes.job(f"default/{name}").get("status", {}).get("ready", 0)
        == wanted(eyes.job(f"default/{name}"))
        and not eyes.job(f"default/{name}").get("status", {}).get("terminating")
        for name in JOBS
    )


def step(api: LocalCluster, rng: random.Random) -> None:
    name, width = rng.choice(JOBS), rng.randint(1, 2)
    changes = {"suspend": rng.random() < 0.4, "parallelism": width, "completions": width}
    try:
        api.patch(Patch("jobs", f"default/{name}", {"spec": changes}))
    except ApiError as error:
        if error.status != 404:
            raise
        api.create("jobs", manifest(name))


def main(home: Path, seed: int, die_at: int) -> None:
    rng = random.Random(seed)
    if die_at:
        dying(die_at)
    api = opened(home)
    with Eyes(api) as eyes:
        for _ in range(STEPS):
            step(api, rng)
            if rng.random() < 0.5:
                eyes.until(lambda: settled(eyes), "settled")
    api.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
