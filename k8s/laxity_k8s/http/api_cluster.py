"""ClusterApi on a real API server: one event loop in a thread, raw JSON, many patches in flight.

Only TLS settings and credentials come from the client library (kubeconfig files, exec plugins,
service account tokens that rotate); its typed models cost five seconds per 5,000 Jobs.
"""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import orjson
import uvloop

from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.act.plan_patches import WorkerToken, no_token
from laxity_k8s.cluster_api import (
    ApiError,
    Change,
    Json,
    Kind,
    Listing,
    Patch,
    PatchResult,
    ignore_cut,
)
from laxity_k8s.http.patching import patch_all, send_patch
from laxity_k8s.http.paths import collection_path, object_path, whole_items
from laxity_k8s.http.pod_refusals import read_missing_pods
from laxity_k8s.http.session import FIELD_MANAGER, STRATEGIC_PATCH, ApiSession
from laxity_k8s.http.watch import KindWatch, Recovery
from laxity_k8s.http.watch_thread import WatchThread
from laxity_k8s.lease import Lease, LeaseTimings, own_namespace
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.node_rows.scaling_pool import read_pools
from laxity_k8s.objects.seal import Seal, open_seal
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Reports
from laxity_scheduler.process.instance_dir import name_lock_holder

IN_FLIGHT: Final = 32
Answer = TypeVar("Answer")


class KubernetesApi:
    """A cluster, by kubeconfig (argument, KUBECONFIG, ~/.kube/config) or as a pod of its own.

    `may_act` is asked before every patch of `patch_many`: those are what a plan comes to.
    """

    is_local = False

    def __init__(
        self,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._loop = uvloop.new_event_loop()  # TLS costs half as much CPU on it
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="laxity-kubernetes", daemon=True
        )
        self._thread.start()
        self.may_act: Callable[[], bool] = lambda: True
        self._seen: WeakValueDictionary[Kind, Listing] = WeakValueDictionary()
        self._recovery = Recovery()
        self._in_flight = in_flight
        try:
            self._session = self._wait_for(open_session(kubeconfig, context))
        except BaseException:
            self._stop_loop()
            raise

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        query = {"labelSelector": selector} if selector else {}
        answer = self._wait_for(
            self._session.call_json("GET", collection_path(kind), query=query, timeout_s=120.0)
        )
        listing = Listing(whole_items(kind, answer), answer["metadata"]["resourceVersion"])
        if not selector:
            self._seen[kind] = listing
        return listing

    def get(self, kind: Kind, object_id: str) -> Json:
        return self._wait_for(self._session.call_json("GET", object_path(kind, object_id)))

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None] = ignore_cut,
    ) -> WatchThread:
        watch = WatchThread(self._loop, kind, on_change, on_cut)
        watched = KindWatch(
            self._session, kind, since, watch.take, on_cut=watch.take, recovery=self._recovery
        )
        listing = self._seen.pop(kind, None)
        if listing is not None and listing.resource_version == since:
            watched.remember_all(listing.items)
        watch.begin(watched)
        return watch

    def create(self, kind: Kind, body: Mapping[str, Any]) -> Json:
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        if kind != "nodes" and not namespace:
            namespace = "default"
        where = collection_path(kind, namespace)
        return self._wait_for(
            self._session.call_json("POST", where, query=FIELD_MANAGER, body=body)
        )

    def patch(self, patch: Patch) -> Json:
        answer: Json = orjson.loads(self._wait_for(send_patch(self._session, patch)))
        return answer

    def patch_many(self, patches: Iterable[Patch]) -> Sequence[PatchResult]:
        return self._wait_for(
            patch_all(self._session, [*patches], self.may_act, in_flight=self._in_flight)
        )

    def delete(self, kind: Kind, object_id: str, *, uid: str = "") -> None:
        body: Json = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        self._wait_for(self._session.call_json("DELETE", object_path(kind, object_id), body=body))

    def log(self, pod_id: str, *, tail: int | None = None) -> str:
        query = {} if tail is None else {"tailLines": str(tail)}
        text = self._wait_for(
            self._session.call_bytes("GET", object_path("pods", pod_id, "log"), query=query)
        )
        return text.decode(errors="replace")

    def log_left(self, job: Json, index: int) -> str:
        return ""  # the cluster drops a pod's output with the pod

    def log_path(self, job_id: str, index: int) -> str | None:
        return None

    def reports_path(self, job: Json) -> None:
        return None  # on a volume that the service does not mount

    def collect(self, *, keep_s: float) -> int:
        return 0  # the cluster removes by itself what belongs to a Job

    def get_namespace(self, name: str) -> Json:
        """A namespace, with the labels that say what is allowed in it."""
        return self._wait_for(self._session.call_json("GET", f"/api/v1/namespaces/{name}"))

    def try_create_job(self, job: Json) -> Sequence[str]:
        """What the API server warns of when this Job is created; nothing is."""
        where = collection_path("jobs", str(job["metadata"]["namespace"]))
        return self._wait_for(self._session.try_create(where, job))

    def open_seal(self, namespace: str) -> Seal:
        """The seal whose key all replicas read in this namespace."""
        where = f"/api/v1/namespaces/{namespace}/secrets"

        def read(name: str) -> Json:
            return self._wait_for(self._session.call_json("GET", f"{where}/{name}"))

        def create(body: Json) -> Json:
            return self._wait_for(
                self._session.call_json("POST", where, query=FIELD_MANAGER, body=body)
            )

        return open_seal(read, create, namespace=namespace)

    def close(self) -> None:
        self._wait_for(self._close_session())
        self._stop_loop()

    async def _close_session(self) -> None:
        """Stop all watches, then close the connections."""
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._session.__aexit__()

    def run_call(self, work: Callable[[ApiSession], Coroutine[Any, Any, Answer]]) -> Answer:
        """One call of one's own over the session."""
        return self._wait_for(work(self._session))

    def _wait_for(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._loop.close()


class _Brief:
    """Calls that are tried once and given up soon: a lease waits for nobody."""

    def __init__(self, api: KubernetesApi, timeout_s: float) -> None:
        self._api, self._timeout_s = api, timeout_s

    def get(self, kind: Kind, object_id: str) -> Json:
        return self._call_json("GET", object_path(kind, object_id))

    def create(self, kind: Kind, body: Json) -> Json:
        where = collection_path(kind, body["metadata"]["namespace"])
        return self._call_json("POST", where, query=FIELD_MANAGER, body=body)

    def patch(self, patch: Patch) -> Json:
        return self._call_json(
            "PATCH", object_path(patch.kind, patch.id),
            query=FIELD_MANAGER, body=patch.body, content_type=STRATEGIC_PATCH,
        )  # fmt: skip

    def _call_json(self, method: str, where: str, **said: Any) -> Json:
        return self._api.run_call(
            lambda session: session.call_json(
                method, where, timeout_s=self._timeout_s, attempts=1, **said
            )
        )


def open_lease(world: LiveCluster, home: Path, *, store_id: str, lease_s: float) -> Lease:
    """A campaign for acting on this cluster; the world sends no decision without the lease.

    OtherStoreError if a service with another store acts on it.
    """
    api = world.api
    assert isinstance(api, KubernetesApi)  # noqa: S101 - `open_world` of this module made it
    pace = LeaseTimings(lease_s)
    lease = Lease(
        _Brief(api, pace.retry_s), namespace=own_namespace(), me=name_lock_holder(home),
        store_id=store_id, pace=pace, fence=world.fence, on_change=world.wake,
    )  # fmt: skip
    api.may_act = lease.leads
    lease.begin()
    return lease


def open_world(
    home: Path,
    reports: Reports,
    *,
    slots: int | None = None,
    inference_slots: int = 0,
    url: str = "",
    worker_token: WorkerToken = no_token,
    fit_within_s: float = 60.0,
    pools: str = "",
    faults: JobFaults | None = None,
) -> LiveCluster:
    """The live world on a cluster: by KUBECONFIG, or as a pod of it. `home` and slots are unused.

    `url` is not handed to the workers: their Jobs name LAXITY_URL themselves.
    """
    api = KubernetesApi()
    try:
        seal = api.open_seal(own_namespace())
        limits = Limits(api.get_namespace, api.try_create_job, own_namespace())
        scaling = read_pools(pools)
    except BaseException:
        api.close()
        raise
    return LiveCluster(
        api, reports, fit_within_s=fit_within_s, seal=seal, limits=limits, quotas=True, pools=scaling,
        explain_missing=partial(read_missing_pods, api.run_call), worker_token=worker_token, faults=faults,
    )  # fmt: skip


def stop_workers(home: Path) -> int:
    """None run on this machine."""
    del home
    return 0


async def open_session(kubeconfig: Path | None, context: str | None) -> ApiSession:
    """Read the credentials and open a session. ApiError says where they were looked for."""
    from kubernetes.aio import client
    from kubernetes.aio import config as untyped

    config: Any = untyped
    settings = client.Configuration()
    try:
        if kubeconfig is None and _is_in_pod():
            config.load_incluster_config(client_configuration=settings)
        else:
            await config.load_kube_config(
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=settings,
            )
    except (config.ConfigException, OSError) as error:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise ApiError(f"no usable cluster credentials in {where}: {error}") from error

    async def authorize() -> Mapping[str, str]:
        token = await settings.get_api_key_with_prefix("BearerToken")
        return {"Authorization": token.replace("bearer ", "Bearer ", 1)} if token else {}

    return ApiSession(settings.host, _build_tls(settings), authorize)


def current_namespace() -> str:
    """Where kubectl puts what names no namespace: the current context's, or the pod's own."""
    from kubernetes.aio import config as untyped

    config: Any = untyped
    if _is_in_pod():
        return own_namespace()
    _, context = config.list_kube_config_contexts()
    return str(context["context"].get("namespace") or "default")


def _is_in_pod() -> bool:
    """Whether the pod's own credentials count: where no kubeconfig is named."""
    return "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ


def _build_tls(settings: Any) -> ssl.SSLContext | None:
    if not settings.host.startswith("https"):
        return None
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
