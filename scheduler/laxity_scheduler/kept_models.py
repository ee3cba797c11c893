"""Files of learned policies that were fetched from MLflow: in the service's folder, and on a shelf.

A file is kept by the MLflow it is of, for two have the same names and numbers; by its version; and by
its digest, so that one that the disk has damaged is found out. What cannot be used is never kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from laxity.durable_files import replace_file
from laxity.safe_text import without_secrets
from laxity_profiler.registry.registered_files import digest_of
from laxity_scheduler.array_file import read_bytes
from laxity_scheduler.learned.weights_file import MOST_BYTES, read_policy

SCHEME: Final = "models:/"
NOWHERE: Final = "any"  # folder of files whose MLflow is not known


class ModelRefusedError(ValueError):
    """The file of a model cannot be used; the message says why."""


class ModelShelf(Protocol):
    """Keeps versions and what aliases named last, by their MLflow; nothing of it raises."""

    def load_models(self, version: str, origin: str) -> Sequence[bytes]: ...

    def load_alias(self, alias: str, origin: str) -> str: ...

    def keep(self, version: str, body: bytes, origin: str, *, alias: str = "") -> None: ...


def origin_of(tracking_url: str) -> str:
    """The name of the MLflow at this address, whoever logs in there; "" without one."""
    return sha256(without_secrets(tracking_url).encode()).hexdigest()[:12] if tracking_url else ""


@dataclass(frozen=True, slots=True)
class KeptModels:
    """What was fetched from the MLflow of this origin; "": from whichever, if all agree."""

    folder: Path
    shelf: ModelShelf | None
    origin: str

    def find(self, version: str, digest: str = "") -> Path | None:
        """The file of `models:/NAME/VERSION`, of this digest where one is known.

        None without one that can be used. ModelRefusedError if files of several MLflows differ.
        """
        found: dict[str, Path | bytes] = {
            path.stem.rpartition("-")[2]: path for path in self._usable_files(version)
        }
        if self.shelf is not None and not found:
            bodies = self.shelf.load_models(version, self.origin)
            found = {digest_of(body): body for body in bodies if _is_usable(body)}
        kept = [each for key, each in found.items() if digest in ("", key)]
        if len(kept) > 1:
            raise ModelRefusedError(
                f"{version} was fetched from several MLflows, and the files differ: "
                "name the one that it is of with --tracking-uri"
            )
        each = kept[0] if kept else None
        return self.write(version, each) if isinstance(each, bytes) else each

    def find_alias(self, address: str) -> str:
        """The version that `models:/NAME@ALIAS` named last; "" where that is not known."""
        return self.shelf.load_alias(address, self.origin) if self.shelf and self.origin else ""

    def note(self, version: str, body: bytes, alias: str) -> None:
        """Put a file that is in the folder on the shelf, too, with the alias that named it."""
        if self.shelf is not None and self.origin:
            self.shelf.keep(version, body, self.origin, alias=alias)

    def write(self, version: str, body: bytes) -> Path:
        """Its file in the folder, in place of others of this version. ModelRefusedError."""
        try:
            read_policy(body, version)
        except ValueError as error:
            raise ModelRefusedError(str(error)) from error
        path = self.folder / (self.origin or NOWHERE) / f"{_stem(version)}-{digest_of(body)}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, body)
        for other in self._files(version):
            if other != path and other.parent == path.parent:
                other.unlink(missing_ok=True)  # of an MLflow that began anew at this address
        return path

    def _files(self, version: str) -> list[Path]:
        return sorted(self.folder.glob(f"{self.origin or '*'}/{escape(_stem(version))}-*.npz"))

    def _usable_files(self, version: str) -> Iterator[Path]:
        """One that is not what its name says is removed."""
        for path in self._files(version):
            body = b""
            with suppress(OSError, ValueError):
                body = read_bytes(path, most_bytes=MOST_BYTES)
            if not path.stem.endswith(f"-{digest_of(body)}"):
                path.unlink(missing_ok=True)
            elif _is_usable(body):
                yield path


def _stem(version: str) -> str:
    return quote(version.removeprefix(SCHEME), safe="")


def _is_usable(body: bytes) -> bool:
    with suppress(ValueError):
        read_policy(body, "")
        return True
    return False
