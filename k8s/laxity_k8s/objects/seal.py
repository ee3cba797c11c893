"""A seal on what laxity wrote on a Job, so that nobody else's writing is taken for it.

A promise stands on the Job alone, and whoever may patch Jobs could write one. So verdict and status
carry a keyed digest over the Job's uid and the text. What has no valid seal does not count, nor do
the other outputs of that Job. The key is a Secret in laxity's own namespace: it lives as long as
the Jobs do, replicas share it, and a service that has lost its store still knows its own promises.
Where the Secret is new (it was deleted, or an earlier laxity made none), the store says which
verdicts it knows, and those are sealed anew.
"""

import base64
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import ApiError, Json, Patch

SECRET: Final = "laxity-seal"  # noqa: S105 - the Secret's name
KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 12
KEPT_DIGESTS: Final = 16_384
LONGEST_KEPT: Final = 2_048  # characters: 32 MiB of plain text at most, 128 MiB of any
LABEL: Final = names.VERDICT_LABEL
UNSEALED: Final = frozenset(names.OUTPUTS) - {
    names.TERM,
    names.CYCLE,
    names.SEAL,
    names.VERDICT,
    names.STATUS,
}


@dataclass(frozen=True, slots=True)
class Seal:
    """`is_new` says that this key has sealed nothing yet."""

    key: bytes
    is_new: bool = False

    def believe_job(self, job: Json) -> Json:
        """The Job itself, or without any output where they are not all laxity's."""
        meta = job["metadata"]
        notes = meta.get("annotations") or {}
        if self._is_valid(meta, notes):
            return job
        inputs = {name: text for name, text in notes.items() if name not in names.OUTPUTS}
        labels = {name: text for name, text in json_tree.labels_of(job).items() if name != LABEL}
        return {**job, "metadata": {**meta, "annotations": inputs, "labels": labels}}

    def seal_patch(self, patch: Patch, job: Json | None) -> Patch:
        """The patch with the seal of the verdict and the status that the Job has after it."""
        meta = patch.body.get("metadata") or {}
        written = meta.get("annotations") or {}
        if job is None or not (names.VERDICT in written or names.STATUS in written):
            return patch
        seal = self.seal_of(job, {**json_tree.annotations_of(job), **written})
        body = {**patch.body, "metadata": {**meta, "annotations": {**written, names.SEAL: seal}}}
        return Patch(patch.kind, patch.id, body)

    def seal_of(self, job: Json, notes: Json) -> str:
        """The seal of these annotations on this Job."""
        return self._build_digests(job["metadata"].get("uid"), notes)

    def _is_valid(self, meta: Json, notes: Json) -> bool:
        has_verdict, has_status = names.VERDICT in notes, names.STATUS in notes
        if not (has_verdict or has_status):
            return UNSEALED.isdisjoint(notes)
        seal, right = str(notes.get(names.SEAL)), self._build_digests(meta.get("uid"), notes)
        if len(seal) != len(right) or not seal.isascii():
            return False
        if not has_verdict:  # taken off, so that the job is judged again
            seal, right = seal[_ONE:], right[_ONE:]
        if not has_status:
            seal, right = seal[:_ONE], right[:_ONE]
        return hmac.compare_digest(seal, right)

    def _build_digests(self, uid: object, notes: Json) -> str:
        """Of the verdict and of the status, each by itself: one may be taken off."""
        verdict, status = notes.get(names.VERDICT), notes.get(names.STATUS)
        return _digest_of(self.key, f"{uid}\0v\0{verdict}") + _digest_of(
            self.key, f"{uid}\0s\0{status}"
        )


_ONE: Final = 2 * DIGEST_BYTES  # hexadecimal digits


def _digest_of(key: bytes, said: str) -> str:
    return (_known if len(said) <= LONGEST_KEPT else compute_seal)(key, said)


def compute_seal(key: bytes, said: str) -> str:
    return blake2b(said.encode(errors="replace"), key=key, digest_size=DIGEST_BYTES).hexdigest()


# A Job is looked at several times between two changes.
_known = lru_cache(maxsize=KEPT_DIGESTS)(compute_seal)


def clear_outputs(job: Json) -> Patch:
    """The patch that takes all outputs off a Job whose outputs are not laxity's."""
    meta = {
        "resourceVersion": job["metadata"]["resourceVersion"],
        "annotations": dict.fromkeys(names.OUTPUTS),
        "labels": {LABEL: None},
    }
    return Patch("jobs", json_tree.object_id(job), {"metadata": meta})


def open_seal(
    read: Callable[[str], Json], create: Callable[[Json], Json], *, namespace: str
) -> Seal:
    """The seal whose key is the Secret of this namespace, made if it is not there."""
    for _ in range(2):
        try:
            return Seal(_read_key(read(SECRET)))
        except ApiError as error:
            if error.status != 404:
                raise _explain_error(error, namespace) from error
        key = secrets.token_bytes(KEY_BYTES)
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": namespace},
            "data": {"key": base64.b64encode(key).decode()},
        }
        try:
            create(body)
        except ApiError as error:
            if error.status != 409:  # another replica was quicker
                raise _explain_error(error, namespace) from error
        else:
            return Seal(key, is_new=True)
    raise ApiError(f"secret {namespace}/{SECRET} is made and deleted again: who does that?")


def _read_key(secret: Json) -> bytes:
    key = base64.b64decode(str(json_tree.mapping_at(secret, "data").get("key") or ""))
    if len(key) < KEY_BYTES:
        raise ApiError(f"secret {SECRET} holds no key of {KEY_BYTES} bytes: delete it to get one")
    return key


def _explain_error(error: ApiError, namespace: str) -> ApiError:
    return ApiError(
        f"the secret {namespace}/{SECRET} can be neither read nor made ({error}): "
        "apply namespace.yaml and rbac.yaml of k8s/manifests/base",
        status=error.status,
    )
