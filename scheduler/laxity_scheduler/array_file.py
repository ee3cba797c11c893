"""Arrays and a header of JSON in one file: how trained models are kept, never as pickled objects.

A file may come from a registry or a disk that has damaged it. Sizes are bounded before anything is
unpacked, and whatever else the readers of zip, NumPy and JSON raise becomes one ValueError in words.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any, Final
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.lib import format as npy

Arrays = Mapping[str, Any]  # NumPy arrays
HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def save_arrays(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write the file. OSError if that fails."""
    with path.open("wb") as file:
        np.savez_compressed(file, header=json.dumps(header), **arrays)


def collect_arrays(prefix: str, part: Any) -> dict[str, Any]:
    """The fields of a named tuple, each under its own name behind the prefix."""
    return {f"{prefix}.{name}": value for name, value in part._asdict().items()}


@contextmanager
def refuse_damage(what: str) -> Iterator[None]:
    """Turn any error while a file is read into a ValueError: what it is not, and why."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what}: {_words_of(error)}") from error


def read_bytes(path: Path, *, most_bytes: int) -> bytes:
    """What a regular file holds. ValueError if it is none, or larger; OSError."""
    _check_file(path, most_bytes)
    return path.read_bytes()


def load_arrays(
    source: Path | bytes, kind: str, version: int, *, most_bytes: int
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file or of its bytes; read it inside `refuse_damage`.

    ValueError if it holds more than `most_bytes`, packed or not, or is of another format or version.
    """
    if isinstance(source, Path):
        _check_file(source, most_bytes)
    with source.open("rb") if isinstance(source, Path) else BytesIO(source) as opened:
        if not is_zipfile(opened):
            raise ValueError("it holds no arrays")
        opened.seek(0)
        _check_sizes(opened, most_bytes)
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    return read_header(str(arrays.pop("header")), kind, version), arrays


def read_header(text: str, kind: str, version: int) -> dict[str, Any]:
    """ValueError if it is another format's or another version's."""
    header: dict[str, Any] = json.loads(text)
    if (header["format"], header["version"]) != (kind, version):
        raise ValueError(f"it is {header['format']} {header['version']}")
    return header


def _check_file(path: Path, most_bytes: int) -> None:
    if not path.is_file():
        raise ValueError("it is no file" if path.exists() else "there is no such file")
    if (size := path.stat().st_size) > most_bytes:
        raise ValueError(f"it has {size} bytes; at most {most_bytes} are read")


def _check_sizes(opened: IO[bytes], most_bytes: int) -> None:
    """ValueError if the arrays are larger than this, or than their place in the file."""
    with ZipFile(opened) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > most_bytes:
            raise ValueError(f"it unpacks to {size} bytes; at most {most_bytes} are read")
        for member in members:
            with archive.open(member) as packed:
                shape, _, dtype = HEADERS[npy.read_magic(packed)](packed)
            if dtype.hasobject or prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{member.filename} has no room for {shape} of {dtype}")


def _words_of(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return " ".join(str(error).split()) or type(error).__name__
