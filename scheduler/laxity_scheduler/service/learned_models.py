"""Learned policies by name: shipped, in files, or in MLflow's registry; and why one cannot be used.

A version of the registry is fetched once and kept in the service's store: what decided can be decided
again when MLflow is away, on every replica and in every new pod. Its name is then
`models:/NAME/VERSION`, whatever alias led to it: an alias is moved, and the journal says what decided.
It is kept by the MLflow that it is of, for two have the same names and numbers. A service that starts
while MLflow is away goes on with the version that its alias named last. A file that cannot be used is
refused in words and not kept, and the teacher decides: nothing that is wrong with it may stop a service.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from laxity.safe_text import without_secrets
from laxity_profiler.registry.mlflow_errors import MlflowAwayError
from laxity_profiler.registry.registered_files import digest_of
from laxity_scheduler.allocation.surplus import TEACHERS
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.learned.weights_file import (
    MOST_BYTES,
    SHIPPED,
    TrainedPolicy,
    load_policy,
    read_policy,
)
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.learned import decide_by
from laxity_scheduler.policies.registry import find
from laxity_scheduler.store.store import Store, StoreError
from laxity_scheduler.store.tables import PolicyAliasRow, PolicyModelRow

LOG: Final = logging.getLogger(__name__)
SCHEME: Final = "models:/"
LEARNED: Final = "learned"
TEACHER: Final = "optimus"  # where a file does not say


class ModelRefusedError(ValueError):
    """The file of a model cannot be used; the message says why."""


class ModelAwayError(RuntimeError):
    """MLflow is away, has no such version, or is none: nothing is known of the model."""


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """A learned policy by its full name, with the digest of its weights.

    `refusal` says why it cannot be used, if it cannot; `stale` why the registry could not be asked
    whether its alias still names it, if it could not.
    """

    name: str
    digest: str = ""
    trained: TrainedPolicy | None = field(default=None, compare=False)
    refusal: str = ""
    stale: str = field(default="", compare=False)

    @property
    def teacher(self) -> str:
        """Of the file where that names one, else TEACHER."""
        named = str(self.trained.trained_on.get("teacher", TEACHER)) if self.trained else TEACHER
        return named if named in TEACHERS else TEACHER

    @property
    def fallback_policy(self) -> str:
        """Who decides in its place: its teacher, who breaks no promise either."""
        return f"{self.teacher}_with_promises"


@dataclass(frozen=True, slots=True)
class LearnedModels:
    """Reads models, from the MLflow at `tracking_url` ("": none) where `store` does not keep them.

    `any_origin`: those fetched from another MLflow count, too, as for what a journal names.
    """

    tracking_url: str = ""
    store: Store | None = None
    any_origin: bool = False

    def read(self, name: str) -> LearnedModel | None:
        """The model of `learned`, `learned:FILE` or `models:/NAME@ALIAS`; None for other policies.

        One that cannot be used says why. ModelAwayError if MLflow cannot be asked.
        """
        address = model_address(name)
        if not address:
            page, _, file = name.partition(":")
            return read_file(name, Path(file) if file else SHIPPED) if page == LEARNED else None
        version, digest = self._resolve(address)
        try:
            body = self._fetch(version, digest)
        except ModelRefusedError as error:
            return LearnedModel(version, refusal=str(error))
        model = _read_body(version, body)
        if not model.refusal:
            self._keep(version, body, address if version != address else "")
        return model

    def read_kept(self, name: str, problem: str) -> LearnedModel | None:
        """The version that an alias named last, while `problem` keeps MLflow from being asked.

        None if none was fetched.
        """
        version = self._last_version(model_address(name))
        bodies = self._load_kept(version) if version else []
        if not bodies:
            return None
        stale = f"it was {name} when MLflow last answered; {problem}"
        return replace(_read_body(version, bodies[0]), stale=stale)

    def load(self, name: str) -> tuple[str, TrainedPolicy]:
        """Full name and weights of a learned policy. ValueError if it has none; ModelAwayError."""
        model = self.read(name)
        if model is None:
            raise ValueError(f"{name} has no weights: learned, learned:FILE or models:/NAME@ALIAS")
        if model.trained is None:
            raise ModelRefusedError(model.refusal)
        return model.name, model.trained

    def find_policy(self, name: str) -> Policy:
        """The policy of this name. UnknownPolicyError; ModelAwayError, ModelRefusedError."""
        return decide_by(self.load(name)[1].net) if model_address(name) else find(name).policy()

    @property
    def _origin(self) -> str:
        return origin_of(self.tracking_url)

    def _fetch(self, version: str, digest: str) -> bytes:
        """The file of `models:/NAME/VERSION`, of this digest where one is known, kept or from MLflow.

        ModelRefusedError if it is not taken. ModelAwayError.
        """
        from laxity_profiler.registry.registered_files import RefusedFileError, fetch_file

        kept = self._load_kept(version, digest)
        if len(kept) > 1:
            raise ModelRefusedError(
                f"{version} was fetched from several MLflows, and the files differ: "
                "name the one that it is of with --tracking-uri"
            )
        if kept:
            return kept[0]
        with _as_away(version):
            try:
                return fetch_file(self._require_url(), version, most_bytes=MOST_BYTES)
            except RefusedFileError as error:
                raise ModelRefusedError(str(error)) from error

    def _resolve(self, address: str) -> tuple[str, str]:
        """`models:/NAME/VERSION` for what an alias names now, with its digest ("": not known)."""
        from laxity_profiler.registry.registered_files import find_version, read_address

        try:
            name, alias, _ = read_address(address)
        except ValueError as error:
            raise ModelAwayError(str(error)) from error
        if not alias:
            return address, ""
        with _as_away(address):
            found = find_version(self._require_url(), address)
            return f"{SCHEME}{name}/{found.version}", found.digest

    def _require_url(self) -> str:
        if not self.tracking_url:
            raise ModelAwayError(
                "models:/ needs MLflow: the service has none (--tracking-uri none)"
            )
        return self.tracking_url

    def _load_kept(self, version: str, digest: str = "") -> list[bytes]:
        """Files of this version that can be used, of this digest where one is known.

        Several where they were fetched from several MLflows, and differ.
        """
        if self.store is None:
            return []
        try:
            row = self.store.load_row(PolicyModelRow, _key(self._origin, version))
            bodies = [] if row is None else [row.body]
            if not bodies and (self.any_origin or not self._origin):
                bodies = self.store.load_policy_models(version)
        except StoreError as error:
            LOG.warning("the store cannot say whether it has %s: %s", version, error)
            return []
        kept = {digest_of(body): body for body in bodies if not _read_body(version, body).refusal}
        return [body for key, body in kept.items() if digest in ("", key)]

    def _last_version(self, alias: str) -> str:
        """The version that `models:/NAME@ALIAS` named last; "" where that is not known."""
        if self.store is None:
            return ""
        try:
            row = self.store.load_row(PolicyAliasRow, _key(self._origin, alias))
        except StoreError as error:
            LOG.warning("the store cannot say what %s named last: %s", alias, error)
            return ""
        return "" if row is None else row.version

    def _keep(self, version: str, body: bytes, alias: str) -> None:
        """Write what is not there yet, or is there otherwise; what the store cannot do is logged."""
        if self.store is None or not self._origin:
            return
        try:
            rows: list[PolicyModelRow | PolicyAliasRow] = []
            if self._load_kept(version) != [body]:
                rows.append(PolicyModelRow(version=_key(self._origin, version), body=body))
            if alias and self._last_version(alias) != version:
                rows.append(PolicyAliasRow(alias=_key(self._origin, alias), version=version))
            if rows:
                self.store.replace_rows(rows)
        except StoreError as error:
            LOG.warning("%s is not in the store yet: %s", version, error)


def model_address(name: str) -> str:
    """`models:/...` of a policy's name, which may begin with `learned:`; "" for other names."""
    address = name.removeprefix(f"{LEARNED}:")
    return address if address.startswith(SCHEME) else ""


def origin_of(tracking_url: str) -> str:
    """The name of the MLflow at this address, whoever logs in there; "" without one."""
    return sha256(without_secrets(tracking_url).encode()).hexdigest()[:12] if tracking_url else ""


def read_file(name: str, path: Path) -> LearnedModel:
    """The model in a file; where it cannot be used it says why."""
    try:
        trained = load_policy(path)  # first: it reads no more than it may
        return LearnedModel(name, digest_of(path.read_bytes()), trained)
    except (ValueError, OSError) as error:
        return LearnedModel(name, refusal=str(error))


def _read_body(name: str, body: bytes) -> LearnedModel:
    try:
        return LearnedModel(name, digest_of(body), read_policy(body, name))
    except ValueError as error:
        return LearnedModel(name, refusal=str(error))


def _key(origin: str, name: str) -> str:
    return f"{origin} {name}"


@contextmanager
def _as_away(name: str) -> Iterator[None]:
    """Whatever MLflow, its client or the disk raise: the model is away, and says why."""
    try:
        yield
    except (ModelAwayError, ModelRefusedError):
        raise
    except MlflowAwayError as error:
        raise ModelAwayError(str(error)) from error
    except Exception as error:
        raise ModelAwayError(f"{name} cannot be fetched: {error_text(error)}") from error
