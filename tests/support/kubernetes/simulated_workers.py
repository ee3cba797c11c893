"""The voice of simulated workers: their pods run nothing, so a test reports for them.

It says that they have formed, parks those that are asked to stop at once, and re-forms those that
are asked to shrink; lines are kept until a service has taken them, as a real worker keeps them.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any

from laxity import names
from tests.support.builders import bearer
from tests.support.kubernetes.history import History, annotations, ended, labels, over, owner

Json = dict[str, Any]
LOOK_S = 0.1


class SimulatedWorkers:
    """Speaks for every Job of a history until closed. `urls` are the services that may be there."""

    def __init__(self, history: History, urls: Callable[[], Sequence[str]]) -> None:
        self._history, self._urls = history, urls
        self._lines: defaultdict[str, list[Json]] = defaultdict(list)
        self._said: dict[str, tuple[Any, ...]] = {}
        self._seq: dict[str, int] = {}
        self._over = threading.Event()
        self.silent = False  # workers that cannot reach the service
        self._thread = threading.Thread(target=self._run, name="simulated_workers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def tell_state(self) -> str:
        """What it saw and what no service has taken, for the report of a failed test."""
        jobs, pods = self._history.now()
        phases = Counter((owner(pod), pod["status"].get("phase")) for pod in pods)
        seen = {
            job["metadata"]["name"]: {
                "said": self._said.get(uid := job["metadata"]["uid"]),
                "not taken": self._lines[uid],
                "pods": {phase: many for (one, phase), many in phases.items() if one == uid},
            }
            for job in jobs
        }
        return f"the thread runs: {self._thread.is_alive()}; {json.dumps(seen)}"

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            if self.silent:
                continue
            jobs, pods = self._history.now()
            for job in jobs:
                if names.MANAGED in labels(job):
                    self._think(job, pods)
            for job in jobs:
                self._hand_in(job)

    def _think(self, job: Json, pods: Sequence[Json]) -> None:
        """What its workers would say now, if it is news."""
        uid, spec = job["metadata"]["uid"], job["spec"]
        alive = [
            pod
            for pod in pods
            if owner(pod) == uid and not over(pod) and "deletionTimestamp" not in pod["metadata"]
        ]
        running = sum(pod["status"].get("phase") == "Running" for pod in alive)
        said: tuple[Any, ...] | None = None
        if spec.get("suspend") or ended(job):
            said = ("gone",)
        elif names.STOP in annotations(job) and uid in self._said:
            said = ("parked", annotations(job)[names.STOP])
        elif names.RESIZE_TO in annotations(job):
            said = ("formed", int(annotations(job)[names.RESIZE_TO]))
        elif running == spec["parallelism"]:
            said = ("formed", running)
        if said is None or self._said.get(uid) == said:
            return
        self._said[uid] = said
        if said[0] != "gone":
            self._say(uid, said[0], {"width": said[1]} if said[0] == "formed" else {})

    def _say(self, uid: str, kind: str, more: Json) -> None:
        self._seq[uid] = seq = self._seq.get(uid, 0) + 1
        line = {"seq": seq, "kind": kind, "at": time.time(), "epoch": 0, **more}
        self._lines[uid].append(line)

    def _hand_in(self, job: Json) -> None:
        meta = job["metadata"]
        lines = self._lines[meta["uid"]]
        shown = job["spec"]["template"].get("metadata", {}).get("annotations") or {}
        token = shown.get(names.WORKER_TOKEN, "")
        where = f"/v1/jobs/{meta['namespace']}/{meta['name']}/signal"
        body = json.dumps({"reports": lines, "uid": meta["uid"]}).encode()
        for url in self._urls() if lines else ():
            asked = urllib.request.Request(  # noqa: S310 - http on loopback
                url + where,
                data=body,
                headers={"Content-Type": "application/json", **bearer(token)},
            )
            try:
                with urllib.request.urlopen(asked, timeout=5) as reply:  # noqa: S310
                    acked = json.load(reply)["acked"]
            except urllib.error.HTTPError as refused:
                refused.close()  # it holds the connection
            except (OSError, HTTPException, ValueError):
                continue
            else:
                lines[:] = [line for line in lines if line["seq"] > acked]
                return
