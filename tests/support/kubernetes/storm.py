"""A second writer: somebody puts a note on every Job, again and again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from laxity_k8s.cluster_api import Patch
from laxity_k8s.http.api_cluster import KubernetesApi
from tests.support.kubernetes.namespace_jobs import NamespaceJobs


@contextmanager
def storm(there: NamespaceJobs) -> Iterator[list[int]]:
    """How many notes were written so far."""
    api, over, written = (
        KubernetesApi(there.cluster.kubeconfig, in_flight=4),
        threading.Event(),
        [0],
    )

    def write() -> None:
        while not over.is_set():
            note = {"metadata": {"annotations": {"example.com/note": str(written[0])}}}
            jobs = [f"{there.namespace}/{job['metadata']['name']}" for job in there.jobs()]
            outcomes = api.patch_many([Patch("jobs", one, note) for one in jobs])
            written[0] += sum(one.ok for one in outcomes)
            over.wait(0.01)

    writer = threading.Thread(target=write, name="storm")
    writer.start()
    try:
        yield written
    finally:
        over.set()
        writer.join()
        api.close()
