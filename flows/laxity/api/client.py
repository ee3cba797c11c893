"""The service's HTTP API as Python functions, with nothing but the standard library.

Flows, workers, the command line and scripts all speak to the service through this one class. A job
is named "namespace/name", or "name" for the namespace `default`.
"""

import errno
import json
import os
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from laxity import names
from laxity.api.job_view import JobView, Json, OfferView, job_view
from laxity.api.transport import LOOPBACK_HOSTS, Request, ServiceAwayError, ServiceError, Transport
from laxity.durations import with_local_zone

__all__ = ["Client", "JobView", "OfferView", "ServiceAwayError", "ServiceError", "full_id"]

DEFAULT_URL: Final = "http://127.0.0.1:8642"


def home_folder() -> Path:
    """Where the embedded default keeps its state: $LAXITY_HOME, or ~/.laxity.

    FileNotFoundError for a user without a home folder, as in many containers.
    """
    if home := os.environ.get(names.ENV_HOME):
        return Path(home)
    try:
        return Path.home() / ".laxity"
    except RuntimeError:
        message = f"this user has none; set {names.ENV_HOME} to a folder"
        raise FileNotFoundError(errno.ENOENT, message, "home folder") from None


def full_id(job_id: str) -> str:
    """The id with its namespace: "name" means "default/name". ServiceError if it can be no job's."""
    parts = job_id.split("/")
    if len(parts) > 2 or not all(parts):
        message = f"{job_id!r} names no job; write NAME or NAMESPACE/NAME"
        raise ServiceError("not_found", message, status=HTTPStatus.NOT_FOUND)
    return job_id if len(parts) > 1 else f"default/{job_id}"


def service_address(url: str | None = None, token: str | None = None) -> tuple[str, str]:
    """URL and token: the arguments, the environment, service.json of the home, the default.

    A token of service.json is only ever sent to the address that stands beside it: `localhost` may
    be somebody else's service on the same port.
    """
    url = url or os.environ.get(names.ENV_URL)
    token = token if token is not None else os.environ.get(names.ENV_TOKEN)
    if url and token is not None:
        return url, token
    written = _service_json()
    own = str(written.get("url") or "")
    if url and not (own and _comparable_address(url) == _comparable_address(own)):
        return url, token or ""
    return own or DEFAULT_URL, str(written.get("token") or "") if token is None else token


def _comparable_address(url: str) -> tuple[str, str | None, int | None]:
    """An address to compare: all names of this machine's loopback are one."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return url, None, None
    return scheme, "localhost" if host in LOOPBACK_HOSTS else host, port


def is_loopback(url: str) -> bool:
    """Whether this is an address of this machine."""
    return _comparable_address(url)[1] == "localhost"


class Client:
    """A connection to one service; safe to share between threads.

    `patience_s` is how long an absent service is waited for before ServiceAwayError.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        patience_s: float = 60.0,
        timeout_s: float = 30.0,
    ) -> None:
        self.url = service_address(url, token)[0]
        # Read at each request: the service may come up, or come back, after this client was made.
        self._transport = Transport(
            self.url,
            lambda: service_address(self.url, token)[1],
            timeout_s=timeout_s,
            patience_s=patience_s,
        )

    def submit(self, manifest: Mapping[str, Any]) -> JobView:
        """Create the Job, or attach to the one with the same idempotency key.

        A manifest without a key gets a random one, so that a lost answer may be asked for again.
        """
        return job_view(self._post_json("/v1/jobs", with_idempotency_key(manifest)))

    def job(self, job_id: str, *, wait_s: float = 0.0, seen: str | float | None = None) -> JobView:
        """One job; with `wait_s`, as soon as its revision is not `seen`, or after that time."""
        query = {"wait_s": wait_s or None, "seen": seen}
        return job_view(self._send_request("GET", _job_path(job_id), query=query, answer_s=wait_s))

    def jobs(self, namespace: str | None = None) -> list[JobView]:
        answer = self._send_request("GET", "/v1/jobs", query={"namespace": namespace})
        return [job_view(row) for row in answer["jobs"]]

    def cancel(self, job_id: str) -> str:
        """Stop the job and forget its claim. Its state before: an ended job stays as it is."""
        return str((self._send_request("DELETE", _job_path(job_id)) or {}).get("state", ""))

    def amend(self, job_id: str, deadline: str) -> JobView:
        """Ask for another deadline: a new verdict; the old promise stands if it is refused.

        A time by the clock such as "06:00" is the next one from now, in this machine's zone if it
        names none.
        """
        body = {"deadline": with_local_zone(deadline)}
        return job_view(self._post_json(_job_path(job_id, "amend"), body))

    def accept(self, job_id: str, offer: int = 1) -> JobView:
        """Take counter-offer number `offer`, counted from 1: the job asks again with it."""
        body = {"offer": offer}
        return job_view(self._post_json(_job_path(job_id, "accept"), body, repeatable=False))

    def submit_group(self, document: Mapping[str, Any]) -> Json:
        """Declare several jobs with one deadline, by the name that their Jobs carry; its verdict.

        `document` has name, deadline, class, workflow and steps; the same name is the same group.
        """
        return dict(self._post_json("/v1/groups", document))

    def whatif_group(self, document: Mapping[str, Any]) -> Json:
        """The verdict that this group would get now; nothing is declared."""
        return dict(self._post_json("/v1/groups/whatif", document))

    def group(self, group_id: str) -> Json:
        """One group with the views of its jobs."""
        return dict(self._send_request("GET", _group_path(group_id)))

    def groups(self) -> list[Json]:
        """All groups that the token may see, without their jobs."""
        return list(self._send_request("GET", "/v1/groups")["groups"])

    def amend_group(self, group_id: str, deadline: str) -> Json:
        """Ask for another deadline of the whole."""
        body = {"deadline": with_local_zone(deadline)}
        return dict(self._post_json(_group_path(group_id, "amend"), body))

    def end_group(self, group_id: str, state: str) -> Json:
        """Say how it ended: finished, failed, or cancelled, with all of its jobs."""
        return dict(self._post_json(_group_path(group_id, "end"), {"state": state}))

    def explain(self, job_id: str) -> Json:
        """The chain of decisions with reasons, who holds what it waits for, its expected start."""
        return dict(self._send_request("GET", _job_path(job_id, "explain")))

    def whatif(self, manifest: Mapping[str, Any]) -> Json:
        """The verdict that this Job would get now, its offers, and what it would do to others."""
        return dict(self._post_json("/v1/whatif", dict(manifest)))

    def logs(self, job_id: str, *, index: int = 0, tail: int | None = None) -> str:
        """What a worker has written, from its end if `tail` lines are asked for."""
        answer = self._send_request(
            "GET", _job_path(job_id, "logs"), query={"index": index, "tail": tail}
        )
        return str(answer.get("text", "")) if isinstance(answer, dict) else str(answer or "")

    def release(self, job_id: str | None = None) -> Json:
        """Pin this running job: it is counted, and never resized or stopped any more.

        Without one, let all Jobs go: laxity's label and annotations are dropped. How many there were,
        and which of them stay suspended.
        """
        return dict(
            self._post_json("/v1/release" if job_id is None else _job_path(job_id, "release"), {})
        )

    def take_back(self, job_id: str) -> Json:
        """Remove the pin of a job, whoever set it."""
        return dict(self._send_request("DELETE", _job_path(job_id, "release")))

    def cluster(self) -> Json:
        return dict(self._send_request("GET", "/v1/cluster"))

    def page_address(self) -> str:
        """The address of the service's page, with a code that signs in once and within a minute."""
        code = self._post_json("/v1/session/code", {}, repeatable=False)["code"]
        return f"{self.url.rstrip('/')}/#code={code}"

    def decisions(self, job_id: str | None = None, *, limit: int | None = None) -> list[Json]:
        """The latest decisions, of one job or of all."""
        job = None if job_id is None else full_id(job_id)
        answer = self._send_request("GET", "/v1/decisions", query={"job": job, "limit": limit})
        return list(answer["decisions"])

    def alive(self) -> bool:
        """Whether the service answers, asked once."""
        try:
            Transport(self.url, timeout_s=5.0, patience_s=0.0).send(Request("GET", "/healthz"))
        except ServiceError:
            return False
        return True

    def _post_json(self, path: str, body: Mapping[str, Any], *, repeatable: bool = True) -> Any:
        return self._transport.send(Request("POST", path, body=body, repeatable=repeatable))

    def _send_request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | float | int | None] | None = None,
        answer_s: float = 0.0,
    ) -> Any:
        return self._transport.send(Request(method, path, query=query or {}, answer_s=answer_s))


def with_idempotency_key(manifest: Mapping[str, Any]) -> Json:
    """The manifest with an idempotency key, a random one where it has none."""
    metadata = dict(manifest.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    annotations.setdefault(names.IDEMPOTENCY_KEY, uuid.uuid4().hex)
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _job_path(job_id: str, verb: str = "") -> str:
    return f"/v1/jobs/{full_id(job_id)}" + (f"/{verb}" if verb else "")


def _group_path(group_id: str, verb: str = "") -> str:
    return f"/v1/groups/{full_id(group_id)}" + (f"/{verb}" if verb else "")


def _service_json() -> Json:
    """What the running service wrote of itself into the home; nothing if there is no such file."""
    try:
        written = json.loads((home_folder() / "service.json").read_text())
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}
