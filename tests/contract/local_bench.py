"""The local cluster as a Bench of the exams: pods are short Python programs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from laxity_k8s.cluster_api import Json
from laxity_k8s.local.local_cluster import LocalCluster, stop_workers
from tests.support.manifests import train_template

# Runs for argv[1] seconds (-1: until stopped) and takes argv[2] seconds to stop, once its log says so.
PROGRAM = """
import os, signal, sys, threading
run_s, stop_s = float(sys.argv[1]), float(sys.argv[2])
told = threading.Event()
def stop(*_):
    told.set()
signal.signal(signal.SIGTERM, stop)
print(os.getpid(), flush=True)
if told.wait(None if run_s < 0 else run_s):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait(stop_s)
    sys.exit(143)
"""


def template(*, run_s: float | None = None, stop_s: float = 0.0, gpus: int = 1) -> Json:
    program = [
        sys.executable,
        "-S",
        "-c",
        PROGRAM,
        str(-1 if run_s is None else run_s),
        str(stop_s),
    ]
    made = train_template(gpus, command=program)
    made["spec"]["terminationGracePeriodSeconds"] = 30
    return made


@dataclass(frozen=True)
class LocalBench:
    api: LocalCluster

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        return template(run_s=run_s, stop_s=stop_s)


@contextmanager
def local_bench(home: Path) -> Iterator[LocalBench]:
    """A cluster of two nodes with 6 GPUs each; nothing is left behind."""
    api = LocalCluster(home, {"a": 6, "b": 6})
    try:
        yield LocalBench(api)
    finally:
        api.close()
        stop_workers(home)
