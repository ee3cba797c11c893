"""Everything that real pods train against: a cluster with a real node, the service, MLflow.

A flow is called here as its user would call it, in this process, against a real Prefect API. Its
workers are containers on the node `localhost`; they reach MLflow and the service over the host's
network, and their checkpoints lie in a folder of the host.
"""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from laxity import deadline_flow, names
from laxity.api.client import Client
from laxity.api.job_view import JobView
from laxity.instants import format_instant
from tests.support.builders import TOKEN
from tests.support.job_workers import whole_lines
from tests.support.kubernetes.cluster import DIES_WITH_US, MUTATES, Cluster
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.realnode import IMAGE, Host, RealNode
from tests.support.kubernetes.service import Service
from tests.support.mlflow_store import copy_store
from tests.support.processes import free_ports
from tests.support.programs import podtrainings

MANIFESTS: Final = Path(__file__).parents[3] / "k8s" / "manifests"
GPUS: Final = 3
SLACK_S: Final = 15.0
PATIENCE_S: Final = 240.0  # pods import Prefect and MLflow, on a machine that may be busy
Json = dict[str, Any]
Function = Callable[..., Json]


class PodCluster:
    """One cluster, one service, one MLflow server."""

    def __init__(self, binaries: Path, folder: Path, blank_mlflow: Path) -> None:
        self.folder, self._blank_mlflow = folder, blank_mlflow
        self.cluster = Cluster(binaries, folder / "cluster")
        self.node = RealNode(self.cluster, gpus=GPUS)
        self.tracking_uri = f"http://127.0.0.1:{free_ports(1)[0]}"
        self.host = Host(folder)
        self.service: Service | None = None
        self._mlflow: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        self._mlflow = self._start_mlflow()  # it needs longest, so it is waited for last
        self.cluster.up(api_flags=MUTATES)
        for name in ("base/namespace", "base/rbac", "base/account", "cluster-wide/binding"):
            kubectl(self.cluster, "apply", "-f", str(MANIFESTS / f"{name}.yaml"))
        self.node.up()
        self.cluster.until(self._mlflow_answers, 240.0, "MLflow")
        (self.folder / "service").mkdir()
        self.service = Service(
            self.cluster, self.folder / "service", tracking_uri=self.tracking_uri
        )
        self.service.start()
        self.url = self.service.url
        self.client = Client(self.url, TOKEN)

    def down(self) -> None:
        if self.service is not None:
            self.service.stop()
        if self._mlflow is not None:
            os.killpg(self._mlflow.pid, signal.SIGKILL)  # it is a child of it that serves
            self._mlflow.wait()
        self.node.down()
        self.cluster.down()

    def template(self, **more: Any) -> Json:
        """What a user says of the pods: image, volumes, node, resources."""
        return {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "hostNetwork": True,
            "nodeSelector": {"type": "real"},
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumes": self.host.volumes(),
            "volumeMounts": self.host.mounts(),
            **more,
        }

    def env(self) -> dict[str, str]:
        """What a user's workers are told."""
        return {
            "PATH": self.host.path,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # of this checkout, if so it is run
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MLFLOW_TRACKING_URI": self.tracking_uri,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            names.ENV_URL: self.url,
            names.ENV_SAVING_SHARE: "1",  # each epoch's end is saved, on a slow machine as well
            names.ENV_CHECKPOINTS: f"{self.folder}/checkpoints/$({names.ENV_JOB_UID})",
        }

    def until(self, done: Callable[[], bool], what: str) -> None:
        self.cluster.until(done, PATIENCE_S, what)

    def namespace(self) -> Iterator[str]:
        """A namespace for a test; afterwards all that was in it is gone, and the GPUs are free."""
        name = f"pods-{uuid.uuid4().hex[:6]}"
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}  # its pods are of the host
        meta = {"name": name, "labels": labels}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        assert self.cluster.ask("POST", "/api/v1/namespaces", made)
        yield name
        self.cluster.ask("DELETE", f"/api/v1/namespaces/{name}")
        pods = f"/api/v1/namespaces/{name}/pods"
        self.until(lambda: not self.cluster.ask("GET", pods)["items"], "all pods to be gone")

    def _start_mlflow(self) -> "subprocess.Popen[bytes]":
        store = self.folder / "mlflow"
        store.mkdir(parents=True)
        uri = copy_store(self._blank_mlflow, store)
        with (store / "server.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *DIES_WITH_US, str(Path(sys.executable).with_name("mlflow")), "server",
                    "--backend-store-uri", uri,
                    "--default-artifact-root", str(store / "artifacts"),
                    "--host", "127.0.0.1", "--port", self.tracking_uri.rpartition(":")[2],
                    "--workers", "1",
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=store, start_new_session=True,
            )  # fmt: skip

    def _mlflow_answers(self) -> bool:
        if self._mlflow is None or self._mlflow.poll() is not None:
            raise AssertionError((self.folder / "mlflow" / "server.log").read_text())
        try:
            with urllib.request.urlopen(f"{self.tracking_uri}/health", timeout=5) as reply:  # noqa: S310
                return bool(reply.status == 200)
        except OSError:
            return False


class Run:
    """One call of a flow, and the job that it has become."""

    def __init__(
        self,
        pod_cluster: PodCluster,
        name: str,
        namespace: str,
        function: Function = podtrainings.paced,
        **said: Any,
    ) -> None:
        self.pod_cluster, self.name, self.namespace = pod_cluster, name, namespace
        self.folder = pod_cluster.folder / f"{namespace}-{name}"
        self.folder.mkdir()
        options = {
            "template": pod_cluster.template(),
            "env": pod_cluster.env(),
            "epoch_estimate": "1s",
        }
        options["model"] = f"{namespace}-{name}"  # without the history of another test
        options["entry"] = f"{podtrainings.__file__}:{function.__name__}"
        declare: Any = deadline_flow(
            name=name, namespace=namespace, idempotency_key=name, **options | said
        )
        self.flow = declare(function)

    @classmethod
    def seen(cls, pod_cluster: PodCluster, name: str, namespace: str, folder: Path) -> "Run":
        """A job that was submitted by somebody else, and trains in this folder."""
        run = cls.__new__(cls)
        run.pod_cluster, run.name, run.namespace, run.folder = pod_cluster, name, namespace, folder
        run.call = Future()
        return run

    def start(self, pace_s: float) -> "Run":
        """Call the flow, in a thread of its own."""
        self.pace(pace_s)
        self.call: Future[Any] = Future()
        work = partial(copy_context().run, self._follow)
        threading.Thread(target=work, name=self.name, daemon=True).start()
        return self

    def rush(self, pace_s: float) -> None:
        """Submit it without its flow, with a deadline that is met only if others make room soon.

        What a start costs is learned from what was seen, so the deadline is asked for, not guessed.
        """
        self.pace(pace_s)
        self.call = Future()
        manifest = self.flow.spec(folder=str(self.folder)).to_manifest()
        told = self.pod_cluster.client.whatif(manifest)
        assert told["verdict"] == "promised", told
        at = datetime.fromtimestamp(told["p90_at"] + SLACK_S, UTC)
        manifest["metadata"]["annotations"][names.DEADLINE] = format_instant(at)
        self.pod_cluster.client.submit(manifest)

    def finished(self) -> Any:
        """Its result, once it has one."""
        self.until(lambda run: run.view().state == "finished", "its end")
        return self.view().result

    def _follow(self) -> None:
        try:
            self.call.set_result(self.flow(folder=str(self.folder)))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self.call.set_exception(error)

    def pace(self, epoch_s: float) -> None:
        """How long an epoch takes on one worker, from now on, also the one in flight."""
        aside = self.folder / "pace.new"
        aside.write_text(str(epoch_s))
        aside.replace(self.folder / "pace")

    def notes(self, what: str, *, rank: int = 0) -> list[Json]:
        """What worker `rank` has noted: began, trained."""
        found = whole_lines(self.folder / "notes.jsonl")
        return [one for one in found if one["what"] == what and one["rank"] == rank]

    @property
    def id(self) -> str:
        """The job's id, once it is there."""
        self.pod_cluster.until(lambda: bool(self._mine()), f"the job of {self.name}")
        (mine,) = self._mine()
        return mine

    def _mine(self) -> list[str]:
        jobs = self.pod_cluster.client.jobs(self.namespace)
        return [job.id for job in jobs if job.id.startswith(f"{self.namespace}/{self.name}-")]

    def view(self) -> JobView:
        return self.pod_cluster.client.job(self.id)

    def until(self, done: Callable[["Run"], bool], what: str) -> None:
        """Wait until this is true of it."""
        said = f"{self.name}: {what}; logs in {self.pod_cluster.folder}"

        def reached() -> bool:
            if self.call.done():
                self.call.result()  # a flow that has failed says why
            return done(self)

        self.pod_cluster.until(reached, said)

    def until_epoch(self, epoch: int) -> None:
        """Wait until worker 0 is in this epoch or further."""
        self.until(
            lambda run: any(one["epoch"] >= epoch for one in run.notes("began")), f"epoch {epoch}"
        )

    def job(self) -> Json:
        """The batch/v1 Job as the API server has it."""
        name = self.id.partition("/")[2]
        where = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}"
        found: Json = self.pod_cluster.cluster.ask("GET", where) or {}
        return found

    def pods(self) -> dict[str, Json]:
        """Pods that are not over, by name."""
        where = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=job-name="
        answer = self.pod_cluster.cluster.ask("GET", where + self.id.partition("/")[2]) or {
            "items": []
        }
        return {
            pod["metadata"]["name"]: pod
            for pod in answer["items"]
            if pod["status"].get("phase") in {"Pending", "Running"}
        }
