"""Learned policies by name: shipped, in files, or in MLflow's registry; and why one cannot be used.

A version of the registry is fetched once and kept (kept_models), so that what decided can be decided
again when MLflow is away. Its name is then `models:/NAME/VERSION`, whatever alias led to it:
an alias is moved, and the journal says what decided. A service that starts while MLflow is away goes
on with the version that its alias named last. A file that cannot be used is refused in words, and the
teacher decides: nothing that is wrong with it may stop a service.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from laxity_profiler.registry.mlflow_errors import MlflowAwayError
from laxity_profiler.registry.registered_files import digest_of
from laxity_scheduler.allocation.surplus import TEACHERS
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.kept_models import (
    SCHEME,
    KeptModels,
    ModelRefusedError,
    ModelShelf,
    origin_of,
)
from laxity_scheduler.learned.weights_file import (
    MOST_BYTES,
    SHIPPED,
    TrainedPolicy,
    load_policy,
)

LEARNED: Final = "learned"
TEACHER: Final = "optimus"  # where a file does not say


class ModelAwayError(RuntimeError):
    """MLflow is away, or has no such version: nothing is known of the model."""


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """A learned policy by its full name, with the digest of its weights and its teacher.

    `refusal` says why it cannot be used, if it cannot; `stale` why the registry could not be asked
    whether its alias still names it, if it could not.
    """

    name: str
    digest: str = ""
    teacher: str = TEACHER
    refusal: str = ""
    stale: str = field(default="", compare=False)

    @property
    def fallback_policy(self) -> str:
        """Who decides in its place: its teacher, who breaks no promise either."""
        return f"{self.teacher}_with_promises"


@dataclass(frozen=True, slots=True)
class LearnedModels:
    """Reads models. `folder` and `shelf` keep those fetched from the MLflow at `tracking_url` ("": none).

    `any_origin`: those fetched from another MLflow count, too, as for what a journal names.
    """

    folder: Path
    tracking_url: str = ""
    shelf: ModelShelf | None = None
    any_origin: bool = False

    @property
    def kept(self) -> KeptModels:
        return KeptModels(self.folder, self.shelf, origin_of(self.tracking_url))

    def read(self, name: str) -> LearnedModel | None:
        """The model of `learned`, `learned:FILE` or `models:/NAME@ALIAS`; None for other policies.

        One that cannot be used says why. ModelAwayError if MLflow cannot be asked.
        """
        address = model_address(name)
        if address:
            version, digest = self._resolve(address)
            alias = address if version != address else ""
            try:
                path = self.fetch(version, digest)
                with _as_away(version):
                    self.kept.note(version, path.read_bytes(), alias)
            except ModelRefusedError as error:
                return LearnedModel(version, refusal=str(error))
            return read_file(version, path)
        page, _, file = name.partition(":")
        if page != LEARNED:
            return None
        return read_file(name, Path(file) if file else SHIPPED)

    def read_kept(self, name: str, problem: str) -> LearnedModel | None:
        """The version that an alias named last, while `problem` keeps MLflow from being asked.

        None if none was fetched.
        """
        try:
            with _as_away(name):
                version = self.kept.find_alias(model_address(name))
                path = self.kept.find(version) if version else None
        except (ModelAwayError, ModelRefusedError) as error:
            return LearnedModel(name, refusal=str(error))
        if path is None:
            return None
        stale = f"it was {name} when MLflow last answered; {problem}"
        return replace(read_file(version, path), stale=stale)

    def load(self, name: str) -> TrainedPolicy:
        """The weights of a learned policy. ValueError if there are none; ModelAwayError."""
        name = self.policy_name(name)
        page, _, file = name.partition(":")
        if page != LEARNED:
            raise ValueError(f"{name} has no weights: learned, learned:FILE or models:/NAME@ALIAS")
        return load_policy(Path(file) if file else SHIPPED)

    def policy_name(self, name: str) -> str:
        """The name as the registry of policies knows it; other names stay as they are."""
        address = model_address(name)
        return f"{LEARNED}:{self.fetch(*self._resolve(address))}" if address else name

    def fetch(self, version: str, digest: str = "") -> Path:
        """The file of `models:/NAME/VERSION`, of this digest where one is known, kept or from MLflow.

        ModelRefusedError if it cannot be used: then it is not kept. ModelAwayError.
        """
        from laxity_profiler.registry.registered_files import RefusedFileError, fetch_file

        with _as_away(version):
            path = self.kept.find(version, digest)
            if path is None and self.any_origin:
                path = replace(self.kept, origin="").find(version)
            if path is not None:
                return path
            url = self._require_url()
            try:
                body = fetch_file(url, version, most_bytes=MOST_BYTES)
            except RefusedFileError as error:
                raise ModelRefusedError(str(error)) from error
            return self.kept.write(version, body)

    def _resolve(self, address: str) -> tuple[str, str]:
        """`models:/NAME/VERSION` for what an alias names now, with its digest ("": not known)."""
        from laxity_profiler.registry.registered_files import find_version, read_address

        try:
            name, alias, _ = read_address(address)
        except ValueError as error:
            raise ModelAwayError(str(error)) from error
        if not alias:
            return address, ""
        url = self._require_url()
        with _as_away(address):
            found = find_version(url, address)
            return f"{SCHEME}{name}/{found.version}", found.digest

    def _require_url(self) -> str:
        if not self.tracking_url:
            raise ModelAwayError(
                "models:/ needs MLflow: the service has none (--tracking-uri none)"
            )
        return self.tracking_url


def model_address(name: str) -> str:
    """`models:/...` of a policy's name, which may begin with `learned:`; "" for other names."""
    address = name.removeprefix(f"{LEARNED}:")
    return address if address.startswith(SCHEME) else ""


def read_file(name: str, path: Path) -> LearnedModel:
    """The model in a file; where it cannot be used it says why."""
    try:
        trained_on = load_policy(path).trained_on
        digest = digest_of(path.read_bytes())
    except (ValueError, OSError) as error:
        return LearnedModel(name, refusal=str(error))
    teacher = str(trained_on.get("teacher", TEACHER))
    return LearnedModel(name, digest, teacher if teacher in TEACHERS else TEACHER)


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
