"""What laxity's account asked the API server for, by the server's own audit log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.kubernetes.cluster import Cluster

Json = dict[str, Any]
Right = tuple[str, str, str]  # API group, resource (with its subresource), verb
WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
TERMINATING: Final = "because it is being terminated"


class Audit:
    """The log from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.audit_log
        self._begin = self._log.stat().st_size if self._log.exists() else 0

    def asked(self) -> Iterator[Json]:
        """Requests, oldest first. The last line may still be in the making."""
        with self._log.open("rb") as log:
            log.seek(self._begin)
            for line in log:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def used(self) -> set[Right]:
        """Rights that were used, and those that were asked for in vain."""
        return {_right(one) for one in self.asked()}

    def refused(self) -> set[Right]:
        """What it has no right to; nobody may create anything in a namespace that is being deleted."""
        return {
            _right(one)
            for one in self.asked()
            if _status(one) in (401, 403) and TERMINATING not in _message(one)
        }

    def conflicts(self) -> int:
        return sum(one["verb"] == "patch" and _status(one) == 409 for one in self.asked())

    def written(self, namespace: str) -> set[str]:
        """Names of Jobs of a namespace that it wrote to, or tried to."""
        found = [one["objectRef"] for one in self.asked() if one["verb"] in WRITES]
        return {
            ref.get("name", "")
            for ref in found
            if ref["resource"] == "jobs" and ref.get("namespace") == namespace
        }


def granted(manifest: Path) -> set[Right]:
    """All rights of the roles of a manifest."""
    return {
        (group, resource, verb)
        for one in yaml.safe_load_all(manifest.read_text())
        for rule in one.get("rules") or ()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _right(one: Json) -> Right:
    about = one.get("objectRef") or {"resource": one["requestURI"]}
    below = f"/{about['subresource']}" if about.get("subresource") else ""
    return about.get("apiGroup", ""), about["resource"] + below, one["verb"]


def _status(one: Json) -> int:
    return int((one.get("responseStatus") or {}).get("code", 0))


def _message(one: Json) -> str:
    return str((one.get("responseStatus") or {}).get("message", ""))
