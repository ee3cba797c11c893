"""Learned policies by name: shipped, in files, or in MLflow's registry; and why one cannot be used.

A version of the registry is fetched once and kept in the service's folder, so that what decided can be
decided again when MLflow is away. Its name is then `models:/NAME/VERSION`, whatever alias led to it:
an alias is moved, and the journal says what decided. A service's store keeps the file as well, since a
new pod has no folder, and which version each alias named last: a service that starts while MLflow is
away goes on with that one.
"""

import shutil
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from laxity_scheduler.allocation.surplus import TEACHERS
from laxity_scheduler.learned.weights_file import SHIPPED, TrainedPolicy, load_policy

LEARNED: Final = "learned"
SCHEME: Final = "models:/"
TEACHER: Final = "optimus"  # where a file does not say


class ModelAwayError(RuntimeError):
    """MLflow is away, or has no such version: nothing is known of the model."""


class ModelAddressError(ModelAwayError):
    """The address is none, or the service has no MLflow: asking again does not help."""


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


class ModelShelf(Protocol):
    """Keeps versions and what aliases named last; nothing of it raises."""

    def load_model(self, version: str) -> bytes | None: ...

    def load_alias(self, alias: str) -> str | None: ...

    def keep(self, version: str, body: bytes, alias: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class LearnedModels:
    """Reads models. `folder` and `shelf` keep those fetched from the MLflow at `tracking_url` ("": none)."""

    folder: Path
    tracking_url: str = ""
    shelf: ModelShelf | None = None

    def read(self, name: str) -> LearnedModel | None:
        """The model of `learned`, `learned:FILE` or `models:/NAME@ALIAS`; None for other policies.

        One that cannot be used says why. ModelAwayError if MLflow cannot be asked.
        """
        address = model_address(name)
        if address:
            version = self._with_version(address)
            path = self.fetch(version)
            model = read_file(version, path)
            alias = address if version != address else ""
            if self.shelf is not None and not model.refusal:
                self.shelf.keep(version, path.read_bytes(), alias)
            return model
        page, _, file = name.partition(":")
        if page != LEARNED:
            return None
        return read_file(name, Path(file) if file else SHIPPED)

    def read_kept(self, name: str, problem: str) -> LearnedModel | None:
        """The version that an alias named last, while `problem` keeps MLflow from being asked.

        None if none was fetched.
        """
        version = self.shelf.load_alias(model_address(name)) if self.shelf is not None else None
        path = self._find_file(version) if version else None
        if version is None or path is None:
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
        return f"{LEARNED}:{self.fetch(self._with_version(address))}" if address else name

    def fetch(self, address: str) -> Path:
        """The file of `models:/NAME/VERSION`, from the folder or from MLflow. ModelAwayError."""
        from laxity_profiler.registry.mlflow_errors import MlflowAwayError
        from laxity_profiler.registry.registered_files import fetch_file

        path = self._find_file(address)
        if path is not None:
            return path
        try:
            fetched = fetch_file(self._require_url(), address)
        except MlflowAwayError as error:
            raise ModelAwayError(str(error)) from error
        except ValueError as error:
            raise ModelAddressError(str(error)) from error
        path = self._write_file(address, fetched.read_bytes())
        shutil.rmtree(fetched.parent, ignore_errors=True)
        return path

    def _find_file(self, version: str) -> Path | None:
        """The file of this version in the folder; it is written anew from the shelf."""
        path = self._version_file(version)
        if path.exists():
            return path
        body = self.shelf.load_model(version) if self.shelf is not None else None
        return None if body is None else self._write_file(version, body)

    def _write_file(self, version: str, body: bytes) -> Path:
        path = self._version_file(version)
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        aside.write_bytes(body)
        aside.replace(path)
        return path

    def _version_file(self, address: str) -> Path:
        return self.folder / f"{quote(address.removeprefix(SCHEME), safe='')}.npz"

    def _with_version(self, address: str) -> str:
        """`models:/NAME/VERSION` for what an alias names now."""
        from laxity_profiler.registry.mlflow_errors import MlflowAwayError
        from laxity_profiler.registry.registered_files import find_version, read_address

        try:
            name, alias, _ = read_address(address)
            if not alias:
                return address
            return f"{SCHEME}{name}/{find_version(self._require_url(), address)}"
        except MlflowAwayError as error:
            raise ModelAwayError(str(error)) from error
        except ValueError as error:
            raise ModelAddressError(str(error)) from error

    def _require_url(self) -> str:
        if not self.tracking_url:
            raise ValueError("models:/ needs MLflow: the service has none (--tracking-uri none)")
        return self.tracking_url


def model_address(name: str) -> str:
    """`models:/...` of a policy's name, which may begin with `learned:`; "" for other names."""
    address = name.removeprefix(f"{LEARNED}:")
    return address if address.startswith(SCHEME) else ""


def read_file(name: str, path: Path) -> LearnedModel:
    """The model in a file; where it cannot be used it says why."""
    try:
        trained_on = load_policy(path).trained_on
        digest = sha256(path.read_bytes()).hexdigest()[:12]
    except (ValueError, OSError) as error:
        return LearnedModel(name, refusal=str(error))
    teacher = str(trained_on.get("teacher", TEACHER))
    return LearnedModel(name, digest, teacher if teacher in TEACHERS else TEACHER)
