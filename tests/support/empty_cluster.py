"""A cluster that has nothing to tell."""

from laxity_k8s.cluster_api import Listing


class Nothing:
    """A cluster without objects and without news."""

    def list(self, kind: str) -> Listing:
        return Listing((), "0")

    def watch(self, kind: str, **_: object) -> None:
        return None
